// report_command.c - `speclab report`: tables of the results in a database.
#include <stdio.h>
#include <stdlib.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "core/error.h"
#include "core/memory.h"
#include "results/report.h"
#include "results/store.h"

static int report(const struct usage *u, const char *db, const struct report_options *o)
{
    struct error err;
    struct store *s = store_open_existing(db, &err);
    if (s == NULL)
        return command_fail(u, &err);
    const bool ok = report_write(s, o, stdout, &err);
    store_close(s);
    return ok ? command_done(u) : command_fail(u, &err);
}

static int intervals(const struct usage *u, const char *path)
{
    struct error err;
    struct text out = { 0 };
    const bool ok = report_intervals(path, &out, &err);
    if (ok)
        fwrite(out.s, 1, out.n, stdout);
    free(out.s);
    return ok ? command_done(u) : command_fail(u, &err);
}

int command_report(int argc, char **argv)
{
    const char *db = "results.db", *sums = NULL;
    bool csv = false, jsonl = false, json = false;
    long long top = -1;
    struct report_options o = { .format = REPORT_TABLE };
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &db, "FILE", "database; default: results.db", 0, 0 },
        { "experiment", FLAG_TEXT, &o.experiment, "NAME", "experiment to report; default: all", 0, 0 },
        { "against", FLAG_TEXT, &o.against, "RUN",
          "compare every other run of the same prompts with this one,\npairwise: its number in the table `run`, or a part of the\n"
          "name of its drafter",
          0, 0 },
        { "top", FLAG_INT, &top, "N",
          "only the N fastest cells of each comparison, beside none's;\n0: all; default: all, but 10 of more than 100 cells",
          0, 1000000 },
        { "details", FLAG_ON, &o.details, NULL, "the tables of each comparison also of more than 100 cells", 0, 0 },
        { "csv", FLAG_ON, &csv, NULL, "CSV: one row a run, with all numbers", 0, 0 },
        { "jsonl", FLAG_ON, &jsonl, NULL, "JSON Lines: one object a run", 0, 0 },
        { "json", FLAG_ON, &json, NULL, "one JSON object: comparisons with their cells, by category, too", 0, 0 },
        { "intervals", FLAG_TEXT, &sums, "FILE",
          "read sums, a JSON object a line, - from stdin, and print\ntheir intervals (docs/results.md)", 0, 0 },
        { 0 },
    };
    const struct usage u = {
        .name = "report",
        .operands = "",
        .about = "Reports the results in a database: for each cell tokens/s, speedup over the baseline `none`\n"
                 "in the same paired runs, tokens per step, acceptance rate by position, time to first token,\n"
                 "shares of time, and whether the texts equal those of `none`. Intervals are 95 %, with prompts\n"
                 "as the sample. --html FILE, --svg and --pdf FOLDER, --markdown, --latex, --export FORM FOLDER\n"
                 "and --golden FILE are of the Python package: `./run report --html --help`.\n",
        .flags = flags,
        .examples = "  speclab report --db demo.db\n  speclab report --db demo.db --against 2\n"
                    "  speclab report --db demo.db --experiment demo --csv > demo.csv\n"
                    "  ./run report --db demo.db --html demo.html --svg figures\n",
    };
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    const bool table = !csv && !jsonl && !json && sums == NULL;
    if (csv + jsonl + json + (sums != NULL) > 1)
        return usage_fail(&u, "--csv, --jsonl, --json and --intervals exclude each other");
    if (o.against != NULL && !csv && !jsonl && !table)
        return usage_fail(&u, "--against goes with --csv and --jsonl, and with no other form");
    if (top >= 0 && (!table || o.against != NULL))
        return usage_fail(&u, "--top is of tables: it goes with no other form and not with --against");
    if (o.details && (!table || o.against != NULL))
        return usage_fail(&u,
                          "--details is of the terminal's tables: it goes with no other form and not with --against");
    o.top = top == 0 ? REPORT_TOP_ALL : top > 0 ? (int)top : 0;
    if (csv)
        o.format = REPORT_CSV;
    else if (jsonl)
        o.format = REPORT_JSONL;
    else if (json)
        o.format = REPORT_JSON;
    return sums != NULL ? intervals(&u, sums) : report(&u, db, &o);
}
