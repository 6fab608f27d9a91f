// stages.c - the steps from a model's logits to the logits that are sampled from.
//
// Each stage computes what the logits processor of the same name computes in HF transformers. No stage sorts a row or
// allocates: a row of 49,152 logits is processed for every node that a rule visits. Logits are never NaN here
// (logits_of removes them); an excluded token has -INFINITY.
#include "sampling/sampling.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/grid.h"
#include "core/row_stages.h"
#include "sampling/logits.h"
#include "sampling/loops.h"

// repetition_penalty: every token of the text so far becomes less probable, once, however often it occurs (Keskar et
// al. 2019, CTRL).

struct repetition_penalty_options {
    double penalty;
};

static void penalize_repetition(struct logits *l, const void *options, const struct path *before)
{
    float penalty = (float)((const struct repetition_penalty_options *)options)->penalty;
    uint64_t seen[MAX_VOCAB / 64]; // one bit per token
    memset(seen, 0, ((size_t)l->n + 63) / 64 * sizeof(*seen));

    for (int i = 0; i < before->n; i++) {
        int x = before->token[i];
        if (x < 0 || x >= l->n || (seen[x / 64] >> x % 64 & 1))
            continue; // a drafter may have a smaller vocabulary than the text
        seen[x / 64] |= UINT64_C(1) << x % 64;
        float logit = logits_at(l, x);
        logits_set(l, x, logit > 0 ? logit / penalty : logit * penalty);
    }
}

// frequency_penalty, presence_penalty: the logit of a token that was generated c times loses c times the one and, if c
// > 0, the other (OpenAI's API, "Parameter details"; vLLM, model_executor/layers/utils.py: apply_penalties). Tokens of
// the prompt do not count, in these programs either.

struct frequency_penalty_options {
    double penalty;
};

struct presence_penalty_options {
    double penalty;
};

// The place of a token among the `size` ids from `from` on; -1: it is not among them.
static int place_of(int32_t token, int from, int size)
{
    return token >= from && token - from < size ? token - from : -1;
}

// Subtracts from the logit of each generated token `per_token` times its count, then `once`. The path itself is
// counted, a range of ids at a time, so a sequence keeps no counts. Only the counts of tokens that occur are ever
// written.
static void penalize_generated(struct logits *l, float per_token, float once, const struct path *before)
{
    enum { RANGE = 1 << 15 };
    int32_t count[RANGE];
    const int32_t *token = before->token + before->prompt;
    for (int from = 0, n = before->n - before->prompt; from < l->n; from += RANGE) {
        const int size = l->n - from < RANGE ? l->n - from : RANGE;
        for (int i = 0, at; i < n; i++)
            if ((at = place_of(token[i], from, size)) >= 0)
                count[at] = 0;
        for (int i = 0, at; i < n; i++)
            if ((at = place_of(token[i], from, size)) >= 0)
                count[at]++;
        for (int i = 0, at; i < n; i++) {
            if ((at = place_of(token[i], from, size)) < 0 || count[at] == 0)
                continue;
            logits_set(l, token[i], logits_at(l, token[i]) - per_token * (float)count[at] - once);
            count[at] = 0;
        }
    }
}

static void penalize_frequency(struct logits *l, const void *options, const struct path *before)
{
    const float penalty = (float)((const struct frequency_penalty_options *)options)->penalty;
    if (penalty != 0)
        penalize_generated(l, penalty, 0, before);
}

static void penalize_presence(struct logits *l, const void *options, const struct path *before)
{
    const float penalty = (float)((const struct presence_penalty_options *)options)->penalty;
    if (penalty != 0)
        penalize_generated(l, 0, penalty, before);
}

// logit_bias: adds a number to the logit of each given token.

struct logit_bias_options {
    struct pairs bias;
};

static void add_bias(struct logits *l, const void *options, const struct path *before)
{
    (void)before;
    const struct pairs *bias = &((const struct logit_bias_options *)options)->bias;
    for (int i = 0; i < bias->n; i++)
        if (bias->key[i] >= 0 && bias->key[i] < l->n)
            logits_set(l, bias->key[i], logits_at(l, bias->key[i]) + (float)bias->value[i]);
}

// temperature: divides the logits. 0 is the limit: the argmax, or the lowest id among equals.

// The maximum is subtracted first, which does not change a softmax: with small temperatures other logits tend to
// -INFINITY and nothing overflows.
static double inverse_of(double temperature)
{
    return fmin(1 / temperature, DBL_MAX);
}

static void divide_by_temperature(struct logits *l, const void *options, const struct path *before)
{
    (void)before;
    double temperature = ((const struct temperature_options *)options)->temperature;
    if (temperature == 1)
        return;
    if (temperature > 0) {
        logits_scale(l, inverse_of(temperature));
        return;
    }
    logits_keep_argmax(l);
}

