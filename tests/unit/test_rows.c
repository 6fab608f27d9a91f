// test_rows.c - how many rows every model evaluates, which otherwise shows only in the speed.
//
// A step must evaluate in the target exactly the nodes of the draft, and in a drafter's own model each token once: a draft token
// that was evaluated and accepted is not evaluated again. The expected number is computed from the drafts and decisions that the
// listener gets, and compared with the calls of the backend.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "kernels/backend.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "verifier/rules/rule.h"

enum { SLOTS = 2, TEXTS = 4, LENGTH = 96, ROUNDS = 16 };

static const struct {
    int prompt, limit;
} texts[TEXTS] = { { 20, 17 }, { 1, 9 }, { 33, 21 }, { 6, 1 } };

// ---- calls of the backend

enum who { TARGET, DRAFTER, BOTH };

static struct {
    struct backend real;
    const struct drafter_type *drafter;
    int64_t vocab[BOTH]; // of the rows of logits
    enum who who;
    int passes[BOTH], rows[BOTH], logits[BOTH]; // passes through layers with a cache, and their rows; rows of logits
} count;

static void count_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor frequency)
{
    count.passes[count.who]++; // called once per pass
    count.rows[count.who] += s->n;
    count.real.angles(b, out, s, frequency);
}

static void count_matmul(struct backend *b, struct tensor x, const struct product *p, int n)
{
    for (int i = 0; i < n; i++)
        if (p[i].out.width == count.vocab[TARGET] || p[i].out.width == count.vocab[DRAFTER])
            count.logits[count.who] += (int)p[i].out.rows;
    count.real.matmul(b, x, p, n);
}

static bool count_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    count.who = DRAFTER;
    const bool ok = count.drafter->propose(d, r, n, err);
    count.who = TARGET;
    return ok;
}

static bool count_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    count.who = DRAFTER;
    const bool ok = count.drafter->advance(d, a, n, err);
    count.who = TARGET;
    return ok;
}

static void begin_counting(void)
{
    memset(count.passes, 0, sizeof(count.passes));
    memset(count.rows, 0, sizeof(count.rows));
    memset(count.logits, 0, sizeof(count.logits));
}

// ---- expected calls

// What a drafter evaluates: nothing; the root and draft tokens, with its own cache; accepted tokens in advance() and draft tokens;
// heads on one hidden state.
enum evaluation { LOOKUP, OWN_MODEL, ON_FEATURES, HEADS };

struct expected {
    enum evaluation evaluation;
    int top, tokens; // of a best-first tree, which is pruned; 0: every evaluated token is in the draft
    // Of the current step. max exceeds min if the draft does not show whether its last accepted token was evaluated.
    int target, min, max, logits;
    int certain[TEXTS];  // other rows of the next step of this text: the root, accepted tokens that were not evaluated
    int doubtful[TEXTS]; // rows that it may evaluate in addition
    int advanced[TEXTS]; // tokens of this step, if the text has not ended
    bool over[TEXTS];
    int requests, max_depth; // of heads: all heads for every state, up to the depth of the deepest draft of the step
    int drafted, accepted;
};

static bool has_child(const struct draft *d, int node)
{
    return draft_next_child(d, node, node) >= 0;
}

// Rows below the root of a draft: nodes that have children, or had some before pruning.
static int below_the_root(const struct expected *x, const struct draft *d, int depth)
{
    int n = 0;
    if (x->top > 0) {
        const int levels = x->tokens < depth ? x->tokens : depth;
        return levels > 1 ? x->top * (levels - 1) : 0;
    }
    for (int node = 1; node < d->n; node++)
        n += has_child(d, node);
    return n;
}

static void expect_step(void *self, const struct speclab_step *s)
{
    struct expected *x = self;
    const struct draft draft = step_draft(s), *d = &draft;
    const int t = (int)s->sequence, n = s->position + 1, left = texts[t].limit - (n - texts[t].prompt),
              depth = (left < LENGTH - n ? left : LENGTH - n) - 1;
    x->target += d->n;
    x->drafted += d->n - 1;
    x->accepted += s->decided - 1;
    x->advanced[t] = s->decided;
    if (d->n == 1)
        return; // nothing can be drafted: the drafter must not evaluate anything
    const int rows = below_the_root(x, d, depth), last = s->node[s->decided - 1];
    if (x->evaluation == HEADS) {
        x->requests++;
        x->max_depth = draft_max_depth(d) > x->max_depth ? draft_max_depth(d) : x->max_depth;
        return;
    }
    if (x->evaluation == LOOKUP)
        return;
    x->logits += 1 + rows;
    x->min += rows;
    x->max += rows;
    if (x->evaluation == ON_FEATURES)
        return;
    x->min += x->certain[t];
    x->max += x->certain[t] + x->doubtful[t];
    // The root is always new. All accepted tokens but the last have children, so they were evaluated. The last one was evaluated if
    // it has children; in a pruned tree this is unknown.
    const bool leaf = last != 0 && !has_child(d, last), cut = x->top > 0 && s->decided - 1 < x->tokens && leaf;
    x->certain[t] = 1 + (leaf && !cut);
    x->doubtful[t] = cut;
}

static void expect_end(void *self, const struct speclab_end *e)
{
    ((struct expected *)self)->over[e->sequence] = true;
}

// ---- decoding

