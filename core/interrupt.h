// interrupt.h - stops a command on a signal, with complete sequences in its
// results, and ends its child processes with it.
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct error;

// Installs a handler for SIGINT and SIGTERM and returns a flag. The flag is 0 until the first signal sets it to 1.
// Decoding loops check it between steps. A second signal has its default action.
const volatile int *interrupt_catch(void);
// Sets a function that the handler calls as well. It is one that a signal may interrupt at any place: Python's, so that
// Ctrl-C ends a plugin that never returns. Default: NULL, none.
void speclab_interrupt_also(void (*call)(void));
// Does the same if there is such a function, so that a plugin that never returns can be named. Otherwise a signal keeps
// its default action. Returns NULL then.
const volatile int *interrupt_catch_in_plugins(void);
bool interrupt_requested(void); // returns whether the flag is set
// The exit status after the signal: 128 and its number, as a shell has it (130 after Ctrl-C); 0: there was none.
int interrupt_status(void);
// Returns false and sets err if *flag is set. If flag is NULL, returns true.
bool interrupt_check(const volatile int *flag, struct error *err);

// Forks after emptying the streams that both processes would write. The child is killed when this process ends, however
// it ends. Linux ties that to the thread that forks: if it is not the first one, the child is not killed and has to
// notice that a pipe or socket was closed. Returns -1 with errno set on failure.
pid_t process_fork(void);
