// run_command.c - `speclab run`: runs an experiment into a database.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/error.h"
#include "experiments/cells.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "experiments/experiment.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"

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

// By Slurm's variables, tasks that are submitted again without the others would have another division: their databases know better.
static bool check_shard(struct store *s, const struct experiment *e, struct error *err)
{
    const struct shard own = e->shard;
    struct shard_row other;
    if (!own.by_slurm)
        return true;
    if (!store_other_shard(s, e->name, own.index, own.of, &other, err))
        return false;
    if (other.shards > 0)
        return fail(err,
                    "%s has shard %d/%d of %s, and by SLURM_ARRAY_TASK_ID this is shard %d/%d: give --shard %d/%d, or "
                    "--shard none",
                    store_path(s), other.shard, other.shards, e->name, own.index, own.of, other.shard, other.shards);
    fprintf(stderr, "speclab run: shard %d/%d, by SLURM_ARRAY_TASK_ID; --shard none runs all of it\n", own.index,
            own.of);
    return true;
}

static void print_end(const struct experiment *e, const char *db)
{
    if (e->shard.of > 1)
        fprintf(stderr,
                "Shard %d/%d is done, its results are in %s; `speclab merge` joins the databases of all shards.\n",
                e->shard.index, e->shard.of, db);
    else
        fprintf(stderr, "Results are in %s; `speclab report --db %s` prints them.\n", db, db);
}

static int run(const struct usage *u, const struct experiment *e, const char *db)
{
    struct error err;
    struct store *s = store_open(db, &err);
    if (s == NULL)
        return command_fail(u, &err);
    const volatile int *stop = interrupt_catch();
    bool ok = check_shard(s, e, &err) && experiment_run(e, s, stderr, stop, &err);
    store_close(s);
    if (ok) {
        print_end(e, db);
        return 0;
    }
    if (*stop != 0) {
        fprintf(stderr, "speclab run: interrupted; finished texts are in %s; the same command resumes from there\n",
                db);
        return 1;
    }
    return command_fail(u, &err);
}

// db NULL: the default.
static int run_into(const struct usage *u, const struct experiment *e, bool dry, const char *db)
{
    char *own = e->shard.of > 1 ? xformat("results-%d-of-%d.db", e->shard.index, e->shard.of) : xstrdup("results.db");
    db = db != NULL ? db : own;
    const int status = dry ? dry_run(u, e, db) : run(u, e, db);
    free(own);
    return status;
}

int command_run(int argc, char **argv)
{
    const char *db = NULL, *shard = NULL;
    bool dry = false, mix = false, no_probe = false;
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &db, "FILE", "database for the results; default: results.db, of a shard\nresults-I-of-N.db",
          0, 0 },
        { "shard", FLAG_TEXT, &shard, "I/N",
          "only part I, from 0, of N of the work, into a database of\nits own; none: all of it. Default in a job array of Slurm:\n"
          "by SLURM_ARRAY_TASK_ID",
          0, 0 },
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
        .examples = "  speclab run experiments/demo.yaml --dry-run\n  speclab run experiments/demo.yaml --db demo.db\n"
                    "  speclab run experiments/demo.yaml --shard 0/4\n",
        .min_operands = 1,
        .max_operands = 1,
    };
    char **operand;
    struct error err;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    struct shard part;
    struct experiment *e = shard_read(shard, &part, &err) ? experiment_load(operand[0], &err) : NULL;
    if (e == NULL)
        return usage_fail(&u, "%s", err.text);
    e->mix = mix;
    e->probe = !no_probe;
    e->shard = part;
    status = run_into(&u, e, dry, db);
    experiment_free(e);
    return status;
}
