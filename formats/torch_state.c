// torch_state.c - the tensors of one file of torch.save, from the values of its pickle.
//
//     {"name": _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), ...}, where storage is the
//     persistent id ("storage", torch.FloatStorage, "0", "cpu", elements), and offset and stride count elements
//
// An nn.Parameter is _rebuild_parameter(tensor, requires_grad, hooks).
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/pickle.h"
#include "formats/printable.h"
#include "formats/torch.h"
#include "formats/torch_parts.h"
#include "core/utf8.h"

enum {
    MAX_NAME_BYTES = 1000, // of a tensor, in bytes
    MAX_KEY_BYTES = 64,    // of a storage: a number in decimal
    MAX_TENSORS = 1 << 18,
    MAX_DIMS = sizeof(((struct safetensor *)NULL)->dim) / sizeof(int64_t),
};

static const struct {
    const char *dtype;
    int bytes;
} storages[PICKLE_GLOBALS] = {
    [FLOAT_STORAGE] = { "F32", 4 }, [DOUBLE_STORAGE] = { "F64", 8 },    [HALF_STORAGE] = { "F16", 2 },
    [LONG_STORAGE] = { "I64", 8 },  [BFLOAT16_STORAGE] = { "BF16", 2 }, [INT_STORAGE] = { "I32", 4 },
    [SHORT_STORAGE] = { "I16", 2 }, [CHAR_STORAGE] = { "I8", 1 },       [BYTE_STORAGE] = { "U8", 1 },
    [BOOL_STORAGE] = { "BOOL", 1 },
};

struct state { // of the reader
    struct torch_archive archive;
    struct pickle_value dict;
    size_t n;
    const struct pickle_pair **tensor; // (n) sorted by name
    struct error *err;
};

static struct shown shown_key(const struct pickle_value *key)
{
    if (key->kind == PICKLE_TEXT)
        return shown(key->text, key->n);
    const char *kind = pickle_kind_name(key);
    return shown(kind, strlen(kind));
}

// Sets s->dict to the only inner dictionary that has tensors.
static bool find_inner(struct state *s)
{
    static const char expected[] = "expected a state_dict, a dictionary of tensors";
    const struct pickle *pickle = s->archive.pickle;
    const struct pickle_pair *only = NULL;
    for (const struct pickle_pair *p = pickle_first(pickle, &s->dict); p != NULL; p = pickle_next(pickle, p)) {
        if (p->value.kind != PICKLE_DICT || !pickle_has_calls(pickle, &p->value))
            continue;
        if (only != NULL)
            return fail(s->err, "%s: %s, found several, %s and %s", s->archive.path, expected, shown_key(&only->key).s,
                        shown_key(&p->key).s);
        only = p;
    }
    if (only == NULL)
        return fail(s->err, "%s: %s, found one without tensors", s->archive.path, expected);
    if (!pickle_is_text(&only->key, "state_dict") && !pickle_is_text(&only->key, "model") &&
        !pickle_is_text(&only->key, "module"))
        return fail(s->err, "%s: %s, or one in it called state_dict, model or module, found tensors only under %s",
                    s->archive.path, expected, shown_key(&only->key).s);
    s->dict = only->value;
    return true;
}

static bool find_state(struct state *s)
{
    s->dict = pickle_root(s->archive.pickle);
    if (s->dict.kind != PICKLE_DICT)
        return fail(s->err, "%s: expected a state_dict, a dictionary of tensors, found %s", s->archive.path,
                    pickle_kind_name(&s->dict));
    return pickle_has_calls(s->archive.pickle, &s->dict) || find_inner(s);
}

