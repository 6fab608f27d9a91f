// test_ladder.c - the drafter of drafters: which part is taken, that all parts stay in step, what it refuses. That its drafts depend on the
// text alone, and the texts of all its combinations, are in test_drafters.c and test_decode.c, like every drafter's.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "engine/engine.h"
#include "experiments/yaml.h"
#include "kernels/backend.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/support/numbers.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/decode_prompts.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 128, LIMIT = 40, SLOTS = 2, TEXT = 40, NODES = 16 };

// ---- ladders of which one part drafts everything

static struct prompt_set prompts;

static void make_prompts(void)
{
    prompts.n = 5;
    for (int i = 0; i < prompts.n; i++) {
        prompts.length[i] = 2 + 9 * i; // after a single token a head has no state yet
        for (int k = 0; k < prompts.length[i]; k++)
            prompts.token[i][k] = k > 12 && i > 2 ? prompts.token[i][k - 8] : below(small_default.vocab);
    }
}

static struct decode_result *decode(const char *drafter, const char *sampling, int slots)
{
    const struct decode_setup s = { pair_target, pair_draft, &prompts, drafter, sampling, "rejection",
                                    NULL,        slots,      LIMIT,    LENGTH,  NULL,     NULL };
    return decode_prompts(&s);
}

#define NEVER "{kind: ngram, longest: 64, shortest: 64}"

// The same drafts, decisions and trials in every step as of that part alone.
TEST(a_ladder_of_which_one_part_drafts_equals_that_part)
{
    static const char *const cases[][2] = {
        { "ladder:of=[ngram]", "ngram" },
        { "ladder:of=[{kind: ngram, longest: 2},{kind: small, model: %s, at_least: 1}]", NULL },
        { "ladder:of=[" NEVER ",{kind: small, model: %s}]", "small:model=%s" },
        { "ladder:of=[" NEVER ",{kind: small, model: %s, widths: [3, 2, 1]}]", "small:model=%s,widths=[3,2,1]" },
        { "ladder:of=[" NEVER ",{kind: medusa, weights: %s.medusa, tokens: 3}]", "medusa:weights=%s.medusa,tokens=3" },
        { "ladder:of=[{kind: eagle3, weights: %s.eagle3, tokens: 3},{kind: small, model: %s}]",
          "eagle3:weights=%s.eagle3,tokens=3" },
        { "ladder:of=[" NEVER ",{kind: eagle, weights: %s.eagle, nodes: 9, top: 3, tokens: 4, pick: greedy},"
          "{kind: eagle3, weights: %s.eagle3}]",
          "eagle:weights=%s.eagle,nodes=9,top=3,tokens=4,pick=greedy" },
    };
    static const char *const samplings[] = { "{temperature: 0}", "{temperature: 1}" };
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++)
        for (int k = 0; k < 4; k++) {
            const char *alone = cases[c][1] != NULL ? cases[c][1] : "small:model=%s";
            struct decode_result *a = decode(cases[c][0], samplings[k % 2], 1 + k),
                                 *b = decode(alone, samplings[k % 2], 1 + k);
            bool same = a->drafted == b->drafted && a->accepted == b->accepted && a->steps == b->steps;
            for (int i = 0; i < prompts.n; i++)
                same = same && a->step_hash[i] == b->step_hash[i];
            assert_true(b->drafted > 10);
            if (same != (cases[c][1] != NULL)) // the control: a ladder of which both parts draft
                fail_msg("%s, %s: %d of %d draft tokens accepted in %d steps, of %s %d of %d in %d", cases[c][0],
                         samplings[k % 2], a->accepted, a->drafted, a->steps, alone, b->accepted, b->drafted, b->steps);
            free(a);
            free(b);
        }
}

// ---- which part is taken

struct text_request {
    int32_t token[TEXT];
    struct own_draft own;
    struct philox rng;
    int n, depth;
};

static struct request begin(struct text_request *t, int slot)
{
    own_draft_begin(&t->own, t->token[t->n - 1], NODES);
    t->rng = philox_source(1, (uint64_t)slot);
    t->rng.rng.root = t->n - 1;
    return (struct request){
        .slot = slot, .n = t->n, .token = t->token, .rng = &t->rng.rng, .draft = &t->own.draft, .depth = t->depth
    };
}

