// stages.c - the steps from a model's logits to the logits that are sampled from.
//
// Each does what HF transformers' logits processor of the same name does. None of them sorts or
// allocates: a row of 49,152 logits goes through for every node that a rule looks at. Logits that
// come here are never NaN (sampling_row sees to that); a token that is ruled out has -INFINITY.
#include "sampling/stages.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { MAX_VOCAB = 1 << 20 }; // as many indices as an address has uniforms (sampling/rng.h)

static float highest(const float *logit, int vocab)
{
    float max = -INFINITY;
    for (int i = 0; i < vocab; i++)
        if (logit[i] > max)
            max = logit[i];
    return max;
}

// repetition_penalty: every token that stands in the text so far becomes less likely, once, however often it stands
// there (Keskar et al. 2019, CTRL).

struct repetition_penalty_options {
    double penalty;
};

static void penalize_repetition(float *logit, int vocab, const void *options, const struct path *before)
{
    float penalty = (float)((const struct repetition_penalty_options *)options)->penalty;
    uint64_t seen[MAX_VOCAB / 64]; // one bit a token
    assert(vocab <= MAX_VOCAB);
    memset(seen, 0, ((size_t)vocab + 63) / 64 * sizeof(*seen));

    for (int i = 0; i < before->n; i++) {
        int x = before->token[i];
        if (x < 0 || x >= vocab || (seen[x / 64] >> x % 64 & 1))
            continue; // a drafter's row may be narrower than the text's vocabulary
        seen[x / 64] |= UINT64_C(1) << x % 64;
        logit[x] = logit[x] > 0 ? logit[x] / penalty : logit[x] * penalty;
    }
}

// logit_bias: a number added to the logit of each token named.

struct logit_bias_options {
    struct pairs bias;
};

static void add_bias(float *logit, int vocab, const void *options, const struct path *before)
{
    (void)before;
    const struct pairs *bias = &((const struct logit_bias_options *)options)->bias;
    for (int i = 0; i < bias->n; i++)
        if (bias->key[i] >= 0 && bias->key[i] < vocab)
            logit[bias->key[i]] += (float)bias->value[i];
}

// temperature: divides. 0 is the limit, all of it on the likeliest token, the lowest id among equals.

// The likeliest is taken to 0 first, which a softmax does not notice: small temperatures then underflow to what is
// impossible anyway, and nothing overflows.
static void divide_by_temperature(float *logit, int vocab, const void *options, const struct path *before)
{
    (void)before;
    double temperature = ((const struct temperature_options *)options)->temperature;
    float max = highest(logit, vocab);
    if (temperature == 1 || max == -INFINITY)
        return;
    if (temperature > 0) {
        for (int i = 0; i < vocab; i++)
            logit[i] = (float)(((double)logit[i] - max) / temperature);
        return;
    }
    bool found = false;
    for (int i = 0; i < vocab; i++) {
        if (logit[i] == max && !found)
            found = true;
        else
            logit[i] = -INFINITY;
    }
}

// top_k and top_p keep the likeliest tokens until they weigh enough: k tokens of weight 1, or the share p of the
// probability. Among equals the lowest ids are kept.

typedef double weigh(float logit, float max);

static double one_each(float logit, float max)
{
    (void)logit, (void)max;
    return 1;
}

static double by_probability(float logit, float max)
{
    return exp((double)logit - max); // up to a factor that all share
}

