// output.h - what the commands that write a model have in common: prune, quantize and inflate.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct step_observer;

// Without slashes at its end, which a new directory may be given and a file has not; free() it.
char *making_path(const char *given);

// How far it has come, on a terminal; and how long it took.
struct output { // filled by making_begin
    bool terminal;
    int64_t began_ns, shown_ns;
};
void making_begin(struct output *m);
struct step_observer output_observer(struct output *m);
double making_end(struct output *m); // takes what was shown away; seconds since the beginning

// What was written, read back: a sentence is about the file, not about what was meant.
struct made {
    int layers;
    double parameters, bytes; // of all tensors
};
bool making_look(const char *path, struct made *to, struct error *err);
