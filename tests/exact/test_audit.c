// test_audit.c - every draw of whole texts through the real loop, with real drafters and rules: addresses are unique
// and at the right place, and do not depend on the batch; and seeded faults are detected.
#include <string.h>

#include "core/error.h"
#include "tests/support/audit.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "tests/exact/shared_randomness.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { TEXTS = 5, LIMIT = 24, LENGTH = 96, SEED = 21 };

// Prompts of several lengths. The first token is the name of the text.
static const int prompt_length[TEXTS] = { 1, 5, 30, 2, 17 };
static int32_t prompt[TEXTS][LENGTH];

static void make_prompts(int vocab)
{
    for (int i = 0; i < TEXTS; i++)
        for (int k = 0; k < prompt_length[i]; k++)
            prompt[i][k] = k == 0 ? i : (i * 31 + k * k * 7 + 11) % vocab;
}

// ---- recording the loop

enum wrong {
    NOTHING_WRONG,
    KEYED_BY_ROW,   // M59: the stream is that of the batch's row
    SEEDED_AGAIN,   // M60: every step starts at the same place of the stream
    NOISE_IS_SHARED // M44: the replacement is sampled at the address of the rejected token
};

struct seen_request { // a rule identifies its request by the random source
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
    struct seen_request request[TEXTS];
    int n;
} recorder;

static struct philox source_of(const struct seen_request *h)
{
    struct philox s = *(const struct philox *)h->rng;
    if (recorder.wrong == KEYED_BY_ROW)
        s.sequence = (uint64_t)h->row;
    if (recorder.wrong == SEEDED_AGAIN)
        s.rng.root = 0;
    return s;
}

static bool propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct auditing_rng to[TEXTS];
    struct rng *own[TEXTS];
    recorder.n = n;
    for (int i = 0; i < n; i++) {
        own[i] = r[i].rng;
        recorder.request[i] = (struct seen_request){ r[i].rng, r[i].token[0], r[i].n - 1, i };
        struct philox source = source_of(&recorder.request[i]);
        to[i] = audit_rng(&recorder.audit, &source, r[i].token[0], r[i].n - 1, CONSUMER_DRAFTER);
        r[i].rng = &to[i].rng;
    }
    bool ok = recorder.type->propose(d, r, n, err);
    for (int i = 0; i < n; i++)
        r[i].rng = own[i];
    return ok;
}

static void verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                   struct rng *rng, struct verification *out)
{
    int i = 0;
    while (i < recorder.n && recorder.request[i].rng != rng)
        i++;
    assert_true(i < recorder.n);
    struct philox source = source_of(&recorder.request[i]);
    struct auditing_rng to =
        audit_rng(&recorder.audit, &source, recorder.request[i].text, recorder.request[i].root, CONSUMER_RULE);
    struct sharing shared = sharing_source(&to.rng, FOR_DRAFT);
    recorder.rule->verify(recorder.rule, d, rows, options, recorder.wrong == NOISE_IS_SHARED ? &shared.rng : &to.rng,
                          out);
}

static void done(void *self, const struct speclab_end *e)
{
}

struct order { // of a batch
    int slots;
    bool backwards; // texts start in reverse order
};

static void decode_texts(struct pair *p, struct order o)
{
    struct error err;
    struct speclab_decoder *d =
        decoder_create(p->verifier, p->drafter, o.slots, SEED, (struct speclab_listener){ .end = done }, &err);
    assert_non_null(d);
    for (int next = 0; next < TEXTS || speclab_decoder_active(d) > 0;) {
        for (; next < TEXTS && speclab_decoder_has_free_slot(d); next++) {
            int i = o.backwards ? TEXTS - 1 - next : next;
            struct speclab_request a = {
                .sequence = i, .prompt = prompt[i], .n = prompt_length[i], .max_tokens = LIMIT
            };
            assert_ok(decoder_start(d, &a, NULL, NULL, &err), err);
        }
        assert_ok(speclab_decoder_step(d, &err), err);
    }
    speclab_decoder_destroy(d);
}

// All draws of decoding all texts; audit_free() it.
static struct audit record(const char *drafter, const char *rule, struct order o, enum wrong wrong)
{
    struct rule recorded = *rule_named(rule);
    recorded.verify = verify;
    recorder.rule = rule_named(rule);
    recorder.wrong = wrong;
    recorder.audit = (struct audit){ 0 };
    struct pair *p = pair_open(pair_target, pair_draft, drafter, "{temperature: 1}", &recorded, o.slots, LENGTH);
    recorder.type = p->drafter->type;
    struct drafter_type type = *recorder.type;
    type.propose = propose;
    p->drafter->type = &type;
    decode_texts(p, o);
    p->drafter->type = recorder.type;
    pair_close(p);
    return recorder.audit;
}

