#include "commands/exact/exact_report.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "exact/verdict.h"
#include "core/files/mapped.h"
#include "results/exact_rows.h"

// ---- text output

static void print_stream(FILE *to, const struct verdict *v, int stream)
{
    const struct stream_verdict *s = &v->of[stream];
    fprintf(to, "  %-18s %9.0f  %11.1f  ", stream_name(stream), s->tokens, s->log_e / log(10));
    if (s->worst == NULL)
        fprintf(to, "%11s  %-44s", "", "");
    else {
        char test[64];
        snprintf(test, sizeof(test), "%s, %s (%s)", s->worst->test.kind, s->worst->test.of, s->worst->test.part);
        fprintf(to, "%11.1f  %-44s", s->worst->log10_adjusted, test);
    }
    fprintf(to, "  %s\n", s->alarm ? "BIASED" : "clean");
}

static void print_conclusion(FILE *to, const struct verdict *v)
{
    fprintf(to, "  Verdict: %s.", answer_names[v->answer]);
    if (v->answer == NO_VERDICT && v->of[STREAM_CONTROL].alarm)
        fprintf(to, " The control is not clean, so the test itself is in doubt.");
    else if (v->answer == NO_VERDICT) {
        const char *before = " Negative controls not detected: ";
        for (int k = STREAM_NEGATIVE_CONTROLS; k < STREAMS; k++)
            if (!v->of[k].alarm) {
                fprintf(to, "%s%s", before, stream_name(k));
                before = ", ";
            }
        fprintf(to, ". More tokens are needed.");
    }
    fprintf(to, "\n");
}

void exact_print(FILE *to, const struct verdict *v, const struct observed *seen, int64_t texts)
{
    fprintf(to, "  %.0f tokens of %lld texts, %.0f steps; probability of a false alarm at most %g\n", v->tokens,
            (long long)texts, seen->steps, v->level);
    fprintf(to, "  %-18s %9s  %11s  %11s  %-44s\n", "", "tokens", "bet, log10", "p, log10", "smallest p, after Holm");
    for (int stream = 0; stream < STREAMS; stream++)
        if (v->of[stream].tokens > 0)
            print_stream(to, v, stream);
    if (!isnan(v->z_accepted))
        fprintf(to, "  Accepted per step: %.4f; expected from drafts and rule: %.4f (%+.1f standard deviations)\n",
                seen->accepted / seen->steps, seen->expected / seen->steps, v->z_accepted);
    if (isinf(v->detectable_ks) || isinf(v->detectable_e))
        fprintf(to, "  Too few tokens to detect a bias of any size reliably\n");
    else
        fprintf(to,
                "  Detectable in 999 of 1,000 runs with this many tokens: a total variation per token of %.4f by the\n"
                "  Kolmogorov-Smirnov test, of %.4f by the bet, for the alternative that each tests directly\n",
                v->detectable_ks, v->detectable_e);
    print_conclusion(to, v);
}

// ---- database

bool exact_store(struct store *s, int64_t id, const struct verdict *v, const struct observed *seen, struct error *err)
{
    struct exact_stream_row stream[STREAMS];
    struct exact_test_row *test = xcalloc((size_t)v->n + 1, sizeof(*test));
    for (int i = 0; i < STREAMS; i++)
        stream[i] =
            (struct exact_stream_row){ stream_name(i), (int64_t)v->of[i].tokens, v->of[i].log_e, v->of[i].alarm };
    for (int i = 0; i < v->n; i++) {
        const struct stream_test *r = &v->row[i];
        test[i] =
            (struct exact_test_row){ stream_name(r->stream),  r->test.kind,      r->test.of,      r->test.part,
                                     (int64_t)r->test.tokens, r->test.statistic, r->test.log10_p, r->log10_adjusted };
    }
    const struct exact_end_row end = {
        .level = v->level,
        .accepted = seen->accepted / seen->steps,
        .expected = seen->expected / seen->steps,
        .z_accepted = v->z_accepted,
        .detectable = v->detectable_ks,
        .verdict = answer_names[v->answer],
        .stream = stream,
        .test = test,
        .streams = STREAMS,
        .tests = v->n,
    };
    bool ok = mapped_unchanged(err) && store_exact_end(s, id, &end, err);
    free(test);
    return ok;
}
