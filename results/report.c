// report.c - reads the results, formats them, and writes the report.
#include "results/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/prose.h"
#include "results/tables/tables.h"
#include "results/tally.h"

static void put_omitted(int cells, int width, struct text *out)
{
    char *words = xformat(
        "These are %d cells, so the tables of each comparison are left out (time to first token, shares of time, "
        "acceptance by position, categories, texts): --details prints them, --experiment NAME those of one "
        "experiment; --top N shows the N fastest cells of each comparison, --top 0 all, --csv every number.",
        cells);
    text_puts(out, "\n");
    prose_paragraph(out, 0, width, "", words);
    free(words);
}

static bool tables(struct store *s, const struct comparisons *all, const struct report_options *o, struct text *out,
                   struct error *err)
{
    const int width = o->width != 0 ? o->width : 80;
    int cells = 0;
    for (int i = 0; i < all->n; i++)
        cells += all->comparison[i].n;
    const bool many = cells > REPORT_ALL_CELLS;
    report_summary(all, o->top == 0 && many ? REPORT_TOP : o->top, width, out);
    for (int i = 0; i < all->n && (!many || o->details); i++) {
        text_puts(out, "\n\n");
        if (!report_comparison(s, all, i, width, out, err))
            return false;
    }
    if (many && !o->details)
        put_omitted(cells, width, out);
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
    case REPORT_JSONL:
        return report_rows(s, all, o->format == REPORT_CSV, out, err);
    case REPORT_JSON:
        return report_json(s, all, out, err);
    default:
        return tables(s, all, o, out, err);
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
