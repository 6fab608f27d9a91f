// bench_peer.h - another engine on the same file, in a process of its own, told line by line what to run.
//
// The protocol is in commands/bench/peer_llama.py, which speaks it for llama.cpp; any program may.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct error;
struct peer;

struct peer_plan {
    const char *const *words; // what to run, as execvp takes it
    const char *called;       // in messages
    const char *model;        // path
    int threads, rows, prompt, n_contexts;
    const int *context;
    int n_options;
    const char *const *option; // "KEY=VALUE"
};

// Starts it and waits until it has its model ready.
struct peer *peer_open(const struct peer_plan *p, struct error *err);
void peer_close(struct peer *p); // NULL is fine
const char *peer_name(const struct peer *p);
pid_t peer_group(const struct peer *p); // of its processes
// Nanoseconds that it says it took.
bool peer_pass(struct peer *p, int n, int context, int64_t *ns, struct error *err);
bool peer_prompt(struct peer *p, int64_t *ns, struct error *err);
