#include "commands/heads.h"

#include <stdlib.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/texts.h"
#include "core/error.h"
#include "core/files/json_lines.h"
#include "core/json.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "drafters/trees/tree.h"
#include "experiments/experiment.h"
#include "experiments/observed_cell.h"
#include "core/interrupt.h"
#include "core/files/part.h"
#include "models/model.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"
#include "results/statistics/calibration.h"

struct heads {
    struct observed_cell *c;
    const struct heads_options *plan;
    struct head_ranks ranks;
    struct text_reader reader; // reads the file with the texts
    struct texts given;        // one, the current text
    int n;
    const int32_t *text;   // (n) its tokens
    const uint8_t *answer; // (n) 1: the token is evaluated
    struct draft draft;
    bool answered; // the drafter has reported at least one rank
    struct calibration calibration[HEADS_DEPTH];
};

// ---- generating a text with the target

static void done(void *self, const struct speclab_end *e)
{
    struct heads *h = self;
    texts_add(&h->given, e->token, (size_t)e->n, 1);
}

static bool write_text(struct heads *h, int64_t number, struct error *err)
{
    struct ids prompt = { 0 };
    int slot;
    struct speclab_decoder *d = h->c->decoder;
    bool ok = observed_cell_start(h->c, number, &slot, &prompt, err);
    if (ok) {
        h->given.n = 0;
        texts_begin(&h->given);
        texts_add(&h->given, prompt.id, prompt.n, 0);
    }
    while (ok && speclab_decoder_active(d) > 0)
        ok = interrupt_check(h->plan->stop, err) && speclab_decoder_step(d, err);
    speclab_decoder_drop(d);
    free(prompt.id);
    return ok;
}

// ---- replaying it

// Feeds the text up to its first n tokens to the target and the drafter.
static bool read_up_to(struct heads *h, int n, struct error *err)
{
    const struct speclab_decoder *p = h->c->decoder;
    for (;;) {
        struct advance a;
        if (!verifier_prefill(p->verifier, 0, h->text, n, &a, err))
            return false;
        if (a.n == 0)
            return true;
        a.sequence = h->text;
        a.length = (int)(a.token - h->text) + a.n;
        if (p->drafter->type->advance != NULL && !p->drafter->type->advance(p->drafter, &a, 1, err))
            return false;
    }
}

static void count(struct heads *h, const int *rank, const float *confidence, int n)
{
    bool chain = true; // all before were top-1
    for (int d = 0; d < n && rank[d] != RANK_NOT_REQUESTED; d++) {
        h->answered = true;
        h->ranks.depth = d + 1 > h->ranks.depth ? d + 1 : h->ranks.depth;
        h->ranks.positions[d]++;
        h->ranks.unknown += d == 0 && rank[d] >= model_shape(h->c->loaded->target->model)->vocab;
        if (rank[d] < HEADS_RANKS)
            h->ranks.ranked[d][rank[d]]++;
        calibration_add(&h->calibration[d], confidence[d], rank[d] == 0);
        h->ranks.reached[d] += chain;
        chain = chain && rank[d] == 0;
        h->ranks.accepted[d] += chain;
    }
}

// Counts the drafter's ranks of the tokens after the first n.
static bool rank_position(struct heads *h, int n, struct error *err)
{
    const struct speclab_decoder *p = h->c->decoder;
    int rank[HEADS_DEPTH];
    float confidence[HEADS_DEPTH];
    int depth = 0;
    while (depth < HEADS_DEPTH && n + depth < h->n && h->answer[n + depth])
        depth++;
    const struct forced forced = { .n = depth, .token = h->text + n, .rank = rank, .confidence = confidence };
    struct philox source = philox_source(h->c->e->seed, 0);
    source.rng.root = n - 1;
    for (int d = 0; d < HEADS_DEPTH; d++)
        rank[d] = RANK_NOT_REQUESTED, confidence[d] = 0;
    h->draft.n = 1;
    h->draft.capacity = p->drafter->nodes;
    h->draft.token[0] = h->text[n - 1];
    h->draft.parent[0] = -1;
    h->draft.proposal[0] = DETERMINISTIC;
    h->draft.q = NULL;
    struct request r = {
        .n = n, .token = h->text, .rng = &source.rng, .draft = &h->draft, .depth = depth, .forced = &forced
    };
    if (!p->drafter->type->propose(p->drafter, &r, 1, err))
        return false;
    count(h, rank, confidence, depth);
    return true;
}

