// figure_kinds.c - the list of figures: what each shows, and what it needs.
#include "results/figures/figures.h"

extern const char speedup_by_category_sql[], acceptance_by_depth_sql[], speedup_by_length_sql[], speedup_by_batch_sql[],
    time_split_sql[], cost_of_pass_sql[], prediction_sql[], acceptance_by_context_sql[], trees_sql[],
    throughput_by_latency_sql[];

const struct figure_kind figure_kinds[] = {
    { .name = "speedup_by_category",
      .title = "Speedup by task",
      .about =
          "Speedup over none in the same paired runs, by category of the prompts, up to 29 of them, with 95 % intervals. "
          "One that reaches the edge is cut.",
      .needs = "runs of none and of another drafter on prompts with a \"category\" (YAML key `prompts`)",
      .sql = speedup_by_category_sql,
      .x = "speedup over none",
      .choice = CHOOSE_CATEGORIES,
      .style = STYLE_DOTS },
    { .name = "acceptance_by_depth",
      .title = "Acceptance by depth",
      .about =
          "How many drafts are accepted at least this deep: of all drafts, and of those accepted up to the depth before. "
          "95 % intervals.",
      .needs = "a run of a drafter other than none that has proposed draft tokens",
      .sql = acceptance_by_depth_sql,
      .x = "depth in the draft (tokens)",
      .choice = CHOOSE_DRAFTING,
      .rates = true },
    { .name = "speedup_by_length",
      .title = "Tokens per step and speedup by length",
      .about = "Drafters of chains that differ in the number of draft tokens alone. 95 % intervals.",
      .needs = "two cells whose drafters differ in the option `tokens` alone",
      .sql = speedup_by_length_sql,
      .x = "option `tokens`: draft tokens at most",
      .choice = CHOOSE_LENGTHS },
    { .name = "speedup_by_batch",
      .title = "Speedup by batch",
      .about =
          "Speedup over none with the same batch, in steady state, by number of texts decoded at a time. 95 % intervals.",
      .needs = "cells of two batches (YAML key `batch: [1, 4]`), with none",
      .sql = speedup_by_batch_sql,
      .x = "batch (texts)",
      .choice = CHOOSE_BATCHES,
      .doubling = true },
    { .name = "time_split",
      .title = "Where the time goes",
      .about =
          "Decode time of a token by phase: propose (the drafter), verify (the target's pass and the decision), advance (the "
          "drafter's update) and the rest. The length of a bar is 1 / throughput.",
      .needs = "a run with decoded texts",
      .sql = time_split_sql,
      .x = "decode time per token (ms)",
      .choice = CHOOSE_EVERY,
      .style = STYLE_BARS },
    { .name = "throughput_by_latency",
      .title = "Throughput by latency",
      .about =
          "Tokens/s of all texts together against the time per output token of one of them. A line joins the batches of a "
          "drafter, whose numbers stand at the points. 95 % intervals of tokens/s; percentiles have none.",
      .needs = "cells of two batches (YAML key `batch: [1, 4]`)",
      .sql = throughput_by_latency_sql,
      .x = "time per output token (ms)",
      .y = "throughput (tokens/s)",
      .choice = CHOOSE_THROUGHPUT },
    { .name = "trees",
      .title = "Trees and chains",
      .about =
          "Chains, fixed trees and best-first trees of one drafter, against the size of its drafts. 95 % intervals.",
      .needs = "two cells of one drafter, one of them of trees (its options `widths`, `tree` or `nodes`)",
      .sql = trees_sql,
      .x = "draft tokens of a draft, mean",
      .choice = CHOOSE_TREES },
    { .name = "acceptance_by_context",
      .title = "Acceptance by context",
      .about =
          "Accepted / drafted tokens by the number of cached tokens before the step, in ranges that begin at x and end at 2 x. "
          "95 % intervals.",
      .needs = "a run of a drafter other than none that has proposed draft tokens",
      .sql = acceptance_by_context_sql,
      .x = "cached tokens before the step",
      .choice = CHOOSE_DRAFTING,
      .rates = true,
      .doubling = true },
    { .name = "cost_of_pass",
      .title = "Cost of a pass, c(n)",
      .about =
          "Time of a target's pass of n rows / time of a pass of one row: medians of `speclab bench` with quartiles over "
          "rounds, and the fitted cost.",
      .needs = "`speclab bench MODEL --db FILE` into this database",
      .sql = cost_of_pass_sql,
      .x = "n, rows of the pass",
      .choice = CHOOSE_NO_RUNS,
      .style = STYLE_COST },
    { .name = "prediction",
      .title = "Predicted beside measured speedup",
      .about =
          "The measured speedup of all steps with its 95 % interval, and predictions from the cost of passes (docs/results.md, "
          "Prediction). With a batch, the table of cells and the other figures have the speedup of steps in steady state.",
      .needs = "runs of none and of another drafter in the same paired runs",
      .sql = prediction_sql,
      .x = "speedup over none, of all steps",
      .choice = CHOOSE_PAIRED,
      .style = STYLE_DOTS },
};
const int figure_kinds_n = sizeof(figure_kinds) / sizeof(figure_kinds[0]);
