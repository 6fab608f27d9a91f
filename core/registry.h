// registry.h - the lists of drafters, rules and sampling stages. A list is an array of pointers to structs of one type,
// which ends with NULL. An entry of the program has the name under which it is listed; what a plugin adds
// (engine/plugin.h) has a name that no other entry has.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/digest.h"

struct error;

enum { MAX_REGISTERED = 64 }; // entries of a list, those of plugins included

struct registry {
    const char *kind;                        // the word in messages, "drafter"
    void *list;                              // (most + 1)
    const char *const *listed;               // the names of the program's own entries, in their order; ends with NULL
    int most;                                // maximum number of entries
    const char *(*lacks)(const void *entry); // a member that the entry must set and does not; NULL: none
    size_t size;                             // the size of an entry
    size_t name, summary, source;            // places of these members in it: two texts and a struct hash
};
#define REGISTRY_OF(type) \
    .size = sizeof(struct type), .name = offsetof(struct type, name), .summary = offsetof(struct type, summary), \
    .source = offsetof(struct type, source)

// Returns false and sets err if the name of an entry of the program differs from the listed one, or is listed twice.
bool registry_check(const struct registry *r, struct error *err);
// Checks the list at the start of a program, from a constructor. A wrong list ends the program with the message.
void registry_require(const struct registry *r);
int registry_names(const struct registry *r, const char **to); // fills in all names and a NULL; returns their number
const void *registry_named(const struct registry *r, const char *name); // NULL: there is none of this name
// Adds a copy of the entry at the end of the list, with registry_source. Returns false and sets err if its name is no
// name or is there already, if it lacks a member, or if the list is full.
bool registry_add(const struct registry *r, const void *entry, struct error *err);
bool registry_is_name(const char *name); // lower-case letters, digits and _; the first is a letter

// The hash of the file whose entries are being added. A cell that uses one of them has it in its own hash. { 0 }: the
// entries are the program's own.
struct hash registry_source(void);
void registry_set_source(struct hash source);