static struct drafter *create(const char *text)
{
    const struct drafter_env env = { .slots = SLOTS, .length = TEXT, .used_vocab = 8 };
    struct error err;
    struct settings *s = settings_inline(text, "drafter", &err);
    const struct drafter_type *type = drafter_named(settings_get(s, "kind")->text);
    void *options = xcalloc(1, type->options_size);
    assert_ok(options_read(s, "drafter", type->options, options, &err), err);
    struct drafter *d = drafter_create(type, &env, options, &err);
    assert_ok(d != NULL, err);
    options_free(type->options, options);
    free(options);
    settings_free(s);
    return d;
}

TEST(of_each_request_the_first_part_with_enough_draft_tokens_is_taken)
{
    static const char *const parts[] = { "ngram:longest=5,shortest=3,tokens=4", "ngram:longest=2,shortest=2,tokens=3",
                                         "ngram:longest=1,tokens=6" };
    static const int at_least[] = { 3, 2, 4 };
    struct drafter *ladder = create("ladder:of=[{kind: ngram, longest: 5, shortest: 3, tokens: 4, at_least: 3},"
                                    "{kind: ngram, longest: 2, shortest: 2, tokens: 3, at_least: 2},"
                                    "{kind: ngram, longest: 1, tokens: 6, at_least: 4}]");
    int taken[4] = { 0 }, mixed = 0;
    for (int round = 0; round < 3000; round++) {
        static struct text_request t[SLOTS], own[SLOTS];
        struct request r[SLOTS];
        struct error err;
        int by[SLOTS];
        for (int s = 0; s < SLOTS; s++) {
            t[s].n = 1 + below(TEXT - 1);
            t[s].depth = below(6);
            for (int i = 0; i < t[s].n; i++)
                t[s].token[i] = below(2 + round % 6);
            own[s] = t[s];
            r[s] = begin(&t[s], s);
        }
        assert_true(ladder->type->propose(ladder, r, SLOTS, &err));
        for (int s = 0; s < SLOTS; s++) {
            for (by[s] = 0; by[s] < 3; by[s]++) {
                struct drafter *alone = create(parts[by[s]]);
                struct request one = begin(&own[s], 0);
                assert_true(alone->type->propose(alone, &one, 1, &err));
                drafter_destroy(alone);
                if (own[s].own.draft.n - 1 >= at_least[by[s]])
                    break;
            }
            taken[by[s]]++;
            if (by[s] == 3)
                own[s].own.draft.n = 1;
            assert_int_equal(t[s].own.draft.n, own[s].own.draft.n);
            assert_memory_equal(t[s].own.token, own[s].own.token, (size_t)own[s].own.draft.n * sizeof(int32_t));
            assert_memory_equal(t[s].own.parent, own[s].own.parent, (size_t)own[s].own.draft.n * sizeof(int32_t));
        }
        mixed += by[0] != by[1];
    }
    for (int k = 0; k < 4; k++)
        assert_true(taken[k] > 100);
    assert_true(mixed > 100);
    assert_int_equal(ladder->nodes, 7);
    drafter_destroy(ladder);
}

static struct tensor (*attend)(struct backend *b, struct tensor out, struct tensor q, struct tensor k, struct tensor v,
                               struct tensor angles, struct tensor keys, struct tensor values, const struct layout *s,
                               struct attention a);
static int passes;

static struct tensor counted(struct backend *b, struct tensor out, struct tensor q, struct tensor k, struct tensor v,
                             struct tensor angles, struct tensor keys, struct tensor values, const struct layout *s,
                             struct attention a)
{
    passes++;
    return attend(b, out, q, k, v, angles, keys, values, s, a);
}

// The text repeats its last three tokens, or does not.
TEST(a_part_that_is_not_reached_makes_no_pass)
{
    static const char *const ladders[] = {
        "ladder:of=[{kind: ngram, shortest: 3},{kind: small, model: %s}]",
        "ladder:of=[{kind: ngram, shortest: 3},{kind: eagle3, weights: %s.eagle3, tokens: 3}]",
    };
    for (int k = 0; k < 4; k++) {
        const bool repeats = k % 2 != 0;
        static struct text_request t;
        struct error err;
        struct pair *p =
            pair_open(pair_target, pair_draft, ladders[k / 2], "{temperature: 0}", rule_named("rejection"), 1, LENGTH);
        t.n = 12;
        t.depth = 5;
        for (int i = 0; i < t.n; i++)
            t.token[i] = repeats ? 10 + i % 4 : 10 + i;
        pair_feed(p, 0, t.token, t.n, NULL);
        attend = p->backend->attend;
        p->backend->attend = counted;
        passes = 0;
        struct request r = begin(&t, 0);
        assert_true(p->type->propose(p->drafter, &r, 1, &err));
        assert_true(t.own.draft.n > 1);
        assert_int_equal(passes > 0, !repeats);
        p->backend->attend = attend;
        pair_close(p);
    }
}

