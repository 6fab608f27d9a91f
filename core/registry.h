// registry.h - the checks of a list of drafters, rules or sampling stages: each entry has the name under which it is
// listed, and what a plugin adds (engine/plugin.h) has a name that no other entry has.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/digest.h"

struct error;

struct registered {
    const char *listed;      // NAME in the list
    const char *const *name; // the field `name` of the listed struct
};

// Returns false and sets err if a name differs from the listed one, or is listed
// twice. kind: the word in messages, "drafter".
bool registry_check(const struct registered *list, size_t n, const char *kind, struct error *err);
// Checks the list at the start of a program, from a constructor. A wrong list ends the program with the message.
void registry_require(const struct registered *list, size_t n, const char *kind);

enum { MAX_REGISTERED = 64 }; // entries of a list, those of plugins included

// Returns whether an entry of this name can be added to a list of n entries, of at most `most`. known: the list has the
// name. lacks: a field that the entry must set and does not; NULL: none.
bool registry_admits(const char *kind, const char *name, const char *summary, bool known, const char *lacks, int n,
                     int most, struct error *err);

// The hash of the file whose entries are being added. A cell that uses one of them has it in its own hash. { 0 }: the
// entries are the program's own.
struct hash registry_source(void);
void registry_set_source(struct hash source);
