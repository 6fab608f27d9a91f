// distill.h - `speclab distill`: a target writes training text for its own drafters.
//
// Conversations are decoded in slots that are refilled as texts end, each sequence with its own temperature. Randomness is addressed
// by the conversation's number, turn and position, so a line of the output depends on neither slots nor order. An invented user's turn
// repeats an earlier one if a conversation of a lower number has it; a line waits until all lower ones are known.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "commands/command_line.h"
#include "commands/distill/exclude.h"
#include "commands/distill/output.h"
#include "commands/distill/plan.h"
#include "engine/engine.h"
#include "sampling/sampling.h"

enum { MAX_TEMPERATURES = 16, MIN_WORDS = 3 };

struct distill {
    // as given
    const char *model, *chat_name, *temperatures, *out;
    long long invent, samples, tokens, new_tokens, context, seed, threads, slots;
    struct flag_texts prompts, exclude;
    struct precision precision;
    int packed; // enum packed_how

    // what they open
    struct plan plan;
    struct exclusions exclusions;
    struct sampling sampling[MAX_TEMPERATURES]; // of the answers
    double temperature[MAX_TEMPERATURES];
    struct sampling invention; // of invented user's turns: temperature 1
    struct target target;
    struct chat_format chat;
    struct json *chat_variables;
    struct pairing pairing;
    struct output output;

    // first conversation that has these texts
    struct hash_map invented; // the user's words -> index of the invented conversation; -1: a given prompt
    struct hash_map greedy;   // all messages of a given prompt that is answered at temperature 0 -> its index

    // of this run
    int64_t written, cut, answer_tokens, decoded; // conversations; those cut by the limit; tokens; with invented turns
    int64_t shortened;                            // conversations without all turns of their prompts
    double seconds;
};

// Notes the user's first message of a conversation that is in the files: the callback of output_open. self: struct distill.
void distill_note(void *self, const char *id, const char *user);
// Notes the given prompts, which no invented turn may repeat.
void distill_note_prompts(struct distill *d);
// Writes the conversations of the plan that are missing. stop: as in interrupt_check.
bool distill_run(struct distill *d, const volatile int *stop, struct error *err);
