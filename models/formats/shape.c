#include "models/formats/shape.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/mapped.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/quantize.h"
#include "core/settings.h"
#include "models/formats/gguf.h"
#include "models/formats/shape_stock.h"

#define DEVIATION 0.02f

static const struct shape {
    const char *name, *architecture, *sizes;
    double theta;
    bool tied;
} shapes[] = {
    { "llama-1b", "llama", "layers=16,width=2048,heads=32,kv_heads=8,head_dim=64,hidden=8192,vocab=128256,context=8192",
      500000, true },
    { "llama-3b", "llama",
      "layers=28,width=3072,heads=24,kv_heads=8,head_dim=128,hidden=8192,vocab=128256,context=8192", 500000, true },
    { "llama-8b", "llama",
      "layers=32,width=4096,heads=32,kv_heads=8,head_dim=128,hidden=14336,vocab=128256,context=8192", 500000, false },
    { "smollm2-135m", "llama",
      "layers=30,width=576,heads=9,kv_heads=3,head_dim=64,hidden=1536,vocab=49152,context=8192", 100000, true },
    { "qwen3-30b-a3b", "qwen3moe",
      "layers=48,width=2048,heads=32,kv_heads=4,head_dim=128,hidden=6144,vocab=151936,context=32768,experts=128,experts_used=8,expert_hidden=768",
      1e6, false },
};

struct sizes { // experts 0: no mixture
    int type, layers, width, heads, kv_heads, head_dim, hidden, vocab, context, experts, experts_used, expert_hidden,
        seed;
};

#define AT(field) offsetof(struct sizes, field)
static const struct option options[] = {
    { "type", OPTION_CHOICE, AT(type), "q4_0", "", 0, 0, CONVERTED_CHOICES },
    { "layers", OPTION_INT, AT(layers), NULL, "", 1, 1024, NULL },
    { "width", OPTION_INT, AT(width), NULL, "", 1, 1 << 20, NULL },
    { "heads", OPTION_INT, AT(heads), NULL, "", 1, 4096, NULL },
    { "kv_heads", OPTION_INT, AT(kv_heads), NULL, "", 1, 4096, NULL },
    { "head_dim", OPTION_INT, AT(head_dim), NULL, "", 2, 4096, NULL },
    { "hidden", OPTION_INT, AT(hidden), NULL, "", 1, 1 << 20, NULL },
    { "vocab", OPTION_INT, AT(vocab), NULL, "", 2, 1 << 20, NULL },
    { "context", OPTION_INT, AT(context), NULL, "", 2, 1 << 24, NULL },
    { "seed", OPTION_INT, AT(seed), "1", "", 0, INT_MAX, NULL },
    // The EXPERT_OPTIONS of a mixture begin here.
    { "experts", OPTION_INT, AT(experts), NULL, "", 1, 4096, NULL },
    { "experts_used", OPTION_INT, AT(experts_used), NULL, "", 1, 64, NULL },
    { "expert_hidden", OPTION_INT, AT(expert_hidden), NULL, "", 1, 1 << 20, NULL },
    { 0 },
};

enum { EXPERT_OPTIONS = 10 };

// ---- names