// ---- options

TEST(it_makes_the_kinds_of_drafts_of_all_parts)
{
    static const char *const parts[] = { "ngram", "small:model=x,tokens=3", "small:model=x,tokens=3,pick=coupled",
                                         "small:model=x,widths=[3,2,1]", "medusa:weights=x,widths=[2,2],pick=greedy" };
    static const char *const inside[] = { "ngram", "{kind: small, model: x, tokens: 3}",
                                          "{kind: small, model: x, tokens: 3, pick: coupled}",
                                          "{kind: small, model: x, widths: [3, 2, 1]}",
                                          "{kind: medusa, weights: x, widths: [2, 2], pick: greedy}" };
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            char *ladder = xformat("ladder:of=[%s,%s]", inside[i], inside[j]);
            // what a chain of the draft model would have gone on with may be another part's
            const unsigned of_parts = (pair_makes(parts[i]) | pair_makes(parts[j])) & ~(unsigned)CONTINUES;
            assert_int_equal(pair_makes(ladder), of_parts);
            free(ladder);
        }
}

// What is wrong with {kind: ladder, ..} as line 2 of a file, beside this rule; "": nothing.
static struct error refusal(const char *drafter, const char *rule)
{
    struct error err = { "" };
    char *text = xformat("drafter:\n  %s\n", drafter);
    struct settings *s = yaml_parse(text, strlen(text), "a.yaml", &err), *r = settings_inline(rule, "--rule", &err);
    assert_true(s != NULL && r != NULL);
    speclab_decoder_destroy(decoder_read(settings_get(s, "drafter"), r, NULL, &err));
    settings_free(s);
    settings_free(r);
    free(text);
    return err;
}

TEST(mistakes_are_named_with_their_place_before_anything_is_opened)
{
    static const struct {
        const char *drafter, *place, *found; // found: words of the sentence
    } cases[] = {
        { "{kind: ladder}", "a.yaml:2:3: drafter ladder ", "\"of\"" },
        { "{kind: ladder, of: ngram}", "a.yaml:2:22: drafter ladder: of: ", "expected a list" },
        { "{kind: ladder, of: []}", "a.yaml:2:22: drafter ladder: of: ", "expected a list" },
        { "{kind: ladder, of: {kind: ngram}}", "a.yaml:2:22: drafter ladder: of: ", "expected a list" },
        { "{kind: ladder, of: [ngrams]}", "a.yaml:2:23: drafter ladder: of: ", "\"ngrams\" (known: none, ngram, " },
        { "{kind: ladder, of: [{longest: 3}]}", "a.yaml:2:23: drafter ladder: of: ", "expected a kind" },
        { "{kind: ladder, of: [[ngram]]}", "a.yaml:2:23: drafter ladder: of: ", "expected a kind" },
        { "{kind: ladder, of: [ngram, {kind: ladder, of: [ngram]}]}", "a.yaml:2:37: drafter ladder: of: ", "a ladder" },
        { "{kind: ladder, of: [{kind: ngram, lenght: 3}]}", "a.yaml:2:37: drafter ladder: of: drafter ngram ",
          "\"lenght\"" },
        { "{kind: ladder, of: [{kind: ngram, tokens: 300}]}", "drafter ladder: of: drafter ngram: tokens: ", "300" },
        { "{kind: ladder, of: [ngram, small]}", "drafter ladder: of: drafter small ", "\"model\"" },
        { "{kind: ladder, of: [{kind: ngram, at_least: 0}]}",
          "a.yaml:2:47: drafter ladder: of: at_least: ", "found 0" },
        { "{kind: ladder, of: [{kind: ngram, at_least: many}]}",
          "a.yaml:2:47: drafter ladder: of: at_least: ", "\"many\"" },
        { "{kind: ladder, of: [{kind: small, model: x, at_least: 2}]}",
          "a.yaml:2:57: drafter ladder: of: drafter small ", "found 2" },
        { "{kind: ladder, of: [ngram, ngram, ngram, ngram, ngram, ngram, ngram, ngram, ngram]}",
          "a.yaml:2:22: ", "found 9" },
        { "{kind: ladder, at_least: 2, of: [ngram]}", "a.yaml:2:18: drafter ladder ", "\"at_least\"" },
        { "{kind: ladder, of: [{kind: ngram, at_least: 2}, {kind: small, model: x, pick: greedy, at_least: 3}]}", "",
          "" },
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        const struct error err = refusal(cases[c].drafter, "rejection");
        if ((err.text[0] == '\0') != (cases[c].place[0] == '\0') || strstr(err.text, cases[c].place) == NULL ||
            strstr(err.text, cases[c].found) == NULL)
            fail_msg("%s\n  found    %s\n  expected %s .. %s", cases[c].drafter, err.text, cases[c].place,
                     cases[c].found);
    }
}

