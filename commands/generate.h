// generate.h - one call of `speclab generate`: its flags, what they open, and what was decoded.
#pragma once
#include <stdbool.h>

#include "commands/command_line.h"
#include "commands/text_stream.h"
#include "engine/engine.h"
#include "engine/transcript.h"

struct json;
struct settings;

struct generate {
    const char *drafter, *rule, *chat_name, *chat_variables, *system, *ids, *prompts;
    const char *stage[MAX_STAGES]; // values of the sampling stages, in the order of stages[]; NULL: not given
    long long seed, tokens, context, threads, batch;
    bool ignore_end, json, trace, jsonl;
    struct precision precision;
    int packed; // enum packed_how
    struct flag_texts stop;
    const char *model, *prompt;
    struct json *variables; // for the chat template

    struct settings *drafter_settings, *rule_settings, *sampling_settings;
    struct pairing pairing;
    struct target target;
    struct chat_format chat; // kind CHAT_NONE if there is no_chat
    struct error no_chat;    // why conversations have no template; empty: they have one, or need none
    struct text_ends ends;
    struct decoder *decoder;
    struct ids prompt_ids;
    struct printer printer;
    struct transcript transcript;
};

bool generate_open_target(struct generate *g, struct error *err);
bool generate_has_chat(const struct generate *g, struct error *err); // whether conversations can be encoded
// Opens the pairing and its decoder.
bool generate_open(struct generate *g, int slots, int length, struct listener listener, struct error *err);
// Returns the sampling stages as the flags give them. What `line`, an object, has under a stage's name takes the place of
// the flag; line NULL: the flags alone. On failure it returns NULL and sets err. The caller calls settings_free().
struct settings *generate_sampling(const struct generate *g, const struct json *line, struct error *err);
// --prompts: a JSON line for each prompt, which slots decode together (generate_prompts.c).
bool generate_prompts(struct generate *g, struct error *err);
struct json *generate_settings(const struct generate *g); // all settings, resolved
