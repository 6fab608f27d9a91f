// fuzz_gguf.c - arbitrary bytes as a GGUF model: configuration, tokenizer, weights, hash; a pass through it; and its values
// and tensors written again.
//
// reader: models/formats/gguf.c models/formats/gguf_value.c models/config_gguf.c models/config_read.c models/config.c models/weights.c
// reader: models/layer_tensors.c models/unused_tensors.c models/tokenizers/tokenizer_gguf.c
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "tests/fuzz/fuzz.h"
#include "kernels/backend.h"
#include "models/config.h"
#include "tests/formats/gguf_write.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "models/tokenizers/tokenizer.h"
#include "models/layer_tensors.h"
#include "models/weights.h"

// ---- uses of the file

static void use_values(const struct gguf *g)
{
    for (size_t i = 0; i < gguf_values(g); i++) {
        const struct gguf_value *v = gguf_value_at(g, i);
        char *key = xstrndup(v->key.s, v->key.n);
        struct gguf_string s;
        int64_t whole;
        double real;
        bool truth;
        insist(strlen(key) != v->key.n || gguf_find(g, key) == v);
        gguf_int(g, key, &whole);
        gguf_real(g, key, &real);
        gguf_bool(g, key, &truth);
        gguf_text(g, key, &s);
        size_t at = 0, strings = 0;
        while (gguf_next_string(v, &at, &s))
            strings++;
        insist(strings == 0 || strings == v->n);
        for (uint64_t k = 0; k < v->n && k < 1000; k++)
            gguf_array_int(v, k);
        free(key);
    }
}

// A written copy reads the same.
static void use_copy(const struct gguf *g)
{
    struct error err = { "" };
    char *path = fuzz_path("copy.gguf");
    struct gguf_writer *w = gguf_write_begin(path, &err);
    insist(w != NULL);
    size_t tensors = 0;
    for (size_t i = 0; i < gguf_values(g); i++)
        gguf_write_copy(w, gguf_value_at(g, i));
    for (size_t i = 0; i < gguf_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char *name = xstrndup(t->name.s, t->name.n);
        if (t->known && strlen(name) == t->name.n) {
            gguf_write_tensor(w, name, t->dims, t->dim, t->ggml_type, t->tensor.data, t->bytes);
            tensors++;
        }
        free(name);
    }
    insist(gguf_write_end(w, &err));
    struct gguf *again = gguf_open(path, &err);
    insist(again != NULL && gguf_values(again) == gguf_values(g) && gguf_tensors(again) == tensors);
    for (size_t i = 0; i < gguf_values(g); i++) {
        const struct gguf_value *a = gguf_value_at(g, i), *b = gguf_value_at(again, i);
        insist(a->type == b->type && a->n == b->n && a->raw_bytes == b->raw_bytes);
        insist(a->raw_bytes == 0 || memcmp(a->raw, b->raw, a->raw_bytes) == 0);
    }
    gguf_close(again);
    remove(path);
    free(path);
}

static void use_model(const char *path)
{
    struct error err = { "" };
    struct model_config c;
    if (!config_read(path, &c, &err)) {
        insist(strncmp(err.text, path, strlen(path)) == 0);
        return;
    }
    float *frequency = calloc((size_t)c.head_dim, sizeof(*frequency));
    if (c.rope.scaling != ROPE_TABLE)
        config_rope(&c.rope, c.head_dim, NULL, frequency);
    free(frequency);
    insist(c.vocab > 0 && c.bos >= -1 && c.bos < c.vocab);
    for (int i = 0; i < c.n_end; i++)
        insist(c.end[i] >= 0 && c.end[i] < c.vocab);
    struct weights *w = weights_open(&c, &err);
    for (size_t i = 0; w != NULL && i < w->n; i++) {
        const char *name = w->weight[i].name;
        const int64_t rows = w->weight[i].tensor.rows, width = w->weight[i].tensor.width;
        struct tensor t;
        char *other = weights_gguf_name(c.architecture, name), *back = weights_name(c.architecture, other);
        insist(weights_find(w, name) == &w->weight[i] && strcmp(back, name) == 0);
        if (weights_get_unchecked(w, name, rows, width, &t, &err) && weights_get(w, name, rows, width, &t, &err)) {
            volatile uint8_t sum = 0;
            const size_t n_bytes = tensor_bytes(t);
            for (size_t k = 0; k < n_bytes; k++)
                sum = sum ^ ((const uint8_t *)t.data)[k];
        }
        insist(!weights_get(w, name, rows + 1, width, &t, &err));
        free(other);
        free(back);
    }
    if (w != NULL) {
        struct tensor t;
        int64_t whole;
        insist(!weights_get(w, "no such tensor", 1, 1, &t, &err) &&
               !weights_integers(w, "nor this", 1, 0, 1, &whole, &err));
        weights_hash(w);
        weights_bytes(w);
        weights_unused(w, 0);
    }
    weights_close(w);
    config_free(&c);
}

