#include "tests/support/small_model.h"

#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/formats/gguf_write.h"
#include "tests/formats/safetensors_write.h"
#include "tests/formats/plain_quantize.h"
#include "tests/support/small_tokenizer.h"

const struct small_model small_default = {
    .vocab = 288,
    .width = 64,
    .hidden = 128,
    .layers = 3,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 16,
    .sharp = true,
    .tokenizer = true,
    .seed = 1,
};

const struct small_model small_minimal = { .vocab = 270,
                                           .width = 8,
                                           .hidden = 8,
                                           .layers = 1,
                                           .heads = 2,
                                           .kv_heads = 1,
                                           .head_dim = 4,
                                           .tied = true,
                                           .tokenizer = true,
                                           .type = BF16 };

const struct small_model small_blocks = {
    .vocab = 288,
    .width = 256,
    .hidden = 80,
    .layers = 2,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 16,
    .sharp = true,
    .tokenizer = true,
    .seed = 11,
};

static void require(bool ok, const struct error *err)
{
    if (ok)
        return;
    fprintf(stderr, "small_model: %s\n", err->text);
    exit(1);
}

static struct small_model completed(const struct small_model *t)
{
    struct small_model c = *t;
    c.context = c.context != 0 ? c.context : 512;
    c.theta = c.theta != 0 ? c.theta : 10000;
    c.eps = c.eps != 0 ? c.eps : 1e-5;
    c.shards = c.shards != 0 ? c.shards : 1;
    struct error err = { 0 };
    if (c.tokenizer && c.vocab < SMALL_TOKENS)
        require(fail(&err, "a vocabulary of %d is too small for the tokenizer's %d tokens", c.vocab, SMALL_TOKENS),
                &err);
    return c;
}

// ---- the tensors of the model

struct entry {
    char hf[80], gguf[64];
    int64_t rows, width; // rows 0: a vector
    int heads;           // of q and k, whose rows GGUF permutes; else 0
};

struct entries {
    int n;
    struct entry *e; // (n) sorted by Hugging Face name
};

static void add(struct entries *l, int layer, const char *hf, const char *gguf, int64_t rows, int64_t width, int heads)
{
    l->e = xrealloc(l->e, (size_t)(l->n + 1) * sizeof(*l->e));
    struct entry *e = &l->e[l->n++];
    *e = (struct entry){ .rows = rows, .width = width, .heads = heads };
    if (layer < 0) {
        snprintf(e->hf, sizeof(e->hf), "%s", hf);
        snprintf(e->gguf, sizeof(e->gguf), "%s", gguf);
    } else {
        snprintf(e->hf, sizeof(e->hf), "model.layers.%d.%s", layer, hf);
        snprintf(e->gguf, sizeof(e->gguf), "blk.%d.%s", layer, gguf);
    }
}

static int by_hf(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->hf, ((const struct entry *)b)->hf);
}

static struct entries list(const struct small_model *t)
{
    struct entries l = { 0 };
    int64_t q = (int64_t)t->heads * t->head_dim, kv = (int64_t)t->kv_heads * t->head_dim;
    add(&l, -1, "model.embed_tokens.weight", "token_embd.weight", t->vocab, t->width, 0);
    add(&l, -1, "model.norm.weight", "output_norm.weight", 0, t->width, 0);
    if (!t->tied)
        add(&l, -1, "lm_head.weight", "output.weight", t->vocab, t->width, 0);
    for (int i = 0; i < t->layers; i++) {
        add(&l, i, "input_layernorm.weight", "attn_norm.weight", 0, t->width, 0);
        add(&l, i, "post_attention_layernorm.weight", "ffn_norm.weight", 0, t->width, 0);
        add(&l, i, "self_attn.q_proj.weight", "attn_q.weight", q, t->width, t->heads);
        add(&l, i, "self_attn.k_proj.weight", "attn_k.weight", kv, t->width, t->kv_heads);
        add(&l, i, "self_attn.v_proj.weight", "attn_v.weight", kv, t->width, 0);
        add(&l, i, "self_attn.o_proj.weight", "attn_output.weight", t->width, q, 0);
        add(&l, i, "mlp.gate_proj.weight", "ffn_gate.weight", t->hidden, t->width, 0);
        add(&l, i, "mlp.up_proj.weight", "ffn_up.weight", t->hidden, t->width, 0);
        add(&l, i, "mlp.down_proj.weight", "ffn_down.weight", t->width, t->hidden, 0);
        if (t->bias) {
            add(&l, i, "self_attn.q_proj.bias", "attn_q.bias", 0, q, t->heads);
            add(&l, i, "self_attn.k_proj.bias", "attn_k.bias", 0, kv, t->kv_heads);
            add(&l, i, "self_attn.v_proj.bias", "attn_v.bias", 0, kv, 0);
            add(&l, i, "self_attn.o_proj.bias", "attn_output.bias", 0, t->width, 0);
        }
    }
    qsort(l.e, (size_t)l.n, sizeof(*l.e), by_hf);
    return l;
}

