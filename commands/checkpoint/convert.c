// convert.c - converts a Hugging Face directory to a GGUF file: llama.cpp's names, its order of q and k rows, its metadata.
//
// The file is read back and compared with its source before the conversion succeeds.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/architectures.h"
#include "models/config_parts.h"
#include "formats/file.h"
#include "formats/gguf.h"
#include "commands/checkpoint/source.h"
#include "commands/checkpoint/quantize_parts.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/tokenizer_parts.h"
#include "models/weights.h"

// ---- tensors

static struct new_tensor *add(struct quantizing *q, char *name, struct tensor from, enum type to, bool vector,
                              int heads)
{
    struct rewrite *r = &q->rewrite;
    struct new_tensor *f = &r->tensor[r->n];
    *f = (struct new_tensor){ .name = name,
                              .dims = vector ? 1 : 2,
                              .dim = { vector ? from.width : from.rows, from.width } };
    f->ggml = type_facts[to].ggml;
    f->bytes = (size_t)from.rows * type_row_bytes(to, from.width);
    q->job[r->n++] = (struct conversion){ .from = from, .to = to, .heads = heads };
    return f;
}

// (head_dim / 2) The divisors of rope's frequencies, GGUF's form of Llama 3's rope scaling.
static float *divisors(const struct model_config *c)
{
    struct rope plain = c->rope;
    plain.scaling = ROPE_PLAIN;
    int half = c->head_dim / 2;
    float *divide = xmalloc((size_t)c->head_dim * sizeof(*divide)), *scaled = divide + half;
    config_rope(&plain, c->head_dim, NULL, divide);
    config_rope(&c->rope, c->head_dim, NULL, scaled);
    for (int i = 0; i < half; i++)
        divide[i] /= scaled[i];
    return divide;
}

static bool is_dropped(const struct source_tensor *t, const struct model_config *c)
{
    return t->role == ROLE_ROPE || (t->role == ROLE_HEAD && c->tied); // not used by any reader
}

// All experts' matrices of that role in that layer, in one tensor; t is expert 0's.
static void plan_experts(struct quantizing *q, const struct source_checkpoint *o, const struct source_tensor *t)
{
    static const char *const names[] = { "gate_proj", "up_proj", "down_proj" };
    const int n = q->config->experts;
    struct expert_source *all = xcalloc((size_t)n, sizeof(*all));
    bool same = true; // types
    for (size_t i = 0; i < o->n; i++) {
        const struct source_tensor *s = &o->tensor[i];
        if (s->role == t->role && s->layer == t->layer && s->expert >= 0 && s->expert < n) {
            all[s->expert] = (struct expert_source){ s->tensor, s->fp8 };
            same = same && s->tensor.type == t->tensor.type;
        }
    }
    char *known = xformat("model.layers.%d.mlp.experts.%s.weight", t->layer, names[t->role - ROLE_EXPERT_GATE]),
         *name = weights_gguf_name(q->config->architecture, known);
    enum type type = quantized_type(q, t->tensor, name);
    type = !same && type == t->tensor.type && type != q->type ? F32 : type; // their width fits no block
    struct new_tensor *f = add(q, name, t->tensor, type, false, 0);
    f->dims = 3;
    f->dim[0] = n;
    f->dim[1] = t->tensor.rows;
    f->dim[2] = t->tensor.width;
    f->bytes *= (size_t)n;
    q->job[q->rewrite.n - 1].experts = all;
    free(known);
}

// The router has its own type, and llama.cpp's name is made of Qwen's.
static void plan_router(struct quantizing *q, const struct source_tensor *t)
{
    char *known = xformat("model.layers.%d.mlp.gate.weight", t->layer);
    add(q, weights_gguf_name(q->config->architecture, known), t->tensor, t->tensor.type, false, 0)->data =
        t->tensor.data;
    free(known);
}

