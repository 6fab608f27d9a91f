// plan.h - which conversations `speclab distill` writes, and in which order. A pure function of its inputs.
//
// There are two kinds: answers to given prompts (each prompt `samples` times), and conversations that the target invents. They
// alternate in proportion, so that every prefix of the plan is the same mixture; all prompts come once before any comes again.
// Temperatures rotate within each kind, and over the samples of a prompt.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "engine/prompts.h"

enum { PLAN_FILES = 16, PLAN_ID = 64 };

struct plan {
    struct prompts file[PLAN_FILES]; // owned
    int files, samples, temperatures;
    int64_t invented;
};

struct planned {                 // a conversation
    const struct prompt *prompt; // NULL: invented
    int64_t number; // of the conversation, whatever the other kind has: selects random numbers. Below PLAN_NUMBERS
    int64_t index;  // within its kind
    int temperature;
    char id[PLAN_ID]; // HASH-NUMBER-SAMPLE, with the beginning of the file's hash, or invented-NUMBER
};

enum { PLAN_NUMBERS = 1 << 25 }; // a sequence number has 32 bits: conversation, turn (MAX_TURNS), and whose turn it is

int64_t plan_given(const struct plan *p);
int64_t plan_size(const struct plan *p);
struct planned plan_at(const struct plan *p, int64_t position); // 0 .. plan_size - 1
int64_t plan_invented_number(const char *id);                   // index of an invented conversation; -1: a given one
void plan_free(struct plan *p);
