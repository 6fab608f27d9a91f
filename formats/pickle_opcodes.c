// pickle_opcodes.c - the opcodes of a pickle: implementations of those in a state_dict, names of the others.
#include <stdlib.h>
#include <string.h>

#include "formats/pickle_parts.h"
#include "formats/printable.h"

static const struct {
    const char *module, *name;
} globals[PICKLE_GLOBALS] = {
    [ORDERED_DICT] = { "collections", "OrderedDict" },
    [REBUILD_TENSOR] = { "torch._utils", "_rebuild_tensor_v2" },
    [REBUILD_PARAMETER] = { "torch._utils", "_rebuild_parameter" },
    [FLOAT_STORAGE] = { "torch", "FloatStorage" },
    [DOUBLE_STORAGE] = { "torch", "DoubleStorage" },
    [HALF_STORAGE] = { "torch", "HalfStorage" },
    [BFLOAT16_STORAGE] = { "torch", "BFloat16Storage" },
    [LONG_STORAGE] = { "torch", "LongStorage" },
    [INT_STORAGE] = { "torch", "IntStorage" },
    [SHORT_STORAGE] = { "torch", "ShortStorage" },
    [CHAR_STORAGE] = { "torch", "CharStorage" },
    [BYTE_STORAGE] = { "torch", "ByteStorage" },
    [BOOL_STORAGE] = { "torch", "BoolStorage" },
};

// Opcode implementations. n comes from the opcode table: the bytes of the argument, or the number of values popped.

static bool mark(struct pickle_machine *m, size_t n)
{
    (void)n;
    return pickle_set_mark(m);
}

static bool stop(struct pickle_machine *m, size_t n)
{
    const struct pickle_value *top = pickle_top(m, n);
    if (top == NULL)
        return false;
    if (m->stack.n != n)
        return pickle_refuse(m, "expected %zu on the stack, found %zu", n, m->stack.n);
    m->p->root = *top;
    m->stopped = true;
    return true;
}

// FRAME announces a number of bytes for buffered readers; only its bound is checked.
static bool frame(struct pickle_machine *m, size_t n)
{
    uint64_t length = 0;
    const uint8_t *p = pickle_take(m, n);
    if (p == NULL)
        return false;
    memcpy(&length, p, n);
    return length <= (uint64_t)(m->end - m->at) || pickle_refuse(m, "the frame is longer than the pickle");
}

// Pushes a value of which only the kind is stored: None, True or False, an empty list.
static bool plain(struct pickle_machine *m, size_t kind)
{
    return pickle_push(m, (struct pickle_value){ .kind = (uint8_t)kind });
}

static bool real(struct pickle_machine *m, size_t n)
{
    return pickle_take(m, n) != NULL && pickle_push(m, (struct pickle_value){ .kind = PICKLE_REAL });
}

static bool natural(struct pickle_machine *m, size_t n)
{
    int64_t v = 0;
    const uint8_t *p = pickle_take(m, n);
    if (p == NULL)
        return false;
    memcpy(&v, p, n);
    return pickle_push(m, (struct pickle_value){ .kind = PICKLE_INT, .number = v });
}

static bool integer(struct pickle_machine *m, size_t n)
{
    const uint8_t *p = pickle_take(m, n);
    if (p == NULL)
        return false;
    int64_t v = n != 0 && p[n - 1] >= 0x80 ? -1 : 0; // sign extension, then the low bytes
    memcpy(&v, p, n);
    return pickle_push(m, (struct pickle_value){ .kind = PICKLE_INT, .number = v });
}

static bool long_integer(struct pickle_machine *m, size_t n)
{
    const uint8_t *bytes = pickle_take(m, n);
    if (bytes == NULL)
        return false;
    if (*bytes > sizeof(int64_t))
        return pickle_refuse(m, "expected an integer of at most 8 bytes, found one of %d", *bytes);
    return integer(m, *bytes);
}

// Reads a little-endian number of n <= 4 bytes. Returns false at the end of the pickle.
static bool count(struct pickle_machine *m, size_t n, uint32_t *to)
{
    const uint8_t *p = pickle_take(m, n);
    *to = 0;
    if (p != NULL)
        memcpy(to, p, n);
    return p != NULL;
}

static bool text(struct pickle_machine *m, size_t n)
{
    uint32_t length;
    const uint8_t *s = count(m, n, &length) ? pickle_take(m, length) : NULL;
    return s != NULL &&
           pickle_push(m, (struct pickle_value){ .kind = PICKLE_TEXT, .n = length, .text = (const char *)s });
}

static bool put(struct pickle_machine *m, size_t n)
{
    uint32_t index;
    return count(m, n, &index) && pickle_memo_put(m, index);
}

