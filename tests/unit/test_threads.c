// test_threads.c - every job runs once, with the numbers of its own round, on a thread of its own number.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "kernels/cpu/threads.h"
#include "tests/support/check.h"

enum { MOST = 500 };

struct round {
    int number, jobs;
    int *of;  // (MOST) the round in which each job ran last
    int *ran; // (MOST) how often in this round
    int *by;  // (threads) jobs of each thread in all; written without a lock, as a thread's scratch memory is
    const struct round *now;
};

static void job(void *self, int number, int thread)
{
    struct round *r = self;
    assert_ptr_equal(r->now, r);
    r->of[number] = r->number;
    r->ran[number]++;
    r->by[16 * thread]++;
    for (volatile int i = 0; i < (number * 37 + r->number) % 120; i++)
        ;
}

static void rounds_of_all_sizes_run_every_job_once(void **unused)
{
    (void)unused;
    static int of[MOST], ran[MOST], by[16 * 5];
    for (int n = 1; n <= 5; n++) {
        struct threads *t = threads_create(n);
        assert_int_equal(threads_count(t), n);
        int all = 0;
        memset(by, 0, sizeof(by));
        for (int number = 1; number <= 4000; number++) {
            int jobs = number % 50 == 0 ? MOST : number % 7;
            struct round *r = xcalloc(1, sizeof(*r)); // gone after the round: whoever comes late finds nothing
            *r = (struct round){ number, jobs, of, ran, by, r };
            memset(ran, 0, sizeof(ran));
            threads_run(t, jobs, job, r);
            for (int i = 0; i < MOST; i++)
                assert_int_equal(ran[i], i < jobs);
            for (int i = 0; i < jobs; i++)
                assert_int_equal(of[i], number);
            all += jobs;
            memset(r, 0, sizeof(*r));
            free(r);
            for (volatile int i = 0; number % 400 == 0 && i < 1000000; i++)
                ; // long enough for the others to fall asleep
        }
        for (int i = 0; i < n; i++)
            all -= by[16 * i];
        assert_int_equal(all, 0);
        threads_destroy(t);
    }
}

static void wait_a_millisecond(void)
{
    nanosleep(&(const struct timespec){ 0, 1000000 }, NULL);
}

// Waits for the others, ten seconds at most: one thread alone cannot do it.
static void meet(void *self, int number, int thread)
{
    (void)number, (void)thread;
    _Atomic int *here = self;
    atomic_fetch_add(here, 1);
    for (int i = 0; i < 10000 && atomic_load(here) < 3; i++)
        wait_a_millisecond();
    assert_int_equal(atomic_load(here), 3);
}

static void threads_that_fell_asleep_are_woken(void **unused)
{
    (void)unused;
    struct threads *t = threads_create(3);
    for (int round = 0; round < 10; round++) {
        _Atomic int here = 0;
        for (int i = 0; i < 20; i++)
            wait_a_millisecond(); // they spin for some microseconds only
        threads_run(t, 3, meet, &here);
    }
    threads_destroy(t);
}

static void threads_that_never_worked_end_too(void **unused)
{
    (void)unused;
    for (int i = 0; i < 200; i++)
        threads_destroy(threads_create(4));
    threads_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_of_all_sizes_run_every_job_once),
        cmocka_unit_test(threads_that_fell_asleep_are_woken),
        cmocka_unit_test(threads_that_never_worked_end_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