static void forget(struct heads *h)
{
    const struct speclab_decoder *p = h->c->decoder;
    verifier_forget(p->verifier, 0);
    if (p->drafter->type->forget != NULL)
        p->drafter->type->forget(p->drafter, 0);
}

// *tried: positions for which the drafter was asked.
static bool examine(struct heads *h, int *tried, struct error *err)
{
    bool ok = true;
    for (int n = 1; n < h->n && ok && h->ranks.positions[0] < h->plan->tokens; n++) {
        if (!h->answer[n])
            continue;
        ok = interrupt_check(h->plan->stop, err) && read_up_to(h, n, err) && rank_position(h, n, err);
        if (!h->answered && (*tried)++ > 0) // a head has no hidden state after a single token
            break;
    }
    forget(h);
    return ok;
}

// ---- what was found

static double chain_share(const struct head_ranks *s, int d)
{
    return s->reached[d] > 0 ? (double)s->accepted[d] / (double)s->reached[d] : 0;
}

static void print(const struct heads *h)
{
    const struct head_ranks *s = &h->ranks;
    const struct experiment *e = h->c->e;
    FILE *to = h->plan->out;
    fprintf(to, "%s, %s\n", e->drafter.entry[h->c->cell.drafter].shown, e->sampling.entry[h->c->cell.sampling].shown);
    if (!h->answered) {
        fprintf(to, "  no rows of q: nothing to evaluate\n");
        return;
    }
    fprintf(to,
            "  %lld positions of %lld texts%s. Share of positions whose token is among the drafter's top k,\n"
            "  by the number of correct tokens before it in the draft (EAGLE's n-alpha)\n"
            "  correct  positions     k = 1       2       3       4       5      10\n",
            (long long)s->positions[0], (long long)s->texts, h->plan->texts != NULL ? "" : " of the target");
    double chain_depth = 0, reached = 1;
    for (int d = 0; d < s->depth; d++) {
        double sum = 0;
        fprintf(to, "  %7d %10lld  ", d, (long long)s->positions[d]);
        for (int r = 0; r < HEADS_RANKS; r++) {
            sum += (double)s->ranked[d][r];
            if (r < 5 || r == HEADS_RANKS - 1)
                fprintf(to, "  %.4f", sum / (double)s->positions[d]);
        }
        fprintf(to, "\n");
        chain_depth += reached *= (double)s->ranked[d][0] / (double)s->positions[d];
    }
    fprintf(to, "  Expected depth of a greedy chain, if these were independent: %.2f tokens.\n", chain_depth);
    fprintf(to, "  Acceptance of a greedy chain by depth, each after correct draft tokens:");
    for (int d = 0; d < s->depth; d++)
        fprintf(to, " %.4f", chain_share(s, d));
    fprintf(to, "\n");
    fprintf(to, "  Confidence, q of its most probable token, by depth:\n"
                "  correct      mean   right     ECE   Brier   AUROC\n");
    for (int d = 0; d < s->depth; d++)
        fprintf(to, "  %7d    %.4f  %.4f  %.4f  %.4f  %.4f\n", d, s->confidence[d],
                (double)s->ranked[d][0] / (double)s->positions[d], s->ece[d], s->brier[d], s->auroc[d]);
    if (s->unknown > 0)
        fprintf(to, "  The token is missing from the drafter's vocabulary at %.2f %% of the positions.\n",
                100 * (double)s->unknown / (double)s->positions[0]);
    fflush(to);
}

static struct json *numbers_json(const double *number, int n)
{
    struct json *all = json_new_array();
    for (int i = 0; i < n; i++)
        json_push(all, json_new_number(number[i]));
    return all;
}

