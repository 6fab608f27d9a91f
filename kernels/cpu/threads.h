// threads.h - a thread pool that runs numbered jobs, with work stealing.
//
// Work is divided into more jobs than threads. Each thread has a range of consecutive jobs and takes jobs of other
// threads when its own are done: a thread that is preempted delays one job, not the pass. Idle threads spin for some
// microseconds and then sleep.
#pragma once

struct threads;

struct threads *threads_create(int n); // n: number of threads, the caller's included
// Adds an owner of the pool, which ends when every owner has called threads_destroy. Returns t.
struct threads *threads_share(struct threads *t);
void threads_destroy(struct threads *t);
int threads_count(const struct threads *t);
int threads_available(void); // number of processors this process may use

// Returns the first of `jobs` jobs in a thread's range. The range ends where the next thread's begins.
int threads_first(const struct threads *t, int jobs, int thread);
// Calls job(self, number, thread) for each number 0 .. jobs - 1, in any order, and returns when all are done. thread: 0
// .. n - 1 (the caller is 0), for per-thread scratch memory. It must not be called from a job, or from two threads at
// once.
void threads_run(struct threads *t, int jobs, void (*job)(void *self, int number, int thread), void *self);