// ---- real drafters and rules

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
    { "small:model=%s.other,vocabulary=common", "block" },
    { "small:model=%s.other,vocabulary=common,widths=[3,2,1]", "rejection" },
    { "small:model=%s.other,vocabulary=retokenize", "rejection" },
    { "ladder:of=[{kind: small, model: %s.other, vocabulary: retokenize, at_least: 3},{kind: small, model: %s}]",
      "block" },
};

TEST(draws_are_unique_and_independent_of_the_batch)
{
    static const struct order orders[] = { { 2, true }, { TEXTS, false }, { TEXTS, true } };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        struct audit alone = record(pairs[i][0], pairs[i][1], (struct order){ 1, false }, NOTHING_WRONG);
        struct audit_result f = audit_examine(&alone);
        print_message("%s, %s: %d draws, %d of them coupled\n", pairs[i][0], pairs[i][1], f.draws, f.coupled);
        assert_true(f.draws >= TEXTS);
        assert_true((f.coupled > 0) == (strstr(pairs[i][0], "coupled") != NULL));
        assert_true(f.repeated == 0 && f.shared == 0 && f.mixed == 0 && f.misplaced == 0);
        for (size_t k = 0; k < sizeof(orders) / sizeof(*orders); k++) {
            struct audit other = record(pairs[i][0], pairs[i][1], orders[k], NOTHING_WRONG);
            assert_int_equal(audit_differences(&alone, &other), 0);
            audit_free(&other);
        }
        audit_free(&alone);
    }
}

// ---- seeded faults

static const char chain[] = "small:model=%s,tokens=4";

TEST(seeded_faults_are_detected)
{
    static const struct {
        const char *name, *drafter, *rule;
        enum wrong wrong;
        bool repeated, shared, mixed, misplaced;
    } cases[] = {
        { "nothing", chain, "rejection", NOTHING_WRONG, false, false, false, false },
        { "M59, keyed by row", chain, "rejection", KEYED_BY_ROW, false, true, false,
          false }, // two texts had the same row
        { "M60, seeded each step", chain, "rejection", SEEDED_AGAIN, true, true, false, true },
        { "M60 under match", "ngram", "match", SEEDED_AGAIN, true, true, false, true },
        { "M44, shared noise", chain, "rejection", NOISE_IS_SHARED, true, true, true, false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct audit a = record(cases[i].drafter, cases[i].rule, (struct order){ 2, false }, cases[i].wrong);
        const struct audit_result f = audit_examine(&a);
        print_message("%s: %d draws, %d repeated in a text, %d mixed, %d misplaced; %d counters shared\n",
                      cases[i].name, f.draws, f.repeated, f.mixed, f.misplaced, f.shared);
        audit_free(&a);
        assert_true((f.repeated > 0) == cases[i].repeated && (f.shared > 0) == cases[i].shared);
        assert_true((f.mixed > 0) == cases[i].mixed && (f.misplaced > 0) == cases[i].misplaced);
        assert_true(f.shared >= f.repeated);
    }
}

TEST(streams_keyed_by_batch_row_differ_between_orders)
{
    struct audit a = record(chain, "rejection", (struct order){ 2, false }, KEYED_BY_ROW);
    struct audit b = record(chain, "rejection", (struct order){ 2, true }, KEYED_BY_ROW);
    assert_true(audit_differences(&a, &b) > 0);
    audit_free(&a);
    audit_free(&b);
}

// ---- counters

struct draw {
    uint64_t sequence;
    struct address at;
    uint32_t index;
};

enum { SEQUENCE_BITS = 64, POSITION_BITS = 32, NODE_BITS = 10, INDEX_BITS = 20, PURPOSE_BITS = 3, BITS = 129 };

// The draw with a single bit of one field set.
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

// Each of the fields' 129 bits maps to its own bit among the counter's 128 and the half, and the counter of any draw is
// the union of its fields' bits. So every field can be read from a counter, and distinct draws have distinct counters.
// The second part is tested for all purposes and nodes at the edges of the other fields, and for random draws.
TEST(distinct_draws_have_distinct_counters)
{
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
    make_prompts(small_default.vocab);
    return tests_run(pair_models_make, pair_models_remove);
}
