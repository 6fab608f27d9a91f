// workers.h - runs numbered jobs on the host threads of a device, or on the calling thread alone.
#pragma once
#include <stddef.h>

struct workers { // { 0 }: the calling thread alone
    // Calls job(of, number) for each number 0 .. jobs - 1, in any order and concurrently, and returns when all are
    // done. A job must not call it.
    void (*run)(void *self, int jobs, void (*job)(void *of, int number), void *of);
    void *self;
};

static inline void workers_run(struct workers w, int jobs, void (*job)(void *of, int number), void *of)
{
    if (w.run != NULL && jobs > 1) {
        w.run(w.self, jobs, job, of);
        return;
    }
    for (int i = 0; i < jobs; i++)
        job(of, i);
}
