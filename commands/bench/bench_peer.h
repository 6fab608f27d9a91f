// bench_peer.h - another engine, in a child process, that runs the same measurements on the same model file.
//
// commands/bench/peer_llama.py documents the line protocol and implements it for llama.cpp, peer_ik.c for ik_llama.cpp; any
// program can.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct error;
struct peer;

struct peer_plan {
    const char *const *words; // program and arguments, as for execvp
    const char *label;        // its name in messages
    const char *model;        // path
    int threads, rows, prompt, n_contexts;
    const int *context;
    int n_slots; // 0: one slot; passes of several are announced only if there are any
    const int *slots;
    int n_options;
    const char *const *option; // "KEY=VALUE"
};

// Starts the process and waits until its model is loaded.
struct peer *peer_open(const struct peer_plan *p, struct error *err);
void peer_close(struct peer *p); // NULL is fine
const char *peer_name(const struct peer *p);
pid_t peer_group(const struct peer *p); // process group
// Set *ns to the time that the peer reports. n, context: rows and cached tokens of each slot.
bool peer_pass(struct peer *p, int slots, int n, int context, int64_t *ns, struct error *err);
bool peer_prompt(struct peer *p, int64_t *ns, struct error *err);
