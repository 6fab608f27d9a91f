// progress.h - how far an experiment has come: a bar on a terminal, now and then a line elsewhere.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress { // filled by progress_begin
    FILE *to;     // NULL: nothing is shown
    bool terminal, colour, drawn;
    int64_t total, seen, ran; // conversations: to do, there already or done, done just now
    int64_t tokens;           // of turns done just now
    int64_t began_ns, shown_ns;
};

void progress_begin(struct progress *p, FILE *to, int64_t total);
void progress_end(struct progress *p);             // takes the bar away
void progress_skip(struct progress *p, int64_t n); // so many were there already
void progress_did(struct progress *p, int64_t n);
// Shows it if it is time to: at most ten times a second on a terminal, every ten seconds elsewhere.
void progress_tick(struct progress *p, const char *what);
// a line that stays
void progress_line(struct progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void progress_time(int64_t ns, char *to, int n); // "45 s", "12 min", "3 h 20 min"
