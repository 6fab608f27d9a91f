#include "commands/checkpoint/prune.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/architectures.h"
#include "models/config.h"
#include "models/layer_list.h"
#include "formats/gguf.h"
#include "commands/checkpoint/source.h"
#include "commands/checkpoint/writer.h"
#include "models/weights.h"

// Adds the tensors that are kept, renumbered.
static void select_tensors(struct rewrite *r, const struct source_checkpoint *o, const int *keep, int n)
{
    const char *before = o->gguf != NULL ? "blk." : "model.layers.";
    r->tensor = xcalloc(o->n, sizeof(*r->tensor));
    for (size_t i = 0; i < o->n; i++) {
        int layer, at = 0;
        const char *rest = weights_layer(o->tensor[i].name, before, &layer);
        while (rest != NULL && at < n && keep[at] != layer)
            at++;
        if (rest == NULL)
            r->tensor[r->n++] = rewrite_copy_tensor(o, i, xstrdup(o->tensor[i].name));
        else if (at < n)
            r->tensor[r->n++] = rewrite_copy_tensor(o, i, xformat("%s%d%s", before, at, rest));
    }
}

// ---- settings

struct pruning {
    const struct source_checkpoint *from;
    const int *keep;
    int n;
};

// Copies the kept entries of a list with one number per layer, such as the key-value heads in some files.
static void copy_layer_list(struct gguf_writer *w, const struct gguf_value *v, const int *keep, int n)
{
    size_t size = v->raw_bytes / (size_t)v->n;
    uint8_t *raw = xmalloc((size_t)n * size);
    for (int i = 0; i < n; i++)
        memcpy(raw + (size_t)i * size, v->raw + (size_t)keep[i] * size, size);
    struct gguf_value kept = *v;
    kept.n = (uint64_t)n;
    kept.raw = raw;
    kept.raw_bytes = (size_t)n * size;
    gguf_write_copy(w, &kept);
    free(raw);
}

static bool is_layer_list(const struct gguf_value *v, const struct model_config *c)
{
    static const char *const keys[] = { "attention.head_count", "attention.head_count_kv", "feed_forward_length" };
    bool found = false;
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && !found; i++) {
        char *key = xformat("%s.%s", c->architecture->name, keys[i]);
        found = gguf_key_is(v, key) && v->type == GGUF_ARRAY && v->n == (uint64_t)c->layers;
        free(key);
    }
    return found;
}

static void write_metadata(void *context, struct gguf_writer *w)
{
    const struct pruning *p = context;
    const struct gguf *g = p->from->gguf;
    char *blocks = xformat("%s.block_count", p->from->config->architecture->name);
    char *ranges = layer_list_write(p->keep, p->n);
    struct gguf_string name = { "model", 5 };
    gguf_text(g, "general.name", &name);
    char *renamed = xformat("%.*s (layers %s)", (int)(name.n < 4096 ? name.n : 4096), name.s, ranges);
    if (gguf_find(g, "general.name") == NULL)
        gguf_write_text(w, "general.name", renamed);
    for (size_t i = 0; i < gguf_values(g); i++) {
        const struct gguf_value *v = gguf_value_at(g, i);
        if (gguf_key_is(v, blocks))
            gguf_write_int(w, blocks, v->type, p->n);
        else if (gguf_key_is(v, "general.name"))
            gguf_write_text(w, "general.name", renamed);
        else if (is_layer_list(v, p->from->config))
            copy_layer_list(w, v, p->keep, p->n);
        else
            gguf_write_copy(w, v);
    }
    free(renamed);
    free(ranges);
    free(blocks);
}

static void change_config(void *context, struct json *config)
{
    const struct pruning *p = context;
    const struct model_config *c = p->from->config;
    json_set(config, "num_hidden_layers", json_new_int(p->n));
    rewrite_layer_lists(config, c->layers, p->keep, p->n);
    if (c->architecture->experts != QWEN_EXPERTS)
        return;
    struct json *dense = json_new_array(); // layers without experts, by number, whatever said so before
    for (int i = 0; i < p->n; i++)
        if (layer_set_has(&c->dense, p->keep[i]))
            json_push(dense, json_new_int(i));
    json_set(config, "mlp_only_layers", dense);
    json_set(config, "decoder_sparse_step", json_new_int(1));
}

// ---- the model

static bool check_layers(const struct model_config *c, const int *keep, int n, struct error *err)
{
    if (n <= 0)
        return fail(err, "%s: expected at least one layer to keep, found none", c->path);
    for (int i = 0; i < n; i++)
        if (keep[i] < 0 || keep[i] >= c->layers)
            return fail(err, "%s: there is no layer %d; the model has layers 0 to %d", c->path, keep[i], c->layers - 1);
        else if (i > 0 && keep[i] <= keep[i - 1])
            return fail(err, "%s: expected ascending layers, found %d after %d", c->path, keep[i], keep[i - 1]);
    return true;
}

static bool prune(const struct model_config *c, const int *keep, int n, const char *to, struct left_out *left_out,
                  struct error *err)
{
    struct source_checkpoint o;
    if (!source_open(&o, c, err))
        return false;
    struct pruning p = { &o, keep, n };
    struct rewrite r = {
        .from = &o, .gguf = c->gguf, .metadata = write_metadata, .config = change_config, .context = &p
    };
    select_tensors(&r, &o, keep, n);
    bool ok = rewrite_write(&r, to, err);
    if (left_out != NULL)
        *left_out = o.left_out;
    rewrite_free(&r);
    source_close(&o);
    return ok;
}

bool prune_model(const char *from, const int *keep, int n, const char *to, struct left_out *left_out, struct error *err)
{
    struct model_config c;
    if (!config_read(from, &c, err))
        return false;
    bool ok = check_layers(&c, keep, n, err) && source_is_whole(&c, err) && rewrite_check_output(from, to, err) &&
              prune(&c, keep, n, to, left_out, err);
    config_free(&c);
    return ok;
}
