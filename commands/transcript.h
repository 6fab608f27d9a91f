// transcript.h - records the steps of one decoded text, for a summary of a few lines or a full JSON object.
//
// Only tokens in the text count, not those accepted beyond its end. Definitions are vLLM's: drafted and accepted
// exclude the target's own token; acceptance at a position is over steps with a draft.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "core/draft.h"

struct json;
struct speclab_end;
struct speclab_step;

struct transcript {   // initialize with { 0 }
    bool keep, trace; // keep: keep each step for transcript_json; trace: with its draft
    int32_t *token;   // (n) tokens of the text, set at its end
    int n, prompt;    // prompt: its number of tokens
    const char *stop; // stop reason
    int64_t steps, drafts, drafted, accepted;
    int max_depth;
    int64_t accepted_at[MAX_NODES]; // [i]: number of drafts with more than i accepted tokens
    int64_t prefill_ns, propose_ns, verify_ns, advance_ns, decode_ns;
    struct json *step; // an array; owned
};

void transcript_step(struct transcript *t, const struct speclab_step *s);
void transcript_done(struct transcript *t, const struct speclab_end *e);
void transcript_free(struct transcript *t);

void transcript_print(const struct transcript *t, FILE *to);
void transcript_json(struct transcript *t, struct json *object); // adds new_ids, stop, steps, times to the object
