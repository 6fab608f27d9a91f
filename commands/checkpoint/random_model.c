#include "commands/checkpoint/random_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "formats/file.h"
#include "formats/gguf.h"
#include "commands/checkpoint/random_parts.h"
#include "commands/checkpoint/quantize.h"
#include "commands/checkpoint/writer.h"

#define DEVIATION 0.02f

const struct random_shape random_shapes[] = {
    { "llama-1b", 16, 2048, 32, 8, 64, 8192, 128256, 8192, 500000, true, NULL, 0, 0, 0 },    // Llama-3.2-1B
    { "llama-3b", 28, 3072, 24, 8, 128, 8192, 128256, 8192, 500000, true, NULL, 0, 0, 0 },   // Llama-3.2-3B
    { "llama-8b", 32, 4096, 32, 8, 128, 14336, 128256, 8192, 500000, false, NULL, 0, 0, 0 }, // Llama-3.1-8B
    { "smollm2-135m", 30, 576, 9, 3, 64, 1536, 49152, 8192, 100000, true, NULL, 0, 0, 0 },   // SmolLM2-135M
    { "qwen3-30b-a3b", 48, 2048, 32, 4, 128, 6144, 151936, 32768, 1e6, false, "qwen3moe", 128, 8, 768 },
    { 0 },
};

struct generator {
    const struct random_shape *shape;
    enum type type;
    uint64_t seed;
    const struct progress_observer *observer;
    size_t n, bytes;
    struct random_tensor *tensor; // (n)
    struct gguf_writer *file;
};

static uint64_t splitmix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// The sum of the four 16-bit parts of a random number is nearly normal, with standard deviation 2 * 65536 / sqrt(12).
static void fill(float *row, int64_t n, float deviation, uint64_t stream)
{
    const float scale = (deviation > 0 ? deviation : DEVIATION) / 37837.0f;
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = splitmix64(stream + (uint64_t)i);
        int32_t sum = (int16_t)x + (int16_t)(x >> 16) + (int16_t)(x >> 32) + (int16_t)(x >> 48);
        row[i] = scale * (float)sum;
    }
}

uint64_t random_tensor_stream(uint64_t seed, size_t tensor)
{
    return splitmix64(seed * 0x10001 + tensor);
}

bool random_tensor_write(const struct random_tensor *t, enum type type, uint64_t stream, struct part *to,
                         struct error *err)
{
    const enum type as = t->vector ? F32 : type;
    float *row = xcalloc((size_t)t->width, sizeof(*row));
    size_t bytes = type_row_bytes(as, t->width);
    void *packed = xmalloc(bytes);
    bool ok = true;
    for (int64_t r = 0; r < t->rows && ok && !part_failed(to); r++) {
        if (t->vector)
            for (int64_t k = 0; k < t->width; k++)
                row[k] = 1;
        else
            fill(row, t->width, t->deviation, stream + (uint64_t)(r * t->width));
        ok = quantize_floats(as, row, t->width, packed) ||
             fail(err, "a random row cannot be quantized to %s", type_facts[as].name);
        part_write(to, packed, bytes);
    }
    free(row);
    free(packed);
    return ok;
}

static bool put(void *context, size_t i, struct part *to, struct error *err)
{
    struct generator *m = context;
    const bool ok = random_tensor_write(&m->tensor[i], m->type, random_tensor_stream(m->seed, i), to, err);
    if (m->observer != NULL)
        m->observer->progress(m->observer->context, part_bytes(to), m->bytes);
    return ok;
}

// matrices: of so many rows each, in one tensor.
static void plan(struct generator *m, const char *name, int64_t rows, int64_t width, int matrices)
{
    bool vector = rows == 1;
    const enum type type = vector ? F32 : m->type;
    const uint64_t dim[3] = { (uint64_t)width, (uint64_t)rows, (uint64_t)matrices };
    size_t bytes = (size_t)(rows * matrices) * type_row_bytes(type, width);
    gguf_write_tensor(m->file, name, matrices > 1 ? 3 : vector ? 1 : 2, dim, type_facts[type].ggml, NULL, bytes);
    m->tensor = xrealloc(m->tensor, (m->n + 1) * sizeof(*m->tensor));
    m->tensor[m->n++] = (struct random_tensor){ .vector = vector, .rows = rows * matrices, .width = width };
    m->bytes += bytes;
}

