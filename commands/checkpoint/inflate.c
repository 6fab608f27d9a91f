#include "commands/checkpoint/inflate.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/architectures.h"
#include "models/config_parts.h"
#include "formats/gguf.h"
#include "commands/checkpoint/inflate_parts.h"
#include "commands/checkpoint/source.h"

// ---- sizes

// Resolves a requested size; 0 is the model's own.
static bool resolve(const char *what, int own, int *requested, struct error *err)
{
    if (*requested == 0)
        *requested = own;
    return *requested >= own || fail(err, "%s %d: the model has %d, and can only become larger", what, *requested, own);
}

static bool heads_fit(const struct model_config *c, const struct sizes *s, struct error *err)
{
    int group = c->heads / c->kv_heads, larger = s->heads / s->kv_heads;
    if (s->heads % s->kv_heads != 0)
        return fail(err, "heads %d: expected a multiple of the %d key-value heads", s->heads, s->kv_heads);
    if (larger < group)
        return fail(err, "heads %d: with %d key-value heads their groups are of %d, and the model's are of %d",
                    s->heads, s->kv_heads, larger, group);
    if ((int64_t)s->heads * c->head_dim > LIMIT_SIZE)
        return fail(err, "heads %d: with %d numbers each, at most %d are allowed", s->heads, c->head_dim,
                    LIMIT_SIZE / c->head_dim);
    return true;
}

bool inflate_resolve(const struct model_config *c, struct sizes *s, const char *to, struct error *err)
{
    const struct architecture *a = c->architecture;
    if (!source_is_whole(c, err))
        return false;
    if (a->norms != NORMS_BEFORE || a->head_norms == NORMS_OF_ALL || a->scales_embedding || a->norms_from_zero ||
        a->fused || c->experts > 0)
        return fail(
            err,
            "%s: models of architecture %s cannot be inflated: a larger width changes their norms, or divides their matrices elsewhere",
            c->path, a->name);
    if (c->fp8.used)
        return fail(err, "%s: a model of FP8 cannot be inflated: speclab quantize makes one of bf16 of it", c->path);
    if (!resolve("width", c->width, &s->width, err) || !resolve("hidden", c->hidden, &s->hidden, err) ||
        !resolve("heads", c->heads, &s->heads, err) || !resolve("kv-heads", c->kv_heads, &s->kv_heads, err) ||
        !resolve("layers", c->layers, &s->layers, err) || !heads_fit(c, s, err))
        return false;
    if (s->width == c->width && s->hidden == c->hidden && s->heads == c->heads && s->kv_heads == c->kv_heads &&
        s->layers == c->layers)
        return fail(err, "nothing would become larger: the model has width %d, hidden %d, %d heads on %d and %d layers",
                    c->width, c->hidden, c->heads, c->kv_heads, c->layers);
    bool gguf = ends_with(to, ".gguf");
    if (c->gguf && !gguf)
        return fail(err, "%s: the model is a GGUF file: expected an output name that ends with .gguf", to);
    if (!c->gguf && gguf)
        return fail(err,
                    "%s: the model is a directory: expected a directory as output (speclab quantize converts to GGUF)",
                    to);
    return true;
}

bool inflate_is_exact(const struct model_config *c, const struct sizes *s)
{
    int64_t w = c->width;
    while (w < s->width)
        w *= 4;
    return w == s->width;
}

// ---- settings

static char *mark_of(const struct model_config *c)
{
    if (c->inflated != NULL) // inflated twice: the first model is the one whose texts it generates
        return xstrdup(c->inflated);
    return xformat("%.200s (width %d, hidden %d, %d heads on %d, %d layers)", path_base_name(c->path), c->width,
                   c->hidden, c->heads, c->kv_heads, c->layers);
}