static bool memoize(struct pickle_machine *m, size_t n)
{
    return pickle_take(m, n) != NULL && pickle_memo_put(m, m->memo.n);
}

static bool get(struct pickle_machine *m, size_t n)
{
    uint32_t index;
    return count(m, n, &index) && pickle_memo_get(m, index);
}

static bool tuple(struct pickle_machine *m, size_t n)
{
    return pickle_take_mark(m, &n) && pickle_make_tuple(m, n);
}

static bool append(struct pickle_machine *m, size_t n)
{
    const struct pickle_value *top = pickle_top(m, n + 1);
    if (top == NULL)
        return false;
    if (top->kind != PICKLE_LIST)
        return pickle_refuse(m, "expected a list to append to, found %s", pickle_kind_name(top));
    pickle_drop(m, n);
    return true;
}

static bool appends(struct pickle_machine *m, size_t n)
{
    return pickle_take_mark(m, &n) && append(m, n);
}

static bool dict(struct pickle_machine *m, size_t n)
{
    return pickle_take(m, n) != NULL && pickle_make_dict(m, false);
}

static bool set_items(struct pickle_machine *m, size_t n)
{
    return pickle_take_mark(m, &n) && pickle_fill_dict(m, n);
}

static bool import(struct pickle_machine *m, const char *module, size_t module_n, const char *name, size_t name_n)
{
    for (int i = 0; i < PICKLE_GLOBALS; i++)
        if (strlen(globals[i].module) == module_n && strlen(globals[i].name) == name_n &&
            memcmp(globals[i].module, module, module_n) == 0 && memcmp(globals[i].name, name, name_n) == 0)
            return pickle_push(m, (struct pickle_value){ .kind = PICKLE_GLOBAL, .global = (uint8_t)i });
    return pickle_refuse(m,
                         "expected a name that a state_dict is made of, found %s %s; the pickle was not executed. "
                         "Save the state_dict alone, or convert the file to safetensors where it is trusted",
                         shown(module, module_n).s, shown(name, name_n).s);
}

// The next line, without its newline.
static const char *line(struct pickle_machine *m, size_t *n)
{
    const uint8_t *from = m->at, *end = memchr(from, '\n', (size_t)(m->end - from));
    if (end == NULL) {
        pickle_refuse(m, "the pickle ends too early: expected two lines, a module and a name");
        return NULL;
    }
    *n = (size_t)(end - from);
    m->at = end + 1;
    return (const char *)from;
}

static bool global(struct pickle_machine *m, size_t n)
{
    size_t module_n = n, name_n = n;
    const char *module = line(m, &module_n), *name = module != NULL ? line(m, &name_n) : NULL;
    return name != NULL && import(m, module, module_n, name, name_n);
}

static bool stack_global(struct pickle_machine *m, size_t n)
{
    const struct pickle_value *top = pickle_top(m, n);
    if (top == NULL)
        return false;
    if (top[0].kind != PICKLE_TEXT || top[1].kind != PICKLE_TEXT)
        return pickle_refuse(m, "expected two texts, a module and a name, found %s and %s", pickle_kind_name(&top[0]),
                             pickle_kind_name(&top[1]));
    struct pickle_value module = top[0], name = top[1];
    pickle_drop(m, n);
    return import(m, module.text, module.n, name.text, name.n);
}

static bool reduce(struct pickle_machine *m, size_t n)
{
    const struct pickle_value *top = pickle_top(m, n);
    if (top == NULL)
        return false;
    if (top[0].kind != PICKLE_GLOBAL || top[0].global >= FLOAT_STORAGE || top[1].kind != PICKLE_TUPLE)
        return pickle_refuse(m, "expected a function and a tuple of arguments, found %s and %s",
                             pickle_kind_name(&top[0]), pickle_kind_name(&top[1]));
    struct pickle_value call = top[1];
    call.kind = PICKLE_CALL;
    call.global = top[0].global;
    if (call.global == ORDERED_DICT && call.n != 0)
        return pickle_refuse(m, "expected OrderedDict() without arguments, found %u", call.n);
    pickle_drop(m, n);
    return call.global == ORDERED_DICT ? pickle_make_dict(m, true) : pickle_push(m, call);
}

// Drops the attributes of a state_dict (`_metadata`).
static bool build(struct pickle_machine *m, size_t n)
{
    const struct pickle_value *top = pickle_top(m, n);
    if (top == NULL)
        return false;
    if (top->kind != PICKLE_DICT || !m->p->dict[top->dict].ordered)
        return pickle_refuse(m, "expected attributes of an OrderedDict, found those of %s", pickle_kind_name(top));
    pickle_drop(m, 1);
    return true;
}

