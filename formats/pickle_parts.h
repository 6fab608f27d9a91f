// pickle_parts.h - the machine that reads a pickle: its stack, memo and marks; for pickle.c and pickle_opcodes.c alone.
#pragma once
#include "formats/pickle.h"

struct pickle_values {
    size_t n, capacity;
    struct pickle_value *at; // (n)
};

struct pickle_dict {
    size_t first, last; // number of a pair plus 1; 0: it is empty
    bool ordered, has_calls;
};

struct pickle { // what is left when the machine has stopped
    struct pickle_value root;
    struct pickle_values items; // of tuples, end to end
    size_t dicts, dict_capacity;
    struct pickle_dict *dict; // (dicts)
    size_t pairs, pair_capacity;
    struct pickle_pair *pair; // (pairs)
};

struct pickle_machine {
    const char *name;                // for messages
    const uint8_t *start, *at, *end; // the pickle, and the next byte of it
    const uint8_t *opcode;           // the one being performed
    struct pickle *p;
    struct pickle_values stack, memo;
    size_t marks, mark_capacity;
    size_t *mark; // (marks) how high the stack was
    bool stopped;
    struct error *err;
};

typedef bool pickle_perform(struct pickle_machine *m, size_t n);
struct pickle_opcode {
    const char *name;        // Python's; NULL: there is no such opcode
    pickle_perform *perform; // NULL: no state_dict needs it
    size_t n;                // for perform: how many bytes stand behind it, or how many values it wants
};
struct pickle_opcode pickle_opcode(uint8_t code);

// Refuses the opcode being performed: names it and its place, and then what is wrong. Always false.
bool pickle_refuse(const struct pickle_machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
const uint8_t *pickle_take(struct pickle_machine *m, uint64_t n); // the next n bytes; NULL: there are fewer

bool pickle_push(struct pickle_machine *m, struct pickle_value v);
// The topmost n values, above the last mark; NULL: there are fewer. They stay until pickle_drop.
struct pickle_value *pickle_top(struct pickle_machine *m, size_t n);
void pickle_drop(struct pickle_machine *m, size_t n);
bool pickle_set_mark(struct pickle_machine *m);
bool pickle_take_mark(struct pickle_machine *m, size_t *n); // n: how many values lie above it
bool pickle_remember(struct pickle_machine *m, uint64_t place);
bool pickle_recall(struct pickle_machine *m, uint64_t place);
bool pickle_make_tuple(struct pickle_machine *m, size_t n); // of the topmost n values
bool pickle_make_dict(struct pickle_machine *m, bool ordered);
// Takes n values, key and value in turn, off the stack, and puts them into the dictionary below.
bool pickle_fill_dict(struct pickle_machine *m, size_t n);
