// sample_facts.h - synthetic, consistent facts for tests of the results database: six runs of one experiment over a few prompts.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "results/report.h"
#include "results/store.h"

struct error;
struct json;

enum { SAMPLE_RUNS = 6, SAMPLE_STEPS = 64, SAMPLE_TOKENS = 64 };

// NONE and LOOKUP decode with `rejection` at batch 1. TREE drafts trees and records expectations. LOSSY has another rule,
// without a `none` of its own, and other texts. PAIR_NONE and PAIR_LOOKUP run in a batch of 2: another comparison.
enum { NONE, LOOKUP, TREE, LOSSY, PAIR_NONE, PAIR_LOOKUP };

struct sample_sequence {
    int run;
    struct sequence_row row;
    struct step_row step[SAMPLE_STEPS];
    struct trial_row trial[SAMPLE_STEPS];
    int32_t token[SAMPLE_TOKENS];
    char prompt_id[16];
};

struct sample_facts {
    struct run_row run[SAMPLE_RUNS];
    int64_t id[SAMPLE_RUNS]; // set by sample_facts_store
    int n;
    struct sample_sequence *sequence; // (n) in the order of storing
};

struct sample_facts *sample_facts_create(uint64_t seed, int prompts, int turns, int repeats);
void sample_facts_free(struct sample_facts *m);
// Stores runs, pairs and sequences; all runs but LOSSY are finished.
bool sample_facts_store(struct sample_facts *m, struct store *s, struct error *err);
// The database results.db in test_directory(), with these facts (NULL: none more) put into it. Fails the test on error.
struct store *sample_store(struct sample_facts *m);
struct store *sample_store_small(void);       // with facts of two prompts
void sample_facts_put_cases(struct store *s); // the rows of tests/cases/views_facts.sql
const char *sample_store_path(void);
char *sample_report(struct store *s, struct report_options o); // the report as a text; free() it
// The first column of a query's first row; NAN: no row.
double sample_facts_query(struct store *s, const char *sql);
void sample_facts_hold(struct store *s, const char *sql); // fails the test unless the query's value is 1

// The database with the rows of tests/cases/views_facts.sql, and what Python's loops say of them: a group's set-up and tear-down.
struct cases {
    struct store *s;
    struct json *golden; // views.json
};
int cases_open(void **state);
int cases_close(void **state);
