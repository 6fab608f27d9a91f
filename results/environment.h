// environment.h - under what the texts of a run are decoded: kind of processor or GPU, instruction set, threads, revision.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct error;
struct store;

struct environment {
    const char *processor;  // "AMD EPYC 7B13"
    const char *arithmetic; // "avx2, 2 threads", or a GPU
    const char *revision;   // of speclab
};

// To be called before anything of the run is decoded. Notes the environment if it is not the run's last one (results/
// schema_environment.sql), and the run's row then names it. A run that has texts of another arithmetic or revision, whose bits may
// differ, is an error unless `mix`. *changed: what is other than before, as a sentence; NULL: nothing, or there are no texts yet;
// free() it.
bool store_environment(struct store *s, int64_t run, const struct environment *e, bool mix, char **changed,
                       struct error *err);
