// decode_prompts.h - decodes a set of prompts with one target, drafter, rule and number of slots.
#pragma once
#include <stdint.h>
#include "engine/engine.h"
#include "tests/support/pairings.h"

enum { DECODED_LENGTH = 640, DECODED_PROMPTS = 144 };

struct prompt_set {
    int n; // prompts
    int length[DECODED_PROMPTS];
    int32_t token[DECODED_PROMPTS][DECODED_LENGTH];
};

struct decode_setup {
    const char *target, *draft; // paths
    const struct prompt_set *prompts;
    const char *drafter, *sampling, *rule;
    const struct stops *stops;
    int slots, limit, length;  // length: of the cache
    pair_device *device;       // NULL: the CPU
    pair_device *draft_device; // NULL: the same
};

struct decode_result {                // of each prompt
    const struct decode_setup *setup; // borrowed while decoding
    int n[DECODED_PROMPTS];
    int32_t token[DECODED_PROMPTS][DECODED_LENGTH];
    enum speclab_stop why[DECODED_PROMPTS];
    int steps, accepted, drafted, kept;
    uint64_t step_hash[DECODED_PROMPTS]; // FNV-1a of every draft, decision and trial, in order
    int64_t decode_ns;
};

struct decode_result *decode_prompts(const struct decode_setup *s); // free() it
// Fails the test at the first difference between two results.
void assert_same_texts(const struct decode_result *a, const struct decode_result *b, const struct decode_setup *s);
