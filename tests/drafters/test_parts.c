// test_parts.c - drafters of drafters without a model: a union is the drafts of its parts put into one prefix tree, on 200 random histories; a
// draft by recent acceptance has the length that the schedule says; mistakes in options.
#include <stdlib.h>
#include <string.h>

#include "core/draft.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "tests/support/tests.h"
#include "tests/support/numbers.h"
#include "tests/support/lone_drafter.h"

enum { LENGTH = 120, NODES = 64, VOCAB = 6 };

static struct drafter *open_line(const char *line, struct error *err)
{
    return lone_drafter(line, &(struct drafter_env){ .slots = 1, .length = LENGTH, .used_vocab = VOCAB }, err);
}

static void propose(struct drafter *d, struct own_draft *o, const int32_t *text, int n, int capacity, int depth)
{
    struct error err;
    struct request r = { .n = n, .token = text, .draft = own_draft_begin(o, text[n - 1], capacity), .depth = depth };
    assert_ok(d->type->propose(d, &r, 1, &err), err);
}

// ---- union

static void put(struct own_draft *to, const struct own_draft *from, int part)
{
    int at[NODES] = { 0 };
    for (int i = 1; i < from->draft.n; i++) {
        const int parent = at[from->parent[i]];
        at[i] = -1;
        for (int k = 1; k < to->draft.n && parent >= 0; k++)
            if (to->parent[k] == parent && to->token[k] == from->token[i])
                at[i] = k;
        if (parent >= 0 && at[i] < 0 && to->draft.n < to->draft.capacity) {
            at[i] = to->draft.n++;
            to->token[at[i]] = from->token[i];
            to->parent[at[i]] = parent;
            to->source[at[i]] = 0;
        }
        if (at[i] >= 0)
            to->source[at[i]] |= (uint8_t)(1 << part);
    }
}

TEST(a_union_is_the_drafts_of_its_parts_in_one_tree)
{
    static const char *const parts[] = { "ngram:longest=2,tokens=3", "suffix:max_spec_factor=4,min_token_prob=0",
                                         "ngram:longest=4,shortest=2,tokens=6" };
    struct error err;
    int nodes = 0, shared = 0;
    for (int history = 0; history < 200; history++) {
        const int budget = 1 + below(12);
        char *line = xformat(
            "union:nodes=%d,of=[{kind: ngram, longest: 2, tokens: 3},{kind: suffix, max_spec_factor: 4, min_token_prob: 0},"
            "{kind: ngram, longest: 4, shortest: 2, tokens: 6}]",
            budget);
        struct drafter *whole = open_line(line, &err), *part[3];
        assert_ok(whole != NULL, err);
        assert_int_equal(whole->nodes, 1 + budget);
        for (int k = 0; k < 3; k++)
            assert_ok((part[k] = open_line(parts[k], &err)) != NULL, err);
        int32_t text[LENGTH];
        for (int i = 0; i < LENGTH; i++)
            text[i] = i > 8 && below(3) > 0 ? text[i - 5] : below(VOCAB);
        for (int n = 1; n < LENGTH; n += 1 + below(9)) {
            static struct own_draft o, of[3], plain;
            const int capacity = below(4) > 0 ? 1 + budget : 1 + below(1 + budget),
                      depth = below(4) > 0 ? 50 : below(5);
            propose(whole, &o, text, n, capacity, depth);
            own_draft_begin(&plain, text[n - 1], capacity);
            for (int k = 0; k < 3; k++) {
                propose(part[k], &of[k], text, n, part[k]->nodes < capacity ? part[k]->nodes : capacity, depth);
                put(&plain, &of[k], k);
            }
            assert_int_equal(o.draft.n, plain.draft.n);
            assert_memory_equal(o.token, plain.token, (size_t)o.draft.n * sizeof(int32_t));
            assert_memory_equal(o.parent, plain.parent, (size_t)o.draft.n * sizeof(int32_t));
            for (int i = 1; i < o.draft.n; i++) {
                assert_int_equal(o.source[i], plain.source[i]);
                shared += (o.source[i] & (o.source[i] - 1)) != 0;
            }
            nodes += o.draft.n - 1;
        }
        free(line);
        drafter_destroy(whole);
        for (int k = 0; k < 3; k++)
            drafter_destroy(part[k]);
    }
    print_message("%d nodes, %d of several parts\n", nodes, shared);
    assert_true(nodes > 5000 && shared > 1000);
}

// ---- adaptive

static int64_t now; // of the clock, which the linker replaces (CMakeLists.txt)

int64_t __wrap_clock_ns(void);
int64_t __wrap_clock_ns(void)
{
    return now;
}

// Each text repeats itself, so that the lookup always has as many tokens as it may propose.
TEST(recent_acceptance_lengthens_and_shortens_drafts)
{
    struct error err;
    struct drafter *d = open_line("adaptive:by=acceptance,of={kind: ngram, tokens: 7}", &err);
    assert_ok(d != NULL, err);
    int32_t text[LENGTH];
    static struct own_draft o;
    for (int i = 0; i < LENGTH; i++)
        text[i] = i % 10;
    for (int again = 0; again < 2; again++) {
        int expected = 7;
        for (int n = 30; n < LENGTH; n += 2) {
            propose(d, &o, text, n, 1 + 7, 50);
            assert_int_equal(o.draft.n - 1, expected);
            const int accepted = below(2) ? expected : below(expected);
            int32_t node[NODES];
            for (int i = 0; i <= accepted; i++)
                node[i] = i;
            const struct advance a = {
                .n = accepted + 1, .node = node, .token = o.token, .sequence = text, .length = n + 2
            };
            assert_ok(d->type->advance(d, &a, 1, &err), err);
            expected += accepted == expected ? 2 : -1;
            expected = expected < 1 ? 1 : expected > 7 ? 7 : expected;
        }
        d->type->forget(d, 0); // the next text begins anew
    }
    drafter_destroy(d);
}

