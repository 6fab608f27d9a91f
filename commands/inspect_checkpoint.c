// inspect_checkpoint.c - what is known of a checkpoint without its numbers: for tools that write it in another form,
// and of a head beside its target. Size does not matter.
#include "commands/inspect_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/formats/directory/declared_tokens.h"
#include "core/files/input.h"
#include "models/architectures.h"
#include "models/config_readers.h"
#include "models/heads/head.h"
#include "models/model.h"
#include "models/paths.h"
#include "models/weights.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/readers.h"
#include "models/tokenizers/tokenizer_write.h"

struct checkpoint {
    struct model_config config;
    struct weights *weights;
    struct tokenizer *tokenizer;
    const char *pre;       // its tokenizer.ggml.pre; NULL: it comes from a GGUF file, or there is none
    struct error not_gguf; // why a GGUF file cannot store a directory; empty: it can
};

// The only tokenizer of a directory that a GGUF file can store is that of tokenizer.json.
static bool read_json_tokenizer(struct checkpoint *o, struct error *err)
{
    static const char *const others[] = { "tokenizer.model", "vocab.json" };
    const char *directory = o->config.path;
    char *path = xformat("%s/tokenizer.json", directory);
    bool ok = true;
    if (file_exists(path)) {
        struct json *j = json_read(path, err);
        const bool read = j != NULL && declared_tokens_complete(directory, j, NULL, err);
        o->tokenizer = read ? tokenizer_from_json(j, path, err) : NULL;
        ok = o->tokenizer != NULL && tokenizer_fits_gguf(o->tokenizer, j, &o->pre, err);
        json_free(j);
    }
    free(path);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others) && o->tokenizer == NULL && ok; i++) {
        path = xformat("%s/%s", directory, others[i]);
        if (file_exists(path))
            ok = fail(err, "%s: expected tokenizer.json beside it, found none; a GGUF file cannot store any other",
                      path);
        free(path);
    }
    if (ok && o->tokenizer != NULL && tokenizer_size(o->tokenizer) > o->config.vocab)
        ok = fail(err, "%s: its tokenizer has %d tokens and the model %d rows for them, which GGUF cannot represent",
                  directory, tokenizer_size(o->tokenizer), o->config.vocab);
    return ok;
}

// llama.cpp ends with a number of tensors or with a shape where it lacks one of these.
static bool llama_reads(const struct model_config *c, struct error *err)
{
    const struct architecture *a = c->architecture;
    const struct {
        unsigned need; // one of enum exports
        bool is;
        const char *key, *found;
    } needs[] = {
        { EXPORTS_BIASES, c->attention_bias && !a->qkv_bias, "attention_bias", "biases of q, k, v and o" },
        { EXPORTS_LLAMA3, c->rope.scaling == ROPE_LLAMA3, "rope_type", "a RoPE of type llama3" },
        { EXPORTS_LONG, c->rope.scaling == ROPE_LONG, "rope_type", "a RoPE of type longrope" },
        { EXPORTS_HEAD_DIM, c->heads * c->head_dim != c->width, "head_dim",
          "heads that are together not hidden_size wide" },
        { EXPORTS_TIED, c->tied, "tie_word_embeddings", "no LM head beside the embedding" },
        { EXPORTS_UNTIED, !c->tied, "tie_word_embeddings", "an LM head beside the embedding" },
    };
    if (a->no_gguf)
        return fail(err, "%s: a GGUF file of its architecture, %s, cannot store it", c->path, a->model_type);
    for (size_t i = 0; i < sizeof(needs) / sizeof(*needs); i++)
        if (needs[i].is && (a->exports & needs[i].need) == 0)
            return fail(
                err,
                "%s/config.json: %s: expected a model that llama.cpp reads from a GGUF file, found %s, which it does not read of %s",
                c->path, needs[i].key, needs[i].found, a->name);
    return true;
}

// Reads the configuration and the names and shapes of all tensors, and checks that these are complete: a head's
// directory has a llama configuration as well, but is not a model.
static bool open_checkpoint(struct checkpoint *o, const char *path, struct error *err)
{
    o->weights = config_read(path, &o->config, err) ? weights_open(&o->config, err) : NULL;
    return o->weights != NULL && model_check(&o->config, o->weights, err);
}

static void close_checkpoint(struct checkpoint *o)
{
    tokenizer_close(o->tokenizer);
    weights_close(o->weights);
    config_free(&o->config);
}

