// threads.h - a few threads that share out jobs by number.
//
// Work is cut finer than the threads are many. Each thread has a run of pieces, and whoever is through with his takes
// others': a thread that a busy neighbour keeps off its processor holds up one piece, not the pass. Idle threads spin for
// some microseconds and then sleep.
#pragma once

struct threads;

struct threads *threads_create(int n); // n in all, the caller's included
void threads_destroy(struct threads *t);
int threads_count(const struct threads *t);
int threads_available(void); // processors this process may use

// Where thread's run of so many jobs begins; the next one's is its end.
int threads_first(const struct threads *t, int jobs, int thread);
// Calls job(self, number, thread) for each number 0 .. jobs - 1, in any order; returns when all are done. thread: 0 ..
// n - 1, the caller is 0; for scratch memory. Not to be called from within a job, or from two threads at once.
void threads_run(struct threads *t, int jobs, void (*job)(void *self, int number, int thread), void *self);
