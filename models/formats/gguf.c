// gguf.c - reads a GGUF file: a header of metadata and tensor descriptions, then the tensors' bytes.
//
//     "GGUF" | u32 version | u64 tensors | u64 keys
//     key*      string key | u32 type | value            string: u64 length, bytes
//     tensor*   string name | u32 dims | u64 dim* | u32 type | u64 offset
//     zeros up to the alignment | data, each tensor at its offset
//
// A cursor parses the header once with bounds checks; later accesses need no checks.
#include "models/formats/gguf.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/files/mapped.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF's numbers are read without a byte swap");

struct gguf {
    char *path;
    struct mapping file;
    size_t values, tensors;
    struct gguf_value *value;           // (values) in the file's order
    struct gguf_tensor *tensor;         // (tensors) in the file's order
    const struct gguf_string **by_key;  // (values) pointers to their first members, sorted
    const struct gguf_string **by_name; // (tensors) pointers to their first members, sorted
    bool *hidden;                       // (values)
};

// ---- a cursor: a read beyond the end of the file is an error that names the item being read and its byte offset

enum { MAX_KEY_BYTES = 65535, SHOWN_BYTES = 64 };

struct cursor {
    const char *path; // path of the file, for messages
    const uint8_t *at, *end;
    size_t size;     // size of the whole file
    char where[128]; // the item that is being read, for messages
    struct error *err;
};

// The beginning of a name in one line, for messages. It is returned by value, as an argument of fail().
static struct shown {
    char s[SHOWN_BYTES + 1];
} shown(const struct gguf_string *name)
{
    struct shown to = { "" };
    for (size_t i = 0; i < name->n && i < SHOWN_BYTES; i++)
        to.s[i] = (unsigned char)name->s[i] < 0x20 || name->s[i] == 0x7f ? '?' : name->s[i];
    return to;
}

// Sets `where`: "tensor 3", followed by (name) unless name is NULL.
static void set_where(struct cursor *c, const char *what, uint64_t i, const struct gguf_string *name)
{
    snprintf(c->where, sizeof(c->where), name != NULL ? "%s %llu (%s)" : "%s %llu", what, (unsigned long long)i,
             name != NULL ? shown(name).s : "");
}

// Returns the next n bytes; NULL: there are fewer.
static const uint8_t *cursor_take(struct cursor *c, uint64_t n)
{
    if (n > (uint64_t)(c->end - c->at)) {
        fail(c->err, "%s: the file ends too early: %s needs %llu bytes from byte %zu on, and the file has %zu", c->path,
             c->where, (unsigned long long)n, c->size - (size_t)(c->end - c->at), c->size);
        return NULL;
    }
    const uint8_t *p = c->at;
    c->at += n;
    return p;
}

static bool cursor_bytes(struct cursor *c, void *to, size_t n)
{
    const uint8_t *p = cursor_take(c, n);
    if (p != NULL)
        memcpy(to, p, n);
    return p != NULL;
}

static bool cursor_u32(struct cursor *c, uint32_t *to)
{
    return cursor_bytes(c, to, sizeof(*to));
}

static bool cursor_u64(struct cursor *c, uint64_t *to)
{
    return cursor_bytes(c, to, sizeof(*to));
}

static bool cursor_string(struct cursor *c, struct gguf_string *to)
{
    uint64_t n;
    if (!cursor_u64(c, &n))
        return false;
    const uint8_t *p = cursor_take(c, n);
    if (p == NULL)
        return false;
    *to = (struct gguf_string){ (const char *)p, (size_t)n };
    return true;
}

// Reads a non-empty name and sets `where` to "what i (name)".
static bool cursor_key(struct cursor *c, const char *what, uint64_t i, struct gguf_string *to)
{
    set_where(c, what, i, NULL);
    if (!cursor_string(c, to))
        return false;
    if (to->n == 0 || to->n > MAX_KEY_BYTES)
        return fail(c->err, "%s: %s: expected a name of 1 to %d bytes, found %zu", c->path, c->where, MAX_KEY_BYTES,
                    to->n);
    set_where(c, what, i, to);
    return true;
}

// ---- the header

// Returns the bytes of a scalar; 0 for a string or an array.
static size_t scalar_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2,  [GGUF_I16] = 2,    [GGUF_U32] = 4,
        [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_STRING] = 0, [GGUF_ARRAY] = 0,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8
    };
    return bytes[type];
}