// A number in [0, 1) with 24 bits for element i of tensor t: splitmix64 (Steele, Lea, Flood, 2014).
static float uniform(uint64_t seed, uint64_t t, uint64_t i)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15 + (t + 1) * 0xBF58476D1CE4E5B9 + i * 0x94D049BB133111EB;
    z ^= z >> 30;
    z *= 0xBF58476D1CE4E5B9;
    z ^= z >> 27;
    z *= 0x94D049BB133111EB;
    z ^= z >> 31;
    return (float)(z >> 40) * 0x1p-24f;
}

float *small_numbers(uint64_t seed, int number, const char *name, int64_t rows, int64_t width)
{
    float *v = xmalloc((size_t)(rows * width) * sizeof(*v));
    bool norm = strstr(name, "norm.weight") != NULL, bias = strstr(name, ".bias") != NULL;
    float scale = strstr(name, "embed_tokens.weight") != NULL ? 1.0f : (float)sqrt(3.0 / (double)width);
    for (int64_t i = 0; i < rows * width; i++) {
        float u = uniform(seed, (uint64_t)number, (uint64_t)i) - 0.5f;
        v[i] = norm ? 1 + u * 0.5f : bias ? u * 0.2f : u * 2 * scale;
    }
    return v;
}

static float *values(const struct small_model *t, const struct entries *l, int n)
{
    const struct entry *e = &l->e[n];
    int64_t rows = e->rows != 0 ? e->rows : 1;
    float *v = small_numbers(t->seed, n, e->hf, rows, e->width);
    if (t->sharp && strcmp(e->hf, "model.norm.weight") == 0)
        for (int64_t i = 0; i < rows * e->width; i++)
            v[i] *= 4;
    return v;
}

float *small_tensor(const struct small_model *given, const char *name, int64_t *rows, int64_t *width)
{
    struct small_model t = completed(given);
    struct entries l = list(&t);
    float *v = NULL;
    for (int i = 0; i < l.n; i++)
        if (strcmp(l.e[i].hf, name) == 0) {
            *rows = l.e[i].rows != 0 ? l.e[i].rows : 1;
            *width = l.e[i].width;
            v = values(&t, &l, i);
        }
    free(l.e);
    return v;
}

// Converts to the element type of the file; frees v.
static void *stored(float *v, enum type type, int64_t rows, int64_t width, size_t *bytes)
{
    size_t row = type_row_bytes(type, width);
    uint8_t *to = xmalloc((size_t)rows * row);
    for (int64_t r = 0; r < rows; r++)
        plain_quantize_row(type, v + r * width, width, to + (size_t)r * row);
    free(v);
    *bytes = (size_t)rows * row;
    return to;
}

// ---- Hugging Face

static struct json *small_rope(const struct small_model *t)
{
    struct json *j = json_object_of(JSON("rope_type", t->rope == ROPE_LINEAR   ? "linear"
                                                      : t->rope == ROPE_LLAMA3 ? "llama3"
                                                                               : "default"));
    if (t->rope != ROPE_PLAIN)
        json_add(j, JSON("factor", t->factor));
    if (t->rope == ROPE_LLAMA3)
        json_add(j, JSON("low_freq_factor", t->low), JSON("high_freq_factor", t->high),
                 JSON("original_max_position_embeddings", t->original));
    return j;
}

void small_write_json(const char *directory, const char *name, struct json *j)
{
    char *path = xformat("%s/%s", directory, name), *text = json_write(j);
    FILE *f = fopen(path, "we");
    struct error err = { 0 };
    bool ok = f != NULL && fputs(text, f) >= 0;
    if (f != NULL && fclose(f) != 0)
        ok = false;
    require(ok || fail(&err, "%s: %s", path, strerror(errno)), &err);
    free(path);
    free(text);
    json_free(j);
}

