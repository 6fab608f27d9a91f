// interrupt.h - stopping a command by a signal, with complete sequences in its results.
#pragma once
#include <stdbool.h>

struct error;

// Installs a handler for SIGINT and SIGTERM and returns a flag, which is 0 until the first signal sets it to 1. Decoding loops
// check the flag between steps. A second signal has its default action.
const volatile int *interrupt_catch(void);
// Returns false and sets err if *flag is set. flag NULL: always true.
bool interrupt_check(const volatile int *flag, struct error *err);