static bool check_name(const struct state *s, const struct pickle_value *name)
{
    if (name->kind != PICKLE_TEXT)
        return fail(s->err, "%s: expected the name of a tensor, found %s", s->archive.path, pickle_kind_name(name));
    if (name->n > MAX_NAME_BYTES)
        return fail(s->err, "%s: tensor %s...: expected a name of at most %d bytes, found %" PRIu32, s->archive.path,
                    shown_key(name).s, MAX_NAME_BYTES, name->n);
    if (utf8_valid(name->text, name->n) != name->n || memchr(name->text, '\0', name->n) != NULL)
        return fail(s->err, "%s: tensor %s: expected a name of UTF-8 without NUL", s->archive.path, shown_key(name).s);
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct pickle_value *x = &(*(const struct pickle_pair *const *)a)->key,
                              *y = &(*(const struct pickle_pair *const *)b)->key;
    int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

// Lists the dictionary's tensors, sorted by name; skips other values.
static bool list_tensors(struct state *s)
{
    const struct pickle *pickle = s->archive.pickle;
    size_t capacity = 0;
    for (const struct pickle_pair *p = pickle_first(pickle, &s->dict); p != NULL; p = pickle_next(pickle, p)) {
        if (p->value.kind != PICKLE_CALL)
            continue;
        if (!check_name(s, &p->key))
            return false;
        if (s->n == MAX_TENSORS)
            return fail(s->err, "%s: expected at most %d tensors, found more", s->archive.path, MAX_TENSORS);
        if (s->n == capacity) {
            capacity = next_capacity(capacity, s->n + 1);
            s->tensor = xrealloc(s->tensor, capacity * sizeof(*s->tensor));
        }
        s->tensor[s->n++] = p;
    }
    qsort(s->tensor, s->n, sizeof(*s->tensor), by_name);
    for (size_t i = 1; i < s->n; i++)
        if (by_name(&s->tensor[i - 1], &s->tensor[i]) == 0)
            return fail(s->err, "%s: two tensors are named %s", s->archive.path, shown_key(&s->tensor[i]->key).s);
    return true;
}

// Whether the first `kinds` of n values have these kinds.
static bool have_kinds(const struct pickle_value *v, size_t n, const enum pickle_kind *kind, size_t kinds)
{
    bool ok = n >= kinds;
    for (size_t i = 0; ok && i < kinds; i++)
        ok = v[i].kind == kind[i];
    return ok;
}

// The arguments of _rebuild_tensor_v2, also of one inside _rebuild_parameter; NULL if their kinds are wrong.
static const struct pickle_value *tensor_arguments(const struct pickle *p, const struct pickle_value *v)
{
    static const enum pickle_kind parameter[] = { PICKLE_CALL },
                                  tensor[] = { PICKLE_PERSISTENT, PICKLE_INT, PICKLE_TUPLE, PICKLE_TUPLE };
    if (v->global == REBUILD_PARAMETER) {
        if (!have_kinds(pickle_items(p, v), v->n, parameter, 1))
            return NULL;
        v = pickle_items(p, v);
    }
    const struct pickle_value *argument = pickle_items(p, v);
    return v->global == REBUILD_TENSOR && have_kinds(argument, v->n, tensor, 4) ? argument : NULL;
}

struct storage {
    const char *dtype;
    uint64_t elements, size; // size: bytes of an element
    const uint8_t *at;
};

// Finds the storage of a persistent id and checks that its size matches its number of elements.
static bool find_storage(const struct state *s, const char *name, const struct pickle_value *id, struct storage *to)
{
    static const enum pickle_kind kinds[] = { PICKLE_TEXT, PICKLE_GLOBAL, PICKLE_TEXT, PICKLE_TEXT, PICKLE_INT };
    const char *path = s->archive.path;
    const struct pickle_value *part = pickle_items(s->archive.pickle, id);
    if (!have_kinds(part, id->n, kinds, 5) || !pickle_is_text(&part[0], "storage") ||
        storages[part[1].global].bytes == 0 || part[4].number < 0)
        return fail(
            s->err,
            "%s: tensor %s: expected a storage: its type, key, place and number of elements, found something else",
            path, name);
    to->dtype = storages[part[1].global].dtype;
    to->size = (uint64_t)storages[part[1].global].bytes;
    to->elements = (uint64_t)part[4].number;

    const struct pickle_value *key = &part[2];
    char *entry = xformat("data/%.*s", (int)(key->n < MAX_KEY_BYTES ? key->n : MAX_KEY_BYTES), key->text);
    const struct zip_entry *e = strlen(entry) == 5 + (size_t)key->n ? torch_archive_find(&s->archive, entry) : NULL;
    free(entry);
    if (e == NULL)
        return fail(s->err, "%s: tensor %s: expected storage %s in the archive, found none", path, name,
                    shown_key(key).s);
    uint64_t bytes;
    if (__builtin_mul_overflow(to->elements, to->size, &bytes) || bytes != e->n)
        return fail(s->err, "%s: tensor %s: expected storage %s to hold %" PRIu64 " elements of %s, found %zu bytes",
                    path, name, shown_key(key).s, to->elements, to->dtype, e->n);
    to->at = e->at;
    return true;
}

static bool read_shape(const struct state *s, const struct pickle_value *size, struct safetensor *t, uint64_t *elements)
{
    const struct pickle_value *item = pickle_items(s->archive.pickle, size);
    const char *path = s->archive.path;
    if (size->n > MAX_DIMS)
        return fail(s->err, "%s: tensor %s: expected at most %d dimensions, found %" PRIu32, path, t->name,
                    (int)MAX_DIMS, size->n);
    bool empty = false;
    *elements = 1;
    t->dims = (int)size->n;
    for (int d = 0; d < t->dims; d++) {
        if (item[d].kind != PICKLE_INT || item[d].number < 0)
            return fail(s->err, "%s: tensor %s: dimension %d of its shape is not a size", path, t->name, d);
        t->dim[d] = item[d].number;
        empty = empty || t->dim[d] == 0;
        if (t->dim[d] != 0 && __builtin_mul_overflow(*elements, (uint64_t)t->dim[d], elements))
            return fail(s->err, "%s: tensor %s: its shape is too large for any file", path, t->name);
    }
    if (empty)
        *elements = 0;
    return true;
}

static char *integers(const struct pickle_value *v, size_t n)
{
    struct text t = { 0 };
    text_puts(&t, "[");
    for (size_t i = 0; i < n; i++)
        text_printf(&t, "%s%" PRId64, i == 0 ? "" : ", ", v[i].kind == PICKLE_INT ? v[i].number : -1);
    text_puts(&t, "]");
    return t.s;
}

// Whether the strides are those of a row-major layout; the stride of a dimension of size 1 does not matter.
static bool is_contiguous(const struct safetensor *t, const struct pickle_value *stride)
{
    uint64_t expected = 1;
    for (int d = t->dims - 1; d >= 0; d--) {
        if (stride[d].kind != PICKLE_INT || (t->dim[d] != 1 && (uint64_t)stride[d].number != expected))
            return false;
        expected *= (uint64_t)t->dim[d]; // at most the number of elements
    }
    return true;
}

static bool check_strides(const struct state *s, const struct safetensor *t, const struct pickle_value *strides,
                          const struct pickle_value *sizes, uint64_t elements)
{
    const struct pickle_value *stride = pickle_items(s->archive.pickle, strides);
    if (strides->n != sizes->n)
        return fail(s->err, "%s: tensor %s: expected %" PRIu32 " strides, found %" PRIu32, s->archive.path, t->name,
                    sizes->n, strides->n);
    if (elements == 0 || is_contiguous(t, stride))
        return true;
    char *shape = integers(pickle_items(s->archive.pickle, sizes), sizes->n), *steps = integers(stride, strides->n);
    fail(s->err,
         "%s: tensor %s: expected a contiguous tensor, found shape %s with strides %s, as of a transposed or "
         "expanded one; save it after .contiguous()",
         s->archive.path, t->name, shape, steps);
    free(shape);
    free(steps);
    return false;
}

// Reads everything of a tensor but its name, which is set already.
static bool read_tensor(const struct state *s, const struct pickle_value *value, struct safetensor *t)
{
    const struct pickle_value *argument = tensor_arguments(s->archive.pickle, value);
    struct storage in = { 0 };
    uint64_t elements = 0;
    if (argument == NULL)
        return fail(s->err, "%s: tensor %s: expected a storage, an offset, a size and strides, found other arguments",
                    s->archive.path, t->name);
    if (!find_storage(s, t->name, &argument[0], &in) || !read_shape(s, &argument[2], t, &elements) ||
        !check_strides(s, t, &argument[3], &argument[2], elements))
        return false;
    int64_t offset = argument[1].number;
    if ((uint64_t)offset > in.elements || // a negative offset is larger as well
        elements > in.elements - (uint64_t)offset)
        return fail(s->err,
                    "%s: tensor %s: expected it to lie in its storage of %" PRIu64 " elements, found %" PRIu64
                    " from element %" PRId64 " on",
                    s->archive.path, t->name, in.elements, elements, offset);
    t->dtype = in.dtype;
    t->data = in.at + (uint64_t)offset * in.size;
    t->bytes = (size_t)(elements * in.size);
    return true;
}

bool torch_read(const char *path, const struct mapping *file, int number, struct tensor_list *to, struct error *err)
{
    struct state s = { .err = err };
    if (!torch_archive_open(path, file, &s.archive, err))
        return false;
    bool ok = find_state(&s) && list_tensors(&s);
    for (size_t i = 0; ok && i < s.n; i++)
        ok = read_tensor(&s, &s.tensor[i]->value,
                         tensor_list_add(to, xstrndup(s.tensor[i]->key.text, s.tensor[i]->key.n), number));
    free(s.tensor);
    torch_archive_close(&s.archive);
    return ok;
}
