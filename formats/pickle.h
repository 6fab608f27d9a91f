// pickle.h - parses a pickle of torch.save without executing it.
//
// A pickle is a program for a stack machine. Python's machine calls anything that can be imported; this one accepts only
// the opcodes and the names that a state_dict consists of, and records calls instead of making them: a call becomes a
// value of the function's name and its arguments, a persistent id becomes its tuple. Any other opcode or name is an
// error that names it. Nothing is called and nothing recurses; an opcode costs what it pops from the stack, so memory
// and time are linear in the bytes. A value that occurs in several places, or in itself, is shared, not copied.
//
// Protocols 2 to 5, as torch.save writes them: https://docs.python.org/3/library/pickle.html, Lib/pickletools.py.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct pickle;

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_REAL, // its number is not stored
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST, // its items are not stored
    PICKLE_DICT,
    PICKLE_GLOBAL,
    PICKLE_CALL,       // its items are the arguments
    PICKLE_PERSISTENT, // its items are those of the id, a tuple
};

enum pickle_global { // the names that a pickle may import
    ORDERED_DICT,    // a call of it yields a PICKLE_DICT
    REBUILD_TENSOR,
    REBUILD_PARAMETER,
    FLOAT_STORAGE,
    DOUBLE_STORAGE,
    HALF_STORAGE,
    BFLOAT16_STORAGE,
    LONG_STORAGE,
    INT_STORAGE,
    SHORT_STORAGE,
    CHAR_STORAGE,
    BYTE_STORAGE,
    BOOL_STORAGE,
    PICKLE_GLOBALS,
};

struct pickle_value {
    uint8_t kind;   // enum pickle_kind
    uint8_t global; // enum pickle_global, for GLOBAL and CALL
    uint32_t n;     // bytes of a TEXT; number of items of a TUPLE, CALL or PERSISTENT
    union {
        int64_t number;   // INT
        const char *text; // (n) TEXT, not NUL-terminated; borrowed from the pickle's bytes
        size_t first;     // for pickle_items
        size_t dict;      // for pickle_first
    };
};

struct pickle_pair { // an entry of a dictionary, in insertion order; a key may occur twice
    struct pickle_value key, value;
    size_t next; // for pickle_next
};

// `name` is used in messages. The bytes are borrowed until the pickle is closed.
struct pickle *pickle_read(const char *name, const uint8_t *bytes, size_t n, struct error *err);
void pickle_close(struct pickle *p);
struct pickle_value pickle_root(const struct pickle *p);
const struct pickle_value *pickle_items(const struct pickle *p, const struct pickle_value *v); // (v->n)
bool pickle_has_calls(const struct pickle *p, const struct pickle_value *dict); // whether a value of it is a CALL; O(1)
const struct pickle_pair *pickle_first(const struct pickle *p, const struct pickle_value *dict); // NULL if it is empty
const struct pickle_pair *pickle_next(const struct pickle *p, const struct pickle_pair *pair);   // NULL at the end
const char *pickle_kind_name(const struct pickle_value *v);                                      // "a tuple", ...
bool pickle_is_text(const struct pickle_value *v, const char *text);