static void start(struct speclab_decoder *d, const char *drafter, struct expected *x, int text)
{
    int32_t token[LENGTH];
    struct error err;
    for (int i = 0; i < texts[text].prompt; i++)
        token[i] = i * (i + text) % 11 + 3;
    begin_counting();
    assert_true(
        decoder_start(d,
                      &(struct speclab_request){
                          .sequence = text, .prompt = token, .n = texts[text].prompt, .max_tokens = texts[text].limit },
                      NULL, NULL, &err));
    const int rows = texts[text].prompt - 1,
              own = x->evaluation == OWN_MODEL || x->evaluation == ON_FEATURES ? rows : 0;
    // Shorter than a chunk: one pass of each model.
    if (count.passes[TARGET] != (rows > 0) || count.passes[DRAFTER] != (own > 0))
        fail_msg("%s: a prompt of %d in %d passes of the target, %d of the drafter's model", drafter,
                 texts[text].prompt, count.passes[TARGET], count.passes[DRAFTER]);
    if (count.rows[TARGET] != rows || count.rows[DRAFTER] != own || count.logits[TARGET] + count.logits[DRAFTER] != 0)
        fail_msg(
            "%s: a prompt of %d: %d rows in the target, %d in the drafter's model, expected %d and %d; %d of logits",
            drafter, texts[text].prompt, count.rows[TARGET], count.rows[DRAFTER], rows, own,
            count.logits[TARGET] + count.logits[DRAFTER]);
    x->certain[text] = 1;
}

static void step(struct speclab_decoder *d, const char *drafter, struct expected *x)
{
    struct error err;
    x->target = x->min = x->max = x->logits = x->requests = x->max_depth = 0;
    memset(x->advanced, 0, sizeof(x->advanced));
    begin_counting();
    assert_true(speclab_decoder_step(d, &err));
    for (int t = 0; t < TEXTS && x->evaluation == ON_FEATURES; t++) { // in advance(), for texts that have not ended
        x->min += x->over[t] ? 0 : x->advanced[t];
        x->max += x->over[t] ? 0 : x->advanced[t];
    }
    x->logits += x->requests * x->max_depth;
    if (count.passes[TARGET] != 1 || count.rows[TARGET] != x->target || count.logits[TARGET] != x->target)
        fail_msg("%s: %d passes of the target, %d rows, %d of logits, expected 1, %d, %d", drafter,
                 count.passes[TARGET], count.rows[TARGET], count.logits[TARGET], x->target, x->target);
    if (count.rows[DRAFTER] < x->min || count.rows[DRAFTER] > x->max || count.logits[DRAFTER] != x->logits)
        fail_msg("%s: the drafter evaluated %d rows and %d of logits, expected %d to %d and %d", drafter,
                 count.rows[DRAFTER], count.logits[DRAFTER], x->min, x->max, x->logits);
}

static int number_after(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    return at != NULL ? atoi(at + strlen(name)) : 0;
}

static enum evaluation evaluation_of(const char *drafter, const struct drafter *d)
{
    return !pair_declares(drafter, "activations") ? LOOKUP
           : !pair_declares(drafter, "cache")     ? HEADS
           : d->taps.n > 0                        ? ON_FEATURES
                                                  : OWN_MODEL;
}

static void decode(const char *drafter, const char *sampling, int *drafted, int *accepted)
{
    struct error err;
    struct pair *p = pair_open(pair_target, pair_draft, drafter, sampling, rule_named("rejection"), SLOTS, LENGTH);
    struct expected x = { .evaluation = evaluation_of(drafter, p->drafter) };
    if (number_after(drafter, "nodes=") > 0) {
        x.top = number_after(drafter, "top=");
        x.tokens = number_after(drafter, "tokens=");
    }
    count.real = *p->backend;
    count.vocab[TARGET] = model_shape(p->target)->vocab;
    count.vocab[DRAFTER] = model_shape(p->target)->vocab / 3; // of EAGLE-3 heads: tests/support/small_heads.c
    count.who = TARGET;
    p->backend->angles = count_angles;
    p->backend->matmul = count_matmul;
    count.drafter = p->drafter->type;
    struct drafter_type type = *p->drafter->type;
    type.propose = count_propose;
    type.advance = type.advance != NULL ? count_advance : NULL;
    p->drafter->type = &type;
    struct speclab_decoder *d =
        decoder_create(p->verifier, p->drafter, SLOTS, 4,
                       (struct speclab_listener){ .step = expect_step, .end = expect_end, .self = &x }, &err);
    for (int next = 0; next < TEXTS || speclab_decoder_active(d) > 0;) {
        for (; next < TEXTS && speclab_decoder_has_free_slot(d); next++)
            start(d, drafter, &x, next);
        step(d, drafter, &x);
    }
    *drafted += x.drafted;
    *accepted += x.accepted;
    speclab_decoder_destroy(d);
    pair_close(p);
}

TEST(every_model_evaluates_each_row_once)
{
    for (int i = 0; i < pair_count(); i++) {
        int drafted = 0, accepted = 0;
        if (pair_is_of_drafters(pair_drafter(i)) ||
            pair_uses_target(pair_drafter(i))) // which model drafts what: test_ladder.c, test_layer_drafts.c
            continue;
        if (strstr(pair_drafter(i), "vocabulary=") != NULL) // reads several tokens for one of the target's
            continue;
        decode(pair_drafter(i), "{temperature: 0}", &drafted, &accepted);
        decode(pair_drafter(i), "{temperature: 1}", &drafted, &accepted);
        assert_true((drafted > 0) == (strcmp(pair_drafter(i), "none") != 0));
        if (strncmp(pair_drafter(i), "small", 5) == 0)
            assert_true(accepted > 3 && accepted < drafted);
    }
}

RUN_TESTS(pair_models_make, pair_models_remove)
