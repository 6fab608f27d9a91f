// run_command.c - `speclab run`: runs an experiment into a database.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/files/part.h"
#include "experiments/cells.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "experiments/experiment.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "results/query.h"
#include "results/store.h"

// ---- the shard of a process: by option or, in a job array of Slurm, by its variables

static const char *variable(const char *name) // NULL: not set
{
    const char *s = getenv(name);
    return s != NULL && *s != '\0' ? s : NULL;
}

// The tasks MIN, MIN + STEP, .. of an array are shards 0, 1, ..
static bool read_slurm(struct shard *to, struct error *err)
{
    static const struct {
        const char *name;
        int least;
        long long usual; // negative: it has to be set
    } of[] = { { "SLURM_ARRAY_TASK_ID", 0, -1 },
               { "SLURM_ARRAY_TASK_COUNT", 1, -1 },
               { "SLURM_ARRAY_TASK_MIN", 0, 0 },
               { "SLURM_ARRAY_TASK_STEP", 1, 1 } };
    long long v[4];
    for (int i = 0; i < 4; i++) {
        struct error why;
        const char *text = variable(of[i].name);
        v[i] = of[i].usual;
        if (text == NULL && v[i] < 0)
            return fail(err, "%s is set and %s is not: expected both, or --shard I/N, or --shard none", of[0].name,
                        of[i].name);
        struct settings *s = settings_scalar(text != NULL ? text : "");
        const bool ok = text == NULL || settings_int(s, of[i].name, of[i].least, INT_MAX, &v[i], &why);
        settings_free(s);
        if (!ok)
            return fail(err, "%s (or give --shard)", why.text);
    }
    const long long id = v[0], count = v[1], min = v[2], step = v[3];
    if (count == 1) // this is most probably a task that is submitted again alone
        return fail(
            err, "SLURM_ARRAY_TASK_COUNT is 1: expected several tasks that share the work; --shard I/N says what this "
                 "one runs, --shard none that it is all");
    if (count > MAX_SHARDS || id < min || (id - min) % step != 0 || (id - min) / step >= count)
        return fail(err,
                    "SLURM_ARRAY_TASK_ID is %lld: expected one of at most %d evenly spaced tasks, found %lld from %lld "
                    "with step %lld; --shard I/N says what this one runs",
                    id, MAX_SHARDS, count, min, step);
    *to = (struct shard){ (int)((id - min) / step), (int)count, true };
    return true;
}

bool shard_read(const char *option, struct shard *to, struct error *err)
{
    *to = (struct shard){ 0, 1, false };
    if (option == NULL)
        return variable("SLURM_ARRAY_TASK_ID") == NULL || read_slurm(to, err);
    if (strcmp(option, "none") == 0)
        return true;
    char *slash, *end;
    const long index = strtol(option, &slash, 10), of = *slash == '/' ? strtol(slash + 1, &end, 10) : 0;
    const bool digits = option[0] >= '0' && option[0] <= '9' && *slash == '/' && slash[1] >= '0' && slash[1] <= '9';
    if (!digits || *end != '\0' || of < 1 || of > MAX_SHARDS)
        return fail(err, "--shard: expected I/N, as in 0/4, N up to %d, or none, found \"%s\"", MAX_SHARDS, option);
    if (index >= of)
        return fail(err, "--shard: expected I from 0 to %ld in I/%ld, found \"%s\": the first shard is 0", of - 1, of,
                    option);
    *to = (struct shard){ (int)index, (int)of, false };
    return true;
}

// ---- running

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
    struct json *j = experiment_dry_run(e, s, &err);
    store_close(s);
    if (j == NULL)
        return command_fail(u, &err);
    json_print(j, stdout);
    return command_done(u);
}

// If Slurm's variables divide the work, tasks that are submitted again without the others would have another division.
// The databases of the tasks have the original one.
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