static bool check(const struct sizes *s, struct error *err)
{
    const enum type type = type_chosen(CONVERTED_CHOICES, s->type);
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

// Copies the sizes that the name gives to the shape's settings.
static bool read_sizes(const char *shape, struct settings *own, const struct settings *given, struct sizes *to,
                       struct error *err)
{
    const bool mixture = settings_get(own, "experts") != NULL;
    *to = (struct sizes){ 0 };
    struct option table[sizeof(options) / sizeof(options[0])];
    memcpy(table, options, sizeof(options));
    for (int i = 0; i < given->n; i++) {
        if (strcmp(given->key[i], "kind") == 0)
            return fail(err, "shape has no option \"kind\"");
        if (strncmp(given->key[i], "expert", 6) == 0 && !mixture)
            return fail(err, "%s: %s has none", given->key[i], shape);
        settings_put(own, given->key[i], settings_copy(given->item[i]));
    }
    if (!mixture)
        table[EXPERT_OPTIONS] = (struct option){ 0 };
    return options_read(own, "shape", table, to, err) && check(to, err);
}

static bool read_name(const char *name, const struct shape **shape, struct sizes *sizes, struct error *err)
{
    const char *word = name + strlen("shape:");
    const size_t n = strcspn(word, ",");
    struct error why;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (strlen(shapes[i].name) != n || strncmp(shapes[i].name, word, n) != 0)
            continue;
        if (word[n] == ',' && word[n + 1] == '\0')
            return fail(err, "%s: expected KEY=VALUE behind the comma", name);
        *shape = &shapes[i];
        struct settings *own = settings_pairs(shapes[i].sizes, "shape", err),
                        *given = word[n] == ',' ? settings_pairs(word + n + 1, "shape", &why) : settings_map();
        const bool ok = (given != NULL && read_sizes(shapes[i].name, own, given, sizes, &why)) ||
                        fail(err, "%s: %s", name, why.text);
        settings_free(own);
        settings_free(given);
        return ok;
    }
    return fail(err, "%s: expected %s, found \"%.*s\"", name, SHAPE_NAMES, (int)n, word);
}

// ---- the header

enum { STOCKS = 2, VECTOR = -1 };

struct random_tensor { // a vector consists of ones, in F32
    uint64_t offset;   // offset of its bytes after the header
    size_t bytes;
    int stock; // the stock whose part it is; VECTOR: none
};

struct generator {
    const struct shape *shape;
    const struct sizes *sizes;
    enum type type;
    uint64_t keys, n, offset; // number of keys of the metadata; number of tensors; offset of the next tensor's bytes,
                              // at a page
    size_t bytes;             // bytes of all tensors
    struct random_tensor *tensor; // (n)
    struct stock stock[STOCKS];   // the second one is for the embedding of a mixture
    struct text values, entries;  // the two parts of the header (models/formats/gguf.c): the metadata, the descriptions
                                  // of the tensors
};

static void put_number(struct text *to, uint64_t v, size_t bytes) // little-endian: the low bytes come first
{
    text_add(to, (const char *)&v, bytes);
}

static void put_string(struct text *to, const char *s)
{
    put_number(to, strlen(s), sizeof(uint64_t));
    text_puts(to, s);
}

static void put_key(struct generator *m, const char *key, enum gguf_type type)
{
    put_string(&m->values, key);
    put_number(&m->values, type, sizeof(uint32_t));
    m->keys++;
}

static void put_text(struct generator *m, const char *key, const char *s)
{
    put_key(m, key, GGUF_STRING);
    put_string(&m->values, s);
}

// Adds a key of the architecture. bits: those of an integer or a float of 32 bits.
static void put_own(struct generator *m, const char *name, enum gguf_type type, const void *bits)
{
    char key[80];
    snprintf(key, sizeof(key), "%s.%s", m->shape->architecture, name);
    put_key(m, key, type);
    text_add(&m->values, bits, sizeof(uint32_t));
}

// matrices: how many matrices of so many rows are in one tensor.
static void plan(struct generator *m, const char *name, int64_t rows, int64_t width, int matrices, int stock)
{
    const bool vector = rows == 1;
    const enum type type = vector ? F32 : m->type;
    const uint64_t dim[3] = { (uint64_t)width, (uint64_t)rows, (uint64_t)matrices };
    const uint32_t dims = matrices > 1 ? 3 : vector ? 1 : 2;
    const size_t bytes = (size_t)(rows * matrices) * type_row_bytes(type, width);
    put_string(&m->entries, name);
    put_number(&m->entries, dims, sizeof(dims));
    text_add(&m->entries, (const char *)dim, dims * sizeof(*dim));
    put_number(&m->entries, (uint64_t)type_facts[type].ggml, sizeof(uint32_t));
    put_number(&m->entries, m->offset, sizeof(m->offset));
    m->tensor = xrealloc(m->tensor, (m->n + 1) * sizeof(*m->tensor));
    m->tensor[m->n++] = (struct random_tensor){ m->offset, bytes, vector ? VECTOR : stock };
    m->offset += stock_up_to(bytes, STOCK_PAGE);
    m->bytes += bytes;
    if (!vector)
        stock_want(&m->stock[stock], bytes);
}

