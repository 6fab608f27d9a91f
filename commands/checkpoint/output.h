// output.h - shared by the commands that write a model: prune, quantize, inflate and make.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct left_out;
struct progress_observer;

// The path without trailing slashes; free() it.
char *output_path(const char *given);

// Progress on a terminal, and the elapsed time.
struct output { // set by output_begin
    bool terminal;
    int64_t began_ns, shown_ns;
};
void output_begin(struct output *m);
struct progress_observer output_observer(struct output *m);
double output_end(struct output *m); // clears the progress line; returns seconds since output_begin

// Prints a line about the tensors of the source that were not written, if there are any.
void output_print_left_out(const struct left_out *t);

// A summary of the written file, from reading it back.
struct output_summary {
    int layers;
    double parameters, bytes; // of all tensors
};
bool output_read_back(const char *path, struct output_summary *to, struct error *err);
