// config.c - conclusions from a configuration: whether its values fit each other, the cost of a pass, and RoPE's
// frequencies.
#include "models/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/architectures.h"

bool config_is_end_token(const char *s, size_t n)
{
    static const char *const names[] = { "<|eot_id|>",    "<|im_end|>", "<|end|>", "<end_of_turn>",
                                         "<|endoftext|>", "<|eom_id|>", "<EOT>" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strlen(names[i]) == n && memcmp(names[i], s, n) == 0)
            return true;
    return false;
}

bool config_add_end_token(struct model_config *c, const char *key, int64_t id, struct error *err)
{
    if (id < 0 || id >= c->vocab)
        return fail(err, "%s: expected a token id from 0 to %d, found %lld", key, c->vocab - 1, (long long)id);
    for (int i = 0; i < c->n_end; i++)
        if (c->end[i] == id)
            return true;
    if (c->n_end == MAX_ENDS)
        return fail(err, "%s: expected at most %d ids of end-of-text tokens", key, MAX_ENDS);
    c->end[c->n_end++] = (int)id;
    return true;
}

static bool check_rope(const struct model_config *c, const struct rope *r, struct error *err)
{
    const bool g = c->gguf;
    if (!(r->theta >= 1 && r->theta <= 1e12))
        return fail(err, "%s: expected a number from 1 to 1e12, found %g",
                    g                      ? "rope.freq_base"
                    : r == &c->window_rope ? "rope_local_base_freq"
                                           : "rope_theta",
                    r->theta);
    bool scaled = r->scaling == ROPE_LINEAR || r->scaling == ROPE_LLAMA3 || r->scaling == ROPE_YARN;
    if (scaled && !(r->factor > 0 && r->factor <= 1e6))
        return fail(err, "%s: expected a number above 0, found %g", g ? "rope.scaling.factor" : "rope_scaling.factor",
                    r->factor);
    if (config_rotated(r, c->head_dim) > MAX_ROTATED && r->scaling == ROPE_LONG)
        return fail(err, "rope_scaling.long_factor: expected at most %d rotated numbers of a head, found %d",
                    MAX_ROTATED, config_rotated(r, c->head_dim));
    if (r->scaling == ROPE_YARN && !(r->low > 0 && r->high >= r->low && r->high <= 1e6))
        return fail(err, "%s: expected 0 < %sbeta_slow <= %sbeta_fast, found %g and %g",
                    g ? "rope.scaling" : "rope_scaling", g ? "yarn_" : "", g ? "yarn_" : "", r->low, r->high);
    return r->scaling != ROPE_LLAMA3 || (r->low > 0 && r->high > r->low && r->high <= 1e6) ||
           fail(err, "rope_scaling: expected 0 < low_freq_factor < high_freq_factor, found %g and %g", r->low, r->high);
}

static bool check_sizes(const struct model_config *c, struct error *err)
{
    const bool g = c->gguf;
    if (c->heads % c->kv_heads != 0)
        return fail(err, "%s: expected a divisor of the %d attention heads, found %d",
                    g ? "attention.head_count_kv" : "num_key_value_heads", c->heads, c->kv_heads);
    if (c->head_dim % 2 != 0 || (int64_t)c->heads * c->head_dim > LIMIT_SIZE)
        return fail(err, "%s: expected an even size of heads, %d of which are at most %d, found %d",
                    g ? "attention.key_length" : "head_dim", c->heads, LIMIT_SIZE, c->head_dim);
    return (c->norm_eps > 0 && c->norm_eps < 1) ||
           fail(err, "%s: expected a number between 0 and 1, found %g",
                g ? "attention.layer_norm_rms_epsilon" : "rms_norm_eps", (double)c->norm_eps);
}

// Checks conditions that involve several values. Messages name the keys of the checkpoint's format.
bool config_check(const struct model_config *c, struct error *err)
{
    struct error why;
    if (!check_sizes(c, &why) || !check_rope(c, &c->rope, &why) ||
        (c->window_rope.theta != 0 && !check_rope(c, &c->window_rope, &why)))
        return fail(err, "%s: %s%s%s", c->file, c->gguf ? c->architecture->name : "", c->gguf ? "." : "", why.text);
    return !c->add_bos || c->bos >= 0 ||
           fail(err, "%s: the tokenizer puts a beginning-of-text token before every text, but none is given", c->file);
}

