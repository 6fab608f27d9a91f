#include "core/interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/error.h"

// sig_atomic_t is an int on this platform, and callers read an int.
static volatile int stop, number; // number: of the first signal

static void (*also)(void);

void speclab_interrupt_also(void (*call)(void))
{
    also = call;
}

static void set_stop(int signal_number)
{
    stop = 1;
    number = signal_number;
    if (also != NULL)
        also();
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

const volatile int *interrupt_catch_in_plugins(void)
{
    return also != NULL ? interrupt_catch() : NULL;
}

bool interrupt_requested(void)
{
    return stop != 0;
}

int interrupt_status(void)
{
    return stop != 0 ? 128 + number : 0;
}

bool interrupt_check(const volatile int *flag, struct error *err)
{
    return flag == NULL || *flag == 0 || fail(err, "interrupted");
}

pid_t process_fork(void)
{
    const pid_t parent = getpid();
    const bool first_thread = gettid() == parent;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0 && first_thread) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) // the parent has already ended
            _exit(127);
    }
    return child;
}