// Logits of the first of n rows; free() them. NULL if the model cannot be opened or run.
static float *first_logits(const char *path, struct backend *b, int n)
{
    struct error err = { "" };
    struct model *m = model_open(path, b, ACTIVATIONS_DEFAULT, n, &err);
    insist(m != NULL || *err.text != '\0');
    if (m == NULL)
        return NULL;
    const int vocab = model_shape(m)->vocab;
    const int32_t token[2] = { vocab - 1, 0 }, slot[2] = { 0 }, parent[2] = { -1, 0 };
    struct kv_shape shape = model_kv_shape(m, 1, 4, 2);
    struct kv_cache *c = kv_create(b, &shape, &err);
    const struct pass pass = { .n = n, .token = token, .slot = slot, .parent = parent };
    const size_t bytes = (size_t)vocab * sizeof(float);
    struct tensor out = tensor_of(b->alloc(b, (size_t)n * bytes), F32, n, vocab);
    struct states states;
    insist(c != NULL && out.data != NULL);
    float *logits = NULL;
    if (model_forward(m, c, &pass, NULL, &states, &err)) {
        model_logits(m, out, states.last);
        insist(b->sync(b, &err));
        logits = xmalloc(bytes);
        memcpy(logits, out.data, bytes);
    }
    b->release(b, out.data);
    kv_destroy(c);
    model_close(m);
    return logits;
}

// For any weights, a row has the same bits in a longer pass.
static void use_forward(const char *path)
{
    static struct backend *b;
    struct error err;
    struct model_config c;
    if (!config_read(path, &c, &err))
        return;
    if (b == NULL)
        insist((b = backend_cpu(1, &err)) != NULL);
    float *one = first_logits(path, b, 1), *two = first_logits(path, b, 2);
    insist((one == NULL) == (two == NULL));
    for (int i = 0; one != NULL && i < c.vocab; i++)
        insist(memcmp(&one[i], &two[i], sizeof(*one)) == 0 || (isnan(one[i]) && isnan(two[i])));
    free(one);
    free(two);
    config_free(&c);
}

static void use_tokenizer(const char *path)
{
    static const char text[] = " the <|im_start|>and\n12 \xC3\xA9<|im_end|>";
    struct error err = { "" };
    struct tokenizer *t = tokenizer_open(path, &err);
    insist(t != NULL || *err.text != '\0');
    if (t != NULL)
        fuzz_tokenize(t, text, sizeof(text) - 1, true);
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    struct error err = { "" };
    char *path = fuzz_path("model.gguf");
    fuzz_write("model.gguf", input, n);
    struct gguf *g = gguf_open(path, &err);
    insist(g != NULL || strncmp(err.text, path, strlen(path)) == 0);
    if (g != NULL) {
        use_values(g);
        use_copy(g);
        use_tokenizer(path);
    }
    gguf_close(g);
    use_model(path);
    use_forward(path);
    free(path);
    return 0;
}

// ---- mutations: the file is parsed, one element is changed, and it is serialized again

enum { MAX_ITEMS = 600 };

struct bytes {
    const uint8_t *at;
    size_t n;
};

struct value {
    struct bytes key, raw; // raw: for an array, after its type and count
    uint32_t type, element;
    uint64_t n;
};

struct tensor_info {
    struct bytes name;
    uint32_t dims, type;
    uint64_t dim[4], offset;
};

struct file {
    const uint8_t *at, *end;
    uint32_t version;
    size_t values, tensors;
    struct value value[MAX_ITEMS];
    struct tensor_info tensor[MAX_ITEMS];
    struct bytes data;
};

