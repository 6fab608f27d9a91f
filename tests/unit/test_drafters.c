// test_drafters.c - the drafters' contract, over the whole registry: a draft depends on the text announced so far and
// on nothing else.
//
// A drafter is driven through steps of which some guesses stand and some do not. Before each step a fresh drafter, told
// the whole text as a prompt, must propose what the driven one proposes. No wrong text would ever show the difference:
// a drafter that keeps wrong rows of its cache only drafts worse.
//
// And every token that is said to be drawn must have been drawn from the very row that is reported: a witness stands
// between the drafter and chance.
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/support/numbers.h"
#include "tests/support/pairings.h"
#include "tests/exact/recording_rng.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 300, SLOTS = 2 };

static uint64_t state;

static int below(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

// Not a rule that anyone would use: a guess stands or falls by the test's own dice, and so does the token after it.
static void judge_by_dice(const struct draft *d, struct rows *p, const void *options, struct rng *rng,
                          struct verification *out)
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
                                  .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_DISTINCT | TAKES_TREES,
                                  .verify = judge_by_dice };

struct told {
    struct philox rng;
    int32_t token[LENGTH + MAX_NODES];
    int n;
    struct draft draft;
    int32_t node_token[MAX_NODES], node_parent[MAX_NODES];
    uint8_t node_proposal[MAX_NODES];
};

