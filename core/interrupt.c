#include "core/interrupt.h"

#include <signal.h>
#include <stddef.h>

#include "core/error.h"

// sig_atomic_t is an int on this platform, and callers read an int.
static volatile int stop;

static void set_stop(int signal_number)
{
    stop = 1;
    signal(signal_number, SIG_DFL);
}

const volatile int *interrupt_catch(void)
{
    struct sigaction a = { .sa_handler = set_stop };
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    return &stop;
}

bool interrupt_check(const volatile int *flag, struct error *err)
{
    return flag == NULL || *flag == 0 || fail(err, "interrupted");
}