// top_k and top_p keep the most probable tokens until their weights add up to a threshold: k for weights of 1, or the
// share p of the probability. Among equals the lowest ids are kept.

// The candidate tokens with their weights: a few, or the whole row chunk by chunk.
struct choice {
    const struct logits *l;
    struct exact_sum (*weigh)(double *to, const float *x, int n, float max);
    float max;
    int few; // 0: the whole row
    float x[LOGITS_CHUNK];
    double weight[LOGITS_CHUNK];
};

static struct exact_sum one_each(double *to, const float *x, int n, float max)
{
    (void)x, (void)max;
    for (int i = 0; i < n; i++)
        to[i] = 1;
    return (struct exact_sum){ n, 0 };
}

// Restricts the candidates to tokens at most `span` below the maximum, if these are few and reach the threshold.
static bool choose_from_few(struct choice *c, float span, double enough)
{
    int32_t id[LOGITS_CHUNK];
    c->few = logits_from(c->l, c->max - span, id, LOGITS_CHUNK);
    for (int i = 0; i < c->few; i++)
        c->x[i] = c->l->x[id[i]];
    if (c->few > 0 && grid_total(c->weigh(c->weight, c->x, c->few, c->max)) >= enough)
        return true;
    c->few = 0;
    return false;
}

// Returns chunk k of the candidates, with c->weight filled in; NULL: no more chunks.
static const float *tokens(struct choice *c, int k, int *n)
{
    if (c->few > 0) {
        *n = c->few;
        return k == 0 ? c->x : NULL;
    }
    int left = c->l->n - k * LOGITS_CHUNK;
    if (left <= 0)
        return NULL;
    const float *x = c->l->x + k * LOGITS_CHUNK;
    *n = c->l->max[k] == -INFINITY ? 0 : left < LOGITS_CHUNK ? left : LOGITS_CHUNK;
    c->weigh(c->weight, x, *n, c->max);
    return x;
}

// Finds the threshold logit by radix selection. Each pass over the candidates sums the weights of those whose leading
// bits equal those of the threshold found so far, in one bucket per value of the next eleven bits, and selects the
// bucket in which `enough` is reached. Sums are exact, so the result depends on the row alone. *kept: the weight above
// the threshold.
static float find_cut(struct choice *c, double enough, struct exact_sum *kept)
{
    static const struct {
        int shift, bits;
    } digit[] = { { 21, 11 }, { 10, 11 }, { 0, 10 } };
    uint32_t cut = 0, known = 0; // bits of the threshold, and the mask of known ones
    const struct exact_sum none = { 0, 0 };
    *kept = none;
    for (int pass = 0; pass < 3; pass++) {
        struct exact_sum bucket[1 << 11] = { { 0, 0 } };
        int n;
        const float *x;
        for (int k = 0; (x = tokens(c, k, &n)) != NULL; k++)
            for (int i = 0; i < n; i++) {
                uint32_t bits = grid_ordered(x[i]);
                struct exact_sum *b = &bucket[bits >> digit[pass].shift & ((1u << digit[pass].bits) - 1)];
                if ((bits & known) == cut && x[i] > -INFINITY)
                    *b = grid_sum(*b, grid_split(c->weight[i]));
            }
        int lowest = 0, b = (1 << digit[pass].bits) - 1;
        while (bucket[lowest].whole == 0 && bucket[lowest].rest == 0) // the loop ends: the weight of the maximum is
                                                                      // positive
            lowest++;
        for (; b > lowest && grid_total(grid_sum(*kept, bucket[b])) < enough; b--)
            *kept = grid_sum(*kept, bucket[b]);
        cut |= (uint32_t)b << digit[pass].shift;
        known |= ((1u << digit[pass].bits) - 1) << digit[pass].shift;
    }
    return grid_of_ordered(cut);
}

// Most rows have their weight in few tokens, so the tokens near the maximum are tried first.
static void keep_most_probable(struct choice *c, struct logits *l, double enough)
{
    struct exact_sum kept, of_one;
    double weight;
    c->l = l;
    c->max = logits_largest(l);
    if (!choose_from_few(c, 8, enough))
        choose_from_few(c, 16, enough);
    float cut = find_cut(c, enough, &kept);
    int keep = 0; // number of tokens equal to the threshold that are kept
    of_one = c->weigh(&weight, &cut, 1, c->max);
    for (; keep < l->n && grid_total(kept) < enough; keep++)
        kept = grid_sum(kept, of_one);
    logits_drop_below(l, cut);
    logits_drop_ties(l, cut, keep);
}

struct top_k_options {
    int k;
};

static void keep_top_k(struct logits *l, const void *options, const struct path *before)
{
    (void)before;
    int k = ((const struct top_k_options *)options)->k;
    struct choice c;
    c.weigh = one_each;
    if (k > 0 && k < l->n && logits_largest(l) > -INFINITY)
        keep_most_probable(&c, l, k);
}