static struct request request(struct told *t, int slot, int capacity, int depth)
{
    t->rng.rng.root = t->n - 1;
    t->draft = (struct draft){ 1, capacity, t->node_token, t->node_parent, t->node_proposal, NULL, NULL };
    t->node_token[0] = t->token[t->n - 1];
    t->node_parent[0] = -1;
    t->node_proposal[0] = DETERMINISTIC;
    return (struct request){ slot, t->n, t->token, &t->rng.rng, &t->draft, depth, NULL };
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

static void check_shape(const struct pair *p, const char *name, const struct draft *d, int capacity, int depth)
{
    unsigned makes = drafter_makes(p->type, p->options);
    assert_true(d->n >= 1 && d->n <= capacity && d->n <= p->drafter->nodes);
    assert_true(draft_max_depth(d) <= depth);
    for (int i = 1; i < d->n; i++) {
        assert_true(d->parent[i] >= 0 && d->parent[i] < i);
        assert_true(d->proposal[i] != DETERMINISTIC || makes & TAKES_DETERMINISTIC);
        assert_true(d->proposal[i] != SAMPLED || makes & TAKES_SAMPLED || makes & TAKES_DISTINCT);
        assert_true(d->proposal[i] != SAMPLED_WITHOUT_REPLACEMENT || makes & TAKES_DISTINCT);
        for (int j = 1; j < i; j++) {
            if (d->parent[j] != d->parent[i])
                continue;
            assert_true(makes & TAKES_TREES || (makes & TAKES_CHAINS && d->parent[i] == 0));
            if (d->token[j] == d->token[i] && !(d->proposal[i] == SAMPLED && d->proposal[j] == SAMPLED))
                fail_msg("%s: siblings %d and %d are both token %d", name, j, i, d->token[i]);
        }
        if (d->proposal[i] == DETERMINISTIC)
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
        if (a->token[i] != b->token[i] || a->parent[i] != b->parent[i] || a->proposal[i] != b->proposal[i])
            fail_msg("%s, step %d: node %d is token %d below %d, of a fresh drafter token %d below %d", name, step, i,
                     a->token[i], a->parent[i], b->token[i], b->parent[i]);
        if (a->proposal[i] != DETERMINISTIC)
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

// Lets a drafter propose under the eyes of witnesses; the worst that they saw.
static struct honesty propose_watched(const struct drafter_type *type, struct drafter *d, struct request *r, int n)
{
    static struct witness witness[SLOTS];
    struct rng *source[SLOTS];
    struct honesty worst = { 0, 0 };
    struct error err;
    for (int i = 0; i < n; i++) {
        source[i] = r[i].rng;
        witness_begin(&witness[i], source[i]);
        r[i].rng = &witness[i].rng;
    }
    assert_true(type->propose(d, r, n, &err));
    for (int i = 0; i < n; i++) {
        struct honesty h = witness_compare(&witness[i], r[i].draft);
        worst.distance = worse(worst.distance, h.distance);
        worst.foreign_tokens += h.foreign_tokens;
        witness_end(&witness[i]);
        r[i].rng = source[i];
    }
    return worst;
}

// What is held against a drafter's word; NULL: nothing is.
static const char *refusal(struct honesty h)
{
    if (h.foreign_tokens > 0)
        return "what it says it drew is not what it drew";
    return h.distance <= 1e-12 ? NULL : "it draws from another row than it reports";
}

// shortest: of the prompts; 0: of a few tokens or some more.
static void drive(const char *name, const char *sampling, int shortest, int rounds, int steps)
{
    struct error err;
    const int length = shortest > 0 ? LENGTH : 160;
    struct pair *driven = pair_open(pair_target, pair_draft, name, sampling, &dice, SLOTS, length);
    struct pair *fresh = pair_open(pair_target, pair_draft, name, sampling, &dice, SLOTS, length);
    int vocab = model_shape(driven->target)->vocab;
    static struct told t[SLOTS], again[SLOTS];
    for (int round = 0; round < rounds; round++) { // the second time in slots that were used before
        for (int s = 0; s < SLOTS; s++) {
            t[s] = told((uint64_t)(10 * round + s), shortest > 0 ? shortest + s : 3 + below(40), vocab);
            announce_prompt(driven, s, &t[s]);
        }
        for (int step = 0; step < steps; step++) {
            struct request r[SLOTS], f[SLOTS];
            struct advance a[SLOTS];
            int capacity = below(4) > 0 ? driven->drafter->nodes : 1 + below(driven->drafter->nodes),
                depth = below(5) > 0 ? 50 : below(4);
            for (int s = 0; s < SLOTS; s++) {
                again[s] = t[s];
                r[s] = request(&t[s], s, capacity, depth);
                f[s] = request(&again[s], s, capacity, depth);
                announce_prompt(fresh, s, &again[s]);
            }
            const char *why = refusal(propose_watched(driven->type, driven->drafter, r, SLOTS));
            if (why != NULL)
                fail_msg("%s, %s: %s", name, sampling, why);
            assert_true(fresh->type->propose(fresh->drafter, f, SLOTS, &err));
            for (int s = 0; s < SLOTS; s++) {
                check_shape(driven, name, &t[s].draft, capacity, depth);
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
            drive(pair_drafter(i), samplings[k], 0, 2, 8);
}

// A prompt comes by stretches of 256: a drafter that was told 254 tokens and then a few at a time has to know what one knows
// that was told them all, by two stretches.
static void and_on_nothing_else_where_a_stretch_ends(void **unused)
{
    (void)unused;
    static const char *const drafters[] = {
        "ngram:longest=2,tokens=3",
        "small:model=%s,widths=[2,1]",
        "medusa:weights=%s.medusa,tokens=3",
        "eagle:weights=%s.eagle",
        "eagle3:weights=%s.eagle3,nodes=6,top=3,tokens=3,pick=greedy",
    };
    for (size_t i = 0; i < sizeof(drafters) / sizeof(drafters[0]); i++)
        drive(drafters[i], "{temperature: 1.0}", 254, 1, 5);
}

// ---- drafters that must not pass

enum { PLANTED_VOCAB = 4 };

enum planted_lie { SAYS_TRUE, OTHER_TEMPERATURE, FEWER_BITS, GREEDY, DROPPED, RENUMBERED, PLANTED_LIES };

struct negative_control {
    struct drafter drafter;
    struct rows q;
    enum planted_lie lie;
};

static const float *planted_row(struct rows *self, int node)
{
    static const float row[PLANTED_VOCAB] = { 0.1F, 0.2F, 0.3F, 0.4F };
    (void)self, (void)node;
    return row;
}

static bool planted_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct negative_control *p = (struct negative_control *)d;
    (void)err;
    for (int i = 0; i < n; i++) {
        r[i].draft->q = &p->q;
        for (int k = 0; k < 3; k++) {
            double w[PLANTED_VOCAB];
            for (int x = 0; x < PLANTED_VOCAB; x++) {
                w[x] = planted_row(&p->q, 0)[x];
                w[x] = p->lie == OTHER_TEMPERATURE ? w[x] * w[x]
                       : p->lie == FEWER_BITS      ? round(w[x] * 256) / 256
                                                   : w[x];
            }
            int token = 3;
            if (p->lie != GREEDY)
                token = r[i].rng->pick(r[i].rng, w, PLANTED_VOCAB, (struct address){ FOR_DRAFT, r[i].rng->root, k });
            if (p->lie != DROPPED || token > 0)
                draft_add(r[i].draft, 0, p->lie == RENUMBERED ? (token + 1) % PLANTED_VOCAB : token, SAMPLED);
        }
    }
    return true;
}

static void a_drafter_that_misstates_how_it_drew_is_refused(void **unused)
{
    (void)unused;
    static const struct drafter_type type = { .name = "planted", .propose = planted_propose };
    static const char *const expected[] = { [SAYS_TRUE] = NULL,
                                            [OTHER_TEMPERATURE] = "it draws from another row than it reports",
                                            [FEWER_BITS] = "it draws from another row than it reports",
                                            [GREEDY] = "what it says it drew is not what it drew",
                                            [DROPPED] = "what it says it drew is not what it drew",
                                            [RENUMBERED] = "what it says it drew is not what it drew" };
    for (int lie = 0; lie < PLANTED_LIES; lie++) {
        struct negative_control p = { { .type = &type }, { PLANTED_VOCAB, planted_row, NULL }, (enum planted_lie)lie };
        const char *why = NULL;
        for (uint64_t seed = 0; seed < 20 && why == NULL; seed++) { // a draw is dropped now and then
            static struct told t;
            t = told(seed, 3, PLANTED_VOCAB);
            struct request r = request(&t, 0, 8, 3);
            why = refusal(propose_watched(&type, &p.drafter, &r, 1));
        }
        if (expected[lie] == NULL)
            assert_null(why);
        else
            assert_string_equal(why, expected[lie]);
    }
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
        struct drafter_env env = { .slots = 1, .length = 64, .used_vocab = 4 };
        struct drafter *d = drafter_create(drafter_named("ngram"), &env, &o, &err);
        int32_t token[40], draft_token[8] = { 0 }, parent[8] = { -1 };
        uint8_t proposal[8] = { 0 };
        int n = 1 + below(40), from = -1;
        for (int i = 0; i < n; i++)
            token[i] = below(2 + t % 3);
        struct draft draft = { .n = 1, .capacity = 7, .token = draft_token, .parent = parent, .proposal = proposal };
        struct request r = { .n = n, .token = token, .draft = &draft, .depth = 6 };
        assert_true(drafter_named("ngram")->propose(d, &r, 1, &err));
        for (int m = o.longest; m >= o.shortest && from < 0; m--)
            from = ends_before(token, n, m);
        int draft_tokens = from < 0 ? 0 : n - from < 6 ? n - from : 6;
        assert_int_equal(draft.n, 1 + draft_tokens);
        for (int i = 0; i < draft_tokens; i++)
            assert_int_equal(draft_token[1 + i], token[from + i]);
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

// Of no drafts a rule need take any kind: a baseline for every rule.
static void plain_decoding_asks_nothing_of_a_rule(void **unused)
{
    (void)unused;
    assert_int_equal(drafter_makes(drafter_named("none"), NULL), 0);
    assert_int_equal(takes_beyond(0, drafter_makes(drafter_named("none"), NULL)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draft_depends_on_the_text_and_on_nothing_else),
        cmocka_unit_test(and_on_nothing_else_where_a_stretch_ends),
        cmocka_unit_test(a_drafter_that_misstates_how_it_drew_is_refused),
        cmocka_unit_test(ngram_follows_the_longest_match_and_of_those_the_most_recent),
        cmocka_unit_test(every_drafter_is_found_by_its_name),
        cmocka_unit_test(plain_decoding_asks_nothing_of_a_rule),
    };
    return cmocka_run_group_tests(tests, pair_models_make_foreign, pair_models_remove);
}