// The JSON of --out, and the tree of --tree, which is printed.
static bool write_ranks(const struct heads *h, struct error *err)
{
    const struct head_ranks *s = &h->ranks;
    const char *shown = h->c->e->drafter.entry[h->c->cell.drafter].shown;
    double share[HEADS_DEPTH * HEADS_RANKS], chain[HEADS_DEPTH];
    struct json *rows = json_new_array();
    for (int d = 0; d < s->depth; d++) {
        for (int r = 0; r < HEADS_RANKS; r++)
            share[d * HEADS_RANKS + r] = (double)s->ranked[d][r] / (double)s->positions[d];
        json_push(rows, numbers_json(share + (size_t)d * HEADS_RANKS, HEADS_RANKS));
        chain[d] = chain_share(s, d);
    }
    struct json *j = json_object_of(
        JSON("drafter", shown), JSON("positions", s->positions[0]), JSON("share", rows),
        JSON("accepted", numbers_json(chain, s->depth)), JSON("confidence", numbers_json(s->confidence, s->depth)),
        JSON("ece", numbers_json(s->ece, s->depth)), JSON("brier", numbers_json(s->brier, s->depth)),
        JSON("auroc", numbers_json(s->auroc, s->depth)));
    bool ok = true;
    if (h->plan->nodes > 0) {
        static struct tree tree;
        tree_best(share, s->depth, HEADS_RANKS, (int)h->plan->nodes, &tree);
        ok = tree.n > 1 || fail(err, "%s: its top-1 token was never correct, so there is no best tree", shown);
        char *paths = ok ? tree_write(&tree) : NULL;
        if (ok) {
            fprintf(h->plan->out, "  Best fixed tree of %d draft tokens: %s\n", tree.n - 1, paths);
            json_set(j, "tree", json_parse(paths, strlen(paths), "tree", err));
        }
        free(paths);
    }
    if (ok && h->plan->json != NULL) {
        struct text line = { 0 };
        json_lines_put(&line, json_incref(j));
        ok = part_file(h->plan->json, line.s, line.n, err);
        free(line.s);
    }
    json_free(j);
    return ok;
}

// ---- one cell

static void calibrate(struct heads *h)
{
    for (int d = 0; d < h->ranks.depth; d++) {
        struct calibration *c = &h->calibration[d];
        double sum = 0;
        for (size_t i = 0; i < c->n; i++)
            sum += (double)c->at[i].p;
        h->ranks.confidence[d] = sum / (double)c->n;
        h->ranks.ece[d] = calibration_ece(c);
        h->ranks.brier[d] = calibration_brier(c);
        h->ranks.auroc[d] = calibration_auroc(c);
    }
}

static bool run_cell(struct heads *h, struct error *err)
{
    if (!observed_cell_open(h->c, (struct speclab_listener){ .end = done, .self = h }, err))
        return false;
    const int nodes = h->c->decoder->drafter->nodes;
    h->draft.token = xcalloc((size_t)nodes, sizeof(int32_t));
    h->draft.parent = xcalloc((size_t)nodes, sizeof(int32_t));
    h->draft.proposal = xcalloc((size_t)nodes, sizeof(uint8_t));
    bool ok = true, more = true, any = false; // any: a position was evaluated
    const struct model_shape *target = model_shape(h->c->loaded->target->model);
    if (h->plan->texts != NULL)
        ok = text_reader_open(&h->reader, h->plan->texts, target->vocab, h->c->loaded->context, 0, err);
    // With greedy sampling a repeated prompt gives the same text again.
    const int64_t max_texts =
        h->plan->texts == NULL && sampling_is_greedy(&h->c->decoder->sampling) ? h->c->e->prompts.n : INT64_MAX;
    for (int64_t number = 0; ok && more && number < max_texts; number++) {
        ok = h->plan->texts != NULL ? text_reader_next(&h->reader, 1, &h->given, err) : write_text(h, number, err);
        more = h->given.n > 0;
        if (!ok || !more)
            break;
        h->n = (int)h->given.offset[1];
        h->text = h->given.id;
        h->answer = h->given.mask;
        int tried = 0;
        ok = examine(h, &tried, err);
        any = any || h->answered || tried > 0;
        h->ranks.texts++;
        // too short to find out whether the drafter reports ranks
        const bool too_short = tried <= 1 && (h->plan->texts != NULL || number + 1 < h->c->e->prompts.n);
        more = (h->answered || too_short) && h->ranks.positions[0] < h->plan->tokens;
    }
    if (ok && h->plan->texts != NULL && !any)
        ok = fail(err, "%s: no token behind the first is an answer by its loss_mask", h->plan->texts);
    calibrate(h);
    if (ok)
        print(h);
    return ok && (!h->answered || write_ranks(h, err));
}