static bool plan_tensor(struct quantizing *q, const struct source_checkpoint *o, const struct source_tensor *t,
                        struct error *err)
{
    const struct model_config *c = q->config;
    if (t->role == ROLE_ROUTER && t->fp8.numbers != NULL)
        return fail(err, "%s: tensor %s: a router of F8_E4M3 is not converted", c->path, t->name);
    if (t->role == ROLE_ROUTER)
        plan_router(q, t);
    else if (t->expert == 0)
        plan_experts(q, o, t);
    if (t->role == ROLE_ROUTER || t->expert >= 0 || t->is_scale)
        return true;
    if (t->role == ROLE_OTHER)
        return fail(err, "%s: tensor %s: a GGUF file of this family cannot store it", c->path, t->name);
    int heads = c->architecture->gguf_rope != GGUF_ROPE_NORM  ? 0
                : t->role == ROLE_Q || t->role == ROLE_Q_BIAS ? c->heads
                : t->role == ROLE_K || t->role == ROLE_K_BIAS ? c->kv_heads
                                                              : 0;
    bool vector = !role_is_matrix(t->role);
    const float more = role_is_norm(t->role) && c->architecture->norms_from_zero ? 1 : 0;
    enum type type = vector ? F32 : quantized_type(q, t->tensor, t->name);
    if (heads == 0 && type == t->tensor.type && !vector)
        add(q, weights_gguf_name(c->architecture, t->known), t->tensor, type, vector, heads)->data = t->tensor.data;
    else
        add(q, weights_gguf_name(c->architecture, t->known), t->tensor, type, vector, heads);
    q->job[q->rewrite.n - 1].more = more;
    q->job[q->rewrite.n - 1].fp8 = t->fp8;
    return true;
}

// ---- tokenizer

static bool read_tokenizer(struct quantizing *q, struct error *err)
{
    static const char *const others[] = { "tokenizer.model", "vocab.json" };
    const char *directory = q->config->path;
    char *path = xformat("%s/tokenizer.json", directory);
    bool ok = true;
    if (file_exists(path)) {
        struct json *j = json_read(path, err);
        q->tokenizer = j != NULL ? tokenizer_from_json(j, path, err) : NULL;
        ok = q->tokenizer != NULL && tokenizer_fits_gguf(q->tokenizer, j, &q->pre, err);
        json_free(j);
    }
    free(path);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others) && q->tokenizer == NULL && ok; i++) {
        path = xformat("%s/%s", directory, others[i]);
        if (file_exists(path))
            ok = fail(err, "%s: expected tokenizer.json beside it, found none; a GGUF file cannot store any other",
                      path);
        free(path);
    }
    if (ok && q->tokenizer != NULL && tokenizer_size(q->tokenizer) > q->config->vocab)
        ok = fail(err, "%s: its tokenizer has %d tokens and the model %d rows for them, which GGUF cannot represent",
                  directory, tokenizer_size(q->tokenizer), q->config->vocab);
    return ok;
}

bool convert_plan(struct quantizing *q, const struct source_checkpoint *o, struct error *err)
{
    if (!read_tokenizer(q, err))
        return false;
    const struct model_config *c = q->config;
    if (c->architecture->no_gguf)
        return fail(err, "%s: a GGUF file of its architecture, %s, cannot store it", c->path,
                    c->architecture->model_type);
    q->rewrite.tensor = xcalloc(o->n + 2, sizeof(*q->rewrite.tensor));
    q->job = xcalloc(o->n + 2, sizeof(*q->job));
    if (c->rope.scaling == ROPE_LLAMA3) {
        q->divide = divisors(c);
        struct tensor t = tensor_of(q->divide, F32, 1, c->head_dim / 2);
        add(q, xstrdup("rope_freqs.weight"), t, F32, true, 0)->data = q->divide;
    }
    if (c->rope.scaling == ROPE_LONG) {
        const int half = config_rotated(&c->rope, c->head_dim) / 2;
        const struct tensor s = tensor_of((void *)(uintptr_t)c->rope_short, F32, 1, half),
                            l = tensor_of((void *)(uintptr_t)c->rope_long, F32, 1, half);
        add(q, xstrdup("rope_factors_short.weight"), s, F32, true, 0)->data = s.data;
        add(q, xstrdup("rope_factors_long.weight"), l, F32, true, 0)->data = l.data;
    }
    for (size_t i = 0; i < o->n; i++)
        if (!is_dropped(&o->tensor[i], c) && !plan_tensor(q, o, &o->tensor[i], err))
            return false;
    return true;
}

void convert_free(struct quantizing *q)
{
    for (size_t i = 0; i < q->rewrite.n; i++)
        free(q->job[i].experts);
    free(q->divide);
    tokenizer_close(q->tokenizer);
}

// ---- metadata

static void write_number(struct gguf_writer *w, const struct model_config *c, const char *name, enum gguf_type type,
                         double number)
{
    char *key = xformat("%s.%s", c->architecture->name, name);
    if (type == GGUF_F32)
        gguf_write_real(w, key, (float)number);
    else
        gguf_write_int(w, key, type, (int64_t)number);
    free(key);
}

