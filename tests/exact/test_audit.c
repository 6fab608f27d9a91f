// test_audit.c - every draw of whole texts through the real loop, with real drafters and rules: none comes twice, each
// is where it should be, and none depends on the batch; and whatever breaks that is found out.
#include <string.h>

#include "core/error.h"
#include "exact/audit.h"
#include "tests/support/check.h"
#include "tests/support/pairings.h"
#include "tests/exact/shared_randomness.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { TEXTS = 5, LIMIT = 24, LENGTH = 96, SEED = 21 };

// Prompts of several lengths. What a text is called is its first token.
static const int prompt_length[TEXTS] = { 1, 5, 30, 2, 17 };
static int32_t prompt[TEXTS][LENGTH];

static void make_prompts(int vocab)
{
    for (int i = 0; i < TEXTS; i++)
        for (int k = 0; k < prompt_length[i]; k++)
            prompt[i][k] = k == 0 ? i : (i * 31 + k * k * 7 + 11) % vocab;
}

// ---- listening to the loop

enum wrong {
    NOTHING_WRONG,
    KEYED_BY_ROW,   // M59: the stream is that of the batch's row
    SEEDED_AGAIN,   // M60: every round begins at the same place of the stream
    NOISE_IS_SHARED // M44: what follows a guess that fell is drawn at the address of the guess
};

struct heard { // by whose source a rule finds out whose draft it judges
    const struct rng *rng;
    int64_t text;
    int32_t root;
    int row;
};

static struct {
    struct audit audit;
    enum wrong wrong;
    const struct rule *rule;
    const struct drafter_type *type;
    struct heard heard[TEXTS];
    int n;
} ear;

static struct philox source_of(const struct heard *h)
{
    struct philox s = *(const struct philox *)h->rng;
    if (ear.wrong == KEYED_BY_ROW)
        s.sequence = (uint64_t)h->row;
    if (ear.wrong == SEEDED_AGAIN)
        s.rng.root = 0;
    return s;
}

static bool propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct listening to[TEXTS];
    struct rng *own[TEXTS];
    ear.n = n;
    for (int i = 0; i < n; i++) {
        own[i] = r[i].rng;
        ear.heard[i] = (struct heard){ r[i].rng, r[i].token[0], r[i].n - 1, i };
        struct philox source = source_of(&ear.heard[i]);
        to[i] = audit_listen(&ear.audit, &source, r[i].token[0], r[i].n - 1, ASKED_BY_DRAFTER);
        r[i].rng = &to[i].rng;
    }
    bool ok = ear.type->propose(d, r, n, err);
    for (int i = 0; i < n; i++)
        r[i].rng = own[i];
    return ok;
}

static void verify(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                   struct verification *out)
{
    int i = 0;
    while (i < ear.n && ear.heard[i].rng != rng)
        i++;
    assert_true(i < ear.n);
    struct philox source = source_of(&ear.heard[i]);
    struct listening to = audit_listen(&ear.audit, &source, ear.heard[i].text, ear.heard[i].root, ASKED_BY_RULE);
    struct sharing shared = sharing_source(&to.rng, FOR_DRAFT);
    ear.rule->verify(d, rows, options, ear.wrong == NOISE_IS_SHARED ? &shared.rng : &to.rng, out);
}

static void done(void *self, const struct ending *e)
{
    (void)self, (void)e;
}

struct order { // of a batch
    int slots;
    bool backwards; // which text comes first
};

static void decode_texts(struct pair *p, struct order o)
{
    struct error err;
    struct decoder *d = decoder_create(p->verifier, p->drafter, o.slots, SEED, (struct listener){ .done = done }, &err);
    assert_non_null(d);
    for (int next = 0; next < TEXTS || decoder_active(d) > 0;) {
        for (; next < TEXTS && decoder_has_free_slot(d); next++) {
            int i = o.backwards ? TEXTS - 1 - next : next;
            struct assignment a = { i, prompt[i], prompt_length[i], LIMIT, NULL };
            if (!decoder_start(d, &a, &err))
                fail_msg("%s", err.text);
        }
        if (!decoder_step(d, &err))
            fail_msg("%s", err.text);
    }
    decoder_destroy(d);
}

// Everything that was asked while all texts were decoded; audit_free() it.
static struct audit listen(const char *drafter, const char *rule, struct order o, enum wrong wrong)
{
    struct rule overheard = *rule_named(rule);
    overheard.verify = verify;
    ear.rule = rule_named(rule);
    ear.wrong = wrong;
    ear.audit = (struct audit){ 0 };
    struct pair *p = pair_open(pair_target, pair_draft, drafter, "{temperature: 1}", &overheard, o.slots, LENGTH);
    ear.type = p->drafter->type;
    struct drafter_type type = *ear.type;
    type.propose = propose;
    p->drafter->type = &type;
    decode_texts(p, o);
    p->drafter->type = ear.type;
    pair_close(p);
    return ear.audit;
}

