// environment.h - where the texts of a run are decoded: processor or GPU, instruction set, threads, revision.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct error;
struct store;

struct environment {
    const char *processor;  // "AMD EPYC 7B13"
    const char *arithmetic; // "avx2, 2 threads", or a GPU
    const char *revision;   // of speclab
    // Probes: memory reads of all threads and of one, bytes a second; a cache line's round trip, ns; MHz. 0 or NAN: not measured
    double read, read_one, round_trip, mhz;
};

// Call before anything of the run is decoded. Fails, unless `mix`, if the run has texts of another arithmetic or revision: bits
// may differ. *changed: a sentence that describes the change, for the caller to free(); NULL: no change, or no texts yet.
bool store_environment(struct store *s, int64_t run, const struct environment *e, bool mix, char **changed,
                       struct error *err);
// Adds the environment of the run's next text, which belongs to `pair`, to table environment unless it equals the run's last one,
// and updates run.machine and run.revision. store_sequence calls it, so every stored environment has a text, which refers to it.
bool store_add_environment(struct store *s, int64_t run, int64_t pair, const struct environment *e, struct error *err);
