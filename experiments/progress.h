// progress.h - progress of an experiment: a bar on a terminal, a line every ten seconds elsewhere.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress { // filled by progress_begin
    FILE *to;     // NULL: no output
    FILE *log;    // gets each line that stays and one every minute, with their times; NULL: none
    bool terminal, colour, drawn;
    int64_t total, seen, ran; // numbers of conversations: all; stored or done; done by this process
    int64_t tokens;           // number of tokens that this process decoded
    int64_t began_ns, shown_ns, logged_ns;
};

void progress_begin(struct progress *p, FILE *to, FILE *log, int64_t total);
void progress_end(struct progress *p);             // removes the bar
void progress_skip(struct progress *p, int64_t n); // n conversations are already stored
void progress_done(struct progress *p, int64_t n);
// Updates the output if it is due: at most ten times a second on a terminal, every ten seconds elsewhere.
void progress_tick(struct progress *p, const char *what);
// Prints a line that remains.
void progress_line(struct progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void progress_time(int64_t ns, char *to, int n); // "45 s", "12 min", "3 h 20 min"
