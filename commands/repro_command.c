// repro_command.c - `speclab repro`: runs a stored run again and says whether it comes out the same.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/reproduce.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "results/store.h"

enum { OTHERWISE = 3 }; // exit status: changed inputs, other texts, or a speedup outside of the interval

struct repro {
    const char *db, *out; // out NULL: a database that is removed again
    long long limit;
    bool no_probe;
    char *temporary; // folder of that database; NULL: none
    struct stored_run run;
};

// A folder of the command's own, in $TMPDIR or /tmp.
static bool open_temporary(struct repro *r, char **path, struct error *err)
{
    const char *base = getenv("TMPDIR");
    char *folder = xformat("%s/speclab-repro-XXXXXX", base != NULL && *base != '\0' ? base : "/tmp");
    if (mkdtemp(folder) == NULL) {
        fail(err, "%s: could not be created: %s", folder, strerror(errno));
        free(folder);
        return false;
    }
    r->temporary = folder;
    *path = xformat("%s/again.db", folder);
    return true;
}

static void remove_temporary(struct repro *r)
{
    static const char *const suffix[] = { "", "-wal", "-shm" };
    for (int i = 0; r->temporary != NULL && i < 3; i++) {
        char *path = xformat("%s/again.db%s", r->temporary, suffix[i]);
        unlink(path);
        free(path);
    }
    if (r->temporary != NULL)
        rmdir(r->temporary);
    free(r->temporary);
}

// Decodes, then compares. *status: of the command.
static bool run_again(struct repro *r, struct store *then, struct loaded_experiment *o, int *status, struct error *err)
{
    struct text report = { 0 };
    char *path = NULL;
    bool same = false;
    if (r->out != NULL)
        path = xstrdup(r->out);
    else if (!open_temporary(r, &path, err))
        return false;
    struct store *now = store_open(path, err);
    const bool ok = now != NULL && experiment_run_loaded(o, now, stderr, interrupt_catch(), err) &&
                    stored_run_compare(&r->run, then, now, &report, &same, err);
    if (ok) {
        printf("%s", report.s);
        *status = same ? 0 : OTHERWISE;
    }
    store_close(now);
    free(report.s);
    free(path);
    return ok;
}

// Whether the inputs are those of the run, and if they are, the run again.
static bool run_if_same(struct repro *r, struct store *then, const struct experiment *e, struct text *changes,
                        int *status, struct error *err)
{
    struct loaded_experiment o;
    if (!loaded_experiment_open(&o, e, TARGET_ROWS, err))
        return false;
    bool ok = stored_run_changes(&r->run, &o, changes, err);
    if (ok && changes->n == 0) {
        printf("inputs     are the same: model, drafter, tokenizer, prompts and settings\n");
        ok = run_again(r, then, &o, status, err);
    }
    loaded_experiment_close(&o);
    return ok;
}

static bool reproduce(struct repro *r, struct store *then, int *status, struct error *err)
{
    struct text changes = { 0 };
    printf("run %-6lld %s: %s, %s, %s\n", (long long)r->run.id, r->run.experiment, r->run.drafter, r->run.rule,
           r->run.sampling);
    struct experiment *e = stored_run_experiment(&r->run, (int)r->limit, &changes, err);
    if (e != NULL)
        e->probe = !r->no_probe;
    const bool ok = e != NULL ? run_if_same(r, then, e, &changes, status, err) : changes.n > 0;
    if (changes.n > 0) {
        printf("%snot reproduced: it would be another run\n", changes.s);
        *status = OTHERWISE;
    }
    experiment_free(e);
    free(changes.s);
    return ok;
}

static const char about[] =
    "Runs a stored run again, with `none` beside it, and says whether it comes out the same. First it compares the\n"
    "hashes of weights, configuration, tokenizer and prompts, and every setting, with the stored ones; what has\n"
    "changed is listed, and nothing is run. Then texts and steps are compared one by one, acceptance and speedup prompt by\n"
    "prompt: outside is what neither the stored interval nor the noise of the clocks explains (docs/results.md).\n"
    "Exit status: 0 reproduced; 3 inputs, texts or steps differ, or a number is outside.\n";

static const char examples[] = "  speclab repro 2 --db demo.db\n  speclab repro 2 --db demo.db --limit 5\n";

int command_repro(int argc, char **argv)
{
    struct repro r = { .db = "results.db" };
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &r.db, "FILE", "database with the run; default: results.db", 0, 0 },
        { "out", FLAG_TEXT, &r.out, "FILE", "database for the new run; default: one that is removed again", 0, 0 },
        { "limit", FLAG_INT, &r.limit, "N", "only the first N prompts", 1, MAX_PROMPTS },
        { "no-probe", FLAG_ON, &r.no_probe, NULL, "do not measure memory and processors", 0, 0 },
        { 0 },
    };
    const struct usage u = { "repro", "RUN", about, flags, examples, 1, 1 };
    char **operand;
    struct error err;
    long long id;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    if (!parse_int(operand[0], 1, 1LL << 62, &id))
        return usage_fail(&u, "expected the id of a run, found \"%s\"", operand[0]);
    if (r.out != NULL && access(r.out, F_OK) == 0) // stored texts would be compared, not decoded
        return usage_fail(&u, "--out %s: the file exists; expected a new one", r.out);
    struct store *then = store_open_existing(r.db, &err);
    const bool ok = then != NULL && stored_run_read(then, id, &r.run, &err) && reproduce(&r, then, &status, &err);
    remove_temporary(&r);
    stored_run_free(&r.run);
    store_close(then);
    if (!ok)
        return command_fail(&u, &err);
    return stdout_failed() ? command_done(&u) : status;
}
