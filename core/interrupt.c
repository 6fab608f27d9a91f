#include "core/interrupt.h"

#include <signal.h>
#include <stddef.h>

#include "core/error.h"

// sig_atomic_t is an int here, and those who look take one.
static volatile int stop;

static void ask_to_stop(int signal_number)
{
    stop = 1;
    signal(signal_number, SIG_DFL);
}

const volatile int *interrupt_catch(void)
{
    struct sigaction a = { .sa_handler = ask_to_stop };
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    return &stop;
}

bool interrupt_is_none(const volatile int *answer, struct error *err)
{
    return answer == NULL || *answer == 0 || fail(err, "interrupted");
}