// ---- the real ones

static const char *const pairs[][2] = {
    { "none", "match" },
    { "ngram", "rejection" },
    { "small:model=%s,tokens=4", "block" },
    { "small:model=%s,tokens=3,pick=coupled", "match" },
    { "small:model=%s,tokens=3,pick=coupled", "rejection" },
    { "small:model=%s,widths=[3,2,1]", "rejection" },
    { "small:model=%s,widths=[3,2,1]", "traversal" },
    { "small:model=%s,widths=[3,2,1],distinct=false", "spectr" },
    { "small:model=%s,widths=[3,1,1],distinct=false", "multipath" },
    { "small:model=%s,nodes=9,top=3,tokens=4,pick=greedy", "traversal" },
};

static void no_draw_comes_twice_and_none_depends_on_the_batch(void **state)
{
    (void)state;
    static const struct order orders[] = { { 2, true }, { TEXTS, false }, { TEXTS, true } };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        struct audit alone = listen(pairs[i][0], pairs[i][1], (struct order){ 1, false }, NOTHING_WRONG);
        struct audited f = audit_examine(&alone);
        print_message("%s, %s: %d draws, %d of them coupled\n", pairs[i][0], pairs[i][1], f.draws, f.coupled);
        assert_true(f.draws >= TEXTS);
        assert_true((f.coupled > 0) == (strstr(pairs[i][0], "coupled") != NULL));
        assert_true(f.repeated == 0 && f.shared == 0 && f.mixed == 0 && f.misplaced == 0);
        for (size_t k = 0; k < sizeof(orders) / sizeof(*orders); k++) {
            struct audit other = listen(pairs[i][0], pairs[i][1], orders[k], NOTHING_WRONG);
            assert_int_equal(audit_differences(&alone, &other), 0);
            audit_free(&other);
        }
        audit_free(&alone);
    }
}

// ---- what would be wrong

static struct audited found(const char *name, const char *drafter, const char *rule, struct order o, enum wrong wrong)
{
    struct audit a = listen(drafter, rule, o, wrong);
    struct audited f = audit_examine(&a);
    print_message("%s: of %d draws %d come twice in a text, %d mixed, %d misplaced; %d counters serve twice\n", name,
                  f.draws, f.repeated, f.mixed, f.misplaced, f.shared);
    audit_free(&a);
    return f;
}

static const char chain[] = "small:model=%s,tokens=4";

static void streams_of_batch_rows_are_found_out(void **state)
{
    (void)state;
    struct order two = { 2, false }, backwards = { 2, true };
    struct audited f = found("M59, keyed by row", chain, "rejection", two, KEYED_BY_ROW);
    assert_true(f.shared > 0); // two texts that had the same row, one after the other
    assert_true(f.repeated == 0 && f.misplaced == 0 && f.mixed == 0);
    struct audit a = listen(chain, "rejection", two, KEYED_BY_ROW);
    struct audit b = listen(chain, "rejection", backwards, KEYED_BY_ROW);
    int differences = audit_differences(&a, &b);
    print_message("M59, keyed by row: %d differences between two orders\n", differences);
    assert_true(differences > 0);
    audit_free(&a);
    audit_free(&b);
}

static void streams_that_begin_again_are_found_out(void **state)
{
    (void)state;
    struct audited f = found("M60, seeded each round", chain, "rejection", (struct order){ 2, false }, SEEDED_AGAIN);
    assert_true(f.repeated > 0 && f.shared >= f.repeated && f.misplaced > 0 && f.mixed == 0);
    f = found("M60 under match", "ngram", "match", (struct order){ 2, false }, SEEDED_AGAIN);
    assert_true(f.repeated > 0 && f.shared >= f.repeated && f.misplaced > 0);
}

static void noise_that_drafts_and_corrects_is_found_out(void **state)
{
    (void)state;
    struct audited f = found("M44, shared noise", chain, "rejection", (struct order){ 2, false }, NOISE_IS_SHARED);
    assert_true(f.repeated > 0 && f.shared >= f.repeated && f.mixed > 0 && f.misplaced == 0);
}

// ---- counters

struct draw {
    uint64_t sequence;
    struct address at;
    uint32_t index;
};