static void write_sizes(struct gguf_writer *w, const struct model_config *c)
{
    write_number(w, c, "block_count", GGUF_U32, c->layers);
    write_number(w, c, "context_length", GGUF_U32, c->context);
    write_number(w, c, "embedding_length", GGUF_U32, c->width);
    write_number(w, c, "feed_forward_length", GGUF_U32, c->hidden);
    write_number(w, c, "attention.head_count", GGUF_U32, c->heads);
    write_number(w, c, "attention.head_count_kv", GGUF_U32, c->kv_heads);
    write_number(w, c, "attention.key_length", GGUF_U32, c->head_dim);
    write_number(w, c, "attention.value_length", GGUF_U32, c->head_dim);
    write_number(w, c, "rope.dimension_count", GGUF_U32, config_rotated(&c->rope, c->head_dim));
    write_number(w, c, "rope.freq_base", GGUF_F32, c->rope.theta);
    write_number(w, c, "attention.layer_norm_rms_epsilon", GGUF_F32, (double)c->norm_eps);
    write_number(w, c, "vocab_size", GGUF_U32, c->vocab);
    if (c->experts > 0) {
        write_number(w, c, "expert_count", GGUF_U32, c->experts);
        write_number(w, c, "expert_used_count", GGUF_U32, c->experts_used);
    }
    if (c->architecture->experts == QWEN_EXPERTS)
        write_number(w, c, "expert_feed_forward_length", GGUF_U32, c->expert_hidden);
    if (c->architecture->window_pattern > 0)
        write_number(w, c, "attention.sliding_window", GGUF_U32, c->window);
    if (c->window_rope.theta != 0)
        write_number(w, c, "rope.freq_base_swa", GGUF_F32, c->window_rope.theta);
    if ((c->architecture->reads & READS_SOFT_CAPS) != 0) {
        write_number(w, c, "attn_logit_softcapping", GGUF_F32, (double)c->attention_cap);
        write_number(w, c, "final_logit_softcapping", GGUF_F32, (double)c->logit_cap);
    }
    if ((c->architecture->reads & READS_MULTIPLIERS) != 0) {
        write_number(w, c, "attention.scale", GGUF_F32, (double)c->attention_scale);
        write_number(w, c, "embedding_scale", GGUF_F32, (double)c->embedding_scale);
        write_number(w, c, "residual_scale", GGUF_F32, (double)c->residual_scale);
        write_number(w, c, "logit_scale", GGUF_F32, c->logit_scale != 0 ? (double)(1 / c->logit_scale) : 0);
    }
    if (c->rope.scaling == ROPE_YARN) {
        char *key = xformat("%s.rope.scaling.type", c->architecture->name);
        gguf_write_text(w, key, "yarn");
        free(key);
        write_number(w, c, "rope.scaling.factor", GGUF_F32, c->rope.factor);
        write_number(w, c, "rope.scaling.original_context_length", GGUF_U32, c->rope.original);
        write_number(w, c, "rope.scaling.yarn_beta_fast", GGUF_F32, c->rope.high);
        write_number(w, c, "rope.scaling.yarn_beta_slow", GGUF_F32, c->rope.low);
    }
    if (c->rope.scaling == ROPE_LONG) {
        write_number(w, c, "rope.scaling.original_context_length", GGUF_U32, c->rope.original);
        write_number(w, c, "rope.scaling.attn_factor", GGUF_F32, (double)c->rope.angle_factor);
    }
    if (c->rope.scaling == ROPE_LINEAR) {
        char *key = xformat("%s.rope.scaling.type", c->architecture->name);
        gguf_write_text(w, key, "linear");
        free(key);
        write_number(w, c, "rope.scaling.factor", GGUF_F32, c->rope.factor);
    }
}

// Ids that end a text: those that a reader does not recognize by their tokens' names need one of three keys.
static void write_ends(struct gguf_writer *w, const struct quantizing *q)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    const struct model_config *c = q->config;
    size_t k = 0;
    for (int i = 0; i < c->n_end && k < sizeof(keys) / sizeof(*keys); i++) {
        size_t n = 0;
        const char *s = q->tokenizer != NULL ? tokenizer_token(q->tokenizer, c->end[i], &n) : NULL;
        if (k == 0 || s == NULL || !config_is_end_token(s, n))
            gguf_write_int(w, keys[k++], GGUF_U32, c->end[i]);
    }
}

