// report_notes.c - definitions of the numbers in the tables, once at the end.
#include <math.h>

#include "core/prose.h"
#include "results/report_parts.h"
#include "results/tables/tables.h"
#include "results/tally.h"

void report_notes(const struct comparisons *all, int width, struct text *out)
{
    bool lossy = false, deep = false, expected = false, speculative = false, inflated = false, batched = false;
    for (int k = 0; k < all->n; k++)
        for (int i = 0; i < all->comparison[k].n; i++) {
            const struct tally *r = &all->comparison[k].run[i];
            lossy |= !r->lossless;
            inflated |= r->inflated;
            deep |= r->max_depth > POSITIONS;
            expected |= !isnan(r->z);
            speculative |= !r->baseline;
            batched |= all->comparison[k].batch > 1;
        }
    text_puts(out, "\n");
    prose_paragraph(
        out, 11, width, "summary",
        "of each comparison none, then lossless cells, the fastest first, then lossy ones. Options and rules that all cells share are after "
        "\"all\". acc.: accepted draft tokens, %; equal: texts equal to none's; sampled: other samples of the same distribution; n: prompts "
        "that entered the speedup, of none: tokens/s.");
    prose_paragraph(out, 11, width, "tokens/s", "decode: new tokens / time in steps; total: prefill included.");
    if (batched)
        prose_paragraph(
            out, 11, width, "",
            "With a batch above 1, of the whole batch. For one text see sequence_tokens_per_s in the view speed.");
    prose_paragraph(
        out, 11, width, "disturbed",
        "share of a cell's time in slices in which other processes used more than 8 % of a processor; speeds and speedups leave "
        "them out, a speedup those of none as well; counted: in every round there was one, so all count. Texts, acceptance and times to first token have all.");
    prose_paragraph(out, 11, width, "/step",
                    "mean accepted length: new tokens / steps, over all steps, the target's own token included.");
    prose_paragraph(out, 11, width, "% of time",
                    "in steps: prop. = propose, ver. = verify, adv. = advance, other = none of these.");
    prose_paragraph(
        out, 11, width, "95 %",
        "intervals with prompts as the sample, of speeds also with slices of time (docs/results.md). TTFT: mean time to "
        "first token. for 2 %: prompts of this kind that would make the interval of the speedup (of none: of tokens/s) +- 2 %.");
    if (speculative) {
        prose_paragraph(out, 11, width, "speedup",
                        "decode tokens/s over none's, for texts that are paired with none's. sums: ratio of "
                        "ratios of sums; geom.: geometric mean over prompts.");
        prose_paragraph(
            out, 11, width, "drafts",
            "steps with at least one draft token. accepted: without the target's own token; %: of drafted.");
        prose_paragraph(out, 11, width, "position i",
                        "drafts with at least i tokens accepted / drafts; given all before it: / drafts with i - 1 "
                        "accepted and a node at depth i.");
    }
    if (deep)
        prose_paragraph(out, 11, width, "", "Drafts deeper than 8: see the view acceptance.");
    if (expected)
        prose_paragraph(out, 11, width, "z",
                        "(accepted - expected) / standard deviation: N(0, 1) if the rule follows its formula.");
    if (lossy)
        prose_paragraph(out, 11, width, "* LOSSY",
                        "the rule changes the output distribution: its speedup is not for the same task.");
    if (inflated)
        prose_paragraph(out, 11, width, "INFLATED",
                        "the target was made slower on purpose: these speedups hold for no real model.");
}