static void read_tokenizer(struct checkpoint *o)
{
    if (o->config.gguf)
        o->tokenizer = tokenizer_open(o->config.path, &o->not_gguf);
    if (o->config.gguf || (read_json_tokenizer(o, &o->not_gguf) && llama_reads(&o->config, &o->not_gguf)))
        o->not_gguf.text[0] = '\0';
}

// ---- JSON

static struct json *numbers(const float *v, int n)
{
    struct json *list = json_new_array();
    for (int i = 0; i < n; i++)
        json_push(list, json_new_number(v[i]));
    return list;
}

static struct json *layers_of(const struct layer_set *s, int layers)
{
    struct json *list = json_new_array();
    for (int i = 0; i < layers; i++)
        if (layer_set_has(s, i))
            json_push(list, json_new_int(i));
    return list;
}

static struct json *rope_json(const struct model_config *c, const struct rope *r)
{
    return json_object_of(JSON("scaling", config_rope_name(r->scaling)), JSON("theta", r->theta),
                          JSON("factor", r->factor), JSON("low", r->low), JSON("high", r->high),
                          JSON("original", r->original), JSON("untruncated", r->untruncated),
                          JSON("angle_factor", r->angle_factor), JSON("rotated", config_rotated(r, c->head_dim)));
}

// Divisors of rope's frequencies: GGUF's form of Llama 3's scaling, and LongRoPE's two tables.
static void set_divisors(struct json *j, const struct model_config *c)
{
    const int half = c->head_dim / 2, rotated = config_rotated(&c->rope, c->head_dim) / 2;
    if (c->rope.scaling == ROPE_LLAMA3) {
        struct rope plain = c->rope;
        plain.scaling = ROPE_PLAIN;
        float *divide = xmalloc((size_t)c->head_dim * sizeof(*divide)), *scaled = divide + half;
        config_rope(&plain, c->head_dim, NULL, divide);
        config_rope(&c->rope, c->head_dim, NULL, scaled);
        for (int i = 0; i < half; i++)
            divide[i] /= scaled[i];
        json_set(j, "rope_freqs", numbers(divide, half));
        free(divide);
    }
    if (c->rope.scaling == ROPE_LONG)
        json_add(j, JSON("rope_factors_short", numbers(c->rope_short, rotated)),
                 JSON("rope_factors_long", numbers(c->rope_long, rotated)));
}

static float factor(float f) // 0 is none
{
    return f != 0 ? f : 1;
}

static void set_config(struct json *j, const struct model_config *c)
{
    const struct architecture *a = c->architecture;
    json_add(j, JSON("path", c->path), JSON("architecture", c->architecture->name),
             JSON("model_type", c->architecture->model_type),
             JSON("wrapper", c->wrapper != NULL ? c->wrapper->model_type : NULL), JSON("inflated_from", c->inflated),
             JSON("quantized_from", c->quantized), JSON("chat_template", c->chat_template));
    json_add(j, JSON("layers", c->layers), JSON("width", c->width), JSON("heads", c->heads),
             JSON("kv_heads", c->kv_heads), JSON("hidden", c->hidden), JSON("head_dim", c->head_dim),
             JSON("vocab", c->vocab), JSON("context", c->context), JSON("window", c->window), JSON("bos", c->bos),
             JSON("experts", c->experts), JSON("experts_used", c->experts_used),
             JSON("expert_hidden", c->expert_hidden));
    // A larger width changes no norm and divides no matrix elsewhere.
    const bool enlargeable = a->norms == NORMS_BEFORE && a->head_norms != NORMS_OF_ALL && !a->scales_embedding &&
                             !a->norms_from_zero && !a->fused && c->experts == 0;
    json_add(j, JSON("gguf", c->gguf), JSON("tied", c->tied), JSON("attention_bias", c->attention_bias),
             JSON("add_bos", c->add_bos), JSON("experts_normalized", c->experts_normalized),
             JSON("qwen_experts", json_new_bool(a->experts == QWEN_EXPERTS)),
             JSON("moves_rows", json_new_bool(a->gguf_rope == GGUF_ROPE_NORM)),
             JSON("norms_from_zero", a->norms_from_zero), JSON("has_windows", json_new_bool(a->window_pattern > 0)),
             JSON("has_attention_cap", json_new_bool((a->reads & READS_ATTENTION_CAP) != 0)),
             JSON("has_logit_cap", json_new_bool((a->reads & READS_LOGIT_CAP) != 0)),
             JSON("has_multipliers", json_new_bool((a->reads & READS_MULTIPLIERS) != 0)), JSON("fp8", c->fp8.used),
             JSON("enlargeable", enlargeable));
    json_add(j, JSON("norm_eps", c->norm_eps), JSON("attention_scale", c->attention_scale),
             JSON("attention_cap", c->attention_cap), JSON("logit_cap", c->logit_cap),
             JSON("embedding_scale", factor(c->embedding_scale)), JSON("residual_scale", factor(c->residual_scale)),
             JSON("logit_scale", factor(c->logit_scale)), JSON("rope", rope_json(c, &c->rope)),
             JSON("window_rope", c->window_rope.theta != 0 ? rope_json(c, &c->window_rope) : json_new_null()),
             JSON("windowed", layers_of(&c->windowed, c->layers)),
             JSON("unrotated", layers_of(&c->unrotated, c->layers)), JSON("dense", layers_of(&c->dense, c->layers)),
             JSON("fp8_blocks", json_new_ids((const int[]){ c->fp8.rows, c->fp8.columns }, 2)));
    set_divisors(j, c);
}