void config_free(struct model_config *c)
{
    free(c->path);
    free(c->file);
    free(c->chat_template);
    free(c->inflated);
    free(c->quantized);
    json_free(c->special_tokens);
    c->special_tokens = NULL;
    c->path = c->file = c->chat_template = c->inflated = c->quantized = NULL;
}

// ---- the cost of a pass and of a row in it

int config_mixed_layers(const struct model_config *c)
{
    return c->experts > 0 ? c->layers - layer_set_count(&c->dense) : 0;
}

double config_experts_expected(const struct model_config *c, double n)
{
    return c->experts > 0 ? c->experts * (1 - pow(1 - (double)c->experts_used / c->experts, n)) : 0;
}

double config_products(const struct model_config *c)
{
    const double heads = (double)c->heads * c->head_dim, kv = (double)c->kv_heads * c->head_dim, width = c->width;
    const int mixed = config_mixed_layers(c);
    const double attention = width * (heads + 2 * kv) + heads * width, network = 3 * width * c->hidden,
                 experts = 3 * width * c->expert_hidden * c->experts_used + width * c->experts;
    return c->layers * attention + (c->layers - mixed) * network + mixed * experts;
}

double config_positions_seen(const struct model_config *c, double positions)
{
    const int windowed = layer_set_count(&c->windowed);
    return positions * (c->layers - windowed) + (positions < c->window ? positions : c->window) * windowed;
}

// ---- RoPE

// Computes llama3's scaling of frequency f. Each step rounds to float as torch's does: its `2 * pi / f` is the
// reciprocal of f, times 2 pi.
static float scale_llama3(const struct rope *r, float f)
{
    float wave = (1.0f / f) * (float)(2 * M_PI), factor = (float)r->factor;
    if (wave < (float)(r->original / r->high))
        return f;
    if (wave > (float)(r->original / r->low))
        return f / factor;
    float smooth = ((1.0f / wave) * (float)r->original - (float)r->low) / (float)(r->high - r->low);
    return (1.0f - smooth) * f / factor + smooth * f;
}

int config_rotated(const struct rope *r, int head_dim)
{
    return r->rotated > 0 ? r->rotated : head_dim;
}

// Returns the number of a frequency that turns `turns` times within the original context (Peng et al. 2023, arXiv
// 2309.00071, section 3.2).
static double yarn_bound(const struct rope *r, int rotated, double turns)
{
    return rotated * log(r->original / (turns * 2 * M_PI)) / (2 * log(r->theta));
}

// Returns yarn's share of interpolation for frequency i.
static float yarn_ramp(const struct rope *r, int rotated, int i)
{
    double first = yarn_bound(r, rotated, r->high), last = yarn_bound(r, rotated, r->low);
    if (!r->untruncated) {
        first = floor(first);
        last = ceil(last);
    }
    first = first > 0 ? first : 0;
    last = last < rotated - 1 ? last : rotated - 1;
    if (first == last)
        last += 0.001;
    const float ramp = ((float)i - (float)first) / (float)(last - first);
    return ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
}

void config_rope(const struct rope *r, int head_dim, const float *divisors, float *inverse_frequency)
{
    const int rotated = config_rotated(r, head_dim);
    for (int i = 0; i < rotated / 2; i++) {
        float exponent = (float)(2 * i) / (float)rotated;
        float power = (float)pow((double)(float)r->theta, (double)exponent), f = 1.0f / power;
        switch (r->scaling) {
        case ROPE_PLAIN:
            break;
        case ROPE_LINEAR:
            f /= (float)r->factor;
            break;
        case ROPE_LLAMA3:
            f = scale_llama3(r, f);
            break;
        case ROPE_YARN: {
            const float keep = 1 - yarn_ramp(r, rotated, i);
            f = 1.0f / ((float)r->factor * power) * (1 - keep) + f * keep;
            break;
        }
        case ROPE_LONG:
            f = 1.0f / (divisors[i] * power);
            break;
        case ROPE_TABLE:
            f /= divisors[i];
            break;
        }
        inverse_frequency[i] = f;
    }
}

const char *config_rope_name(enum rope_scaling s)
{
    static const char *const names[] = { [ROPE_PLAIN] = "plain", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3",
                                         [ROPE_YARN] = "yarn",   [ROPE_LONG] = "longrope", [ROPE_TABLE] = "table" };
    return names[s];
}