struct top_p_options {
    double p;
};

// Holtzman et al. 2020: the smallest set of most probable tokens with the share p of the probability; never empty.
static void keep_top_p(struct logits *l, const void *options, const struct path *before)
{
    (void)before;
    double p = ((const struct top_p_options *)options)->p;
    struct choice c;
    c.weigh = loops()->logits->weights;
    if (p < 1 && logits_largest(l) > -INFINITY)
        keep_most_probable(&c, l, fmax(1, p * logits_weight(l))); // the argmax weighs 1, so it is always kept
}

struct min_p_options {
    double p;
};

// Nguyen et al. 2024: keeps tokens with at least p times the largest probability. A difference of logits shows it
// without a softmax.
static void keep_min_p(struct logits *l, const void *options, const struct path *before)
{
    (void)before;
    double p = ((const struct min_p_options *)options)->p;
    logits_drop_below(l, logits_largest(l) + log(p)); // p = 0: -inf
}

// ---- how a device applies them: parameters of a row, or none where a stage has no effect

static bool no_penalty(const void *options, struct row_stages *to)
{
    (void)to;
    return ((const struct repetition_penalty_options *)options)->penalty == 1;
}

static bool no_frequency_penalty(const void *options, struct row_stages *to)
{
    (void)to;
    return ((const struct frequency_penalty_options *)options)->penalty == 0;
}

static bool no_presence_penalty(const void *options, struct row_stages *to)
{
    (void)to;
    return ((const struct presence_penalty_options *)options)->penalty == 0;
}

static bool no_bias(const void *options, struct row_stages *to)
{
    (void)to;
    return ((const struct logit_bias_options *)options)->bias.n == 0;
}

static bool temperature_on_device(const void *options, struct row_stages *to)
{
    const double temperature = ((const struct temperature_options *)options)->temperature;
    to->inverse_temperature = temperature > 0 ? inverse_of(temperature) : 0;
    return true;
}

static bool top_k_on_device(const void *options, struct row_stages *to)
{
    to->top_k = ((const struct top_k_options *)options)->k;
    return true;
}

static bool top_p_on_device(const void *options, struct row_stages *to)
{
    to->top_p = ((const struct top_p_options *)options)->p;
    return true;
}

static bool min_p_on_device(const void *options, struct row_stages *to)
{
    to->below = log(((const struct min_p_options *)options)->p);
    return true;
}

// ---- the stages

#define STAGE(NAME, APPLY, ON_DEVICE, SUMMARY, TYPE, FIELD, DEFAULT, HELP, ...) \
    static const struct option NAME##_option[] = { \
        { #NAME, TYPE, offsetof(struct NAME##_options, FIELD), DEFAULT, HELP, __VA_ARGS__ }, \
        { 0 }, \
    }; \
    const struct stage NAME##_stage = { #NAME, SUMMARY,   NAME##_option, sizeof(struct NAME##_options), \
                                        APPLY, ON_DEVICE, { 0 } };

STAGE(repetition_penalty, penalize_repetition, no_penalty, "makes tokens of the text so far less probable", OPTION_REAL,
      penalty, "1", "divides positive logits and multiplies negative ones; 1: off", .min = 0.01, .max = 100)
STAGE(frequency_penalty, penalize_frequency, no_frequency_penalty,
      "makes generated tokens less probable, by how often each occurs", OPTION_REAL, penalty, "0",
      "is subtracted from the logit of a token for each time that it was generated (OpenAI's); 0: off", .min = -2,
      .max = 2)
STAGE(presence_penalty, penalize_presence, no_presence_penalty, "makes generated tokens less probable, once each",
      OPTION_REAL, penalty, "0", "is subtracted from the logit of a token that was generated (OpenAI's); 0: off",
      .min = -2, .max = 2)
STAGE(logit_bias, add_bias, no_bias, "favours or bans tokens", OPTION_PAIRS, bias, "",
      "token id: what is added to its logit", .min = -1e9, .max = 1e9)
STAGE(temperature, divide_by_temperature, temperature_on_device, "sharpens or flattens the distribution", OPTION_REAL,
      temperature, "1", "logits are divided by it; 0: greedy, always the argmax", .min = 0, .max = 1e6)
STAGE(top_k, keep_top_k, top_k_on_device, "keeps the k most probable tokens", OPTION_INT, k, "0", "how many; 0: all",
      .min = 0, .max = 1e9)
STAGE(top_p, keep_top_p, top_p_on_device, "keeps the top tokens that make up a share of the probability", OPTION_REAL,
      p, "1", "the share; 1: all", .min = 0, .max = 1)
STAGE(min_p, keep_min_p, min_p_on_device, "keeps tokens with at least a share of the top probability", OPTION_REAL, p,
      "0", "the share; 0: all", .min = 0, .max = 1)
