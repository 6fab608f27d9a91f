// decoded_texts.h - what a target says to a few prompts through one drafter, rule and number of slots.
#pragma once
#include <stdint.h>
#include "decode/decode.h"
#include "tests/support/pairings.h"

enum { DECODED_LENGTH = 640, DECODED_PROMPTS = 144 };

struct prompts_given { // what is asked
    int n;             // prompts
    int length[DECODED_PROMPTS];
    int32_t token[DECODED_PROMPTS][DECODED_LENGTH];
};

struct decoded_texts_setup {
    const char *target, *draft; // paths
    const struct prompts_given *prompts;
    const char *drafter, *sampling, *rule;
    const struct stops *stops;
    int slots, limit, length;  // length: of the cache
    pair_device *device;       // NULL: the CPU
    pair_device *draft_device; // NULL: the same
};

struct decoded_texts {                       // what became of each prompt
    const struct decoded_texts_setup *setup; // borrowed while it is being said
    int n[DECODED_PROMPTS];
    int32_t token[DECODED_PROMPTS][DECODED_LENGTH];
    enum stop_reason why[DECODED_PROMPTS];
    int steps, accepted, drafted, kept;
    uint64_t what_happened[DECODED_PROMPTS]; // a sum of every draft, decision and trial, in order
    int64_t decode_ns;
};

struct decoded_texts *say(const struct decoded_texts_setup *s); // free() it
// Ends the test where two sayings part.
void same_text(const struct decoded_texts *a, const struct decoded_texts *b, const struct decoded_texts_setup *s);
