// fuzz_compare.c - arbitrary bytes as a file of `speclab compare`: every form of results, compared with themselves, and printed in every form.
//
// reader: commands/compare/file_forms.c commands/compare/fields.c commands/compare/read_vllm.c commands/compare/read_sglang.c commands/compare/read_llama.c commands/compare/read_spec_bench.c commands/compare/rows.c core/csv.c
// seeds: tests/cases/compare
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/compare/compare.h"
#include "core/error.h"
#include "core/memory.h"
#include "fuzz/fuzz.h"

static const struct fuzz_file files[] = { { "results", FUZZ_JSON_LINES }, { NULL, FUZZ_TEXT } };
static const char *const words[] = { "output_throughput",
                                     "total_token_throughput",
                                     "spec_decode_per_position_acceptance_rates",
                                     "max_concurrency",
                                     "avg_latency",
                                     "latencies",
                                     "elapsed_time",
                                     "tokens_per_second",
                                     "accept_length",
                                     "server_info",
                                     "timings",
                                     "predicted_ms",
                                     "predicted_n",
                                     "prompt_n",
                                     "draft_n",
                                     "draft_n_accepted",
                                     "build_commit",
                                     "avg_ts",
                                     "n_prompt",
                                     "n_gen",
                                     "question_id",
                                     "choices",
                                     "new_tokens",
                                     "wall_time",
                                     "accept_lengths",
                                     "schema_version",
                                     "marginal_accept_rates",
                                     "speclab",
                                     "label",
                                     NULL };

static void check(const struct compared_rows *rows)
{
    for (int i = 0; i < rows->n; i++) {
        const struct compared *row = &rows->row[i];
        insist(row->positions >= 0 && row->positions <= COMPARED_POSITIONS &&
               (row->positions == 0 || row->position_is != NULL));
        insist(isnan(row->tokens_per_s) || row->tokens_per_s >= 0);
        insist(isnan(row->length) || row->length_is != NULL);
        for (int k = 0; k < row->positions; k++)
            insist(row->position[k] >= 0 && row->position[k] <= 1);
    }
}

static void print(const struct compared_rows *rows, int baseline)
{
    struct text out = { 0 };
    text_puts(&out, "");
    compared_table(rows, baseline, 80, &out);
    compared_markdown(rows, baseline, &out);
    compared_csv(rows, &out);
    compared_jsonl(rows, &out);
    free(out.s);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    struct compared_rows rows = { 0 };
    struct error err = { "" };
    char *path = fuzz_path(files[0].name);
    if (n >= 6 && memcmp(input, "SQLite", 6) == 0)
        return free(path), 0; // fuzz_database has these
    fuzz_write(files[0].name, input, n);
    if (n > 0 && compared_read(&rows, path, &err)) {
        insist(rows.n > 0);
        check(&rows);
        print(&rows, -1);
        compared_with(&rows, 0);
        insist(isnan(rows.row[0].speedup));
        print(&rows, 0);
    } else
        insist(n == 0 || strncmp(err.text, path, strlen(path)) == 0);
    compared_free(&rows);
    free(path);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max_size, unsigned seed)
{
    return fuzz_change(data, n, max_size, seed, files, words);
}
