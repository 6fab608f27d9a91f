// inspect_texts.h - `speclab inspect MODEL [FILE.jsonl]` with --tokenize, --detokenize (inspect_tokens.c) or --score
// (inspect_scores.c): what the model makes of given texts, a line of JSON for each.
#pragma once
#include <stdbool.h>

#include "engine/engine.h"

struct json;

struct inspect_texts {
    const char *model, *path; // path NULL: stdin
    const char *chat;         // the chat format; NULL: the model's own
    struct json *variables;   // variables of its template
    bool plain;               // special tokens are ordinary text
    bool answers, layers;     // options of --score: only answers to prompts; sets of layers
    long long positions, context;
    long long threads;
    struct speclab_target_options options; // device, activations and cache
    int packed;                            // 1: the file of packed weights is kept
};
bool inspect_tokens(const struct inspect_texts *o,
                    struct error *err); // {"text"} or {"messages"} lines to {"ids"} lines
bool inspect_detokens(const struct inspect_texts *o, struct error *err); // {"ids"} lines to {"text"} lines
bool inspect_scores(const struct inspect_texts *o,
                    struct error *err); // log-probabilities of {"text"}, {"ids"} or answers