static uint64_t number(struct file *f, size_t n)
{
    uint64_t v = 0;
    if ((size_t)(f->end - f->at) < n) {
        f->at = f->end;
        return 0;
    }
    memcpy(&v, f->at, n);
    f->at += n;
    return v;
}

static struct bytes take(struct file *f, uint64_t n)
{
    struct bytes b = { f->at, (size_t)(f->end - f->at) < n ? (size_t)(f->end - f->at) : (size_t)n };
    f->at += b.n;
    return b;
}

static size_t size_of(uint32_t type)
{
    static const uint8_t size[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return type < sizeof(size) ? size[type] : 0;
}

static void parse(struct file *f, const uint8_t *data, size_t n)
{
    f->at = data;
    f->end = data + n;
    number(f, 4);
    f->version = (uint32_t)number(f, 4);
    const uint64_t tensors = number(f, 8), values = number(f, 8);
    for (f->values = 0; f->values < values && f->values < MAX_ITEMS && f->at < f->end; f->values++) {
        struct value *v = &f->value[f->values];
        v->key = take(f, number(f, 8));
        v->type = (uint32_t)number(f, 4);
        v->n = 1;
        v->element = v->type;
        if (v->type == GGUF_ARRAY) {
            v->element = (uint32_t)number(f, 4);
            v->n = number(f, 8);
        }
        v->raw.at = f->at;
        if (v->element == GGUF_STRING)
            for (uint64_t i = 0; i < v->n && f->at < f->end; i++)
                take(f, number(f, 8));
        else if (size_of(v->element) > 0)
            take(f, v->n < n ? v->n * size_of(v->element) : n);
        v->raw.n = (size_t)(f->at - v->raw.at);
    }
    for (f->tensors = 0; f->tensors < tensors && f->tensors < MAX_ITEMS && f->at < f->end; f->tensors++) {
        struct tensor_info *t = &f->tensor[f->tensors];
        t->name = take(f, number(f, 8));
        t->dims = (uint32_t)number(f, 4);
        for (uint32_t d = 0; d < 4; d++)
            t->dim[d] = d < t->dims ? number(f, 8) : 1;
        t->type = (uint32_t)number(f, 4);
        t->offset = number(f, 8);
    }
    const size_t header = (size_t)(f->at - data), start = (header + 31) / 32 * 32;
    f->data = start < n ? (struct bytes){ data + start, n - start } : (struct bytes){ data, 0 };
}

static void put(struct text *t, uint64_t v, size_t n)
{
    text_add(t, (const char *)&v, n);
}

static void put_bytes(struct text *t, struct bytes b)
{
    put(t, b.n, 8);
    if (b.n > 0)
        text_add(t, (const char *)b.at, b.n);
}

static void serialize(const struct file *f, struct text *to, int wrong_count)
{
    text_puts(to, "GGUF");
    put(to, f->version, 4);
    put(to, f->tensors + (uint64_t)(wrong_count == 1), 8);
    put(to, f->values + (uint64_t)(wrong_count == 2), 8);
    for (size_t i = 0; i < f->values; i++) {
        const struct value *v = &f->value[i];
        put_bytes(to, v->key);
        put(to, v->type, 4);
        if (v->type == GGUF_ARRAY) {
            put(to, v->element, 4);
            put(to, v->n, 8);
        }
        if (v->raw.n > 0)
            text_add(to, (const char *)v->raw.at, v->raw.n);
    }
    for (size_t i = 0; i < f->tensors; i++) {
        const struct tensor_info *t = &f->tensor[i];
        put_bytes(to, t->name);
        put(to, t->dims, 4);
        for (uint32_t d = 0; d < t->dims && d < 4; d++)
            put(to, t->dim[d], 8);
        put(to, t->type, 4);
        put(to, t->offset, 8);
    }
    while (to->n % 32 != 0)
        text_add(to, "", 1);
    if (f->data.n > 0)
        text_add(to, (const char *)f->data.at, f->data.n);
}

static const char keys[] =
    "general.architecture  general.type  general.alignment  split.count  llama.block_count  llama.embedding_length  "
    "llama.feed_forward_length  llama.context_length  llama.attention.head_count  llama.attention.head_count_kv  "
    "llama.attention.key_length  llama.attention.value_length  llama.attention.layer_norm_rms_epsilon  "
    "llama.rope.dimension_count  llama.rope.freq_base  llama.rope.scaling.type  llama.rope.scaling.factor  "
    "llama.expert_count  llama.attention.sliding_window  llama.attention.causal  llama.logit_scale  "
    "llama.rope.scale_linear  tokenizer.ggml.model  tokenizer.ggml.pre  tokenizer.ggml.tokens  "
    "tokenizer.ggml.token_type  tokenizer.ggml.merges  tokenizer.ggml.bos_token_id  tokenizer.ggml.eos_token_id  "
    "tokenizer.ggml.eot_token_id  tokenizer.ggml.add_bos_token  tokenizer.chat_template  speclab.inflated_from  "
    "speclab.quantised_from";
static const char texts[] =
    "llama  gpt2  gpt-2  smollm  llama-bpe  qwen2  none  linear  yarn  model  adapter  <|im_end|>  \xC4\xA0t h  t h  "
    "a  ";
static const char names[] =
    "token_embd.weight  output.weight  output_norm.weight  rope_freqs.weight  blk.0.attn_q.weight  "
    "blk.0.attn_k.weight  blk.0.attn_q.bias  blk.0.attn_k.bias  blk.0.ffn_up.bias  blk.00.attn_q.weight  "
    "blk.1.attn_v.weight  model.layers.0.self_attn.q_proj.weight  blk.0.attn_q_norm.weight  x.rotary_emb.inv_freq";
#define SOME(list) ((list)[fuzz_below(sizeof(list) / sizeof(*(list)))])

static struct bytes bytes_of(const char *s)
{
    return (struct bytes){ (const uint8_t *)s, strlen(s) };
}

static uint64_t some_number(void)
{
    static const uint64_t some[] = {
        0,       1,       2,         3,          4,         8,          16,
        31,      32,      33,        64,         256,       1000,       1 << 16,
        1 << 20, 1 << 24, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX, (uint64_t)1 << 62
    };
    return SOME(some);
}

// A scalar of a type, appended to `own`; a text may become an array of texts.
static void change_value(struct value *v, struct text *own)
{
    static const uint32_t types[] = { GGUF_U8,   GGUF_I8,     GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32,
                                      GGUF_BOOL, GGUF_STRING, GGUF_U64, GGUF_I64, GGUF_F64, 13 };
    static const double reals[] = { 0, 1, 0.5, -1, 1e-5, 1e4, 1e12, 1e38, NAN, INFINITY };
    if (fuzz_below(3) == 0)
        v->element = SOME(types);
    v->type = fuzz_below(8) == 0 ? GGUF_ARRAY : v->element;
    v->n = v->type == GGUF_ARRAY ? 1 + fuzz_below(40) : 1;
    const uint64_t same = some_number();
    const double real = SOME(reals);
    const float narrow = (float)real;
    const bool alike = fuzz_below(2) == 0;
    for (uint64_t i = 0; i < v->n; i++)
        if (v->element == GGUF_STRING)
            put_bytes(own, bytes_of(fuzz_word(texts)));
        else if (v->element == GGUF_F32)
            text_add(own, (const char *)&narrow, sizeof(narrow));
        else if (v->element == GGUF_F64)
            text_add(own, (const char *)&real, sizeof(real));
        else
            put(own, v->element == GGUF_BOOL ? fuzz_below(2) : alike ? same : some_number(), size_of(v->element));
    v->raw = (struct bytes){ (const uint8_t *)own->s, own->n };
}

static void change_raw(struct bytes *raw, struct text *own)
{
    const size_t max_size = raw->n + 16;
    uint8_t *capacity = xmalloc(max_size);
    if (raw->n > 0)
        memcpy(capacity, raw->at, raw->n);
    text_add(own, (const char *)capacity, LLVMFuzzerMutate(capacity, raw->n, raw->n > 0 ? raw->n : max_size));
    free(capacity);
    *raw = (struct bytes){ (const uint8_t *)own->s, own->n };
}

static void change_values(struct file *f, struct text *own)
{
    struct value *v = &f->value[fuzz_below(f->values)];
    switch (fuzz_below(7)) {
    case 0:
        *v = f->value[--f->values];
        break;
    case 1:
        v->key = bytes_of(fuzz_word(keys));
        break;
    case 2:
        if (f->values < MAX_ITEMS) {
            f->value[f->values] = *v;
            f->value[f->values++].key = bytes_of(fuzz_word(keys));
        }
        break;
    case 3:
        change_raw(&v->raw, own);
        break;
    case 4: // fewer elements
        if (v->type == GGUF_ARRAY && v->element != GGUF_STRING && v->n > 0) {
            v->n = fuzz_below(v->n);
            v->raw.n = v->n * size_of(v->element) < v->raw.n ? v->n * size_of(v->element) : v->raw.n;
        } else {
            v->n = some_number();
        }
        break;
    default:
        change_value(v, own);
    }
}

static void change_tensors(struct file *f)
{
    struct tensor_info *t = &f->tensor[fuzz_below(f->tensors)];
    switch (fuzz_below(7)) {
    case 0:
        *t = f->tensor[--f->tensors];
        break;
    case 1:
        t->name = bytes_of(fuzz_word(names));
        break;
    case 2:
        if (f->tensors < MAX_ITEMS) {
            f->tensor[f->tensors] = *t;
            f->tensor[f->tensors++].name = bytes_of(fuzz_word(names));
        }
        break;
    case 3:
        t->type = (uint32_t)fuzz_below(42);
        break;
    case 4:
        t->dims = (uint32_t)fuzz_below(6);
        break;
    case 5:
        t->dim[fuzz_below(4)] = fuzz_below(2) == 0 ? some_number() : 1 + fuzz_below(300);
        break;
    default:
        t->offset = fuzz_below(2) == 0 ? some_number() : t->offset + 32 * fuzz_below(3);
    }
}

// Lays out the tensors consecutively with the sizes of their types and shapes, if they fit into max_size bytes.
static void lay_out(struct file *f, size_t max_size, struct text *own)
{
    size_t at = 0;
    for (size_t i = 0; i < f->tensors; i++) {
        struct tensor_info *t = &f->tensor[i];
        enum type type;
        uint64_t n = 1;
        for (uint32_t d = 0; d < t->dims && d < 4; d++)
            if (__builtin_mul_overflow(n, t->dim[d], &n))
                n = 0;
        const struct type_facts *facts = type_from_ggml((int)t->type, &type) ? &type_facts[type] : &type_facts[F32];
        n = n / (uint64_t)facts->block;
        if (n > max_size || at + n * (uint64_t)facts->bytes > max_size)
            continue;
        t->offset = at;
        at += (n * (uint64_t)facts->bytes + 31) / 32 * 32;
    }
    if (f->data.n > 0)
        text_add(own, (const char *)f->data.at, f->data.n < at ? f->data.n : at);
    while (own->n < at)
        text_add(own, "\x3c", 1);
    f->data = (struct bytes){ (const uint8_t *)own->s, own->n };
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max_size, unsigned seed)
{
    fuzz_seed(seed);
    if (n < 24 || memcmp(data, "GGUF", 4) != 0 || fuzz_below(8) == 0)
        return LLVMFuzzerMutate(data, n, max_size);
    static struct file f;
    struct text own[3] = { { 0 } }, rows = { 0 }, to = { 0 };
    parse(&f, data, n);
    for (size_t i = 1 + fuzz_below(3) / 2; i > 0; i--) {
        const size_t what = fuzz_below(20);
        if (what == 0)
            f.version = fuzz_below(4) == 0 ? 0x03000000 : 2 + (uint32_t)fuzz_below(3);
        else if (what == 1)
            change_raw(&f.data, &own[i]);
        else if (what < 11 && f.tensors > 0)
            change_tensors(&f);
        else if (f.values > 0)
            change_values(&f, &own[i]);
    }
    if (fuzz_below(3) > 0)
        lay_out(&f, max_size / 2, &rows);
    serialize(&f, &to, fuzz_below(50) == 0 ? 1 + (int)fuzz_below(2) : 0);
    const size_t length = to.n < max_size ? to.n : max_size;
    memcpy(data, to.s, length);
    for (int i = 0; i < 3; i++)
        free(own[i].s);
    free(rows.s);
    free(to.s);
    return length;
}
