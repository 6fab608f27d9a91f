// heads_command.c - `speclab heads`: accuracy of drafters on texts of the target, and the best fixed tree for it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "drafters/trees/tree.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "commands/heads_run.h"
#include "core/interrupt.h"
#include "formats/file.h"

static const char about[] =
    "Evaluates every drafter of an experiment that has rows of q (small, medusa, blockwise, eagle, eagle3) on texts that the target\n"
    "generates: at each depth, how often the target's token is among the top 1, 2, 3, ... 10 tokens of the drafter, given\n"
    "the tokens before it. With --texts it evaluates the answers in a file of training texts, such as a trainer's held-out ones,\n"
    "instead. --tree prints the fixed tree of N draft tokens with the largest expected depth, for the option\n"
    "`tree`; --out writes it to a file that this option reads.\n";

static const char examples[] = "  speclab heads experiments/exact.yaml\n"
                               "  speclab heads medusa.yaml --tokens 5000 --tree 63 --out tree.json\n";

struct tree_output {
    long long nodes; // draft tokens of the tree; 0: no tree
    const char *out; // NULL: no file
    int written;     // number of files
};

static struct json *shares_json(const struct head_ranks *s, double *share)
{
    struct json *all = json_new_array();
    for (int d = 0; d < s->depth; d++) {
        struct json *row = json_new_array();
        for (int r = 0; r < HEADS_RANKS; r++) {
            share[d * HEADS_RANKS + r] = (double)s->ranked[d][r] / (double)s->positions[d];
            json_push(row, json_new_number(share[d * HEADS_RANKS + r]));
        }
        json_push(all, row);
    }
    return all;
}

static struct json *chain_json(const struct head_ranks *s)
{
    struct json *all = json_new_array();
    for (int d = 0; d < s->depth; d++)
        json_push(all, json_new_number(s->reached[d] > 0 ? (double)s->accepted[d] / (double)s->reached[d] : 0));
    return all;
}

static struct json *numbers_json(const double *number, int n)
{
    struct json *all = json_new_array();
    for (int i = 0; i < n; i++)
        json_push(all, json_new_number(number[i]));
    return all;
}

static bool write_file(const char *path, const struct json *j, struct error *err)
{
    char *text = json_write(j), *line = xformat("%s\n", text);
    const bool ok = part_file(path, line, strlen(line), err);
    free(line);
    free(text);
    return ok;
}

static bool best_tree(void *self, const char *shown, const struct head_ranks *ranks, struct error *err)
{
    struct tree_output *w = self;
    static struct tree tree;
    double share[HEADS_DEPTH * HEADS_RANKS];
    struct json *j = json_object_of(
        JSON("drafter", shown), JSON("positions", ranks->positions[0]), JSON("share", shares_json(ranks, share)),
        JSON("accepted", chain_json(ranks)), JSON("confidence", numbers_json(ranks->confidence, ranks->depth)),
        JSON("ece", numbers_json(ranks->ece, ranks->depth)), JSON("brier", numbers_json(ranks->brier, ranks->depth)),
        JSON("auroc", numbers_json(ranks->auroc, ranks->depth)));
    bool ok;
    if (w->nodes > 0) {
        tree_best(share, ranks->depth, HEADS_RANKS, (int)w->nodes, &tree);
        if (tree.n == 1) {
            json_free(j);
            return fail(err, "%s: its top-1 token was never correct, so there is no best tree", shown);
        }
        char *paths = tree_write(&tree);
        printf("  Best fixed tree of %d draft tokens: %s\n", tree.n - 1, paths);
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
    const char *texts = NULL;
    struct tree_output w = { 0 };
    const struct flag flags[] = {
        { "tokens", FLAG_INT, &tokens, "N", "positions to evaluate for each drafter; default: 2000", 1, 100000000 },
        { "texts", FLAG_TEXT, &texts, "FILE.jsonl",
          "texts to evaluate, with input_ids and loss_mask\n(docs/training.md); default: the target generates them", 0,
          0 },
        { "tree", FLAG_INT, &w.nodes, "N", "print the best fixed tree of N draft tokens", 1, MAX_NODES - 1 },
        { "out", FLAG_TEXT, &w.out, "FILE.json", "write the shares and the tree to this file", 0, 0 },
        { 0 },
    };
    const struct usage u = { "heads", "FILE.yaml", about, flags, examples, 1, 1 };
    char **operand;
    const int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    struct error err;
    struct experiment *e = experiment_load(operand[0], &err);
    if (e == NULL)
        return usage_fail(&u, "%s", err.text);
    const struct heads_options plan = {
        .tokens = tokens, .texts = texts, .out = stdout, .stop = interrupt_catch(), .each = best_tree, .self = &w
    };
    int drafters = 0;
    for (int d = 0; d < e->drafter.n; d++)
        drafters += !experiment_is_none(e, d);
    bool ok = w.out == NULL || drafters * e->sampling.n <= 1 ||
              fail_usage(&err, "--out %s: expected one drafter and one sampling, found %d and %d in %s", w.out,
                         drafters, e->sampling.n, operand[0]);
    ok = ok && heads_run(e, &plan, &err);
    if (ok && w.out != NULL && w.written == 0)
        ok = fail(&err, "--out %s: nothing to write: no drafter has rows of q", w.out);
    experiment_free(e);
    return ok ? command_done(&u) : command_fail(&u, &err);
}