// A drafter that is never right is soon asked for nothing but a token now and then; one that always is, for all it has.
TEST(expected_gain_against_cost_finds_the_extremes)
{
    struct error err;
    int32_t text[LENGTH];
    static struct own_draft o;
    for (int i = 0; i < LENGTH; i++)
        text[i] = i % 10;
    for (int right = 0; right < 2; right++) {
        struct drafter *d = open_line("adaptive:of={kind: ngram, tokens: 7}", &err);
        assert_ok(d != NULL, err);
        int drafted = 0, steps = 0;
        for (int round = 0; round < 20; round++)
            for (int n = 30; n < LENGTH; n++, steps++) {
                propose(d, &o, text, n, 1 + 7, 50);
                drafted += round > 4 ? o.draft.n - 1 : 0;
                now += 1000 + 200 * (o.draft.n - 1) + below(300); // a pass: longer drafts cost more
                int32_t node[NODES];
                const int accepted = right ? o.draft.n - 1 : 0;
                for (int i = 0; i <= accepted; i++)
                    node[i] = i;
                const struct advance a = {
                    .n = accepted + 1, .node = node, .token = o.token, .sequence = text, .length = n + 1
                };
                assert_ok(d->type->advance(d, &a, 1, &err), err);
            }
        const double mean = (double)drafted / (steps * 15 / 20);
        print_message("%s: %.2f draft tokens\n", right ? "always right" : "always wrong", mean);
        assert_true(right ? mean > 5 : mean < 1);
        drafter_destroy(d);
    }
}

static unsigned made_by(const char *line)
{
    struct error err;
    struct settings *s = settings_inline(line, "drafter", &err);
    const struct drafter_type *type = drafter_named(settings_get(s, "kind")->text);
    void *options = xcalloc(1, type->options_size + 1);
    assert_ok(options_read(s, "drafter", type->options, options, &err), err);
    const unsigned made = drafter_makes(type, options);
    options_free(type->options, options);
    free(options);
    settings_free(s);
    return made;
}

// Rules of several chains (multipath) need them equally deep.
TEST(chains_that_end_by_confidence_are_a_tree)
{
#define CHAINS "of={kind: early_exit, exit_layer: 1, widths: [3, 1, 1], distinct: false}"
    assert_int_equal(made_by("adaptive:" CHAINS), TAKES_CHAINS | TAKES_SAMPLED);
    assert_int_equal(made_by("adaptive:by=confidence," CHAINS), TAKES_TREES | TAKES_SAMPLED);
    assert_int_equal(made_by("adaptive:by=confidence,of={kind: early_exit, exit_layer: 1}"), TAKES_SAMPLED);
}

TEST(mistakes_are_one_sentence)
{
    static const char *const cases[][2] = {
        { "union:of=ngram", "drafter union: of: expected a list of drafters" },
        { "union:of=[{kind: ladder, of: [ngram]}]", "a ladder cannot be part of another" },
        { "adaptive:of={kind: union, of: [ngram]}", "a union cannot be part of another" },
        { "adaptive:of=[ngram]", "drafter adaptive: of: expected a kind" },
        { "adaptive:by=luck,of=ngram", "by" },
        { "adaptive:of={kind: ngram, at_least: 2}", "drafter adaptive: of: drafter ngram has no option \"at_least\"" },
        { "lookahead:window=64,ngram=16,candidates=64",
          "drafter lookahead: a draft has 1 + (window + candidates) (ngram - 1) = 1921 nodes" },
        { "rest:datastore=/nowhere/x.store", "drafter rest: datastore:" },
        { "recycling:tree=unknown", "drafter recycling: tree: unknown" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct error err;
        struct drafter *d = open_line(cases[i][0], &err);
        if (d != NULL || strstr(err.text, cases[i][1]) == NULL)
            fail_msg("%s\n  found    %s\n  expected %s", cases[i][0], d != NULL ? "no mistake" : err.text, cases[i][1]);
    }
}

// ---- length

TEST(length_is_short_for_adaptive_around_the_drafter)
{
    static const char *const cases[][2] = {
        { "ngram:tokens=8,length=adaptive", "{kind: adaptive, of: {kind: ngram, tokens: 8}}" },
        { "ngram:length=adaptive", "{kind: adaptive, of: {kind: ngram}}" },
        { "eagle3:length={by: confidence, threshold: 0.3},weights=a,tokens=3",
          "{kind: adaptive, of: {kind: eagle3, weights: a, tokens: 3}, by: confidence, threshold: 0.3}" },
        { "ngram:tokens=8", "{kind: ngram, tokens: 8}" },
        { "none", "{kind: none}" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct error err;
        struct text t = { 0 };
        struct settings *s = settings_inline(cases[i][0], "drafter", &err);
        assert_ok(s != NULL && drafter_length(s, &err), err);
        settings_write(s, &t);
        assert_string_equal(t.s, cases[i][1]);
        free(t.s);
        settings_free(s);
    }
    static const char *const wrong[] = { "ngram:length=8", "ngram:length=[adaptive]", "ngram:length={kind: none}",
                                         "ngram:length={of: ngram}" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct error err;
        struct settings *s = settings_inline(wrong[i], "drafter", &err);
        assert_false(drafter_length(s, &err));
        assert_non_null(strstr(err.text, "length: expected adaptive, or options of the drafter adaptive"));
        settings_free(s);
    }
}

RUN_TESTS(NULL, NULL)