static void plan_tensors(struct generator *m)
{
    const struct sizes *s = m->sizes;
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    const bool mixture = s->experts > 0;
    const int of = mixture ? s->experts : 1, hidden = mixture ? s->expert_hidden : s->hidden;
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
    plan(m, "token_embd.weight", s->vocab, s->width, 1, mixture ? 1 : 0);
    for (int l = 0; l < s->layers; l++)
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            char name[64];
            snprintf(name, sizeof(name), "blk.%d.%s.weight", l, parts[i].name);
            if (parts[i].matrices > 0 || mixture)
                plan(m, name, parts[i].rows, parts[i].width, parts[i].matrices > 0 ? parts[i].matrices : 1, 0);
        }
    plan(m, "output_norm.weight", 1, s->width, 1, 0);
    if (!m->shape->tied)
        plan(m, "output.weight", s->vocab, s->width, 1, 0);
}

// For a file without a vocabulary, llama.cpp creates vocab_size unnamed tokens.
static void put_metadata(struct generator *m)
{
    const struct sizes *s = m->sizes;
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
    const size_t n = sizeof(numbers) / sizeof(numbers[0]) - (s->experts > 0 ? 0 : 3);
    char name[80];
    snprintf(name, sizeof(name), "%s, random weights, seed %d", m->shape->name, s->seed);
    put_text(m, "general.architecture", m->shape->architecture);
    put_key(m, "general.alignment", GGUF_U32);
    put_number(&m->values, STOCK_PAGE, sizeof(uint32_t));
    put_text(m, "general.name", name);
    for (size_t i = 0; i < n; i++)
        put_own(m, numbers[i].key, GGUF_U32, &numbers[i].value);
    put_own(m, "attention.layer_norm_rms_epsilon", GGUF_F32, &(float){ 1e-5f });
    put_own(m, "rope.freq_base", GGUF_F32, &(float){ (float)m->shape->theta });
    put_text(m, "tokenizer.ggml.model", "no_vocab");
}

// Returns the metadata and the tensors' descriptions, followed by zeros up to the next page.
static struct text header_of(const struct generator *m)
{
    struct text head = { 0 };
    text_puts(&head, "GGUF");
    put_number(&head, 3, sizeof(uint32_t));
    put_number(&head, m->n, sizeof(m->n));
    put_number(&head, m->keys, sizeof(m->keys));
    text_add(&head, m->values.s, m->values.n);
    text_add(&head, m->entries.s, m->entries.n);
    return head;
}

// ---- the file: the header and the vectors are written, the matrices are holes, which file_map fills with parts of the
// stocks

static bool write_vector(int fd, const struct random_tensor *t, uint64_t at, struct error *err)
{
    float *x = xmalloc(t->bytes);
    for (size_t i = 0; i < t->bytes / sizeof(*x); i++)
        x[i] = 1;
    const bool ok = memory_file_write(fd, x, t->bytes, at, err);
    free(x);
    return ok;
}

static bool write_model(struct generator *m, int fd, struct mapped_parts *parts, struct error *err)
{
    struct text head = header_of(m);
    const uint64_t start = stock_up_to(head.n, STOCK_PAGE);
    bool ok = memory_file_write(fd, head.s, head.n, 0, err) &&
              (ftruncate(fd, (off_t)(start + m->offset)) == 0 || fail(err, "a model in memory: %s", strerror(errno)));
    for (int i = 0; i < STOCKS && ok; i++)
        ok = stock_make(&m->stock[i], err);
    for (size_t i = 0; i < m->n && ok; i++) {
        const struct random_tensor *t = &m->tensor[i];
        if (t->stock == VECTOR)
            ok = write_vector(fd, t, start + t->offset, err);
        else
            stock_add_parts(&m->stock[t->stock], start + t->offset, t->bytes, parts);
    }
    free(head.s);
    return ok;
}

