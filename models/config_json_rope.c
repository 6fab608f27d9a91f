// config_json_rope.c - RoPE from the JSON of transformers' configurations: its base, its scaling, the part of a head
// that it rotates, and its layers.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "models/architectures.h"
#include "models/config_readers.h"
#include "models/formats/json_fields.h"

static bool is_phi3(const struct model_config *c)
{
    return (c->architecture->reads & READS_PARTIAL_ROPE) != 0;
}

// Reads partial_rotary_factor, the share of a head that is rotated. It is next to RoPE's object or in it.
static bool read_rotated(const struct fields *f, const struct fields *of_rope, const struct model_config *c,
                         struct rope *to)
{
    double part = 1;
    const struct json *own = json_get(of_rope->object, "partial_rotary_factor");
    if ((is_phi3(c) && !fields_real(f, "partial_rotary_factor", false, &part)) ||
        !fields_real(of_rope, "partial_rotary_factor", false, &part))
        return false;
    if (part == 1)
        return true;
    if (!is_phi3(c))
        return fields_refuse(f, "partial_rotary_factor", "1", own);
    const bool in_range = part > 0 && part < 1;
    to->rotated = in_range ? (int)(c->head_dim * part) : 0;
    if (!in_range || to->rotated < 2 || to->rotated % 2 != 0)
        return fields_refuse(f, "partial_rotary_factor", "a share of a head, an even number of its numbers",
                             json_is_null(own) ? json_get(f->object, "partial_rotary_factor") : own);
    return true;
}

// Reads original_max_position_embeddings, next to RoPE's object or in it. transformers prefers the key next to it,
// which Phi-3's class has by default.
static bool read_original(const struct fields *f, const struct fields *of_rope, const struct model_config *c,
                          struct rope *to)
{
    static const char *const key = "original_max_position_embeddings";
    const struct json *inner = json_get(of_rope->object, key);
    int outer = is_phi3(c) ? 4096 : 0;
    if (!fields_int(f, key, false, 2, LIMIT_CONTEXT, &outer))
        return false;
    to->original = outer;
    if (!fields_int(of_rope, key, outer == 0, 2, LIMIT_CONTEXT, &to->original))
        return false;
    return outer == 0 || to->original == outer ||
           fields_refuse(of_rope, key,
                         json_is_null(json_get(f->object, key)) ? "the same beside it, where 4096 is the default"
                                                                : "the same beside it",
                         inner);
}

// Reads attention_factor; *to is 0 if the object has none.
static bool read_attention_factor(const struct fields *of_rope, double *to)
{
    const struct json *v = json_get(of_rope->object, "attention_factor");
    *to = 0;
    return fields_real(of_rope, "attention_factor", false, to) &&
           (json_is_null(v) || (*to > 0 && *to <= 1e6) ||
            fields_refuse(of_rope, "attention_factor", "a number above 0", v));
}

static bool read_factor_list(const struct fields *of_rope, const char *key, int n, float *to)
{
    const struct json *list = json_get(of_rope->object, key);
    char expected[64];
    bool ok = json_is_array(list) && json_count(list) == (size_t)n && n <= MAX_ROTATED / 2;
    for (int i = 0; i < n && ok; i++) {
        const double x = json_number(json_at(list, (size_t)i));
        ok = json_is_number(json_at(list, (size_t)i)) && x > 0 && x <= 1e9;
        to[i] = (float)x;
    }
    snprintf(expected, sizeof(expected), "a list of %d numbers above 0", n);
    return ok || fields_refuse(of_rope, key, expected, list);
}

// Reads LongRoPE, whose factor of cosines and sines follows from the extension of the context.
static bool read_long(const struct fields *f, const struct fields *of_rope, struct model_config *c, struct rope *to)
{
    const int n = config_rotated(to, c->head_dim) / 2;
    double given = 0;
    if (!read_original(f, of_rope, c, to) || !read_factor_list(of_rope, "short_factor", n, c->rope_short) ||
        !read_factor_list(of_rope, "long_factor", n, c->rope_long))
        return false;
    double factor = (double)c->context / to->original;
    if (!fields_real(of_rope, "factor", false, &factor) || !read_attention_factor(of_rope, &given))
        return false;
    to->scaling = ROPE_LONG;
    to->angle_factor = (float)(given > 0 ? given : factor <= 1 ? 1 : sqrt(1 + log(factor) / log(to->original)));
    return true;
}