static int run(const struct usage *u, const struct experiment *e, const char *db, bool quiet)
{
    struct error err;
    struct store *s = store_open(db, &err);
    if (s == NULL)
        return command_fail(u, &err);
    const volatile int *stop = interrupt_catch();
    bool ok = check_shard(s, e, &err) && experiment_run(e, s, quiet ? NULL : stderr, stop, &err);
    store_close(s);
    if (ok) {
        if (!quiet)
            print_end(e, db);
        return 0;
    }
    if (*stop != 0) {
        fprintf(stderr, "speclab run: %s; finished texts are in %s; the same command resumes from there\n",
                error_is_plugin(&err) ? err.text : "interrupted", db);
        return interrupt_status();
    }
    return command_fail(u, &err);
}

// db NULL: the default.
static int run_into(const struct usage *u, const struct experiment *e, bool dry, bool quiet, const char *db)
{
    char *own = e->shard.of > 1 ? xformat("results-%d-of-%d.db", e->shard.index, e->shard.of) : xstrdup("results.db");
    db = db != NULL ? db : own;
    const int status = dry ? dry_run(u, e, db) : run(u, e, db, quiet);
    free(own);
    return status;
}

static const char about[] =
    "Runs all cells of an experiment and stores every step in the database. Results that the\n"
    "database already has are not run again: after Ctrl-C, a crash or a change to the file,\n"
    "the same command resumes. Progress goes to stderr. Exit status: 130 after Ctrl-C.\n\n"
    "--again RUN, which runs a stored run again and says whether it comes out the same, is of the Python\n"
    "package: `./run run --again --help`.\n";

static const char examples[] = "  speclab run experiments/demo.yaml --dry-run\n"
                               "  speclab run experiments/demo.yaml --db demo.db\n"
                               "  speclab run experiments/demo.yaml --shard 0/4\n"
                               "  ./run run --again 2 --db demo.db --limit 5\n";

int command_run(int argc, char **argv)
{
    const char *db = NULL, *shard = NULL;
    const char *log = NULL;
    struct flag_texts set = { 0 };
    bool dry = false, as_json = false, mix = false, no_probe = false, quiet = false;
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &db, "FILE", "database for the results; default: results.db, of a shard\nresults-I-of-N.db",
          0, 0 },
        { "shard", FLAG_TEXT, &shard, "I/N",
          "only part I, from 0, of N of the work, into a database of\nits own; none: all of it. Default in a job array of Slurm:\n"
          "by SLURM_ARRAY_TASK_ID",
          0, 0 },
        { "dry-run", FLAG_ON, &dry, NULL,
          "only print the cells, what is done of each, memory,\nand the estimated time and size of the results", 0, 0 },
        { "json", FLAG_ON, &as_json, NULL,
          "with --dry-run: one JSON object, whose cells have their\nsettings and the hashes of their inputs", 0, 0 },
        { "mix", FLAG_ON, &mix, NULL,
          "resume runs with texts of another revision or instruction\nset; bits may differ, and both are recorded", 0,
          0 },
        { "no-probe", FLAG_ON, &no_probe, NULL, "do not measure memory and processors before the first text", 0, 0 },
        { "set", FLAG_TEXTS, &set, "KEY=VALUE",
          "change the file's settings: limits.new_tokens=64,\ncells.drafter.1.tokens=3 (values are YAML, lists count\nfrom 0); may be given several times",
          0, 0 },
        { "quiet", FLAG_ON, &quiet, NULL, "print errors only", 0, 0 },
        { "log", FLAG_TEXT, &log, "FILE", "append lines of progress with their times (UTC) to FILE", 0, 0 },
        { 0 },
    };
    const struct usage u = { "run", "FILE.yaml", about, flags, examples, 1, 1 };
    char **operand;
    struct error err;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    if (as_json && !dry)
        return usage_fail(&u, "--json requires --dry-run");
    struct shard part;
    struct experiment *e =
        shard_read(shard, &part, &err) ? experiment_load_with(operand[0], set.text, set.n, &err) : NULL;
    if (e == NULL)
        return usage_fail(&u, "%s", err.text);
    e->mix = mix;
    e->probe = !no_probe;
    e->shard = part;
    e->log = log != NULL && !dry ? fopen(log, "a") : NULL;
    if (log != NULL && !dry && e->log == NULL)
        status = usage_fail(&u, "--log %s: %s", log, strerror(errno));
    else
        status = run_into(&u, e, dry, quiet, db);
    if (e->log != NULL)
        fclose(e->log);
    experiment_free(e);
    return status;
}