static bool take_array(struct cursor *c, struct gguf_value *v)
{
    uint32_t element;
    if (!cursor_u32(c, &element) || !cursor_u64(c, &v->n))
        return false;
    if (element == GGUF_ARRAY)
        return fail(c->err, "%s: %s: arrays inside arrays are not supported", c->path, c->where);
    if (element > GGUF_F64)
        return fail(c->err, "%s: %s: expected an array of a type from 0 to %d, found %u", c->path, c->where, GGUF_F64,
                    element);
    v->element = (enum gguf_type)element;
    v->raw = c->at;
    if (element == GGUF_STRING) {
        struct gguf_string s;
        for (uint64_t i = 0; i < v->n; i++) // the loop stops at the end of the file, however large n is
            if (!cursor_string(c, &s))
                return false;
    } else {
        uint64_t bytes;
        if (__builtin_mul_overflow(v->n, scalar_bytes(element), &bytes))
            return fail(c->err, "%s: %s: expected an array that fits into the file, found %llu elements", c->path,
                        c->where, (unsigned long long)v->n);
        if (cursor_take(c, bytes) == NULL)
            return false;
    }
    v->raw_bytes = (size_t)(c->at - v->raw);
    return true;
}

static bool take_value(struct cursor *c, uint64_t i, struct gguf_value *v)
{
    uint32_t type;
    if (!cursor_key(c, "metadata key", i, &v->key) || !cursor_u32(c, &type))
        return false;
    if (type > GGUF_F64)
        return fail(c->err, "%s: %s: expected a type from 0 to %d, found %u", c->path, c->where, GGUF_F64, type);
    v->type = (enum gguf_type)type;
    if (type == GGUF_ARRAY)
        return take_array(c, v);

    v->n = 1;
    v->raw = c->at;
    struct gguf_string s;
    if (type == GGUF_STRING ? !cursor_string(c, &s) : cursor_take(c, scalar_bytes(type)) == NULL)
        return false;
    v->raw_bytes = (size_t)(c->at - v->raw);
    if (type == GGUF_BOOL && *v->raw > 1)
        return fail(c->err, "%s: %s: expected 0 or 1 for a bool, found %u", c->path, c->where, *v->raw);
    return true;
}

static bool take_tensor(struct cursor *c, uint64_t i, uint64_t alignment, struct gguf_tensor *t, uint64_t *offset)
{
    uint32_t dims, type;
    if (!cursor_key(c, "tensor", i, &t->name) || !cursor_u32(c, &dims))
        return false;
    if (dims < 1 || dims > 4)
        return fail(c->err, "%s: %s: expected 1 to 4 dimensions, found %u", c->path, c->where, dims);
    t->dims = (int)dims;
    int64_t elements = 1;
    for (int d = 0; d < 4; d++) {
        t->dim[d] = 1;
        if (d < t->dims && !cursor_u64(c, &t->dim[d]))
            return false;
        if (t->dim[d] == 0 || __builtin_mul_overflow(elements, t->dim[d], &elements))
            return fail(c->err, "%s: %s: dimension %d is %llu: the tensor is %s", c->path, c->where, d,
                        (unsigned long long)t->dim[d], t->dim[d] == 0 ? "empty" : "too large for any file");
    }
    if (!cursor_u32(c, &type) || !cursor_u64(c, offset))
        return false;
    if (type > INT_MAX)
        return fail(c->err, "%s: %s: there is no tensor type %u", c->path, c->where, type);
    if (*offset % alignment != 0)
        return fail(c->err, "%s: %s: its offset %llu is not a multiple of the alignment %llu", c->path, c->where,
                    (unsigned long long)*offset, (unsigned long long)alignment);

    t->ggml_type = (int)type;
    enum type of;
    t->known = type_from_ggml(t->ggml_type, &of);
    if (!t->known)
        return true;
    const struct type_facts *f = &type_facts[of];
    if (t->dim[0] % (uint64_t)f->block != 0)
        return fail(c->err, "%s: %s: rows of %llu elements are not a multiple of the block size of %s, which is %d",
                    c->path, c->where, (unsigned long long)t->dim[0], f->name, f->block);
    if (__builtin_mul_overflow((uint64_t)elements / (uint64_t)f->block, (uint64_t)f->bytes, &t->bytes))
        return fail(c->err, "%s: %s: the tensor is too large for any file", c->path, c->where);
    t->tensor = tensor_of(NULL, of, elements / (int64_t)t->dim[0], (int64_t)t->dim[0]);
    return true;
}

