// cell_hash.c - see cell_hash.h.
#include "tests/experiments/cell_hash.h"

#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "tests/experiments/small_experiments.h"

char cell_target[64] = "target.gguf", cell_drafter[200] = "none";

int outcomes[3];
static struct error why; // of the last REFUSED

// Computes the hash of the last cell. Returns false if the checkpoint is refused.
static bool cell(char to[HASH_TEXT])
{
    char *text = xformat("name: x\ntarget: {model: %s}\nthreads: 1\nprompts: {file: p.jsonl, chat: %s}\n"
                         "cells: {drafter: [%s]}\n",
                         cell_target, strstr(cell_target, "mute") != NULL ? "none" : "auto", cell_drafter);
    struct experiment *e = load(text);
    struct loaded_experiment o;
    struct group g = { 0 };
    bool ok = loaded_experiment_open(&o, e, 0, &why);
    if (ok) {
        ok = group_open(&g, 0, &o, &why);
        if (ok)
            memcpy(to, g.cell_runner[g.n - 1].identity.hash, HASH_TEXT);
        group_close(&g);
        loaded_experiment_close(&o);
    }
    experiment_free(e);
    free(text);
    return ok;
}

enum outcome cell_hash_now(const char before[HASH_TEXT])
{
    char hash[HASH_TEXT];
    enum outcome found = !cell(hash) ? REFUSED : strcmp(hash, before) == 0 ? SAME : OTHER;
    outcomes[found]++;
    return found;
}

void cell_hash_before(char to[HASH_TEXT])
{
    memset(outcomes, 0, sizeof(outcomes));
    assert_ok(cell(to), why);
}

void outcome_check(enum outcome found, bool ignored, const char *what)
{
    if (ignored ? found != SAME : found == SAME)
        fail_msg("%s: %s", what,
                 found == REFUSED ? why.text
                 : found == SAME  ? "changed, but the same cell"
                                  : "ignored, but another cell");
}

void outcomes_print(const char *what)
{
    print_message("%s: %d changes make other cells, %d are refused, %d are ignored\n", what, outcomes[OTHER],
                  outcomes[REFUSED], outcomes[SAME]);
}
