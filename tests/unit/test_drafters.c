// test_drafters.c - the contract of all registered drafters (drafters/drafter.h): a draft depends on the text so far, on where the
// prompt ends if the drafter says so, and on nothing else.
//
// A drafter is driven through steps in which some draft tokens are accepted and some rejected. Before each step a fresh drafter
// that gets the whole text as a prompt must propose the same draft; one that uses where the prompt ends gets the same prompt, and
// the rest token by token. The text would never show a difference: a drafter with wrong rows in its cache only drafts worse.
//
// `test_drafters DRAFTER...` tests these drafters with these options, as in "linear:weights=head.safetensors".
//
// Every SAMPLED token must have been drawn from the reported row: a recording source is put between the drafter and its random
// source.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "engine/plugin.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/numbers.h"
#include "tests/support/pairings.h"
#include "tests/exact/recording_rng.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 400, SLOTS = 2 };

// A rule for this test: acceptance and the next token are random, from the test's own source.
static void accept_at_random(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                             struct rng *rng, struct verification *out)
{
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

static const struct rule random_rule = { .name = "random",
                                         .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT |
                                                  TAKES_TREES,
                                         .verify = accept_at_random };

struct text_state {
    struct philox rng;
    int32_t token[LENGTH + MAX_NODES];
    int n, prompt; // prompt: the first of these n tokens
    struct own_draft own;
};

static struct request request(struct text_state *t, int slot, int capacity, int depth)
{
    t->rng.rng.root = t->n - 1;
    return (struct request){ .slot = slot,
                             .n = t->n,
                             .prompt = t->prompt,
                             .token = t->token,
                             .rng = &t->rng.rng,
                             .draft = own_draft_begin(&t->own, t->token[t->n - 1], capacity),
                             .depth = depth };
}

static void check_shape(const struct pair *p, const char *name, const struct draft *d, int capacity, int depth)
{
    unsigned makes = drafter_makes(p->type, p->options);
    assert_true(d->n >= 1 && d->n <= capacity && d->n <= p->drafter->nodes);
    assert_true(draft_max_depth(d) <= depth);
    for (int i = 1; i < d->n; i++) {
        assert_true(d->parent[i] >= 0 && d->parent[i] < i);
        assert_true(d->proposal[i] != DETERMINISTIC || makes & TAKES_DETERMINISTIC);
        assert_true(d->proposal[i] != SAMPLED || makes & TAKES_SAMPLED || makes & TAKES_WITHOUT_REPLACEMENT);
        assert_true(d->proposal[i] != SAMPLED_WITHOUT_REPLACEMENT || makes & TAKES_WITHOUT_REPLACEMENT);
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
        fail_msg("%s, step %d: the driven drafter proposes %d nodes, a fresh one, given the whole text, %d", name, step,
                 a->n, b->n);
    for (int i = 1; i < a->n; i++) {
        if (a->token[i] != b->token[i] || a->parent[i] != b->parent[i] || a->proposal[i] != b->proposal[i])
            fail_msg("%s, step %d: node %d is token %d below %d, of a fresh drafter token %d below %d", name, step, i,
                     a->token[i], a->parent[i], b->token[i], b->parent[i]);
        if (a->proposal[i] != DETERMINISTIC)
            assert_memory_equal(a->q->row(a->q, a->parent[i]), b->q->row(b->q, b->parent[i]),
                                (size_t)a->q->vocab * sizeof(float));
    }
}

static struct text_state random_text(uint64_t number, int n, int vocab)
{
    struct text_state t = { .rng = philox_source(11, number), .n = n, .prompt = n };
    for (int i = 0; i < n; i++)
        t.token[i] = i > 8 && below(2) == 0 ? t.token[i - 7] : below(vocab); // with repetitions, for lookups
    return t;
}

// Lets a drafter propose with recorded draws; returns the worst difference from its report.
static struct proposal_error propose_recorded(const struct drafter_type *type, struct drafter *d, struct request *r,
                                              int n)
{
    static struct recording_rng recording_rng[SLOTS];
    struct rng *source[SLOTS];
    struct proposal_error worst = { 0, 0 };
    struct error err;
    for (int i = 0; i < n; i++) {
        source[i] = r[i].rng;
        recording_rng_begin(&recording_rng[i], source[i]);
        r[i].rng = &recording_rng[i].rng;
    }
    assert_true(type->propose(d, r, n, &err));
    for (int i = 0; i < n; i++) {
        struct proposal_error h = recording_rng_compare(&recording_rng[i], r[i].draft);
        worst.distance = worse(worst.distance, h.distance);
        worst.foreign_tokens += h.foreign_tokens;
        recording_rng_end(&recording_rng[i]);
        r[i].rng = source[i];
    }
    return worst;
}

// Why a drafter's report is wrong; NULL: it is right.
static const char *refusal(struct proposal_error h)
{
    if (h.foreign_tokens > 0)
        return "a token reported as drawn was not drawn";
    return h.distance <= 1e-12 ? NULL : "draws from another row than it reports";
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

// shortest: length of the shortest prompt; 0: random lengths from 3 tokens on.
static void drive(const char *name, const char *sampling, int shortest, int rounds, int steps)
{
    struct error err;
    const int length = shortest > 0 ? LENGTH : 160;
    struct pair *driven = pair_open(pair_target, pair_draft, name, sampling, &random_rule, SLOTS, length);
    struct pair *fresh = pair_open(pair_target, pair_draft, name, sampling, &random_rule, SLOTS, length);
    int vocab = model_shape(driven->target)->vocab;
    static struct text_state t[SLOTS], again[SLOTS];
    for (int round = 0; round < rounds; round++) { // from the second round on in slots that were used before
        for (int s = 0; s < SLOTS; s++) {
            t[s] = random_text((uint64_t)(10 * round + s), shortest > 0 ? shortest + s : 3 + below(40), vocab);
            pair_feed(driven, s, t[s].token, t[s].n, NULL);
        }
        for (int step = 0; step < steps; step++) {
            struct request r[SLOTS], f[SLOTS];
            struct advance a[SLOTS];
            int capacity = below(4) > 0 ? driven->drafter->nodes : 1 + below(driven->drafter->nodes),
                depth = below(5) > 0 ? 50 : below(4);
            for (int s = 0; s < SLOTS; s++) { // as the loop limits them at the end of the context
                capacity = least(capacity, length - t[s].n + 1);
                depth = least(depth, length - t[s].n - 1);
            }
            if (depth < 0)
                break;
            for (int s = 0; s < SLOTS; s++) {
                again[s] = t[s];
                r[s] = request(&t[s], s, capacity, depth);
                f[s] = request(&again[s], s, capacity, depth);
                pair_feed(fresh, s, again[s].token, again[s].n, NULL);
            }
            struct proposal_error wrong = propose_recorded(driven->type, driven->drafter, r, SLOTS);
            if (!(drafter_makes(driven->type, driven->options) & (TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT)))
                wrong.foreign_tokens = 0; // no token is declared as drawn, so draws are the drafter's own affair
            const char *why = refusal(wrong);
            if (why != NULL)
                fail_msg("%s, %s: %s", name, sampling, why);
            assert_true(fresh->type->propose(fresh->drafter, f, SLOTS, &err));
            for (int s = 0; s < SLOTS; s++) {
                check_shape(driven, name, &t[s].own.draft, capacity, depth);
                if (drafter_remembers(driven->type, driven->options) == DRAFTS_OF_TEXT)
                    same_draft(name, step, &t[s].own.draft, &again[s].own.draft);
                verifier_forget(fresh->verifier, s);
                if (fresh->type->forget != NULL)
                    fresh->type->forget(fresh->drafter, s);
            }
            assert_true(verifier_score(driven->verifier, r, SLOTS, &err) &&
                        verifier_accept(driven->verifier, r, SLOTS, a, &err));
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

TEST(a_draft_depends_only_on_the_text)
{
    static const char *const samplings[] = {
        "{temperature: 0}", "{temperature: 1.0}",
        "{repetition_penalty: 1.3, frequency_penalty: 0.3, temperature: 0.8, top_p: 0.9}"
    };
    for (int i = 0; i < pair_count(); i++)
        for (size_t k = 0; k < sizeof(samplings) / sizeof(samplings[0]); k++)
            drive(pair_drafter(i), samplings[k], 0, 2, 8);
}

// A prompt is processed in chunks of 256: a drafter that got 254 tokens and then a few at a time must be in the same state as
// one that got all tokens in two chunks.
TEST(a_draft_depends_only_on_the_text_at_chunk_boundaries)
{
    for (int i = 0; i < pair_count(); i++)
        drive(pair_drafter(i), "{temperature: 1.0}", 254, 1, 5);
}

// ---- negative controls: drafters that must not pass

enum { CONTROL_VOCAB = 4 };

enum control_fault { NO_FAULT, OTHER_TEMPERATURE, FEWER_BITS, GREEDY, DROPPED, RENUMBERED, CONTROL_FAULTS };

struct negative_control {
    struct drafter drafter;
    struct rows q;
    enum control_fault fault;
};

static const float *control_row(struct rows *self, int node)
{
    static const float row[CONTROL_VOCAB] = { 0.1F, 0.2F, 0.3F, 0.4F };
    return row;
}

static bool control_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct negative_control *p = (struct negative_control *)d;
    for (int i = 0; i < n; i++) {
        r[i].draft->q = &p->q;
        for (int k = 0; k < 3; k++) {
            double w[CONTROL_VOCAB];
            for (int x = 0; x < CONTROL_VOCAB; x++) {
                w[x] = control_row(&p->q, 0)[x];
                w[x] = p->fault == OTHER_TEMPERATURE ? w[x] * w[x]
                       : p->fault == FEWER_BITS      ? round(w[x] * 256) / 256
                                                     : w[x];
            }
            int token = 3;
            if (p->fault != GREEDY)
                token = r[i].rng->pick(r[i].rng, w, CONTROL_VOCAB, (struct address){ FOR_DRAFT, r[i].rng->root, k });
            if (p->fault != DROPPED || token > 0)
                draft_add(r[i].draft, 0, p->fault == RENUMBERED ? (token + 1) % CONTROL_VOCAB : token, SAMPLED);
        }
    }
    return true;
}

TEST(a_drafter_that_misreports_its_draws_is_detected)
{
    static const struct drafter_type type = { .name = "control", .propose = control_propose };
    static const char *const expected[] = { [NO_FAULT] = NULL,
                                            [OTHER_TEMPERATURE] = "draws from another row than it reports",
                                            [FEWER_BITS] = "draws from another row than it reports",
                                            [GREEDY] = "a token reported as drawn was not drawn",
                                            [DROPPED] = "a token reported as drawn was not drawn",
                                            [RENUMBERED] = "a token reported as drawn was not drawn" };
    for (int fault = 0; fault < CONTROL_FAULTS; fault++) {
        struct negative_control p = { { .type = &type }, { CONTROL_VOCAB, control_row }, (enum control_fault)fault };
        const char *why = NULL;
        for (uint64_t seed = 0; seed < 20 && why == NULL; seed++) { // not every draw is dropped
            static struct text_state t;
            t = random_text(seed, 3, CONTROL_VOCAB);
            struct request r = request(&t, 0, 8, 3);
            why = refusal(propose_recorded(&type, &p.drafter, &r, 1));
        }
        if (expected[fault] == NULL)
            assert_null(why);
        else
            assert_string_equal(why, expected[fault]);
    }
}

// The end of the most recent earlier occurrence of the last m tokens; -1: none.
static int ends_before(const int32_t *token, int n, int m)
{
    for (int start = n - m - 1; start >= 0; start--)
        if (memcmp(token + start, token + n - m, (size_t)m * sizeof(*token)) == 0)
            return start + m;
    return -1;
}

TEST(ngram_follows_the_most_recent_of_the_longest_matches)
{
    struct error err;
    struct ngram_options {
        int longest, shortest, tokens;
    };
    for (int t = 0; t < 4000; t++) {
        struct ngram_options o = { 1 + below(5), 1, 6 };
        o.shortest = 1 + below(o.longest);
        struct drafter_env env = { .slots = 1, .length = 64, .used_vocab = 4 };
        struct drafter *d = drafter_create(drafter_named("ngram"), &env, &o, &err);
        int32_t token[40];
        struct own_draft own;
        int n = 1 + below(40), from = -1;
        for (int i = 0; i < n; i++)
            token[i] = below(2 + t % 3);
        struct request r = { .n = n, .token = token, .draft = own_draft_begin(&own, token[n - 1], 7), .depth = 6 };
        assert_true(drafter_named("ngram")->propose(d, &r, 1, &err));
        for (int m = o.longest; m >= o.shortest && from < 0; m--)
            from = ends_before(token, n, m);
        int draft_tokens = from < 0 ? 0 : n - from < 6 ? n - from : 6;
        assert_int_equal(own.draft.n, 1 + draft_tokens);
        for (int i = 0; i < draft_tokens; i++)
            assert_int_equal(own.token[1 + i], token[from + i]);
        drafter_destroy(d);
    }
}

TEST(every_drafter_is_found_by_its_name)
{
    for (int i = 0; drafter_types[i] != NULL; i++) {
        assert_ptr_equal(drafter_named(drafter_types[i]->name), drafter_types[i]);
        assert_true(strlen(drafter_types[i]->summary) > 0);
    }
    assert_null(drafter_named("no such drafter"));
}

// `none` makes no kind of draft, so every rule takes it.
TEST(every_rule_takes_ordinary_decoding)
{
    assert_int_equal(drafter_makes(drafter_named("none"), NULL), 0);
    assert_int_equal(takes_missing(0, drafter_makes(drafter_named("none"), NULL)), 0);
}

int main(int argc, char **argv)
{
    struct error err;
    if (!plugins_take(&argc, argv, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    pair_only(argv + 1, argc - 1);
    return tests_run(pair_models_make_foreign, pair_models_remove);
}
