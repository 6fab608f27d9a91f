// run_command.c - `speclab run` and `speclab report`: an experiment's file into a database, and out of it again.
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

// A dry run makes no database; one that is there tells it what is done.
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
        fprintf(stderr, "Results are in %s; `speclab report --db %s` shows them.\n", db, db);
        return 0;
    }
    if (*stop != 0) {
        fprintf(stderr,
                "speclab run: interrupted; what is finished is in %s, and the same command goes on from there\n", db);
        return 1;
    }
    return command_fail(u, &err);
}

int command_run(int argc, char **argv)
{
    const char *db = "results.db";
    bool dry = false, mix = false;
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &db, "FILE", "database for the results (results.db)", 0, 0 },
        { "dry-run", FLAG_ON, &dry, NULL,
          "only show the cells, what is done of them, memory\nand an estimate of the time", 0, 0 },
        { "mix", FLAG_ON, &mix, NULL,
          "go on with runs that have texts of another revision or\ninstruction set; bits may differ, both are noted", 0,
          0 },
        { 0 },
    };
    const struct usage u = {
        .name = "run",
        .operands = "FILE.yaml",
        .about = "Runs the cells of an experiment's file and puts every step into the database. What\n"
                 "is there already is not run again: after Ctrl-C, a crash or a change to the file the\n"
                 "same command goes on where it was. Progress goes to stderr.\n",
        .flags = flags,
        .examples = "  speclab run experiments/demo.yaml --dry-run\n  speclab run experiments/demo.yaml --db demo.db\n",
        .least = 1,
        .most = 1,
    };
    char **operand;
    struct error err;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != GO_ON)
        return status;
    struct experiment *e = experiment_load(operand[0], &err);
    if (e == NULL)
        return usage_fail(&u, "%s", err.text);
    e->mix = mix;
    status = dry ? dry_run(&u, e, db) : run(&u, e, db);
    experiment_free(e);
    return status;
}

// ---- report

static int report(const struct usage *u, const char *db, const struct report_options *o)
{
    struct error err;
    if (!exists(db))
        return usage_fail(u, "%s: there is no such database; `speclab run FILE.yaml --db %s` makes it", db, db);
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
        { "db", FLAG_TEXT, &db, "FILE", "database (results.db)", 0, 0 },
        { "experiment", FLAG_TEXT, &o.experiment, "NAME", "only this one; all of them otherwise", 0, 0 },
        { "csv", FLAG_ON, &csv, NULL, "one row a run, with every number", 0, 0 },
        { "jsonl", FLAG_ON, &jsonl, NULL, "one JSON object a run", 0, 0 },
        { "spec-bench", FLAG_TEXT, &o.directory, "FOLDER",
          "answers as Spec-Bench's scripts read them, one file\na run, into this folder", 0, 0 },
        { 0 },
    };
    const struct usage u = {
        .name = "report",
        .operands = "",
        .about = "Shows what is in a database: for every cell tokens/s, speedup over `none` of the same\n"
                 "pairs, accepted length, acceptance by position, shares of time, and whether the texts are\n"
                 "those of `none`.\n",
        .flags = flags,
        .examples = "  speclab report --db demo.db\n  speclab report --db demo.db --experiment demo --csv > demo.csv\n",
    };
    char **operand;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != GO_ON)
        return status;
    if (csv + jsonl + (o.directory != NULL) > 1)
        return usage_fail(&u, "--csv, --jsonl and --spec-bench: one at a time");
    if (csv)
        o.format = REPORT_CSV;
    else if (jsonl)
        o.format = REPORT_JSONL;
    else if (o.directory != NULL)
        o.format = REPORT_SPEC_BENCH;
    return report(&u, db, &o);
}