static void write_config(const char *directory, const struct small_model *t)
{
    struct json *classes = json_new_array();
    json_push(classes, json_new_text("LlamaForCausalLM"));
    struct json *j = json_object_of(
        JSON("architectures", classes), JSON("model_type", "llama"), JSON("hidden_act", "silu"),
        JSON("vocab_size", t->vocab), JSON("hidden_size", t->width), JSON("intermediate_size", t->hidden),
        JSON("num_hidden_layers", t->layers), JSON("num_attention_heads", t->heads),
        JSON("num_key_value_heads", t->kv_heads), JSON("head_dim", t->head_dim),
        JSON("max_position_embeddings", t->context), JSON("rms_norm_eps", t->eps), JSON("tie_word_embeddings", t->tied),
        JSON("attention_bias", t->bias), JSON("mlp_bias", json_new_bool(false)),
        JSON(t->new_spelling ? "dtype" : "torch_dtype", t->type == BF16  ? "bfloat16"
                                                        : t->type == F16 ? "float16"
                                                                         : "float32"));
    if (t->new_spelling)
        json_add(j, JSON("rope_parameters", json_add(small_rope(t), JSON("rope_theta", t->theta))));
    else
        json_add(j, JSON("rope_theta", t->theta),
                 JSON("rope_scaling", t->rope == ROPE_PLAIN ? json_new_null() : small_rope(t)));
    if (t->tokenizer)
        json_add(j, JSON("bos_token_id", SMALL_IM_START), JSON("eos_token_id", SMALL_IM_END));
    small_write_json(directory, "config.json", j);
}

static void write_index(const char *directory, const struct safetensor *tensor, int n)
{
    struct json *map = json_new_object();
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        char file[64];
        snprintf(file, sizeof(file), "model-%05d.safetensors", tensor[i].file);
        json_add(map, JSON(tensor[i].name, file));
        bytes += (int64_t)tensor[i].bytes;
    }
    struct json *total = json_object_of(JSON("total_size", bytes));
    small_write_json(directory, "model.safetensors.index.json",
                     json_object_of(JSON("metadata", total), JSON("weight_map", map)));
}

static void make_directories(const char *path)
{
    char *s = xstrdup(path);
    for (char *slash = strchr(s + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(s, 0777);
        *slash = '/';
    }
    mkdir(s, 0777);
    free(s);
}

void small_write_hf(const char *directory, const struct small_model *given)
{
    struct small_model t = completed(given);
    struct error err = { 0 };
    if (t.type != F32 && t.type != F16 && t.type != BF16)
        require(fail(&err, "safetensors do not hold %s", type_facts[t.type].name), &err);
    make_directories(directory);
    write_config(directory, &t);
    if (t.tokenizer)
        small_write_tokenizer_hf(directory, t.other_tokens);

    struct entries l = list(&t);
    struct safetensor *tensor = xcalloc((size_t)l.n, sizeof(*tensor));
    for (int i = 0; i < l.n; i++) {
        const struct entry *e = &l.e[i];
        struct safetensor *s = &tensor[i];
        *s = (struct safetensor){ .name = e->hf, .dtype = t.type == F32 ? "F32" : t.type == F16 ? "F16" : "BF16" };
        s->dims = e->rows != 0 ? 2 : 1;
        s->dim[0] = e->rows != 0 ? e->rows : e->width;
        s->dim[1] = e->width;
        s->file = i * t.shards / l.n + 1;
        s->data = stored(values(&t, &l, i), t.type, e->rows != 0 ? e->rows : 1, e->width, &s->bytes);
    }
    for (int file = 1, first = 0; file <= t.shards; file++) {
        int n = 0;
        while (first + n < l.n && tensor[first + n].file == file)
            n++;
        char *path = t.shards == 1 ? xformat("%s/model.safetensors", directory)
                                   : xformat("%s/model-%05d.safetensors", directory, file);
        require(safetensors_write(path, tensor + first, (size_t)n, json_object_of(JSON("format", "pt")), &err), &err);
        free(path);
        first += n;
    }
    if (t.shards > 1)
        write_index(directory, tensor, l.n);
    for (int i = 0; i < l.n; i++)
        free((void *)(uintptr_t)tensor[i].data);
    free(tensor);
    free(l.e);
}

// ---- GGUF

// LlamaModel.permute of llama.cpp's converter: G[h d + 2i + s] = HF[h d + s d/2 + i].
static void permute(float *v, int heads, int64_t rows, int64_t width)
{
    int64_t d = rows / heads;
    float *from = xmalloc((size_t)(rows * width) * sizeof(*v));
    memcpy(from, v, (size_t)(rows * width) * sizeof(*v));
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < d / 2; i++)
            for (int64_t s = 0; s < 2; s++)
                memcpy(v + (h * d + 2 * i + s) * width, from + (h * d + s * d / 2 + i) * width,
                       (size_t)width * sizeof(*v));
    free(from);
}

