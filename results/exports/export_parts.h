// export_parts.h - the files of results/exports: what a run is in the form of another project.
#pragma once
#include <stdbool.h>
#include "core/memory.h"
#include "results/report.h"

struct comparison;
struct error;
struct json;
struct kept_view;
struct query;
struct store;
struct tally;

struct exported { // one run
    struct store *s;
    const struct comparison *of;
    const struct tally *run;
    const char *name; // of its files: letters, digits, '.', '_' and '-'
};

// Each appends the content of one file; nothing, where the form has no file for such a run.
bool export_spec_bench(const struct exported *e, struct text *to, struct error *err); // NAME.jsonl
bool export_vllm_bench(const struct exported *e, struct text *to,
                       struct error *err); // NAME.json: `vllm bench serve --save-result`
bool export_vllm_metrics(const struct exported *e, struct text *to,
                         struct error *err); // NAME.prom: what its /metrics says
bool export_sglang_bench(const struct exported *e, struct text *to,
                         struct error *err); // NAME.jsonl: bench_serving's line
bool export_sglang_metrics(const struct exported *e, struct text *to, struct error *err); // NAME.prom
bool export_nvidia_profile(const struct exported *e, struct text *to,
                           struct error *err); // NAME.speculation_profile.json

// Appends the run's entry in a file of golden acceptance lengths, after a comma unless `to` is empty; nothing, if it has no drafts.
bool export_golden(const struct exported *e, struct text *to, struct error *err);

// The views (n) that a form reads, which are kept meanwhile (exports.c).
const struct kept_view *exports_views(enum report_format format, int *n);

// ---- shared by them

void export_line(struct text *to, struct json *line); // frees it
// The columns of the run's row in `sql`, whose ?1 is the run, as members of `o`; a run without a row adds none.
bool export_row(const struct exported *e, const char *sql, struct json *o, struct error *err);
// The first column of the rows of `sql` as an array; NULL: failed.
struct json *export_list(const struct exported *e, const char *sql, struct error *err);
// {"speclab": {..}}: what a number of the run is about, for readers of another project's form; `compare` reads it.
struct json *export_facts(const struct exported *e);
// Prometheus' text format: what a metric is, and a value of the run; labels end with a comma or are empty.
void export_metric(struct text *to, const char *name, const char *type, const char *about);
void export_sample(struct text *to, const struct exported *e, const char *name, const char *labels, double value);
