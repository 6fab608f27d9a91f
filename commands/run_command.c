// run_command.c - `speclab run` and `speclab report`: runs an experiment into a database, and reports from it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "experiments/cells.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "experiments/experiment.h"
#include "core/interrupt.h"
#include "results/report.h"
#include "results/store.h"

// ---- run

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 || errno != ENOENT;
}

// A dry run creates no database; an existing one is read for the work already done.
static int dry_run(const struct usage *u, const struct experiment *e, const char *db)
{
    struct error err;
    struct store *s = NULL;
    if (exists(db) && (s = store_open(db, &err)) == NULL)
        return command_fail(u, &err);
    bool ok = experiment_dry_run(e, s, stdout, &err);
    store_close(s);
    return ok ? command_done(u) : command_fail(u, &err);
}

static int run(const struct usage *u, const struct experiment *e, const char *db)
{
    struct error err;
    struct store *s = store_open(db, &err);
    if (s == NULL)
        return command_fail(u, &err);
    const volatile int *stop = interrupt_catch();
    bool ok = experiment_run(e, s, stderr, stop, &err);
    store_close(s);
    if (ok) {
        fprintf(stderr, "Results are in %s; `speclab report --db %s` prints them.\n", db, db);
        return 0;
    }
    if (*stop != 0) {
        fprintf(stderr, "speclab run: interrupted; finished texts are in %s; the same command resumes from there\n",
                db);
        return 1;
    }
    return command_fail(u, &err);
}

int command_run(int argc, char **argv)
{
    const char *db = "results.db";
    bool dry = false, mix = false, no_probe = false;
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &db, "FILE", "database for the results; default: results.db", 0, 0 },
        { "dry-run", FLAG_ON, &dry, NULL, "only print the cells, what is done of each, memory\nand the estimated time",
          0, 0 },
        { "mix", FLAG_ON, &mix, NULL,
          "resume runs with texts of another revision or instruction\nset; bits may differ, and both are recorded", 0,
          0 },
        { "no-probe", FLAG_ON, &no_probe, NULL, "do not measure memory and processors before the first text", 0, 0 },
        { 0 },
    };
    const struct usage u = {
        .name = "run",
        .operands = "FILE.yaml",
        .about = "Runs all cells of an experiment and stores every step in the database. Results that the\n"
                 "database already has are not run again: after Ctrl-C, a crash or a change to the file,\n"
                 "the same command resumes. Progress goes to stderr.\n",
        .flags = flags,
        .examples = "  speclab run experiments/demo.yaml --dry-run\n  speclab run experiments/demo.yaml --db demo.db\n",
        .min_operands = 1,
        .max_operands = 1,
    };
    char **operand;
    struct error err;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    struct experiment *e = experiment_load(operand[0], &err);
    if (e == NULL)
        return usage_fail(&u, "%s", err.text);
    e->mix = mix;
    e->probe = !no_probe;
    status = dry ? dry_run(&u, e, db) : run(&u, e, db);
    experiment_free(e);
    return status;
}

// ---- report

static int report(const struct usage *u, const char *db, const struct report_options *o)
{
    struct error err;
    if (!exists(db))
        return usage_fail(u, "%s: no such database; `speclab run FILE.yaml --db %s` creates it", db, db);
    struct store *s = store_open(db, &err);
    if (s == NULL)
        return command_fail(u, &err);
    bool ok = report_write(s, o, stdout, &err);
    store_close(s);
    return ok ? command_done(u) : command_fail(u, &err);
}

int command_report(int argc, char **argv)
{
    const char *db = "results.db";
    bool csv = false, jsonl = false;
    struct report_options o = { .format = REPORT_TABLE };
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &db, "FILE", "database; default: results.db", 0, 0 },
        { "experiment", FLAG_TEXT, &o.experiment, "NAME", "experiment to report; default: all", 0, 0 },
        { "against", FLAG_TEXT, &o.against, "RUN",
          "compare every other run of the same prompts with this one,\npairwise: its number in the table `run`, or a part of the\n"
          "name of its drafter",
          0, 0 },
        { "csv", FLAG_ON, &csv, NULL, "CSV: one row a run, with all numbers", 0, 0 },
        { "jsonl", FLAG_ON, &jsonl, NULL, "JSON Lines: one object a run", 0, 0 },
        { "spec-bench", FLAG_TEXT, &o.directory, "FOLDER",
          "write answers in Spec-Bench's format into this folder,\none file a run", 0, 0 },
        { "html", FLAG_TEXT, &o.html, "FILE", "write one page with all cells and figures, which needs no\nother file",
          0, 0 },
        { "svg", FLAG_TEXT, &o.svg, "FOLDER", "write the figures as SVG files into this folder", 0, 0 },
        { "pdf", FLAG_TEXT, &o.pdf, "FOLDER", "write the figures as PDF files into this folder", 0, 0 },
        { 0 },
    };
    const struct usage u = {
        .name = "report",
        .operands = "",
        .about = "Reports the results in a database: for each cell tokens/s, speedup over the baseline `none`\n"
                 "in the same paired runs, tokens per step, acceptance rate by position, time to first token,\n"
                 "shares of time, and whether the texts equal those of `none`. Intervals are 95 %, with prompts\n"
                 "as the sample.\n",
        .flags = flags,
        .examples = "  speclab report --db demo.db\n  speclab report --db demo.db --against 2\n"
                    "  speclab report --db demo.db --experiment demo --csv > demo.csv\n"
                    "  speclab report --db demo.db --html demo.html --svg figures\n",
    };
    char **operand;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    const bool figures = o.html != NULL || o.svg != NULL || o.pdf != NULL;
    if (csv + jsonl + (o.directory != NULL) > 1)
        return usage_fail(&u, "--csv, --jsonl and --spec-bench exclude each other");
    if (o.against != NULL && o.directory != NULL)
        return usage_fail(&u, "--against and --spec-bench exclude each other");
    if (figures && (csv || jsonl || o.directory != NULL || o.against != NULL))
        return usage_fail(&u, "--html, --svg and --pdf exclude --csv, --jsonl, --spec-bench and --against");
    if (csv)
        o.format = REPORT_CSV;
    else if (jsonl)
        o.format = REPORT_JSONL;
    else if (o.directory != NULL)
        o.format = REPORT_SPEC_BENCH;
    else if (figures)
        o.format = REPORT_FIGURES;
    return report(&u, db, &o);
}