// Returns the descriptor of the file; -1 on failure. most: bytes that may be used; 0: no limit.
static int generate(const struct shape *shape, const struct sizes *sizes, size_t most, struct mapped_parts *parts,
                    struct error *err)
{
    const enum type type = type_chosen(CONVERTED_CHOICES, sizes->type);
    struct generator m = { .shape = shape, .sizes = sizes, .type = type };
    for (int i = 0; i < STOCKS; i++)
        m.stock[i] = stock_of(type, i == 0 ? DEVIATION : 1, (uint64_t)sizes->seed * 0x10001 + (uint64_t)i);
    put_metadata(&m);
    plan_tensors(&m);
    int fd = -1;
    bool ok = (most == 0 || m.bytes <= most ||
               fail(err, "%s: expected %.1f GB of free memory for its weights, found %.1f", shape->name,
                    (double)m.bytes / 1e9, (double)most / 1e9)) &&
              (fd = memory_file(err)) >= 0 && write_model(&m, fd, parts, err);
    free(m.tensor);
    free(m.values.s);
    free(m.entries.s);
    for (int i = 0; i < STOCKS && !ok; i++)
        stock_drop(&m.stock[i]);
    if (!ok && fd >= 0)
        close(fd);
    return ok ? fd : -1;
}

// ---- files

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct made { // models that this process has made
    char *name;
    int fd;
    struct mapped_parts parts;
    bool whole; // the file has no holes
    struct made *next;
} * all;

bool is_shape(const char *name)
{
    return strncmp(name, "shape:", 6) == 0;
}

static struct made *make(const char *name, size_t most, struct error *err)
{
    const struct shape *shape;
    struct sizes sizes;
    for (struct made *m = all; m != NULL; m = m->next)
        if (strcmp(m->name, name) == 0)
            return m;
    if (!read_name(name, &shape, &sizes, err))
        return NULL;
    struct mapped_parts parts = { 0 };
    const int fd = generate(shape, &sizes, most, &parts, err);
    if (fd < 0 || (sysconf(_SC_PAGESIZE) <= STOCK_PAGE && !mapped_fill(fd, &parts, err))) {
        free(parts.part);
        return NULL;
    }
    struct made *m = xcalloc(1, sizeof(*m));
    *m = (struct made){ .name = xstrdup(name), .fd = fd, .parts = parts, .next = all };
    all = m;
    return m;
}

static char *path_of(const struct made *m)
{
    return xformat("/proc/%ld/fd/%d", (long)getpid(), m->fd);
}

static bool fill_holes(struct made *m, struct error *err)
{
    enum { BYTES = 1 << 20 };
    char *bytes = xmalloc(BYTES);
    bool ok = true;
    for (const struct mapped_part *p = m->parts.part; p < m->parts.part + m->parts.n && ok; p++)
        for (size_t i = 0, n; i < p->n && ok; i += n) {
            n = p->n - i < BYTES ? p->n - i : BYTES;
            ok = (pread(p->fd, bytes, n, (off_t)(p->from + i)) == (ssize_t)n ||
                  fail(err, "%s: %s", m->name, strerror(errno))) &&
                 memory_file_write(m->fd, bytes, n, p->at + i, err);
        }
    m->whole = ok;
    free(bytes);
    return ok;
}

static char *find_path(const char *name, size_t most, bool whole, struct error *err)
{
    pthread_mutex_lock(&lock);
    struct made *m = make(name, most, err);
    whole |= sysconf(_SC_PAGESIZE) > STOCK_PAGE; // parts cannot be mapped
    const bool ok = m != NULL && (!whole || m->whole || fill_holes(m, err));
    pthread_mutex_unlock(&lock);
    return ok ? path_of(m) : NULL;
}

char *shape_path(const char *name, size_t most, struct error *err)
{
    return find_path(name, most, false, err);
}

char *shape_whole_path(const char *name, struct error *err)
{
    return find_path(name, 0, true, err);
}
