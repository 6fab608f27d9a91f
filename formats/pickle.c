// pickle.c - the pickle machine: a stack, a memo, marks, and the resulting tuples and dictionaries.
//
// Values are small and copied by value. A tuple is a range of `items`; a dictionary is a linked list of pairs, appended
// at its end. A value refers to a tuple or dictionary by index, so several values can share it.
#include "formats/pickle.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/pickle_parts.h"

enum {
    MAX_PICKLE_BYTES = 1 << 26, // a checkpoint of 100,000 tensors has about 15 MB
    MAX_VALUES = 1 << 22,       // each: on the stack, in the memo, in tuples, in dictionaries
};

bool pickle_refuse(const struct pickle_machine *m, const char *format, ...)
{
    char why[512];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    const char *name = pickle_opcode(*m->opcode).name;
    return fail(m->err, "%s: byte %zu (%s): %s", m->name, (size_t)(m->opcode - m->start), name != NULL ? name : "?",
                why);
}

const uint8_t *pickle_take(struct pickle_machine *m, uint64_t n)
{
    size_t available = (size_t)(m->end - m->at);
    if (n > available) {
        pickle_refuse(m, "the pickle ends too early: expected %" PRIu64 " bytes more, found %zu", n, available);
        return NULL;
    }
    const uint8_t *p = m->at;
    m->at += n;
    return p;
}

// Enlarges an array of n_used elements so that n more fit. Returns NULL and sets err beyond MAX_VALUES.
static void *extended(struct pickle_machine *m, void *array, size_t *capacity, size_t n_used, size_t n, size_t size)
{
    if (n > MAX_VALUES - n_used) {
        pickle_refuse(m, "expected a state_dict, found more than %d values", MAX_VALUES);
        return NULL;
    }
    if (n_used + n > *capacity) {
        *capacity = next_capacity(*capacity, n_used + n);
        array = xrealloc(array, *capacity * size);
    }
    return array;
}

static bool append(struct pickle_machine *m, struct pickle_values *to, const struct pickle_value *v, size_t n)
{
    if (n == 0)
        return true;
    void *at = extended(m, to->at, &to->capacity, to->n, n, sizeof(*to->at));
    if (at == NULL)
        return false;
    to->at = at;
    memcpy(to->at + to->n, v, n * sizeof(*v));
    to->n += n;
    return true;
}

bool pickle_push(struct pickle_machine *m, struct pickle_value v)
{
    return append(m, &m->stack, &v, 1);
}

struct pickle_value *pickle_top(struct pickle_machine *m, size_t n)
{
    size_t mark = m->marks == 0 ? 0 : m->mark[m->marks - 1], available = m->stack.n - mark;
    if (n > available) {
        pickle_refuse(m, "expected at least %zu on the stack, found %zu", n, available);
        return NULL;
    }
    return m->stack.at + m->stack.n - n;
}

void pickle_drop(struct pickle_machine *m, size_t n)
{
    m->stack.n -= n;
}

bool pickle_set_mark(struct pickle_machine *m)
{
    void *mark = extended(m, m->mark, &m->mark_capacity, m->marks, 1, sizeof(*m->mark));
    if (mark == NULL)
        return false;
    m->mark = mark;
    m->mark[m->marks++] = m->stack.n;
    return true;
}

bool pickle_take_mark(struct pickle_machine *m, size_t *n)
{
    if (m->marks == 0)
        return pickle_refuse(m, "expected a mark on the stack, found none");
    *n = m->stack.n - m->mark[--m->marks];
    return true;
}

// Python numbers memo entries consecutively from 0.
bool pickle_memo_put(struct pickle_machine *m, uint64_t index)
{
    const struct pickle_value *top = pickle_top(m, 1);
    if (top == NULL)
        return false;
    if (index != m->memo.n)
        return pickle_refuse(m, "expected memo index %zu next, found %" PRIu64, m->memo.n, index);
    return append(m, &m->memo, top, 1);
}

bool pickle_memo_get(struct pickle_machine *m, uint64_t index)
{
    if (index >= m->memo.n)
        return pickle_refuse(m, "expected a memo index below %zu, found %" PRIu64, m->memo.n, index);
    return pickle_push(m, m->memo.at[index]);
}

bool pickle_make_tuple(struct pickle_machine *m, size_t n)
{
    const struct pickle_value *top = pickle_top(m, n);
    struct pickle_value tuple = { .kind = PICKLE_TUPLE, .n = (uint32_t)n, .first = m->p->items.n };
    if (top == NULL || !append(m, &m->p->items, top, n))
        return false;
    pickle_drop(m, n);
    return pickle_push(m, tuple);
}

bool pickle_make_dict(struct pickle_machine *m, bool ordered)
{
    struct pickle *p = m->p;
    void *dict = extended(m, p->dict, &p->dict_capacity, p->dicts, 1, sizeof(*p->dict));
    if (dict == NULL)
        return false;
    p->dict = dict;
    p->dict[p->dicts] = (struct pickle_dict){ .ordered = ordered };
    return pickle_push(m, (struct pickle_value){ .kind = PICKLE_DICT, .dict = p->dicts++ });
}

