// compare_command.c - `speclab compare`: results of several programs in one table.
#include <stdio.h>
#include <stdlib.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/compare/compare.h"
#include "core/error.h"
#include "core/memory.h"

static const char about[] =
    "Reads results of vllm bench serve, latency and throughput, of SGLang's bench_serving, llama-bench (-o json, jsonl, csv), llama-server\n"
    "(responses with `timings`), Spec-Bench (answer files), NVIDIA's speculation profiles and databases of speclab, and prints them as rows of one\n"
    "table, each with its own definition of its numbers. A speedup is over a row that you name. It is left out where definition, model,\n"
    "prompts, machine, sampling or batch differ, and marked ? where a file does not state one of them; the notes below the table say which.\n";

enum { WIDTH = 80 };

static int print(const struct usage *u, const struct compared_rows *rows, int baseline, bool csv, bool jsonl,
                 bool markdown)
{
    struct text out = { 0 };
    text_puts(&out, "");
    if (csv)
        compared_csv(rows, &out);
    else if (jsonl)
        compared_jsonl(rows, &out);
    else if (markdown)
        compared_markdown(rows, baseline, &out);
    else
        compared_table(rows, baseline, WIDTH, &out);
    (void)fwrite(out.s, 1, out.n, stdout); // command_done tells whether stdout accepted it
    free(out.s);
    return command_done(u);
}

int command_compare(int argc, char **argv)
{
    const char *base = NULL;
    bool csv = false, jsonl = false, markdown = false;
    const struct flag flags[] = {
        { "baseline", FLAG_TEXT, &base, "ROW",
          "speedups over this row: its number, a file with one row, or a part\nof one method; default: no speedups", 0,
          0 },
        { "csv", FLAG_ON, &csv, NULL, "CSV: all fields of the rows", 0, 0 },
        { "jsonl", FLAG_ON, &jsonl, NULL, "JSON Lines: one object a row", 0, 0 },
        { "markdown", FLAG_ON, &markdown, NULL, "a table for a README", 0, 0 },
        { 0 },
    };
    const struct usage u = {
        .name = "compare",
        .operands = "FILE...",
        .about = about,
        .flags = flags,
        .examples =
            "  speclab compare serve-eagle3.json serve-plain.json --baseline 2\n  speclab compare demo.db llama-bench.json --markdown\n",
        .min_operands = 1,
        .max_operands = 1000,
    };
    struct compared_rows rows = { 0 };
    struct error err;
    char **operand;
    int n, baseline = -1;
    const int status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    if (csv + jsonl + markdown > 1)
        return usage_fail(&u, "--csv, --jsonl and --markdown exclude each other");
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        ok = compared_read(&rows, operand[i], &err);
    if (ok && base != NULL) {
        baseline = compared_find(&rows, base, &err);
        ok = baseline >= 0;
    }
    if (ok && baseline >= 0)
        compared_with(&rows, baseline);
    const int done = ok ? print(&u, &rows, baseline, csv, jsonl, markdown) : usage_fail(&u, "%s", err.text);
    compared_free(&rows);
    return done;
}
