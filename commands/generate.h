// generate.h - one call of `speclab generate`: its flags, what they open, and what was decoded.
#pragma once
#include <stdbool.h>

#include "commands/command_line.h"
#include "commands/text_stream.h"
#include "commands/transcript.h"
#include "engine/engine.h"

struct json;
struct settings;

struct generate {
    const char *drafter, *rule, *system, *ids, *prompts;
    const char *stage[MAX_STAGES]; // values of the sampling stages, in the order of stages[]; NULL: not given
    long long seed, tokens, context, threads, batch;
    bool ignore_end, json, trace, jsonl;
    struct speclab_target_options options;
    int packed; // 1: the file of packed weights is kept
    struct flag_texts stop;
    const char *model, *prompt;

    struct settings *drafter_settings, *rule_settings, *sampling_settings;
    struct speclab_target *target;
    struct speclab_decoder *decoder; // read before the target is opened
    struct ids prompt_ids;
    struct printer printer;
    struct transcript transcript;
};

// generate_open.c
bool generate_read(struct generate *g, struct error *err); // checks what can be checked before a model is opened
bool generate_open_target(struct generate *g, struct error *err);
bool generate_open(struct generate *g, int slots, int length, struct speclab_listener listener, struct error *err);
struct speclab_request generate_request(const struct generate *g, int64_t sequence, const struct ids *prompt);
struct stop_strings generate_stops(const struct generate *g);
// Returns the sampling stages as the flags give them. What `line`, an object, has under a stage's name takes the place
// of the flag; line NULL: the flags alone. On failure it returns NULL and sets err. The caller calls settings_free().
struct settings *generate_sampling(const struct generate *g, const struct json *line, struct error *err);
struct json *generate_settings(const struct generate *g); // all settings, resolved

// --prompts: a JSON line for each prompt, which slots decode together (generate_prompts.c).
bool generate_prompts(struct generate *g, struct error *err);
