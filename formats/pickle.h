// pickle.h - what a pickle of torch.save says, read without doing any of it.
//
// A pickle is a program for a machine with a stack. Python's machine may call anything that can be imported; this one
// knows the opcodes and the names that a state_dict is made of, and describes: a call becomes a value that says what
// was to be called and with what, a persistent id the tuple that it is. Whatever else a pickle asks for is refused by
// name. Nothing is called and nothing recurses; an opcode costs what it takes from the stack, so memory and time are
// linear in the bytes. A value that stands in many places, or in itself, is shared there and not copied.
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
    PICKLE_REAL, // which number is not kept
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST, // what is in it is not kept
    PICKLE_DICT,
    PICKLE_GLOBAL,
    PICKLE_CALL,       // its items are the arguments
    PICKLE_PERSISTENT, // its items are those of the id, a tuple
};

enum pickle_global { // the names that may be imported
    ORDERED_DICT,    // called, it is a PICKLE_DICT
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
    uint8_t global; // enum pickle_global, of a GLOBAL and a CALL
    uint32_t n;     // bytes of a TEXT; items of a TUPLE, CALL, PERSISTENT
    union {
        int64_t number;   // of an INT
        const char *text; // (n) of a TEXT, without a NUL at its end; borrowed from the pickle's bytes
        size_t first;     // for pickle_items
        size_t dict;      // for pickle_first
    };
};

struct pickle_pair { // of a dictionary, in the order in which it was filled; a key may be there twice
    struct pickle_value key, value;
    size_t next; // for pickle_next
};

// `name` is what messages call it. The bytes are borrowed until the pickle is closed.
struct pickle *pickle_read(const char *name, const uint8_t *bytes, size_t n, struct error *err);
void pickle_close(struct pickle *p);
struct pickle_value pickle_root(const struct pickle *p);
const struct pickle_value *pickle_items(const struct pickle *p, const struct pickle_value *v); // (v->n)
bool pickle_has_calls(const struct pickle *p, const struct pickle_value *dict); // among its values; counted beforehand
const struct pickle_pair *pickle_first(const struct pickle *p, const struct pickle_value *dict); // NULL: it is empty
const struct pickle_pair *pickle_next(const struct pickle *p, const struct pickle_pair *pair);   // NULL: no more
const char *pickle_kind_name(const struct pickle_value *v);                                      // "a tuple", ...
bool pickle_is_text(const struct pickle_value *v, const char *text);
