// decoded_texts.h - what a target says to a few prompts through one drafter, rule and number of slots.
#pragma once
#include <stdint.h>
#include "decode/decode.h"
#include "tests/support/pairings.h"

enum { SAYING_LENGTH = 640, SAYING_PROMPTS = 144 };

struct prompts_given { // what is asked
    int n;             // prompts
    int length[SAYING_PROMPTS];
    int32_t token[SAYING_PROMPTS][SAYING_LENGTH];
};

struct saying_setup {
    const char *target, *draft; // paths
    const struct prompts_given *prompts;
    const char *drafter, *sampling, *rule;
    const struct stops *stops;
    int slots, limit, length;  // length: of the cache
    pair_device *device;       // NULL: the CPU
    pair_device *draft_device; // NULL: the same
};

struct saying {                       // what became of each prompt
    const struct saying_setup *setup; // borrowed while it is being said
    int n[SAYING_PROMPTS];
    int32_t token[SAYING_PROMPTS][SAYING_LENGTH];
    enum stop_reason why[SAYING_PROMPTS];
    int steps, accepted, drafted, kept;
    uint64_t what_happened[SAYING_PROMPTS]; // a sum of every draft, decision and trial, in order
    int64_t decode_ns;
};

struct saying *say(const struct saying_setup *s); // free() it
// Ends the test where two sayings part.
void same_text(const struct saying *a, const struct saying *b, const struct saying_setup *s);