static int by_text(const void *a, const void *b)
{
    const struct gguf_string *x = *(const struct gguf_string *const *)a, *y = *(const struct gguf_string *const *)b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

static bool sort(struct cursor *c, const char *what, const struct gguf_string **name, size_t n)
{
    qsort(name, n, sizeof(*name), by_text);
    for (size_t i = 1; i < n; i++)
        if (by_text(&name[i - 1], &name[i]) == 0)
            return fail(c->err, "%s: there are two %s named %s", c->path, what, shown(name[i]).s);
    return true;
}

static const struct gguf_string *find(const struct gguf_string *const *name, size_t n, const char *wanted)
{
    struct gguf_string w = { wanted, strlen(wanted) };
    const struct gguf_string *key = &w, *const *found = n == 0 ? NULL : bsearch(&key, name, n, sizeof(*name), by_text);
    return found != NULL ? *found : NULL;
}

static bool read_values(struct gguf *g, struct cursor *c)
{
    g->value = xcalloc(g->values, sizeof(*g->value));
    g->by_key = xcalloc(g->values, sizeof(*g->by_key));
    g->hidden = xcalloc(g->values, sizeof(*g->hidden));
    for (size_t i = 0; i < g->values; i++) {
        if (!take_value(c, i, &g->value[i]))
            return false;
        g->by_key[i] = &g->value[i].key;
    }
    return sort(c, "metadata keys", g->by_key, g->values);
}

struct extent {
    uint64_t begin, end;
    const struct gguf_tensor *tensor;
};

static int by_begin(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static bool none_overlap(struct gguf *g, struct cursor *c, const uint64_t *offset)
{
    struct extent *e = xcalloc(g->tensors, sizeof(*e));
    for (size_t i = 0; i < g->tensors; i++)
        e[i] = (struct extent){ offset[i], offset[i] + g->tensor[i].bytes, &g->tensor[i] };
    qsort(e, g->tensors, sizeof(*e), by_begin);
    bool ok = true;
    for (size_t i = 1; i < g->tensors && ok; i++)
        if (e[i].begin < e[i - 1].end) {
            set_where(c, "tensor", (uint64_t)(e[i].tensor - g->tensor), &e[i].tensor->name);
            ok = fail(c->err, "%s: %s overlaps tensor %zu", c->path, c->where, (size_t)(e[i - 1].tensor - g->tensor));
        }
    free(e);
    return ok;
}

static bool read_tensors(struct gguf *g, struct cursor *c, uint64_t alignment, uint64_t *offset)
{
    g->tensor = xcalloc(g->tensors, sizeof(*g->tensor));
    g->by_name = xcalloc(g->tensors, sizeof(*g->by_name));
    for (size_t i = 0; i < g->tensors; i++) {
        if (!take_tensor(c, i, alignment, &g->tensor[i], &offset[i]))
            return false;
        g->by_name[i] = &g->tensor[i].name;
    }
    if (!sort(c, "tensors", g->by_name, g->tensors))
        return false;

    uint64_t header = (uint64_t)(c->at - g->file.at);
    uint64_t start = (header + alignment - 1) / alignment * alignment;
    for (size_t i = 0; i < g->tensors; i++) {
        struct gguf_tensor *t = &g->tensor[i];
        uint64_t capacity = start <= c->size ? c->size - start : 0;
        if (offset[i] > capacity || t->bytes > capacity - offset[i]) {
            set_where(c, "tensor", i, &t->name);
            return fail(
                c->err,
                "%s: the file ends too early: %s has %zu bytes at offset %llu, and there are %llu bytes of tensors",
                c->path, c->where, t->bytes, (unsigned long long)offset[i], (unsigned long long)capacity);
        }
        if (t->known)
            t->tensor.data = (void *)(uintptr_t)(g->file.at + start + offset[i]);
    }
    return none_overlap(g, c, offset);
}

static bool read_alignment(struct gguf *g, uint64_t *alignment, struct error *err)
{
    int64_t a = 32;
    if (gguf_find(g, "general.alignment") != NULL && !gguf_int(g, "general.alignment", &a))
        return fail(err, "%s: general.alignment: expected an integer", g->path);
    if (a < 1 || a > 1 << 30 || (a & (a - 1)) != 0)
        return fail(err, "%s: general.alignment: expected a power of two, found %lld", g->path, (long long)a);
    *alignment = (uint64_t)a;
    return true;
}

static bool read_start(struct gguf *g, struct cursor *c)
{
    snprintf(c->where, sizeof(c->where), "the header");
    const uint8_t *magic = cursor_take(c, 4);
    uint32_t version;
    uint64_t tensors, values;
    if (magic == NULL)
        return false;
    if (memcmp(magic, "GGUF", 4) != 0)
        return fail(c->err,
                    "%s: expected a GGUF file, which begins with \"GGUF\"; this one begins with %02x %02x %02x %02x",
                    c->path, magic[0], magic[1], magic[2], magic[3]);
    if (!cursor_u32(c, &version))
        return false;
    if (version == 0x02000000 || version == 0x03000000)
        return fail(c->err, "%s: expected a little-endian GGUF file, found a big-endian one", c->path);
    if (version != 2 && version != 3)
        return fail(c->err, "%s: expected GGUF version 2 or 3, found %u", c->path, version);
    if (!cursor_u64(c, &tensors) || !cursor_u64(c, &values))
        return false;
    // A key takes at least 14 bytes, a tensor 33. Larger counts are invalid and are refused before any allocation.
    size_t rest = (size_t)(c->end - c->at);
    if (values > rest / 14 || tensors > rest / 33)
        return fail(c->err, "%s: the header declares %llu metadata keys and %llu tensors, more than %zu bytes can hold",
                    c->path, (unsigned long long)values, (unsigned long long)tensors, c->size);
    g->values = (size_t)values;
    g->tensors = (size_t)tensors;
    return true;
}

static bool read_header(struct gguf *g, struct error *err)
{
    struct cursor c = {
        .path = g->path, .at = g->file.at, .end = g->file.at + g->file.n, .size = g->file.n, .err = err
    };
    uint64_t alignment = 0;
    int64_t parts;
    if (!read_start(g, &c) || !read_values(g, &c) || !read_alignment(g, &alignment, err))
        return false;
    if (gguf_int(g, "split.count", &parts) && parts > 1)
        return fail(
            err,
            "%s: this is one of the %lld parts of a split model; join them: llama-gguf-split --merge %s whole.gguf",
            g->path, (long long)parts, g->path);
    uint64_t *offset = xcalloc(g->tensors, sizeof(*offset));
    bool ok = read_tensors(g, &c, alignment, offset);
    free(offset);
    return ok;
}

struct gguf *gguf_open(const char *path, struct error *err)
{
    struct gguf *g = xcalloc(1, sizeof(*g));
    g->path = xstrdup(path);
    if (!file_map(path, &g->file, err) || !read_header(g, err)) {
        gguf_close(g);
        return NULL;
    }
    return g;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL)
        return;
    file_unmap(&g->file);
    free(g->hidden);
    free(g->by_name);
    free(g->by_key);
    free(g->tensor);
    free(g->value);
    free(g->path);
    free(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

size_t gguf_values(const struct gguf *g)
{
    return g->values;
}

const struct gguf_value *gguf_value_at(const struct gguf *g, size_t i)
{
    return i < g->values ? &g->value[i] : NULL;
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    const struct gguf_value *v = (const struct gguf_value *)find(g->by_key, g->values, key);
    return v != NULL && !g->hidden[v - g->value] ? v : NULL;
}

bool gguf_int(const struct gguf *g, const char *key, int64_t *to)
{
    return gguf_value_int(gguf_find(g, key), to);
}

bool gguf_real(const struct gguf *g, const char *key, double *to)
{
    return gguf_value_real(gguf_find(g, key), to);
}

bool gguf_bool(const struct gguf *g, const char *key, bool *to)
{
    return gguf_value_bool(gguf_find(g, key), to);
}

bool gguf_text(const struct gguf *g, const char *key, struct gguf_string *to)
{
    return gguf_value_text(gguf_find(g, key), to);
}

void gguf_hide(struct gguf *g, size_t i)
{
    g->hidden[i] = true;
}

size_t gguf_tensors(const struct gguf *g)
{
    return g->tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return i < g->tensors ? &g->tensor[i] : NULL;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    return (const struct gguf_tensor *)find(g->by_name, g->tensors, name);
}