static double yarn_scale(double factor, double by)
{
    return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1;
}

static bool read_yarn(const struct fields *f, const struct fields *of_rope, const struct model_config *c,
                      struct rope *to)
{
    double given = 0, mscale = 0, all = 0;
    bool truncate = true;
    to->low = 1;
    to->high = 32;
    if (!read_original(f, of_rope, c, to) || !fields_real(of_rope, "beta_slow", false, &to->low) ||
        !fields_real(of_rope, "beta_fast", false, &to->high) || !fields_bool(of_rope, "truncate", &truncate) ||
        !read_attention_factor(of_rope, &given) || !fields_real(of_rope, "mscale", false, &mscale) ||
        !fields_real(of_rope, "mscale_all_dim", false, &all))
        return false;
    // transformers looks for the key outside the objects of layer types, and does not find it.
    if (!truncate && (c->architecture->reads & READS_LOCAL_ROPE) != 0)
        return fields_refuse(of_rope, "truncate", "true", json_get(of_rope->object, "truncate"));
    to->scaling = ROPE_YARN;
    to->untruncated = !truncate;
    to->angle_factor = (float)(given > 0                 ? given
                               : mscale != 0 && all != 0 ? yarn_scale(to->factor, mscale) / yarn_scale(to->factor, all)
                                                         : yarn_scale(to->factor, 1));
    return true;
}

// Reads one RoPE from the object `where` that scales it (NULL: none does). theta: the base if the object has none.
static bool read_one_rope(const struct fields *f, const char *where, const struct fields *of_rope, double theta,
                          struct model_config *c, struct rope *to)
{
    const struct json *rope = of_rope->object;
    to->theta = theta;
    // Qwen2-VL's positions have three parts, which no tensor shows.
    if (!json_is_null(json_get(rope, "mrope_section")))
        return fields_refuse(of_rope, "mrope_section", "nothing", json_get(rope, "mrope_section"));
    if (!fields_real(of_rope, "rope_theta", false, &to->theta) || !read_rotated(f, of_rope, c, to))
        return false;
    const struct json *type = json_get(rope, "rope_type"), *old_type = json_get(rope, "type");
    // Versions of transformers differ in which of the two they use.
    if (!json_is_null(type) && !json_is_null(old_type) && strcmp(json_text(type), json_text(old_type)) != 0)
        return fields_refuse(of_rope, "type", "the same as rope_type", old_type);
    // Gemma-3's class puts rope_scaling into an object that has a rope_type of default.
    if (json_is_null(type) && strcmp(where, "rope_scaling") == 0 && (c->architecture->reads & READS_LOCAL_ROPE) != 0 &&
        !json_is_null(old_type) && strcmp(json_text(old_type), "default") != 0)
        return fields_refuse(of_rope, "type", "nothing, or the same as rope_type", old_type);
    if (json_is_null(type))
        type = old_type;
    const char *name = json_is_text(type) ? json_text(type) : "default";
    if (!json_is_null(type) && !json_is_text(type))
        return fields_refuse(f, where, "one rope for all layers, with a rope_type", rope);
    if (strcmp(name, "default") == 0)
        return true;
    if (strcmp(name, "longrope") == 0 || ((strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0) && is_phi3(c)))
        return read_long(f, of_rope, c, to);
    if (strcmp(name, "yarn") != 0 && strcmp(name, "linear") != 0 && strcmp(name, "llama3") != 0)
        return fields_refuse(f, where, "a rope_type of default, linear, llama3, yarn or longrope", type);
    if (!fields_real(of_rope, "factor", true, &to->factor))
        return false;
    if (strcmp(name, "yarn") == 0)
        return read_yarn(f, of_rope, c, to);
    if (strcmp(name, "linear") == 0) {
        to->scaling = ROPE_LINEAR;
        return true;
    }
    if (!fields_real(of_rope, "low_freq_factor", true, &to->low) ||
        !fields_real(of_rope, "high_freq_factor", true, &to->high) || !read_original(f, of_rope, c, to))
        return false;
    to->scaling = ROPE_LLAMA3;
    return true;
}

