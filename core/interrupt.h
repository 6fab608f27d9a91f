// interrupt.h - stopping a command by a signal, with complete sequences in its results, and its child processes with it.
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct error;

// Installs a handler for SIGINT and SIGTERM and returns a flag, which is 0 until the first signal sets it to 1. Decoding loops
// check the flag between steps. A second signal has its default action.
const volatile int *interrupt_catch(void);
bool interrupt_requested(void); // whether the flag is set
// Returns false and sets err if *flag is set. flag NULL: always true.
bool interrupt_check(const volatile int *flag, struct error *err);

// fork(), with nothing left in the streams that both would write, and a child that is killed when this process ends, however it does. Linux
// says this of the thread that forks: the child of another than the first is not killed, and has to notice that a pipe or socket was closed.
// Returns -1 with errno set on failure.
pid_t process_fork(void);
