// made_parts.h - what the files that make a prompt of an entry share.
#pragma once
#include <stdbool.h>
#include "commands/import/made_prompt.h"

struct making {
    const struct prompt_choice *c;
    const struct entries *e;
    const struct json *entry;
    enum drop drop;
    struct json *turns, *answers; // lists
    struct error *err;
};

// A text without NULs, which prompts cannot have; if not, false, with an error that begins with what (n).
bool making_check_text(const struct making *m, const char *what, int n, const struct json *j);
bool making_is_blank(const char *s);
// The entry is left out if its dataset is a collected one; else it is an error, and false.
bool making_leave_out(struct making *m, enum drop why, const char *what, int n, const char *expected);

bool make_text(struct making *m);     // SHAPE_TEXT: template.c
bool make_messages(struct making *m); // SHAPE_MESSAGES: messages.c