enum { SEQUENCE_BITS = 64, POSITION_BITS = 32, NODE_BITS = 10, INDEX_BITS = 20, PURPOSE_BITS = 3, BITS = 129 };

// The draw of which one bit of one field is set.
static struct draw of_bit(int bit)
{
    struct draw d = { 0, { FOR_DRAFT, 0, 0 }, 0 };
    if (bit < SEQUENCE_BITS)
        d.sequence = UINT64_C(1) << bit;
    else if ((bit -= SEQUENCE_BITS) < POSITION_BITS)
        d.at.position = (int32_t)(UINT32_C(1) << bit);
    else if ((bit -= POSITION_BITS) < NODE_BITS)
        d.at.node = 1 << bit;
    else if ((bit -= NODE_BITS) < INDEX_BITS)
        d.index = 1u << bit;
    else
        d.at.purpose = (enum purpose)(1u << (bit - INDEX_BITS));
    return d;
}

static bool has_bit(const struct draw *d, int bit)
{
    struct draw b = of_bit(bit);
    return (d->sequence & b.sequence) != 0 || ((uint32_t)d->at.position & (uint32_t)b.at.position) != 0 ||
           (d->at.node & b.at.node) != 0 || (d->index & b.index) != 0 || (d->at.purpose & b.at.purpose) != 0;
}

static struct counter counter_of(const struct draw *d)
{
    return philox_counter(d->sequence, d->at, d->index);
}

static int bits_of(const struct counter *c)
{
    int n = __builtin_popcount(c->half);
    for (int i = 0; i < 4; i++)
        n += __builtin_popcount(c->word[i]);
    return n;
}

static struct counter either(struct counter a, const struct counter *b)
{
    a.half ^= b->half;
    for (int i = 0; i < 4; i++)
        a.word[i] ^= b->word[i];
    return a;
}

static struct counter image[BITS]; // of each bit of the fields

static void is_made_of_its_bits(const struct draw *d)
{
    struct counter sum = { { 0 }, 0 }, all = counter_of(d);
    for (int bit = 0; bit < BITS; bit++)
        if (has_bit(d, bit))
            sum = either(sum, &image[bit]);
    assert_memory_equal(&sum, &all, sizeof(all));
}

// Of the fields' 129 bits each has one of the counter's 128 or the half, all of them different, and the counter of any
// draw has the bits that its fields' bits have, no more and no less. So every field can be read off a counter, and two
// draws that differ have two counters. The second part is tried for all purposes and nodes at the edges of the other
// fields, and by chance.
static void no_two_draws_have_a_counter_in_common(void **state)
{
    (void)state;
    static const uint64_t sequence[] = { 0, UINT32_MAX, UINT64_C(1) << 32, UINT64_MAX };
    static const int32_t position[] = { 0, INT32_MAX, INT32_MIN, -1 };
    static const uint32_t index[] = { 0, 1, 2, (1u << 19) - 1, 1u << 19, (1u << 20) - 2, (1u << 20) - 1 };
    struct counter sum = { { 0 }, 0 };
    for (int bit = 0; bit < BITS; bit++) {
        struct draw d = of_bit(bit);
        image[bit] = counter_of(&d);
        assert_int_equal(bits_of(&image[bit]), 1);
        sum = either(sum, &image[bit]);
    }
    assert_int_equal(bits_of(&sum), BITS);
    for (int purpose = 0; purpose < 1 << PURPOSE_BITS; purpose++)
        for (int node = 0; node < PHILOX_NODES; node++)
            for (int i = 0; i < 4 + 7; i++) {
                struct address at = { (enum purpose)purpose, position[i % 4], node };
                is_made_of_its_bits(&(struct draw){ sequence[(i + node) % 4], at, index[i % 7] });
            }
    for (int i = 0; i < 20000; i++) {
        uint64_t z = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15), y = (z ^ z >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
        struct address at = { (enum purpose)(y >> 61), (int32_t)(uint32_t)(y >> 20), (int32_t)(z >> 54) };
        is_made_of_its_bits(&(struct draw){ y ^ z << 7, at, (uint32_t)(z >> 30) % PHILOX_INDICES });
    }
}

int main(void)
{
    make_prompts(tiny_usual.vocab);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_draw_comes_twice_and_none_depends_on_the_batch),
        cmocka_unit_test(streams_of_batch_rows_are_found_out),
        cmocka_unit_test(streams_that_begin_again_are_found_out),
        cmocka_unit_test(noise_that_drafts_and_corrects_is_found_out),
        cmocka_unit_test(no_two_draws_have_a_counter_in_common),
    };
    return cmocka_run_group_tests(tests, pair_models_make, pair_models_remove);
}
