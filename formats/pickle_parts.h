// pickle_parts.h - the pickle machine: its stack, memo and marks; private to pickle.c and pickle_opcodes.c.
#pragma once
#include "formats/pickle.h"

struct pickle_values {
    size_t n, capacity;
    struct pickle_value *at; // (n)
};

struct pickle_dict {
    size_t first, last; // index of a pair plus 1; 0 if the dictionary is empty
    bool ordered, has_calls;
};

struct pickle { // the result of a run
    struct pickle_value root;
    struct pickle_values items; // of all tuples, concatenated
    size_t dicts, dict_capacity;
    struct pickle_dict *dict; // (dicts)
    size_t pairs, pair_capacity;
    struct pickle_pair *pair; // (pairs)
};

struct pickle_machine {
    const char *name;                // for messages
    const uint8_t *start, *at, *end; // the pickle; `at` is the next byte
    const uint8_t *opcode;           // the current one
    struct pickle *p;
    struct pickle_values stack, memo;
    size_t marks, mark_capacity;
    size_t *mark; // (marks) the stack's size at each mark
    bool stopped;
    struct error *err;
};

typedef bool pickle_perform(struct pickle_machine *m, size_t n);
struct pickle_opcode {
    const char *name;        // Python's; NULL if the opcode is invalid
    pickle_perform *perform; // NULL if the opcode is not supported
    size_t n;                // for perform: the bytes of the argument, or the number of values popped
};
struct pickle_opcode pickle_opcode(uint8_t code);

// Sets err to a message that begins with the current opcode and its byte offset. Returns false.
bool pickle_refuse(const struct pickle_machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
const uint8_t *pickle_take(struct pickle_machine *m, uint64_t n); // the next n bytes; NULL if there are fewer

bool pickle_push(struct pickle_machine *m, struct pickle_value v);
// The topmost n values above the last mark; NULL if there are fewer. They stay on the stack until pickle_drop.
struct pickle_value *pickle_top(struct pickle_machine *m, size_t n);
void pickle_drop(struct pickle_machine *m, size_t n);
bool pickle_set_mark(struct pickle_machine *m);
bool pickle_take_mark(struct pickle_machine *m, size_t *n); // n: the number of values above it
bool pickle_memo_put(struct pickle_machine *m, uint64_t index);
bool pickle_memo_get(struct pickle_machine *m, uint64_t index);
bool pickle_make_tuple(struct pickle_machine *m, size_t n); // of the topmost n values
bool pickle_make_dict(struct pickle_machine *m, bool ordered);
// Pops n values, alternately key and value, and adds them to the dictionary below them.
bool pickle_fill_dict(struct pickle_machine *m, size_t n);
