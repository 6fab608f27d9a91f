// report.c - reads the results, formats them, and writes the report.
#include "results/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "results/report_parts.h"
#include "results/tally.h"

static bool tables(struct store *s, const struct comparisons *all, int width, struct text *out, struct error *err)
{
    report_summary(all, width, out);
    for (int i = 0; i < all->n; i++) {
        int which = 0, of = 0;
        for (int k = 0; k < all->n; k++)
            if (strcmp(all->comparison[k].experiment, all->comparison[i].experiment) == 0) {
                which += k < i;
                of++;
            }
        text_puts(out, "\n\n");
        if (!report_comparison(s, &all->comparison[i], which, of, width, out, err))
            return false;
    }
    report_notes(all, width, out);
    return true;
}

static bool written(struct store *s, const struct comparisons *all, const struct report_options *o, struct text *out,
                    struct error *err)
{
    if (o->against != NULL)
        return report_against(s, all, o, out, err);
    switch (o->format) {
    case REPORT_CSV:
        return report_csv(s, all, out, err);
    case REPORT_JSONL:
        return report_jsonl(s, all, out, err);
    case REPORT_SPEC_BENCH:
        return report_spec_bench(s, all, o->directory, out, err);
    case REPORT_FIGURES:
        return report_figures(s, all, o, out, err);
    default:
        return tables(s, all, o->width != 0 ? o->width : 80, out, err);
    }
}

bool report_write(struct store *s, const struct report_options *o, FILE *out, struct error *err)
{
    struct comparisons all;
    struct text text = { 0 };
    if (!comparisons_read(s, o->experiment, &all, err))
        return false;
    text_puts(&text, "");
    bool ok = written(s, &all, o, &text, err);
    comparisons_free(&all);
    if (ok && (fwrite(text.s, 1, text.n, out) != text.n || fflush(out) != 0))
        ok = fail(err, "the report could not be written: %s", strerror(errno));
    free(text.s);
    return ok;
}
