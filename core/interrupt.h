// interrupt.h - a command that may be stopped, and leaves whole sequences behind.
#pragma once
#include <stdbool.h>

struct error;

// From now on the first SIGINT or SIGTERM makes *the answer 1, which whoever decodes looks at between steps; the second is not
// caught any more. What it points to is there before that, and 0.
const volatile int *interrupt_catch(void);
bool interrupt_is_none(const volatile int *answer, struct error *err); // answer NULL: nobody can