struct all {
    const struct heads_options *plan;
    struct head_ranks *last;
    int evaluated; // drafters with rows of q
};

static bool one_of_all(void *self, struct observed_cell *c, struct error *err)
{
    struct all *all = self;
    if (c->cell.rule != 0 || c->cell.batch != 0)
        return true;
    struct heads *h = xcalloc(1, sizeof(*h));
    h->c = c;
    h->plan = all->plan;
    bool ok = run_cell(h, err);
    all->evaluated += h->answered;
    if (h->answered && all->last != NULL)
        *all->last = h->ranks;
    text_reader_close(&h->reader);
    texts_free(&h->given);
    for (int d = 0; d < HEADS_DEPTH; d++)
        calibration_free(&h->calibration[d]);
    free(h->draft.token);
    free(h->draft.parent);
    free(h->draft.proposal);
    free(h);
    return ok;
}

bool heads_run(const struct experiment *e, const struct heads_options *plan, struct head_ranks *last, struct error *err)
{
    struct all all = { plan, last, 0 };
    const struct observed_cells cells = { e, "heads", NULL, plan->out, plan->stop };
    return each_observed_cell(&cells, one_of_all, &all, err) &&
           (plan->json == NULL || all.evaluated > 0 ||
            fail(err, "--out %s: nothing to write: no drafter has rows of q", plan->json));
}

// ---- the command

static const char about[] =
    "Evaluates every drafter of an experiment that has rows of q (small, medusa, blockwise, eagle, eagle3) on texts that the target\n"
    "generates: at each depth, how often the target's token is among the top 1, 2, 3, ... 10 tokens of the drafter, given\n"
    "the tokens before it. With --texts it evaluates the answers in a file of training texts, such as a trainer's held-out ones,\n"
    "instead. --tree prints the fixed tree of N draft tokens with the largest expected depth, for the option\n"
    "`tree`; --out writes it to a file that this option reads.\n";

static const char examples[] = "  speclab heads experiments/exact.yaml\n"
                               "  speclab heads medusa.yaml --tokens 5000 --tree 63 --out tree.json\n";

int command_heads(int argc, char **argv)
{
    struct heads_options o = { .tokens = 2000, .out = stdout };
    const struct flag flags[] = {
        { "tokens", FLAG_INT, &o.tokens, "N", "positions to evaluate for each drafter; default: 2000", 1, 100000000 },
        { "texts", FLAG_TEXT, &o.texts, "FILE.jsonl",
          "texts to evaluate, with input_ids and loss_mask\n(docs/training.md); default: the target generates them", 0,
          0 },
        { "tree", FLAG_INT, &o.nodes, "N", "print the best fixed tree of N draft tokens", 1, MAX_NODES - 1 },
        { "out", FLAG_TEXT, &o.json, "FILE.json", "write the shares and the tree to this file", 0, 0 },
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
    o.stop = interrupt_catch();
    int drafters = 0;
    for (int d = 0; d < e->drafter.n; d++)
        drafters += d != e->none;
    const bool ok =
        (o.json == NULL || drafters * e->sampling.n * e->target.n <= 1 ||
         fail_usage(&err, "--out %s: expected one drafter, one sampling and one target, found %d, %d and %d in %s",
                    o.json, drafters, e->sampling.n, e->target.n, operand[0])) &&
        heads_run(e, &o, NULL, &err);
    experiment_free(e);
    return ok ? command_done(&u) : command_fail(&u, &err);
}
