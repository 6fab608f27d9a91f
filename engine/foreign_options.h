// foreign_options.h - what foreign drafters and rules share: a refusal in words, tables of options, and registration
// (engine/foreign.h).
#pragma once
#include "core/error.h"
#include "core/options.h"
#include "engine/foreign.h"

enum { FOREIGN_OPTIONS = 32 };

// Writes a sentence to r->why and returns 0.
int32_t foreign_refuse(struct foreign_report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct foreign_type {            // a registered drafter or rule; kept until the process ends
    const void *of;              // its struct foreign_drafter or foreign_rule
    const struct option *option; // the plugin's own options, then `more`
    size_t size;                 // bytes of the fields of the plugin's own options
};

// Registers `of`, a struct foreign_drafter or foreign_rule with these members: makes the table of its n options and of
// `more` (n_more), whose fields follow, and has `add` add the type to its registry. Returns 0, with a sentence in
// r->why and nothing left behind, if it is refused.
int32_t foreign_register(const void *of, int32_t version, const struct foreign_option *option, int n,
                         const struct option *more, int n_more,
                         bool (*add)(const struct foreign_type *type, struct error *err), struct foreign_report *r);
// Reads the first n options of a struct to value (n).
void foreign_values(const struct option *table, int n, const void *options, struct foreign_value *value);