// Ministral 3 multiplies queries at position i by 1 + beta log(1 + floor(i / original)), which is 1 in the original
// context. The model's context ends there.
static bool read_query_rise(const struct fields *of_rope, struct model_config *c)
{
    const struct json *beta = json_get(of_rope->object, "llama_4_scaling_beta");
    if ((c->architecture->reads & READS_QUERY_RISE) == 0)
        return json_is_null(beta) || fields_refuse(of_rope, "llama_4_scaling_beta", "nothing", beta);
    if (!json_is_number(beta) || !(json_number(beta) >= 0))
        return fields_refuse(of_rope, "llama_4_scaling_beta", "a number from 0", beta);
    int original = 0;
    if (!fields_int(of_rope, "original_max_position_embeddings", true, 2, LIMIT_CONTEXT, &original))
        return false;
    if (json_number(beta) > 0 && c->context > original)
        c->context = original;
    return true;
}

// transformers 4 writes rope_theta and rope_scaling; transformers 5 writes rope_parameters, which contains both. If
// layers with a window have another RoPE, it contains one object for each type of layer.
bool config_read_rope(const struct fields *f, struct model_config *c)
{
    const struct json *new = json_get(f->object, "rope_parameters"), *old = json_get(f->object, "rope_scaling");
    const bool local = (c->architecture->reads & READS_LOCAL_ROPE) != 0;
    if (!json_is_null(new) && !json_is_null(old))
        return fields_refuse(f, "rope_scaling", "nothing beside rope_parameters", old);
    const bool in_new = !json_is_null(new) || (json_is_null(old) && (c->architecture->reads & READS_QUERY_RISE) != 0);
    const char *where = in_new ? "rope_parameters" : "rope_scaling";
    const struct json *rope = json_is_null(new) ? old : new;
    if (!json_is_null(rope) && !json_is_object(rope))
        return fields_refuse(f, where, "an object", rope);
    const struct json *full = json_get(rope, "full_attention"), *windowed = json_get(rope, "sliding_attention");
    const bool per_type = full != NULL || windowed != NULL;
    if (per_type && !local)
        return fields_refuse(f, where, "one rope for all layers, with a rope_type", rope);
    if (local && rope == new &&json_count(rope) > 0 && !per_type)
        return fields_refuse(f, where, "an object for each type of layer", rope);
    if (per_type &&
        !((json_is_null(full) || json_is_object(full)) && (json_is_null(windowed) || json_is_object(windowed))))
        return fields_refuse(f, where, "an object for each type of layer", rope);

    double theta = c->architecture->theta != 0 ? c->architecture->theta : 10000, of_windows = 10000;
    int original = 0; // LongRoPE reads it again
    char path[96];
    snprintf(path, sizeof(path), "%s%s%s", f->where, *f->where != '\0' ? "." : "", where);
    const struct fields of_rope = { f->path, path, rope, f->err },
                        of_full = { f->path, path, per_type ? full : rope, f->err },
                        of_window = { f->path, path, per_type ? windowed : NULL, f->err };
    if (!fields_real(f, "rope_theta", false, &theta) ||
        (is_phi3(c) && !fields_int(f, "original_max_position_embeddings", false, 1, LIMIT_CONTEXT, &original)) ||
        (local && !fields_real(f, "rope_local_base_freq", false, &of_windows)) ||
        !read_one_rope(f, where, &of_full, theta, c, &c->rope) || !read_query_rise(&of_rope, c))
        return false;
    if (!json_is_null(json_get(f->object, "rope_theta")) && theta != c->rope.theta)
        return fields_refuse(f, "rope_theta", "the same in rope_parameters", json_get(f->object, "rope_theta"));
    if (!local)
        return true;
    if (!read_one_rope(f, where, &of_window, of_windows, c, &c->window_rope))
        return false;
    if (c->rope.scaling == ROPE_LONG || c->window_rope.scaling == ROPE_LONG)
        return fields_refuse(f, where, "a rope_type of default, linear, llama3 or yarn", rope);
    const struct json *own = json_get(f->object, "rope_local_base_freq");
    return c->window_rope.theta >= 1 && (json_is_null(own) || of_windows == c->window_rope.theta)
               ? true
               : fields_refuse(f, "rope_local_base_freq", "a number from 1, the same in rope_parameters", own);
}