static void append_pair(struct pickle *p, struct pickle_dict *dict, const struct pickle_value *key)
{
    p->pair[p->pairs++] = (struct pickle_pair){ .key = key[0], .value = key[1] };
    if (dict->last != 0)
        p->pair[dict->last - 1].next = p->pairs;
    else
        dict->first = p->pairs;
    dict->last = p->pairs;
    dict->has_calls = dict->has_calls || key[1].kind == PICKLE_CALL;
}

bool pickle_fill_dict(struct pickle_machine *m, size_t n)
{
    struct pickle *p = m->p;
    const struct pickle_value *top = pickle_top(m, n + 1);
    if (top == NULL)
        return false;
    if (n % 2 != 0)
        return pickle_refuse(m, "expected keys and values in turn, found %zu of them", n);
    if (top->kind != PICKLE_DICT)
        return pickle_refuse(m, "expected a dictionary to add to, found %s", pickle_kind_name(top));
    if (n == 0)
        return true;
    void *pair = extended(m, p->pair, &p->pair_capacity, p->pairs, n / 2, sizeof(*p->pair));
    if (pair == NULL)
        return false;
    p->pair = pair;
    for (size_t i = 0; i < n; i += 2)
        append_pair(p, &p->dict[top->dict], top + 1 + i);
    pickle_drop(m, n);
    return true;
}

static bool step(struct pickle_machine *m)
{
    if (m->at == m->end)
        return fail(m->err, "%s: the pickle ends too early: expected STOP, found its end at byte %zu", m->name,
                    (size_t)(m->end - m->start));
    m->opcode = m->at++;
    struct pickle_opcode o = pickle_opcode(*m->opcode);
    if (o.perform != NULL)
        return o.perform(m, o.n);
    return fail(
        m->err,
        "%s: byte %zu: expected the opcodes of a state_dict, found %s (0x%02x); the pickle was not executed. Save "
        "the state_dict alone, or convert the file to safetensors where it is trusted",
        m->name, (size_t)(m->opcode - m->start), o.name != NULL ? o.name : "an invalid opcode", *m->opcode);
}

static bool run(struct pickle_machine *m)
{
    size_t n = (size_t)(m->end - m->start);
    if (n > MAX_PICKLE_BYTES)
        return fail(m->err, "%s: expected a pickle of at most %d bytes, found %zu", m->name, MAX_PICKLE_BYTES, n);
    if (n < 2 || m->start[0] != 0x80 || m->start[1] < 2 || m->start[1] > 5)
        return fail(m->err, "%s: expected a pickle of protocol 2 to 5, found one that begins with %02x %02x", m->name,
                    n > 0 ? m->start[0] : 0, n > 1 ? m->start[1] : 0);
    m->at = m->start + 2;
    while (!m->stopped)
        if (!step(m))
            return false;
    if (m->at != m->end)
        return fail(m->err, "%s: expected the pickle to end with STOP, found %zu bytes after it", m->name,
                    (size_t)(m->end - m->at));
    return true;
}

struct pickle *pickle_read(const char *name, const uint8_t *bytes, size_t n, struct error *err)
{
    struct pickle *p = xcalloc(1, sizeof(*p));
    struct pickle_machine m = { .name = name, .start = bytes, .at = bytes, .end = bytes + n, .p = p, .err = err };
    m.stack.capacity = 64; // allocated up front: pickle_top(m, 0) of an empty stack must not be NULL
    m.stack.at = xcalloc(m.stack.capacity, sizeof(*m.stack.at));
    bool ok = run(&m);
    free(m.stack.at);
    free(m.memo.at);
    free(m.mark);
    if (ok)
        return p;
    pickle_close(p);
    return NULL;
}

void pickle_close(struct pickle *p)
{
    if (p == NULL)
        return;
    free(p->items.at);
    free(p->dict);
    free(p->pair);
    free(p);
}

struct pickle_value pickle_root(const struct pickle *p)
{
    return p->root;
}

const struct pickle_value *pickle_items(const struct pickle *p, const struct pickle_value *v)
{
    return v->n == 0 ? NULL : p->items.at + v->first;
}

bool pickle_has_calls(const struct pickle *p, const struct pickle_value *dict)
{
    return p->dict[dict->dict].has_calls;
}

const struct pickle_pair *pickle_first(const struct pickle *p, const struct pickle_value *dict)
{
    size_t first = p->dict[dict->dict].first;
    return first == 0 ? NULL : &p->pair[first - 1];
}

const struct pickle_pair *pickle_next(const struct pickle *p, const struct pickle_pair *pair)
{
    return pair->next == 0 ? NULL : &p->pair[pair->next - 1];
}

const char *pickle_kind_name(const struct pickle_value *v)
{
    static const char *const names[] = {
        [PICKLE_NONE] = "None",     [PICKLE_BOOL] = "a boolean",       [PICKLE_INT] = "an integer",
        [PICKLE_REAL] = "a real",   [PICKLE_TEXT] = "a text",          [PICKLE_TUPLE] = "a tuple",
        [PICKLE_LIST] = "a list",   [PICKLE_DICT] = "a dictionary",    [PICKLE_GLOBAL] = "the name of a class",
        [PICKLE_CALL] = "a tensor", [PICKLE_PERSISTENT] = "a storage",
    };
    return names[v->kind];
}

bool pickle_is_text(const struct pickle_value *v, const char *text)
{
    return v->kind == PICKLE_TEXT && v->n == strlen(text) && memcmp(v->text, text, v->n) == 0;
}
