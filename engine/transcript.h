// transcript.h - what happened while one text was decoded: taken down step by step, then summed up in a few lines or
// told
// whole as JSON.
//
// Counts are of tokens that are in the text; what a step accepted beyond the text's end does not count. Definitions are
// vLLM's: drafted and accepted leave out the target's own token; acceptance at a position is of the steps that drafted.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "core/draft.h"

struct ending;
struct json;
struct step;

struct transcript {   // start with { 0 }
    bool keep, trace; // keep each step for transcript_json; with its draft
    int32_t *token;   // (n) of the text, once it is done
    int n, prompt;    // prompt: tokens of it
    const char *stop; // why it ended
    int64_t steps, drafts, drafted, accepted;
    int max_depth;
    int64_t accepted_at[MAX_NODES]; // drafts in which more than so many tokens were accepted
    int64_t prefill_ns, propose_ns, verify_ns, advance_ns, decode_ns;
    struct json *step; // an array; owned
};

void transcript_step(struct transcript *t, const struct step *s);
void transcript_done(struct transcript *t, const struct ending *e);
void transcript_free(struct transcript *t);

int transcript_accepted(const struct step *s); // draft tokens of the step that are in the text
void transcript_print(const struct transcript *t, FILE *to);
void transcript_json(struct transcript *t, struct json *object); // adds new_ids, stop, steps, times to the object
