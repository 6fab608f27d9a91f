// eagle_config.c - reads the configuration of an EAGLE head and checks it against the target.
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "models/config_parts.h"
#include "models/heads/eagle_parts.h"
#include "formats/json_fields.h"
#include "models/weights.h"

// EAGLE-3's own choice, for configurations without layer ids: the streams entering layers 2, L / 2 and L - 3.
static bool default_layers(struct eagle_config *c, int layers, const char *path, struct error *err)
{
    const int id[] = { 2, layers / 2, layers - 3 };
    if (layers < 7)
        return fail(err, "%s: an EAGLE-3 head reads layers 2, L / 2 and L - 3, but the target has only %d layers", path,
                    layers);
    c->taps.n = 3;
    memcpy(c->taps.layer, id, sizeof(id));
    return true;
}

static bool read_layer_ids(struct eagle_config *c, const struct fields *f, int layers, enum layer_ids ids)
{
    const struct json *outer = json_get(f->object, "eagle_config");
    const struct json *inner = json_get(outer, "eagle_aux_hidden_state_layer_ids"),
                      *own = json_get(f->object, "eagle_aux_hidden_state_layer_ids");
    const struct json *list = json_is_null(inner) ? own : inner;
    if (!json_is_null(outer) && !json_is_object(outer))
        return fields_refuse(f, "eagle_config", "an object", outer);
    if (!json_is_null(inner) && !json_is_null(own))
        return fields_refuse(f, "eagle_aux_hidden_state_layer_ids", "nothing beside that of eagle_config", own);
    if (json_is_null(list))
        return default_layers(c, layers, f->path, f->err);
    if (!json_is_array(list) || json_count(list) < 1 || json_count(list) > MAX_TAPS)
        return fields_refuse(f, "eagle_aux_hidden_state_layer_ids", "a list of 1 to 8 layers", list);
    c->taps.n = (int)json_count(list);
    for (int i = 0; i < c->taps.n; i++) {
        const struct json *v = json_at(list, (size_t)i);
        const int last = ids == LAYERS_LEFT ? layers - 1 : layers;
        if (!json_is_int(v))
            return fields_refuse(f, "eagle_aux_hidden_state_layer_ids", "a list of layer ids", list);
        if (json_int(v) < 0 || json_int(v) > last)
            return fail(f->err, "%s: eagle_aux_hidden_state_layer_ids: layer %lld, but the target has %d layers",
                        f->path, (long long)json_int(v), layers);
        c->taps.layer[i] = (int)json_int(v) + (ids == LAYERS_LEFT);
    }
    return true;
}

static bool read_norms(struct eagle_config *c, const struct fields *f, bool speculators, enum tri override)
{
    const struct json *given = json_get(f->object, "norm_before_residual");
    if (!fields_bool(f, "norm_before_residual", &c->norm_before_residual) ||
        !fields_bool(f, "norm_before_fc", &c->norm_before_fc) || !fields_bool(f, "fc_norm", &c->fc_norm) ||
        !fields_bool(f, "norm_output", &c->norm_output))
        return false;
    if (c->norm_before_fc && c->fc_norm)
        return fields_refuse(f, "fc_norm", "false beside norm_before_fc", json_get(f->object, "fc_norm"));
    if (override != TRI_UNSET)
        c->norm_before_residual = override == TRI_TRUE;
    else if (speculators && json_is_null(given))
        return fail(f->err,
                    "%s: norm_before_residual is missing, and programs disagree about its default; set "
                    "norm_before_residual: true or false",
                    f->path);
    return true;
}

static bool read_layers(struct eagle_config *c, const struct head *h, struct error *err)
{
    const struct json *inner = json_get(h->config, "transformer_layer_config");
    const struct fields f = { h->config_path, h->speculators ? "transformer_layer_config" : "",
                              h->speculators ? inner : h->config, err };
    if (h->speculators && !json_is_object(inner))
        return fail(err, "%s: transformer_layer_config: expected an object", h->config_path);
    c->layers.path = h->path;
    if (!config_read_family(&f, false, &c->layers) || !config_from_json(&f, &c->layers) ||
        !config_check(&c->layers, h->config_path, err))
        return false;
    if (!json_is_null(json_get(f.object, "qkv_bias")))
        return fields_bool(&f, "qkv_bias", &c->layers.attention_bias);
    return true;
}

// Checks vocabulary and width. An EAGLE head has the target's width; fc of an EAGLE-3 head reads taps.n times that width.
static bool fits(struct eagle_config *c, const struct head *h, const struct model_shape *target, struct error *err)
{
    const bool is_eagle = h->kind == HEAD_EAGLE;
    const struct weight *fc = weights_find(h->weights, "fc.weight");
    const int64_t of_target = target->width;
    if (c->layers.vocab != target->vocab)
        return fail(err, "%s: a head for %d tokens, but the target has %d", h->path, c->layers.vocab, target->vocab);
    if (fc == NULL)
        return fail(err, "%s: there is no tensor fc.weight", h->path);
    const int64_t width = fc->tensor.width;
    if (!is_eagle && width % of_target == 0 && width / of_target != c->taps.n && c->layers.width == target->width)
        return fail(err, "%s: fc.weight reads the states of %lld layers, but %s names %d", h->path,
                    (long long)(width / of_target), h->config_path, c->taps.n);
    if (is_eagle ? c->layers.width != target->width : width != (int64_t)c->taps.n * target->width)
        return fail(err, "%s: a head for targets of width %lld, but this target's is %d", h->path,
                    (long long)(is_eagle ? c->layers.width : width / c->taps.n), target->width);
    return true;
}

bool eagle_config_read(struct eagle_config *c, const struct head *h, const struct model_shape *target,
                       const struct eagle_setup *s, struct error *err)
{
    *c = (struct eagle_config){ .taps = { 1, { FINAL_STATE } } };
    if (h->config == NULL)
        return fail(err, "%s: there is no config.json beside it", h->path);
    if (!read_layers(c, h, err))
        return false;
    const struct fields f = { h->config_path, "", h->config, err };
    c->draft_vocab = c->layers.vocab;
    const char *bias = h->speculators ? "fusion_bias" : "bias";
    bool has_bias = false;
    if (!fields_bool(&f, bias, &has_bias))
        return false;
    if (!json_is_null(json_get(h->config, bias)))
        c->fc_bias = has_bias ? TRI_TRUE : TRI_FALSE;
    if (h->kind == HEAD_EAGLE3 && (!fields_int(&f, "draft_vocab_size", false, 1, c->layers.vocab, &c->draft_vocab) ||
                                   !read_layer_ids(c, &f, target->layers, s->layer_ids) ||
                                   !read_norms(c, &f, h->speculators, s->norm_before_residual)))
        return false;
    return fits(c, h, target, err);
}