static void plan_tensors(struct generator *m)
{
    const struct random_shape *s = m->shape;
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    const int of = s->experts > 0 ? s->experts : 1, hidden = s->experts > 0 ? s->expert_hidden : s->hidden;
    const bool mixture = s->experts > 0;
    const struct {
        const char *name;
        int64_t rows, width;
        int matrices; // 0: only in a mixture of experts, which has norms of heads as well
    } parts[] = {
        { "attn_norm", 1, s->width, 1 },
        { "attn_q", heads, s->width, 1 },
        { "attn_k", kv, s->width, 1 },
        { "attn_v", kv, s->width, 1 },
        { "attn_output", s->width, heads, 1 },
        { "attn_q_norm", 1, s->head_dim, 0 },
        { "attn_k_norm", 1, s->head_dim, 0 },
        { "ffn_norm", 1, s->width, 1 },
        { "ffn_gate_inp", s->experts, s->width, 0 },
        { mixture ? "ffn_gate_exps" : "ffn_gate", hidden, s->width, of },
        { mixture ? "ffn_up_exps" : "ffn_up", hidden, s->width, of },
        { mixture ? "ffn_down_exps" : "ffn_down", s->width, hidden, of },
    };
    plan(m, "token_embd.weight", s->vocab, s->width, 1);
    m->tensor[0].deviation = mixture ? 1 : 0;
    for (int l = 0; l < s->layers; l++)
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            char name[64];
            snprintf(name, sizeof(name), "blk.%d.%s.weight", l, parts[i].name);
            if (parts[i].matrices > 0 || mixture)
                plan(m, name, parts[i].rows, parts[i].width, parts[i].matrices > 0 ? parts[i].matrices : 1);
        }
    plan(m, "output_norm.weight", 1, s->width, 1);
    if (!s->tied)
        plan(m, "output.weight", s->vocab, s->width, 1);
}

// For a file without a vocabulary, llama.cpp creates vocab_size unnamed tokens.
static void put_metadata(struct generator *m)
{
    const struct random_shape *s = m->shape;
    const struct {
        const char *key;
        int value;
    } numbers[] = {
        { "vocab_size", s->vocab },
        { "context_length", s->context },
        { "embedding_length", s->width },
        { "block_count", s->layers },
        { "feed_forward_length", s->hidden },
        { "attention.head_count", s->heads },
        { "attention.head_count_kv", s->kv_heads },
        { "attention.key_length", s->head_dim },
        { "attention.value_length", s->head_dim },
        { "rope.dimension_count", s->head_dim },
        { "expert_count", s->experts },
        { "expert_used_count", s->experts_used },
        { "expert_feed_forward_length", s->expert_hidden },
    };
    const char *architecture = s->architecture != NULL ? s->architecture : "llama";
    const size_t n = sizeof(numbers) / sizeof(numbers[0]) - (s->experts > 0 ? 0 : 3);
    char *name = xformat("%s, random weights, seed %llu", s->name, (unsigned long long)m->seed);
    gguf_write_text(m->file, "general.architecture", architecture);
    gguf_write_text(m->file, "general.name", name);
    for (size_t i = 0; i < n; i++) {
        char *key = xformat("%s.%s", architecture, numbers[i].key);
        gguf_write_int(m->file, key, GGUF_U32, numbers[i].value);
        free(key);
    }
    char *eps = xformat("%s.attention.layer_norm_rms_epsilon", architecture),
         *base = xformat("%s.rope.freq_base", architecture);
    gguf_write_real(m->file, eps, 1e-5f);
    gguf_write_real(m->file, base, (float)s->theta);
    free(eps);
    free(base);
    gguf_write_text(m->file, "tokenizer.ggml.model", "no_vocab");
    free(name);
}

bool random_shape_check(const struct random_shape *s, enum type type, struct error *err)
{
    const int block = type_facts[type].block;
    if (s->width % block != 0 || s->hidden % block != 0 || s->heads * s->head_dim % block != 0)
        return fail(err, "width %d, hidden %d and heads * head_dim %d must be multiples of %s's block size %d",
                    s->width, s->hidden, s->heads * s->head_dim, type_facts[type].name, block);
    if (s->experts > 0 && (s->expert_hidden % block != 0 || s->experts_used > s->experts))
        return fail(err,
                    "expert_hidden %d must be a multiple of %s's block size %d, and of %d experts at most as many used",
                    s->expert_hidden, type_facts[type].name, block, s->experts);
    if (s->heads % s->kv_heads != 0 || s->head_dim % 2 != 0)
        return fail(err, "heads %d must be a multiple of kv_heads %d, and head_dim %d even", s->heads, s->kv_heads,
                    s->head_dim);
    return true;
}

bool random_model_write(const struct random_shape *s, enum type type, uint64_t seed, const char *to,
                        const struct progress_observer *observer, struct error *err)
{
    if (file_exists(to))
        return fail(err, "%s: exists already", to);
    struct generator m = { .shape = s, .type = type, .seed = seed, .observer = observer };
    m.file = gguf_write_begin(to, err);
    if (m.file == NULL)
        return false;
    put_metadata(&m);
    plan_tensors(&m);
    bool ok = gguf_write_end(m.file, put, &m, err);
    free(m.tensor);
    return ok;
}
