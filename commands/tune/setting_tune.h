// setting_tune.h - `speclab tune --drafter`: searches the settings of drafters by the cost of passes on this machine and the acceptance on
// given prompts, then measures the best few.
#pragma once
#include <stdbool.h>
#include "commands/command_line.h"
#include "engine/engine.h"

struct error;

struct setting_tune {
    const char *model, *prompts, *chat, *rule, *sampling, *db, *out; // db NULL: a temporary one; out NULL: no file
    struct flag_texts drafters;
    struct precision precision;
    long long limit, tokens, context, batch, longest, confirm, seconds, threads; // seconds 0: no limit
};

bool setting_tune(const struct setting_tune *t, struct error *err);
