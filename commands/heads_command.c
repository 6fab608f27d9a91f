// heads_command.c - `speclab heads`: how well drafters with rows of their own guess a text that is known, and the best fixed
// tree that follows from it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "drafters/tree.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "commands/heads_run.h"
#include "core/interrupt.h"
#include "formats/file.h"

static const char about[] =
    "Asks every drafter of an experiment that has rows of its own (small, medusa, eagle, eagle3) what it thinks of texts\n"
    "that the target wrote: how often the next token but so many was its likeliest, or among its 2, 3, ... 10\n"
    "likeliest, the tokens before it given. With --tree the fixed tree of so many guesses that would go deepest is\n"
    "printed, for the option `tree`; with --out it is written to a file, which that option reads.\n";

static const char examples[] = "  speclab heads experiments/exact.yaml\n"
                               "  speclab heads medusa.yaml --tokens 5000 --tree 63 --out tree.json\n";

struct wanted {
    long long nodes; // 0: no tree
    const char *out; // NULL: no file
    int written;
};

static struct json *shares(const struct heads_seen *s, double *share)
{
    struct json *all = json_new_array();
    for (int d = 0; d < s->depth; d++) {
        struct json *row = json_new_array();
        for (int r = 0; r < HEADS_RANKS; r++) {
            share[d * HEADS_RANKS + r] = (double)s->ranked[d][r] / (double)s->places[d];
            json_push(row, json_new_number(share[d * HEADS_RANKS + r]));
        }
        json_push(all, row);
    }
    return all;
}

static bool write_file(const char *path, const struct json *j, struct error *err)
{
    struct part *p = part_begin(path, err);
    if (p == NULL)
        return false;
    char *text = json_write(j), *line = xformat("%s\n", text);
    part_write(p, line, strlen(line));
    free(line);
    free(text);
    return part_end(p, err);
}

static bool best_tree(void *self, const char *shown, const struct heads_seen *seen, struct error *err)
{
    struct wanted *w = self;
    static struct tree tree;
    double share[HEADS_DEPTH * HEADS_RANKS];
    struct json *all = shares(seen, share), *j = json_new_object();
    json_set(j, "drafter", json_new_text(shown));
    json_set(j, "places", json_new_int(seen->places[0]));
    json_set(j, "share", all);
    bool ok;
    if (w->nodes > 0) {
        tree_best(share, seen->depth, HEADS_RANKS, (int)w->nodes, &tree);
        if (tree.n == 1) {
            json_free(j);
            return fail(err, "%s: its likeliest token was never right, and no tree follows from that", shown);
        }
        char *paths = tree_write(&tree);
        printf("  The tree of %d guesses that goes deepest: %s\n", tree.n - 1, paths);
        json_set(j, "tree", json_parse(paths, strlen(paths), "tree", err));
        free(paths);
    }
    w->written++;
    ok = w->out == NULL || write_file(w->out, j, err);
    json_free(j);
    return ok;
}

int command_heads(int argc, char **argv)
{
    long long tokens = 2000;
    struct wanted w = { 0 };
    const struct flag flags[] = {
        { "tokens", FLAG_INT, &tokens, "N", "places that each drafter is asked about (2000)", 1, 100000000 },
        { "tree", FLAG_INT, &w.nodes, "N", "print the best fixed tree of so many guesses", 1, MAX_NODES - 1 },
        { "out", FLAG_TEXT, &w.out, "FILE.json", "write the shares, and the tree, to a file", 0, 0 },
        { 0 },
    };
    const struct usage u = { "heads", "FILE.yaml", about, flags, examples, 1, 1 };
    char **operand;
    const int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != GO_ON)
        return status;
    struct error err;
    struct experiment *e = experiment_load(operand[0], &err);
    if (e == NULL)
        return usage_fail(&u, "%s", err.text);
    const struct heads_plan plan = {
        .tokens = tokens, .out = stdout, .stop = interrupt_catch(), .each = best_tree, .self = &w
    };
    int drafters = 0;
    for (int d = 0; d < e->drafter.n; d++)
        drafters += !experiment_is_none(e, d);
    bool ok = w.out == NULL || drafters * e->sampling.n <= 1 ||
              fail(&err, "--out %s: %s has %d drafters and %d samplings, and a file has room for one of each", w.out,
                   operand[0], drafters, e->sampling.n);
    ok = ok && heads_run(e, &plan, &err);
    if (ok && w.out != NULL && w.written == 0)
        ok = fail(&err, "--out %s: nothing to write: no drafter has rows of its own", w.out);
    experiment_free(e);
    return ok ? command_done(&u) : command_fail(&u, &err);
}
