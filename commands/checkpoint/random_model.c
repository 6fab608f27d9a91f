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
    { "llama-1b", 16, 2048, 32, 8, 64, 8192, 128256, 8192, 500000, true },    // Llama-3.2-1B
    { "llama-3b", 28, 3072, 24, 8, 128, 8192, 128256, 8192, 500000, true },   // Llama-3.2-3B
    { "llama-8b", 32, 4096, 32, 8, 128, 14336, 128256, 8192, 500000, false }, // Llama-3.1-8B
    { "smollm2-135m", 30, 576, 9, 3, 64, 1536, 49152, 8192, 100000, true },   // SmolLM2-135M
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
static void fill(float *row, int64_t n, uint64_t stream)
{
    const float scale = DEVIATION / 37837.0f;
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
            fill(row, t->width, stream + (uint64_t)(r * t->width));
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

static void plan(struct generator *m, const char *name, int64_t rows, int64_t width)
{
    bool vector = rows == 1;
    const enum type type = vector ? F32 : m->type;
    const uint64_t dim[2] = { (uint64_t)width, (uint64_t)rows };
    size_t bytes = (size_t)rows * type_row_bytes(type, width);
    gguf_write_tensor(m->file, name, vector ? 1 : 2, dim, type_facts[type].ggml, NULL, bytes);
    m->tensor = xrealloc(m->tensor, (m->n + 1) * sizeof(*m->tensor));
    m->tensor[m->n++] = (struct random_tensor){ vector, rows, width };
    m->bytes += bytes;
}

static void plan_tensors(struct generator *m)
{
    const struct random_shape *s = m->shape;
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    const struct {
        const char *name;
        int64_t rows, width;
    } parts[] = {
        { "attn_norm", 1, s->width },        { "attn_q", heads, s->width },      { "attn_k", kv, s->width },
        { "attn_v", kv, s->width },          { "attn_output", s->width, heads }, { "ffn_norm", 1, s->width },
        { "ffn_gate", s->hidden, s->width }, { "ffn_up", s->hidden, s->width },  { "ffn_down", s->width, s->hidden },
    };
    plan(m, "token_embd.weight", s->vocab, s->width);
    for (int l = 0; l < s->layers; l++)
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            char name[64];
            snprintf(name, sizeof(name), "blk.%d.%s.weight", l, parts[i].name);
            plan(m, name, parts[i].rows, parts[i].width);
        }
    plan(m, "output_norm.weight", 1, s->width);
    if (!s->tied)
        plan(m, "output.weight", s->vocab, s->width);
}

// For a file without a vocabulary, llama.cpp creates vocab_size unnamed tokens.
static void put_metadata(struct generator *m)
{
    const struct random_shape *s = m->shape;
    const struct {
        const char *key;
        int value;
    } numbers[] = {
        { "llama.vocab_size", s->vocab },
        { "llama.context_length", s->context },
        { "llama.embedding_length", s->width },
        { "llama.block_count", s->layers },
        { "llama.feed_forward_length", s->hidden },
        { "llama.attention.head_count", s->heads },
        { "llama.attention.head_count_kv", s->kv_heads },
        { "llama.attention.key_length", s->head_dim },
        { "llama.attention.value_length", s->head_dim },
        { "llama.rope.dimension_count", s->head_dim },
    };
    char *name = xformat("%s, random weights, seed %llu", s->name, (unsigned long long)m->seed);
    gguf_write_text(m->file, "general.architecture", "llama");
    gguf_write_text(m->file, "general.name", name);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        gguf_write_int(m->file, numbers[i].key, GGUF_U32, numbers[i].value);
    gguf_write_real(m->file, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_write_real(m->file, "llama.rope.freq_base", (float)s->theta);
    gguf_write_text(m->file, "tokenizer.ggml.model", "no_vocab");
    free(name);
}

bool random_model_write(const struct random_shape *s, enum type type, uint64_t seed, const char *to,
                        const struct progress_observer *observer, struct error *err)
{
    const int block = type_facts[type].block;
    if (s->width % block != 0 || s->hidden % block != 0 || s->heads * s->head_dim % block != 0)
        return fail(err, "width %d, hidden %d and heads * head_dim %d must be multiples of %s's block size %d",
                    s->width, s->hidden, s->heads * s->head_dim, type_facts[type].name, block);
    if (s->heads % s->kv_heads != 0 || s->head_dim % 2 != 0)
        return fail(err, "heads %d must be a multiple of kv_heads %d, and head_dim %d even", s->heads, s->kv_heads,
                    s->head_dim);
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
