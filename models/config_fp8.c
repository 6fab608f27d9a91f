// config_fp8.c - quantization_config of config.json: the methods whose weights are eight-bit floats with scales
// (weights.c).
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "models/formats/json_fields.h"
#include "models/config_readers.h"

// Lists settings whose key is `key` and whose value is null or one of these values as JSON.
struct accepted {
    const char *key, *value[3];
    const char *expected;
};

// Returns false and sets err for a key that is not in the list. {} stands for a list of names of tensors, which follows
// from the tensors' types.
static bool check(const struct fields *f, const struct accepted *list, size_t n)
{
    for (void *at = json_first(f->object); at != NULL; at = json_next(f->object, at)) {
        const struct json *v = json_value(at);
        size_t i = 0;
        while (i < n && strcmp(list[i].key, json_key(at)) != 0)
            i++;
        if (i == n)
            return fields_refuse(f, json_key(at), "no such setting", v);
        if (json_is_null(v) || list[i].value[0] == NULL)
            continue;
        char *text = json_write(v);
        bool same = false;
        for (int k = 0; k < 3 && list[i].value[k] != NULL; k++)
            same |= strcmp(text, list[i].value[k]) == 0;
        free(text);
        if (!same)
            return fields_refuse(f, list[i].key, list[i].expected, v);
    }
    return true;
}

static bool read_block_size(const struct fields *f, const char *key, struct model_config *to)
{
    const struct json *v = json_get(f->object, key), *rows = json_at(v, 0), *columns = json_at(v, 1);
    const int block = type_facts[F8_E4M3].block;
    if (json_is_null(v))
        return true;
    if (json_count(v) != 2 || !json_is_int(rows) || !json_is_int(columns) || json_int(rows) < 1 ||
        json_int(rows) > LIMIT_SIZE || json_int(columns) < 1 || json_int(columns) > LIMIT_SIZE ||
        json_int(columns) % block != 0)
        return fields_refuse(f, key, "two numbers, of rows and of columns, the latter a multiple of 128", v);
    to->fp8.rows = (int)json_int(rows);
    to->fp8.columns = (int)json_int(columns);
    return true;
}

// Reads the form of DeepSeek, Qwen and vLLM. The scheme "static" has scales of activations, which these products do not
// round to FP8.
static bool read_fp8(const struct fields *f, struct model_config *to)
{
    static const struct accepted settings[] = {
        { "quant_method", { NULL }, NULL },
        { "fmt", { "\"e4m3\"" }, "\"e4m3\"" },
        { "activation_scheme", { "\"dynamic\"" }, "\"dynamic\"" },
        { "scale_fmt", { "\"ue8m0\"", "\"float\"" }, "\"ue8m0\" or \"float\"" },
        { "dequantize", { "false", "true" }, "true or false" },
        { "weight_block_size", { NULL }, NULL },
        { "modules_to_not_convert", { NULL }, NULL }, // the types of the tensors show it
        { "modules_to_convert", { NULL }, NULL },
        { "expert_dtype", { "\"fp8\"" }, "\"fp8\"" },
        { "ignored_layers", { NULL }, NULL },
    };
    return check(f, settings, sizeof(settings) / sizeof(*settings)) && read_block_size(f, "weight_block_size", to);
}

// ---- compressed-tensors

static bool read_scheme(const struct fields *group, struct model_config *to)
{
    static const struct accepted settings[] = {
        { "num_bits", { "8" }, "8" },
        { "type", { "\"float\"" }, "\"float\"" },
        { "strategy", { "\"tensor\"", "\"channel\"", "\"block\"" }, "\"tensor\", \"channel\" or \"block\"" },
        { "symmetric", { "true" }, "true" },
        { "dynamic", { "false" }, "false" },
        { "block_structure", { NULL }, NULL },
        { "group_size", { "" }, "null" },
        { "actorder", { "" }, "null" },
        { "observer", { NULL }, NULL },
        { "observer_kwargs", { NULL }, NULL },
        { "scale_dtype", { NULL }, NULL },
        { "zp_dtype", { NULL }, NULL },
    };
    const struct json *weights = json_get(group->object, "weights"),
                      *input = json_get(group->object, "input_activations");
    char *where = xformat("%s.weights", group->where);
    const struct fields f = { group->path, where, weights, group->err };
    bool ok = (json_is_int(json_get(weights, "num_bits")) || fields_refuse(&f, "num_bits", "8", NULL)) &&
              check(&f, settings, sizeof(settings) / sizeof(*settings)) && read_block_size(&f, "block_structure", to);
    free(where);
    if (ok && !json_is_null(input) && !json_bool(json_get(input, "dynamic")))
        ok = fields_refuse(group, "input_activations", "null, or dynamic ones", input);
    const struct json *output = json_get(group->object, "output_activations");
    return ok && (json_is_null(output) || fields_refuse(group, "output_activations", "null", output));
}

static bool read_compressed(const struct fields *f, struct model_config *to)
{
    static const struct accepted settings[] = {
        { "quant_method", { NULL }, NULL },
        { "format", { "\"float-quantized\"" }, "\"float-quantized\"" },
        { "quantization_status", { "\"compressed\"" }, "\"compressed\"" },
        { "kv_cache_scheme", { "" }, "null" },
        { "sparsity_config", { "{}" }, "{}" },
        { "transform_config", { "{}" }, "{}" },
        { "config_groups", { NULL }, NULL },
        { "ignore", { NULL }, NULL },
        { "global_compression_ratio", { NULL }, NULL },
        { "version", { NULL }, NULL },
    };
    const struct json *groups = json_get(f->object, "config_groups");
    if (!check(f, settings, sizeof(settings) / sizeof(*settings)))
        return false;
    if (json_count(groups) != 1) // several groups could have different block sizes
        return fields_refuse(f, "config_groups", "one group", groups);
    void *at = json_first(groups);
    char *where = xformat("%s.config_groups.%s", f->where, json_key(at));
    const struct fields group = { f->path, where, json_value(at), f->err };
    const bool ok = read_scheme(&group, to);
    free(where);
    return ok;
}

bool config_read_fp8(const struct fields *f, struct model_config *to)
{
    const struct json *v = json_get(f->object, "quantization_config"), *method = json_get(v, "quant_method");
    const struct fields own = { f->path, "quantization_config", v, f->err };
    if (json_is_null(v))
        return true;
    to->fp8.used = true;
    if (json_is_text(method) && strcmp(json_text(method), "fp8") == 0)
        return read_fp8(&own, to);
    if (json_is_text(method) && strcmp(json_text(method), "compressed-tensors") == 0)
        return read_compressed(&own, to);
    return fields_refuse(&own, "quant_method", "\"fp8\" or \"compressed-tensors\"", method);
}
