// test_threads.c - every job runs exactly once, with the data of its own round, and thread numbers are distinct.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "kernels/cpu/threads.h"
#include "tests/support/tests.h"

enum { MAX_JOBS = 500 };

struct round {
    int number, jobs;
    int *of;  // (MAX_JOBS) the round in which each job ran last
    int *ran; // (MAX_JOBS) how often it ran in this round
    int *by;  // (threads) total jobs of each thread; written without a lock, like the scratch memory of a thread
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

TEST(rounds_of_all_sizes_run_every_job_once)
{
    static int of[MAX_JOBS], ran[MAX_JOBS], by[16 * 5];
    for (int n = 1; n <= 5; n++) {
        struct threads *t = threads_create(n);
        assert_int_equal(threads_count(t), n);
        int all = 0;
        memset(by, 0, sizeof(by));
        for (int number = 1; number <= 4000; number++) {
            int jobs = number % 50 == 0 ? MAX_JOBS : number % 7;
            struct round *r = xcalloc(1, sizeof(*r)); // freed after the round: a late job would fail
            *r = (struct round){ number, jobs, of, ran, by, r };
            memset(ran, 0, sizeof(ran));
            threads_run(t, jobs, job, r);
            for (int i = 0; i < MAX_JOBS; i++)
                assert_int_equal(ran[i], i < jobs);
            for (int i = 0; i < jobs; i++)
                assert_int_equal(of[i], number);
            all += jobs;
            memset(r, 0, sizeof(*r));
            free(r);
            for (volatile int i = 0; number % 400 == 0 && i < 1000000; i++)
                ; // long enough for the other threads to sleep
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

// Waits up to ten seconds for the other jobs: passes only if three threads run at once.
static void meet(void *self, int number, int thread)
{
    _Atomic int *arrived = self;
    atomic_fetch_add(arrived, 1);
    for (int i = 0; i < 10000 && atomic_load(arrived) < 3; i++)
        wait_a_millisecond();
    assert_int_equal(atomic_load(arrived), 3);
}

TEST(sleeping_threads_are_woken)
{
    struct threads *t = threads_create(3);
    for (int round = 0; round < 10; round++) {
        _Atomic int arrived = 0;
        for (int i = 0; i < 20; i++)
            wait_a_millisecond(); // threads spin for some microseconds only
        threads_run(t, 3, meet, &arrived);
    }
    threads_destroy(t);
}

TEST(threads_without_jobs_can_be_destroyed)
{
    for (int i = 0; i < 200; i++)
        threads_destroy(threads_create(4));
    threads_destroy(NULL);
}

RUN_TESTS(NULL, NULL)