// The ids that end a text, and of each whether a reader knows it by its token's name.
static void set_ends(struct json *j, const struct checkpoint *o)
{
    struct json *known = json_new_array();
    for (int i = 0; i < o->config.n_end; i++) {
        size_t n = 0;
        const char *s = o->tokenizer != NULL ? tokenizer_token(o->tokenizer, o->config.end[i], &n) : NULL;
        json_push(known, json_new_bool(s != NULL && config_is_end_token(s, n)));
    }
    json_add(j, JSON("ends", json_new_ids(o->config.end, (size_t)o->config.n_end)), JSON("ends_known", known));
}

static bool is_byte_level(const struct tokenizer *t)
{
    return t != NULL && !t->unigram_model && t->bpe.characters == NULL;
}

bool inspect_checkpoint(const char *name, struct error *err)
{
    struct checkpoint o = { 0 };
    char *path = model_path(name, NULL, err);
    const bool ok = path != NULL && open_checkpoint(&o, path, err);
    if (ok) {
        struct json *j = json_new_object();
        read_tokenizer(&o);
        set_config(j, &o.config);
        set_ends(j, &o);
        json_add(j, JSON("not_gguf", o.not_gguf.text[0] != '\0' ? o.not_gguf.text : NULL), JSON("pre", o.pre),
                 JSON("vocabulary", is_byte_level(o.tokenizer) ? tokenizer_json(o.tokenizer) : json_new_null()));
        json_print(j, stdout);
    }
    free(path);
    close_checkpoint(&o);
    return ok;
}

// ---- a head

static void print_head(const char *path, const char *target, enum head_kind kind, const struct head_facts *f)
{
    struct json *layers = json_new_array();
    for (int i = 0; i < f->taps.n; i++)
        json_push(layers, f->taps.layer[i] == FINAL_STATE ? json_new_text("final") : json_new_int(f->taps.layer[i]));
    json_print(
        json_object_of(JSON("head", path), JSON("kind", head_drafters[kind]), JSON("description", head_kinds[kind]),
                       JSON("heads", f->heads > 0 ? json_new_int(f->heads) : json_new_null()), JSON("target", target),
                       JSON("reads", layers), JSON("vocab", f->vocab), JSON("width", f->width),
                       JSON("own_head", f->own_head), JSON("own_embedding", f->own_embedding), JSON("bytes", f->bytes)),
        stdout);
}

bool inspect_is_head(const char *name)
{
    struct error ignored;
    struct head h;
    char *path = model_path(name, NULL, &ignored);
    const bool is = path != NULL && head_open(&h, path, HEAD_MEDUSA, NULL, &ignored);
    if (is)
        head_close(&h);
    free(path);
    return is;
}

bool inspect_head(const char *head, const char *target, struct error *err)
{
    char *path = model_path(head, NULL, err), *of = path != NULL ? model_path(target, NULL, err) : NULL;
    struct checkpoint o = { 0 };
    struct head_facts facts;
    enum head_kind kind;
    bool ok = of != NULL && open_checkpoint(&o, of, err);
    const struct model_shape shape = model_shape_of(&o.config);
    ok = ok && head_fits(path, &shape, &kind, &facts, err);
    if (ok)
        print_head(path, of, kind, &facts);
    close_checkpoint(&o);
    free(path);
    free(of);
    return ok;
}
