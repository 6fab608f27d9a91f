// test_drafters.c - the drafters' contract, over the whole registry: a draft depends on the text announced so far and
// on nothing else.
//
// A drafter is driven through steps of which some guesses stand and some do not. Before each step a fresh drafter, told
// the whole text as a prompt, must propose what the driven one proposes. No wrong text would ever show the difference:
// a drafter that keeps wrong rows of its cache only drafts worse.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "sampling/rng.h"
#include "tests/check.h"
#include "tests/pairs.h"
#include "tests/tiny.h"
#include "verifier/rule.h"

enum { LENGTH = 160, SLOTS = 2 };

static char *target_path, *draft_path;
static uint64_t state;

static int below(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

// Not a rule that anyone would use: a guess stands or falls by the test's own dice, and so does the token after it.
static void judge_by_dice(const struct draft *d, struct rows *p, const void *options, struct rng *rng,
                          struct judgement *out)
{
    (void)options, (void)rng;
    out->n = 0;
    for (int node = 0;;) {
        int child = draft_next_child(d, node, node);
        while (child >= 0 && below(3) == 0)
            child = draft_next_child(d, node, child);
        out->node[out->n] = node;
        out->token[out->n++] = child >= 0 ? d->token[child] : below(p->vocab);
        if (child < 0)
            return;
        node = child;
    }
}

static const struct rule dice = { .name = "dice",
                                  .takes = TAKES_CHOSEN | TAKES_DRAWN | TAKES_DISTINCT | TAKES_TREES,
                                  .judge = judge_by_dice };

struct told {
    struct philox rng;
    int32_t token[LENGTH + MAX_NODES];
    int n;
    struct draft draft;
    int32_t node_token[MAX_NODES], node_parent[MAX_NODES];
    uint8_t node_drawn[MAX_NODES];
};

static struct request request(struct told *t, int slot, int room, int depth)
{
    t->rng.rng.root = t->n - 1;
    t->draft = (struct draft){ 1, room, t->node_token, t->node_parent, t->node_drawn, NULL };
    t->node_token[0] = t->token[t->n - 1];
    t->node_parent[0] = -1;
    t->node_drawn[0] = CHOSEN;
    return (struct request){ slot, t->n, t->token, &t->rng.rng, &t->draft, depth };
}

static void announce_prompt(struct pair *p, int slot, struct told *t)
{
    struct error err;
    struct advance a;
    for (;;) {
        assert_true(verifier_prefill(p->verifier, slot, t->token, t->n, &a, &err));
        if (a.n == 0)
            return;
        a.sequence = t->token;
        a.length = (int)(a.token - t->token) + a.n;
        if (p->type->advance != NULL)
            assert_true(p->type->advance(p->drafter, &a, 1, &err));
    }
}

static void check_shape(const struct pair *p, const char *name, const struct draft *d, int room, int depth)
{
    unsigned makes = drafter_makes(p->type, p->options);
    assert_true(d->n >= 1 && d->n <= room && d->n <= p->drafter->nodes);
    assert_true(draft_deepest(d) <= depth);
    for (int i = 1; i < d->n; i++) {
        assert_true(d->parent[i] >= 0 && d->parent[i] < i);
        assert_true(d->drawn[i] != CHOSEN || makes & TAKES_CHOSEN);
        assert_true(d->drawn[i] != DRAWN || makes & TAKES_DRAWN || makes & TAKES_DISTINCT);
        assert_true(d->drawn[i] != DRAWN_DISTINCT || makes & TAKES_DISTINCT);
        for (int j = 1; j < i; j++) {
            if (d->parent[j] != d->parent[i])
                continue;
            assert_true(makes & TAKES_TREES || (makes & TAKES_CHAINS && d->parent[i] == 0));
            if (d->token[j] == d->token[i] && !(d->drawn[i] == DRAWN && d->drawn[j] == DRAWN))
                fail_msg("%s: siblings %d and %d are both token %d", name, j, i, d->token[i]);
        }
        if (d->drawn[i] == CHOSEN)
            continue;
        const float *q = d->q->row(d->q, d->parent[i]);
        double sum = 0;
        for (int v = 0; v < d->q->vocab; v++)
            sum += (double)q[v];
        assert_true(fabs(sum - 1) < 1e-5);
        assert_true(q[d->token[i]] > 0);
    }
}

static void same_draft(const char *name, int step, const struct draft *a, const struct draft *b)
{
    if (a->n != b->n)
        fail_msg("%s, step %d: the driven drafter proposes %d nodes, a fresh one %d", name, step, a->n, b->n);
    for (int i = 1; i < a->n; i++) {
        if (a->token[i] != b->token[i] || a->parent[i] != b->parent[i] || a->drawn[i] != b->drawn[i])
            fail_msg("%s, step %d: node %d is token %d below %d, of a fresh drafter token %d below %d", name, step, i,
                     a->token[i], a->parent[i], b->token[i], b->parent[i]);
        if (a->drawn[i] != CHOSEN)
            assert_memory_equal(a->q->row(a->q, a->parent[i]), b->q->row(b->q, b->parent[i]),
                                (size_t)a->q->vocab * sizeof(float));
    }
}

static struct told told(uint64_t number, int n, int vocab)
{
    struct told t = { .rng = philox_source(11, number), .n = n };
    for (int i = 0; i < n; i++)
        t.token[i] = i > 8 && below(2) == 0 ? t.token[i - 7] : below(vocab); // with repetitions, for lookups
    return t;
}

static void drive(const char *name, const char *sampling)
{
    struct error err;
    struct pair *driven = pair_open(target_path, draft_path, name, sampling, &dice, SLOTS, LENGTH);
    struct pair *fresh = pair_open(target_path, draft_path, name, sampling, &dice, SLOTS, LENGTH);
    int vocab = model_shape(driven->target)->vocab;
    static struct told t[SLOTS], again[SLOTS];
    for (int round = 0; round < 2; round++) { // the second time in slots that were used before
        for (int s = 0; s < SLOTS; s++) {
            t[s] = told((uint64_t)(10 * round + s), 3 + below(40), vocab);
            announce_prompt(driven, s, &t[s]);
        }
        for (int step = 0; step < 8; step++) {
            struct request r[SLOTS], f[SLOTS];
            struct advance a[SLOTS];
            int room = below(4) > 0 ? driven->drafter->nodes : 1 + below(driven->drafter->nodes),
                depth = below(5) > 0 ? 50 : below(4);
            for (int s = 0; s < SLOTS; s++) {
                again[s] = t[s];
                r[s] = request(&t[s], s, room, depth);
                f[s] = request(&again[s], s, room, depth);
                announce_prompt(fresh, s, &again[s]);
            }
            assert_true(driven->type->propose(driven->drafter, r, SLOTS, &err));
            assert_true(fresh->type->propose(fresh->drafter, f, SLOTS, &err));
            for (int s = 0; s < SLOTS; s++) {
                check_shape(driven, name, &t[s].draft, room, depth);
                same_draft(name, step, &t[s].draft, &again[s].draft);
                verifier_forget(fresh->verifier, s);
                if (fresh->type->forget != NULL)
                    fresh->type->forget(fresh->drafter, s);
            }
            assert_true(verifier_verify(driven->verifier, r, SLOTS, a, &err));
            for (int s = 0; s < SLOTS; s++) {
                memcpy(t[s].token + t[s].n, a[s].token, (size_t)a[s].n * sizeof(int32_t));
                t[s].n += a[s].n;
                a[s].sequence = t[s].token;
                a[s].length = t[s].n;
            }
            if (driven->type->advance != NULL)
                assert_true(driven->type->advance(driven->drafter, a, SLOTS, &err));
        }
        for (int s = 0; s < SLOTS; s++) {
            verifier_forget(driven->verifier, s);
            if (driven->type->forget != NULL)
                driven->type->forget(driven->drafter, s);
        }
    }
    pair_close(driven);
    pair_close(fresh);
}

static void a_draft_depends_on_the_text_and_on_nothing_else(void **unused)
{
    (void)unused;
    static const char *const samplings[] = { "{temperature: 0}", "{temperature: 1.0}",
                                             "{repetition_penalty: 1.3, temperature: 0.8, top_p: 0.9}" };
    for (int i = 0; i < pair_count(); i++)
        for (size_t k = 0; k < sizeof(samplings) / sizeof(samplings[0]); k++)
            drive(pair_drafter(i), samplings[k]);
}

// Where the last m tokens of the text stood before, most recently; -1: nowhere.
static int ends_before(const int32_t *token, int n, int m)
{
    for (int start = n - m - 1; start >= 0; start--)
        if (memcmp(token + start, token + n - m, (size_t)m * sizeof(*token)) == 0)
            return start + m;
    return -1;
}

static void ngram_follows_the_longest_match_and_of_those_the_most_recent(void **unused)
{
    (void)unused;
    struct error err;
    struct ngram_options {
        int longest, shortest, tokens;
    };
    for (int t = 0; t < 4000; t++) {
        struct ngram_options o = { 1 + below(5), 1, 6 };
        o.shortest = 1 + below(o.longest);
        struct drafter_env env = { .slots = 1, .length = 64, .live = 4 };
        struct drafter *d = drafter_create(drafter_named("ngram"), &env, &o, &err);
        int32_t token[40], guess[8] = { 0 }, parent[8] = { -1 };
        uint8_t drawn[8] = { 0 };
        int n = 1 + below(40), from = -1;
        for (int i = 0; i < n; i++)
            token[i] = below(2 + t % 3);
        struct draft draft = { .n = 1, .room = 7, .token = guess, .parent = parent, .drawn = drawn };
        struct request r = { .n = n, .token = token, .draft = &draft, .depth = 6 };
        assert_true(drafter_named("ngram")->propose(d, &r, 1, &err));
        for (int m = o.longest; m >= o.shortest && from < 0; m--)
            from = ends_before(token, n, m);
        int guesses = from < 0 ? 0 : n - from < 6 ? n - from : 6;
        assert_int_equal(draft.n, 1 + guesses);
        for (int i = 0; i < guesses; i++)
            assert_int_equal(guess[1 + i], token[from + i]);
        drafter_destroy(d);
    }
}

static void every_drafter_is_found_by_its_name(void **unused)
{
    (void)unused;
    for (int i = 0; drafter_types[i] != NULL; i++) {
        assert_ptr_equal(drafter_named(drafter_types[i]->name), drafter_types[i]);
        assert_true(strlen(drafter_types[i]->summary) > 0);
    }
    assert_null(drafter_named("no such drafter"));
}

int main(void)
{
    struct tiny t = tiny_usual;
    target_path = xformat("%s/target", tiny_directory());
    tiny_write_hf(target_path, &t);
    t.seed = 99;
    t.layers = 1;
    draft_path = xformat("%s/draft", tiny_directory());
    tiny_write_hf(draft_path, &t);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draft_depends_on_the_text_and_on_nothing_else),
        cmocka_unit_test(ngram_follows_the_longest_match_and_of_those_the_most_recent),
        cmocka_unit_test(every_drafter_is_found_by_its_name),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(target_path);
    free(draft_path);
    tiny_clean();
    return failed;
}