void convert_metadata(void *context, struct gguf_writer *w)
{
    const struct quantizing *q = context;
    const struct model_config *c = q->config;
    struct setting s[3];
    size_t n = settings_of_type(q->type, q->mark, s);
    gguf_write_text(w, "general.architecture", c->architecture->name);
    gguf_write_text(w, "general.type", "model");
    gguf_write_text(w, "general.name", path_base_name(c->path));
    for (size_t i = 0; i < n; i++)
        if (s[i].type == GGUF_STRING)
            gguf_write_text(w, s[i].key, s[i].text);
        else
            gguf_write_int(w, s[i].key, s[i].type, s[i].number);
    if (c->inflated != NULL)
        gguf_write_text(w, CONFIG_INFLATED_GGUF, c->inflated);
    write_sizes(w, c);
    if (q->tokenizer != NULL)
        tokenizer_write_gguf(q->tokenizer, q->pre, w);
    write_ends(w, q);
    if (c->bos >= 0)
        gguf_write_int(w, "tokenizer.ggml.bos_token_id", GGUF_U32, c->bos);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", c->add_bos);
    gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", false);
    if (c->chat_template != NULL)
        gguf_write_text(w, "tokenizer.chat_template", c->chat_template);
}

// ---- read back

static bool same_ends(const struct model_config *a, const struct model_config *b)
{
    bool same = a->n_end == b->n_end;
    for (int i = 0; i < a->n_end && same; i++) {
        int k = 0;
        while (k < b->n_end && b->end[k] != a->end[i])
            k++;
        same = k < b->n_end;
    }
    return same;
}

static bool assert_same_texts(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_layers(const struct model_config *a, const struct model_config *b)
{
    bool same = a->attention_scale == b->attention_scale && a->attention_cap == b->attention_cap &&
                a->logit_cap == b->logit_cap && a->embedding_scale == b->embedding_scale &&
                a->residual_scale == b->residual_scale && a->logit_scale == b->logit_scale &&
                (float)a->window_rope.theta == (float)b->window_rope.theta &&
                a->window_rope.scaling == b->window_rope.scaling && a->rope.rotated == b->rope.rotated &&
                a->rope.untruncated == b->rope.untruncated && a->rope.angle_factor == b->rope.angle_factor;
    for (int i = 0; i < a->layers && same; i++) {
        const bool windowed = layer_set_has(&a->windowed, i);
        same = windowed == layer_set_has(&b->windowed, i) && (!windowed || a->window == b->window) &&
               layer_set_has(&a->unrotated, i) == layer_set_has(&b->unrotated, i);
    }
    return same;
}

static bool same_experts(const struct model_config *a, const struct model_config *b)
{
    bool same = a->experts == b->experts;
    if (a->experts == 0 || !same)
        return same;
    for (int i = 0; i < a->layers && same; i++)
        same = layer_set_has(&a->dense, i) == layer_set_has(&b->dense, i);
    return same && a->experts_used == b->experts_used && a->expert_hidden == b->expert_hidden &&
           a->experts_normalized == b->experts_normalized;
}

static bool agrees(const struct quantizing *q, const struct model_config *c, struct error *err)
{
    const struct model_config *from = q->config;
    const char *what = NULL;
    if (!same_ends(from, c))
        what = "the tokens that end a text";
    else if (from->bos != c->bos || from->add_bos != c->add_bos)
        what = "the token that begins a text";
    else if (!assert_same_texts(from->chat_template, c->chat_template))
        what = "the chat template";
    else if (!same_layers(from, c))
        what = "its windows, the scale of its attention or its RoPE, which files of this architecture do not state";
    else if (!same_experts(from, c))
        what = "its experts: those of files are in all layers, and the weights of the used ones sum to 1";
    else if (from->tied != c->tied || from->attention_bias != c->attention_bias || from->norm_eps != c->norm_eps)
        what = "the shape of the model";
    return what == NULL || fail(err, "%s: a GGUF file of it would differ in %s", from->path, what);
}

bool convert_agrees(const struct quantizing *q, const char *made, struct error *err)
{
    struct model_config c = { 0 };
    bool ok = config_read(made, &c, err) && agrees(q, &c, err);
    config_free(&c);
    if (ok && q->tokenizer != NULL) {
        struct tokenizer *t = tokenizer_open(made, err);
        ok = t != NULL && (tokenizer_equal(q->tokenizer, t) ||
                           fail(err, "%s: a GGUF file of it would tokenize some texts differently", q->config->path));
        tokenizer_close(t);
    }
    if (!ok)
        unlink(made);
    return ok;
}
