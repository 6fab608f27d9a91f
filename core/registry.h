// registry.h - the check of a list of drafters, rules or sampling stages: each
// entry has the name under which it is listed.
#pragma once
#include <stdbool.h>
#include <stddef.h>

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