TEST(a_rule_that_does_not_take_the_drafts_of_a_part_is_an_error)
{
    int refused = 0, taken = 0;
    for (int i = 0; rules[i] != NULL; i++) {
        const bool fits = pair_fits("ngram", rules[i]) && pair_fits("small:model=x,widths=[3,2,1]", rules[i]);
        const struct error err =
            refusal("{kind: ladder, of: [ngram, {kind: small, model: x, widths: [3, 2, 1]}]}", rules[i]->name);
        if (fits != (err.text[0] == '\0') ||
            (!fits && strstr(err.text, "which drafter ladder makes with these options") == NULL))
            fail_msg("%s: \"%s\"", rules[i]->name, err.text);
        taken += fits;
        refused += !fits;
    }
    assert_true(taken > 0 && refused > 0);
}

static char *resolved(const char *drafter, struct hash *identity)
{
    struct error err;
    struct text t = { 0 };
    struct settings *s = settings_inline("ladder", "drafter", &err);
    struct pair *p =
        pair_open(pair_target, pair_draft, drafter, "{temperature: 0}", rule_named("rejection"), 1, LENGTH);
    drafter_resolve(p->drafter, s);
    settings_write(s, &t);
    *identity = p->drafter->identity;
    settings_free(s);
    pair_close(p);
    return t.s;
}

// A cell is known by a hash of its resolved settings and the weights: nothing of a part may be missing, equal ones must be equal.
TEST(its_settings_hold_those_of_all_parts_resolved)
{
    struct hash a, b, none;
    char *one = resolved("ladder:of=[{kind: ngram, tokens: 04, at_least: 02},{kind: small, model: %s, tokens: 2}]", &a);
    char *two = resolved("ladder:of=[{kind: ngram, at_least: 2, longest: 3, tokens: 4},"
                         "{tokens: 2, cache: f32, model: %s, kind: small}]",
                         &b);
    assert_string_equal(one, two);
    assert_true(hash_equal(a, b) && !hash_is_none(a));
    const char *begin =
        "{kind: ladder, of: [{kind: ngram, longest: 3, shortest: 1, tokens: 4, at_least: 2}, {kind: small, ";
    if (strncmp(one, begin, strlen(begin)) != 0 ||
        strstr(one, "activations: f32, quantize: none, cache: f32") == NULL || strstr(one, "at_least: 1}]}") == NULL)
        fail_msg("%s", one);
    free(two);
    two = resolved("ladder:of=[ngram,{kind: eagle, weights: %s.eagle}]", &b);
    assert_false(hash_equal(a, b));
    free(two);
    free(resolved("ladder:of=[ngram]", &none));
    assert_true(hash_is_none(none));
    free(one);
}

TEST(a_threshold_that_no_draft_reaches_is_refused)
{
    static const struct drafter_env env = { .slots = 1, .length = 64, .used_vocab = 4 };
    static const char *const cases[][2] = {
        { "[{kind: ngram, tokens: 3, at_least: 4}]", "drafter ngram makes drafts of at most 3 " },
        { "[none, ngram]", "drafter none makes drafts of at most 0 " },
        { "[{kind: ngram, longest: 2, shortest: 3}]", "drafter ngram: shortest (3) " },
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        struct error err = { "" };
        struct settings *of = yaml_parse(cases[c][0], strlen(cases[c][0]), "of", &err);
        assert_non_null(of);
        assert_null(drafter_create(drafter_named("ladder"), &env, &of, &err));
        assert_non_null(strstr(err.text, cases[c][1]));
        settings_free(of);
    }
}

static int make(void **unused)
{
    make_prompts();
    return pair_models_make(unused);
}

RUN_TESTS(make, pair_models_remove)