static void write_metadata(struct gguf_writer *w, const struct small_model *t)
{
    gguf_write_text(w, "general.architecture", "llama");
    gguf_write_text(w, "general.type", "model");
    gguf_write_text(w, "general.name", "tiny");
    gguf_write_int(w, "general.quantization_version", GGUF_U32, 2);
    gguf_write_int(w, "llama.block_count", GGUF_U32, t->layers);
    gguf_write_int(w, "llama.context_length", GGUF_U32, t->context);
    gguf_write_int(w, "llama.embedding_length", GGUF_U32, t->width);
    gguf_write_int(w, "llama.feed_forward_length", GGUF_U32, t->hidden);
    gguf_write_int(w, "llama.attention.head_count", GGUF_U32, t->heads);
    gguf_write_int(w, "llama.attention.head_count_kv", GGUF_U32, t->kv_heads);
    if (t->heads * t->head_dim != t->width) {
        gguf_write_int(w, "llama.attention.key_length", GGUF_U32, t->head_dim);
        gguf_write_int(w, "llama.attention.value_length", GGUF_U32, t->head_dim);
    }
    gguf_write_int(w, "llama.rope.dimension_count", GGUF_U32, t->head_dim);
    gguf_write_real(w, "llama.rope.freq_base", (float)t->theta);
    gguf_write_real(w, "llama.attention.layer_norm_rms_epsilon", (float)t->eps);
    gguf_write_int(w, "llama.vocab_size", GGUF_U32, t->vocab);
    if (t->rope == ROPE_LINEAR) {
        gguf_write_text(w, "llama.rope.scaling.type", "linear");
        gguf_write_real(w, "llama.rope.scaling.factor", (float)t->factor);
    }
    if (t->tokenizer)
        small_write_tokenizer_gguf(w);
}

// The scaling of Llama 3 as the converter writes it: the divisor of each frequency.
static float *rope_divisors(const struct small_model *t)
{
    struct model_config c = { .head_dim = t->head_dim, .rope.theta = t->theta };
    float *plain = xmalloc((size_t)t->head_dim * sizeof(*plain)), *scaled = plain + t->head_dim / 2;
    config_rope(&c.rope, c.head_dim, NULL, plain);
    c.rope.scaling = ROPE_LLAMA3;
    c.rope.factor = t->factor;
    c.rope.low = t->low;
    c.rope.high = t->high;
    c.rope.original = t->original;
    config_rope(&c.rope, c.head_dim, NULL, scaled);
    for (int i = 0; i < t->head_dim / 2; i++)
        plain[i] /= scaled[i];
    return plain;
}

void small_write_gguf(const char *path, const struct small_model *given)
{
    struct small_model t = completed(given);
    struct error err = { 0 };
    struct gguf_writer *w = gguf_write_begin(path, &err);
    require(w != NULL, &err);
    write_metadata(w, &t);

    struct entries l = list(&t);
    void **data = xcalloc((size_t)l.n + 1, sizeof(*data));
    if (t.rope == ROPE_LLAMA3) {
        data[l.n] = rope_divisors(&t);
        gguf_write_tensor(w, "rope_freqs.weight", 1, (uint64_t[]){ (uint64_t)t.head_dim / 2 }, type_facts[F32].ggml,
                          data[l.n], (size_t)t.head_dim / 2 * sizeof(float));
    }
    for (int i = 0; i < l.n; i++) {
        const struct entry *e = &l.e[i];
        bool vector = e->rows == 0;
        enum type type = vector || e->width % type_facts[t.type].block != 0 ? F32 : t.type;
        float *v = values(&t, &l, i);
        if (e->heads != 0)
            permute(v, e->heads, vector ? e->width : e->rows, vector ? 1 : e->width);
        size_t bytes;
        data[i] = stored(v, type, vector ? 1 : e->rows, e->width, &bytes);
        uint64_t dim[2] = { (uint64_t)e->width, (uint64_t)e->rows };
        gguf_write_tensor(w, e->gguf, vector ? 1 : 2, dim, type_facts[type].ggml, data[i], bytes);
    }
    require(gguf_write_end(w, &err), &err);
    for (int i = 0; i <= l.n; i++)
        free(data[i]);
    free(data);
    free(l.e);
}

// ---- the directory

static char directory[4096];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

const char *test_directory(void)
{
    if (*directory == '\0') {
        const char *tmp = getenv("TMPDIR");
        struct error err = { 0 };
        snprintf(directory, sizeof(directory), "%s/speclab-test-XXXXXX", tmp != NULL && *tmp != '\0' ? tmp : "/tmp");
        require(mkdtemp(directory) != NULL || fail(&err, "%s: %s", directory, strerror(errno)), &err);
        atexit(test_directory_remove);
    }
    return directory;
}

char *test_path(const char *name)
{
    return xformat("%s/%s", test_directory(), name);
}

void test_directory_remove(void)
{
    if (*directory != '\0')
        nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    *directory = '\0';
}

int test_directory_tear_down(void **state)
{
    (void)state;
    test_directory_remove();
    return 0;
}