static void write_metadata(void *context, struct gguf_writer *w)
{
    const struct inflating *f = context;
    const struct model_config *l = f->large;
    const struct {
        const char *key;
        int value;
    } numbers[] = {
        { "block_count", l->layers },
        { "embedding_length", l->width },
        { "feed_forward_length", l->hidden },
        { "attention.head_count", l->heads },
        { "attention.head_count_kv", l->kv_heads },
        { "attention.key_length", l->head_dim }, // without these, a head's size would be the width divided by the heads
        { "attention.value_length", l->head_dim },
        { "rope.dimension_count", l->head_dim },
    };
    enum { NUMBERS = sizeof(numbers) / sizeof(*numbers) };
    struct setting s[NUMBERS + 3];
    char *key[NUMBERS + 1];
    for (int i = 0; i < NUMBERS; i++) {
        key[i] = xformat("%s.%s", l->architecture->name, numbers[i].key);
        s[i] = (struct setting){ key[i], GGUF_U32, numbers[i].value, 0, NULL };
    }
    key[NUMBERS] = xformat("%s.attention.layer_norm_rms_epsilon", l->architecture->name);
    s[NUMBERS] = (struct setting){ key[NUMBERS], GGUF_F32, 0, l->norm_eps, NULL };
    s[NUMBERS + 1] = (struct setting){ CONFIG_INFLATED_GGUF, GGUF_STRING, 0, 0, l->inflated };
    struct gguf_string name = { "model", 5 };
    gguf_text(f->rewrite.from->gguf, "general.name", &name);
    char *renamed = xformat("%.*s%s", (int)(name.n < 4096 ? name.n : 4096), name.s,
                            f->small->inflated == NULL ? " (inflated)" : "");
    s[NUMBERS + 2] = (struct setting){ "general.name", GGUF_STRING, 0, 0, renamed };
    rewrite_settings(w, f->rewrite.from->gguf, s, NUMBERS + 3);
    for (int i = 0; i <= NUMBERS; i++)
        free(key[i]);
    free(renamed);
}

static void change_config(void *context, struct json *config)
{
    const struct inflating *f = context;
    const struct model_config *l = f->large;
    json_set(config, "hidden_size", json_new_int(l->width));
    json_set(config, "intermediate_size", json_new_int(l->hidden));
    json_set(config, "num_attention_heads", json_new_int(l->heads));
    json_set(config, "num_key_value_heads", json_new_int(l->kv_heads));
    json_set(config, "num_hidden_layers", json_new_int(l->layers));
    json_set(config, "head_dim", json_new_int(l->head_dim));
    json_set(config, "rms_norm_eps", json_new_number((double)l->norm_eps));
    json_set(config, CONFIG_INFLATED_HF, json_new_text(l->inflated));
    int *source = xcalloc((size_t)l->layers, sizeof(*source));
    for (int i = 0; i < l->layers; i++)
        source[i] = i % f->small->layers;
    rewrite_layer_lists(config, f->small->layers, source, l->layers);
    free(source);
}

// ---- the model

static struct model_config enlarged(const struct model_config *c, const struct sizes *s)
{
    struct model_config l = *c;
    l.width = s->width;
    l.hidden = s->hidden;
    l.heads = s->heads;
    l.kv_heads = s->kv_heads;
    l.layers = s->layers;
    l.norm_eps = (float)((double)c->norm_eps * c->width / s->width);
    return l;
}

bool inflate_model(const char *from, const struct sizes *requested, const char *to, struct backend *b,
                   const struct progress_observer *observer, struct left_out *left_out, struct error *err)
{
    struct model_config c;
    struct source_checkpoint o;
    struct sizes s = *requested;
    if (!config_read(from, &c, err))
        return false;
    bool ok = inflate_resolve(&c, &s, to, err) && rewrite_check_output(from, to, err) && source_open(&o, &c, err);
    if (ok) {
        struct model_config large = enlarged(&c, &s);
        large.inflated = mark_of(&c);
        struct inflating f = { .small = &c, .large = &large, .backend = b };
        f.rewrite = (struct rewrite){ .from = &o,
                                      .gguf = c.gguf,
                                      .metadata = write_metadata,
                                      .config = change_config,
                                      .put = inflate_write_tensor,
                                      .context = &f,
                                      .observer = observer };
        ok = inflate_plan(&f, &o, err) && rewrite_write(&f.rewrite, to, err);
        rewrite_free(&f.rewrite);
        free(f.job);
        free(large.inflated);
        if (left_out != NULL)
            *left_out = o.left_out;
        source_close(&o);
    }
    config_free(&c);
    return ok;
}
