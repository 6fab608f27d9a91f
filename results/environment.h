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

// To be called before anything of the run is decoded. A run that has texts of another arithmetic or revision, whose bits may
// differ, is an error unless `mix`. *changed: what is other than before, as a sentence; NULL: nothing, or there are no texts yet;
// free() it.
bool store_environment(struct store *s, int64_t run, const struct environment *e, bool mix, char **changed,
                       struct error *err);
// Notes the environment of the run's next text, which is of that pair, if it is not the run's last one (results/
// schema_environment.sql); the run's row then names it. store_sequence calls it, so that no environment is noted which brought
// no text.
bool store_note_environment(struct store *s, int64_t run, int64_t pair, const struct environment *e, struct error *err);