static bool persistent(struct pickle_machine *m, size_t n)
{
    struct pickle_value *top = pickle_top(m, n);
    if (top == NULL)
        return false;
    if (top->kind != PICKLE_TUPLE)
        return pickle_refuse(m, "expected the tuple of a persistent id, found %s", pickle_kind_name(top));
    top->kind = PICKLE_PERSISTENT;
    return true;
}

static const struct pickle_opcode opcodes[256] = {
    ['('] = { "MARK", mark, 0 },
    ['.'] = { "STOP", stop, 1 },
    ['0'] = { .name = "POP" },
    ['1'] = { .name = "POP_MARK" },
    ['2'] = { .name = "DUP" },
    ['F'] = { .name = "FLOAT" },
    ['I'] = { .name = "INT" },
    ['J'] = { "BININT", integer, 4 },
    ['K'] = { "BININT1", natural, 1 },
    ['L'] = { .name = "LONG" },
    ['M'] = { "BININT2", natural, 2 },
    ['N'] = { "NONE", plain, PICKLE_NONE },
    ['P'] = { .name = "PERSID" },
    ['Q'] = { "BINPERSID", persistent, 1 },
    ['R'] = { "REDUCE", reduce, 2 },
    ['S'] = { .name = "STRING" },
    ['T'] = { .name = "BINSTRING" },
    ['U'] = { .name = "SHORT_BINSTRING" },
    ['V'] = { .name = "UNICODE" },
    ['X'] = { "BINUNICODE", text, 4 },
    ['a'] = { "APPEND", append, 1 },
    ['b'] = { "BUILD", build, 2 },
    ['c'] = { "GLOBAL", global, 0 },
    ['d'] = { .name = "DICT" },
    ['}'] = { "EMPTY_DICT", dict, 0 },
    ['e'] = { "APPENDS", appends, 0 },
    ['g'] = { .name = "GET" },
    ['h'] = { "BINGET", get, 1 },
    ['i'] = { .name = "INST" },
    ['j'] = { "LONG_BINGET", get, 4 },
    ['l'] = { .name = "LIST" },
    [']'] = { "EMPTY_LIST", plain, PICKLE_LIST },
    ['o'] = { .name = "OBJ" },
    ['p'] = { .name = "PUT" },
    ['q'] = { "BINPUT", put, 1 },
    ['r'] = { "LONG_BINPUT", put, 4 },
    ['s'] = { "SETITEM", pickle_fill_dict, 2 },
    ['t'] = { "TUPLE", tuple, 0 },
    [')'] = { "EMPTY_TUPLE", pickle_make_tuple, 0 },
    ['u'] = { "SETITEMS", set_items, 0 },
    ['G'] = { "BINFLOAT", real, 8 },
    ['B'] = { .name = "BINBYTES" },
    ['C'] = { .name = "SHORT_BINBYTES" },
    [0x80] = { .name = "PROTO" }, // only allowed as the first opcode, checked by run()
    [0x81] = { .name = "NEWOBJ" },
    [0x82] = { .name = "EXT1" },
    [0x83] = { .name = "EXT2" },
    [0x84] = { .name = "EXT4" },
    [0x85] = { "TUPLE1", pickle_make_tuple, 1 },
    [0x86] = { "TUPLE2", pickle_make_tuple, 2 },
    [0x87] = { "TUPLE3", pickle_make_tuple, 3 },
    [0x88] = { "NEWTRUE", plain, PICKLE_BOOL },
    [0x89] = { "NEWFALSE", plain, PICKLE_BOOL },
    [0x8a] = { "LONG1", long_integer, 1 },
    [0x8b] = { .name = "LONG4" },
    [0x8c] = { "SHORT_BINUNICODE", text, 1 },
    [0x8d] = { .name = "BINUNICODE8" },
    [0x8e] = { .name = "BINBYTES8" },
    [0x8f] = { .name = "EMPTY_SET" },
    [0x90] = { .name = "ADDITEMS" },
    [0x91] = { .name = "FROZENSET" },
    [0x92] = { .name = "NEWOBJ_EX" },
    [0x93] = { "STACK_GLOBAL", stack_global, 2 },
    [0x94] = { "MEMOIZE", memoize, 0 },
    [0x95] = { "FRAME", frame, 8 },
    [0x96] = { .name = "BYTEARRAY8" },
    [0x97] = { .name = "NEXT_BUFFER" },
    [0x98] = { .name = "READONLY_BUFFER" },
};

struct pickle_opcode pickle_opcode(uint8_t code)
{
    return opcodes[code];
}