// The bits of a float, so turned that they are ordered as the floats are; + 0 makes -0 the 0 that it equals.
static uint32_t ordered_bits(float x)
{
    uint32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A radix selection finds the logit at which to cut: each walk over the row weighs the tokens whose leading bits are
// those of the cut so far, in one bucket for each value of the next eleven bits, and sees in which bucket enough is
// reached: `least`, or the share of the whole if that is more. Ids ascend within a bucket and buckets are added from
// the top, so the sums are a function of the row.
static void keep_likeliest(float *logit, int vocab, weigh *weight, double least, double share)
{
    static const struct {
        int shift, bits;
    } digit[] = { { 21, 11 }, { 10, 11 }, { 0, 10 } };
    float max = highest(logit, vocab);
    uint32_t cut = 0, known = 0;     // the bits of the cut, and which of them are known
    double kept = 0, enough = least; // kept: weight of what lies above the cut

    for (int walk = 0; walk < 3; walk++) {
        double bucket[1 << 11] = { 0 };
        for (int i = 0; i < vocab; i++) {
            uint32_t bits = ordered_bits(logit[i]);
            if ((bits & known) == cut && logit[i] > -INFINITY)
                bucket[bits >> digit[walk].shift & ((1u << digit[walk].bits) - 1)] += weight(logit[i], max);
        }
        if (walk == 0) {
            double whole = 0;
            for (int b = (1 << 11) - 1; b >= 0; b--)
                whole += bucket[b];
            enough = fmax(least, share * whole);
        }
        int lowest = 0;
        while (bucket[lowest] == 0) // at the latest the bucket of the likeliest weighs something
            lowest++;
        int b = (1 << digit[walk].bits) - 1;
        for (; b > lowest && kept + bucket[b] < enough; b--)
            kept += bucket[b];
        cut |= (uint32_t)b << digit[walk].shift;
        known |= ((1u << digit[walk].bits) - 1) << digit[walk].shift;
    }

    for (int i = 0; i < vocab; i++) {
        uint32_t bits = ordered_bits(logit[i]);
        if (bits == cut && kept < enough)
            kept += weight(logit[i], max);
        else if (bits <= cut)
            logit[i] = -INFINITY;
    }
}

struct top_k_options {
    int k;
};

static void keep_top_k(float *logit, int vocab, const void *options, const struct path *before)
{
    (void)before;
    int k = ((const struct top_k_options *)options)->k;
    if (k > 0 && k < vocab && highest(logit, vocab) > -INFINITY)
        keep_likeliest(logit, vocab, one_each, k, 0);
}

struct top_p_options {
    double p;
};

// Holtzman et al. 2020: the smallest set of likeliest tokens that has the share p of the probability; never none.
static void keep_top_p(float *logit, int vocab, const void *options, const struct path *before)
{
    (void)before;
    double p = ((const struct top_p_options *)options)->p;
    if (p < 1 && highest(logit, vocab) > -INFINITY)
        keep_likeliest(logit, vocab, by_probability, 1, p); // the likeliest weighs 1, so it always stays
}

struct min_p_options {
    double p;
};

// Nguyen et al. 2024: what is at least p times as probable as the likeliest. Logits tell that without a softmax.
static void keep_min_p(float *logit, int vocab, const void *options, const struct path *before)
{
    (void)before;
    double p = ((const struct min_p_options *)options)->p;
    double least = highest(logit, vocab) + log(p); // p = 0: -inf
    for (int i = 0; i < vocab; i++)
        if (logit[i] < least)
            logit[i] = -INFINITY;
}

#define STAGE(NAME, FUNCTION, SUMMARY, TYPE, FIELD, PRESET, HELP, ...) \
    static const struct option NAME##_option[] = { \
        { #NAME, TYPE, offsetof(struct NAME##_options, FIELD), PRESET, HELP, __VA_ARGS__ }, \
        { 0 }, \
    }; \
    const struct stage NAME##_stage = { #NAME, SUMMARY, NAME##_option, sizeof(struct NAME##_options), FUNCTION };

STAGE(repetition_penalty, penalize_repetition, "makes tokens of the text so far less likely", OPTION_REAL, penalty, "1",
      "divides positive logits and multiplies negative ones; 1: off", .least = 0.01, .most = 100)
STAGE(logit_bias, add_bias, "favours or bans tokens", OPTION_PAIRS, bias, "", "token id: what is added to its logit",
      .least = -1e9, .most = 1e9)
STAGE(temperature, divide_by_temperature, "sharpens or flattens the distribution", OPTION_REAL, temperature, "1",
      "logits are divided by it; 0: always the likeliest token", .least = 0, .most = 1e6)
STAGE(top_k, keep_top_k, "keeps the k likeliest tokens", OPTION_INT, k, "0", "how many; 0: all", .least = 0,
      .most = 1e9)
STAGE(top_p, keep_top_p, "keeps the likeliest tokens that make up a share of the probability", OPTION_REAL, p, "1",
      "the share; 1: all", .least = 0, .most = 1)
STAGE(min_p, keep_min_p, "keeps tokens at least so probable as a share of the likeliest", OPTION_REAL, p, "0",
      "the share; 0: all", .least = 0, .most = 1)
