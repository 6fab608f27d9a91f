// generate.h - one call of `speclab generate`: its flags, what they open, and what was decoded.
#pragma once
#include <stdbool.h>

#include "commands/command_line.h"
#include "commands/text_stream.h"
#include "engine/speclab_parts.h"
#include "engine/transcript.h"

struct settings;

struct generate {
    const char *drafter, *rule, *chat, *chat_variables, *system, *ids, *prompts;
    const char *stage[MAX_STAGES]; // values of the sampling stages, in the order of stages[]; NULL: not given
    long long seed, tokens, context, threads, batch;
    int rows; // in a pass; 0: those that suit one slot
    bool ignore_end, json, trace, jsonl;
    struct precision precision;
    int packed; // enum packed_how
    struct flag_texts stop;
    const char *model, *prompt;

    struct settings *drafter_settings, *rule_settings, *sampling_settings;
    struct pairing pairing; // read, not open: the decoder takes it
    struct speclab_target *target;
    struct speclab_decoder *decoder;
    struct speclab_tokens prompt_ids;
    struct printer printer;
    struct transcript transcript;
};

bool generate_open_target(struct generate *g, struct error *err);
// The sampling stages as given; temperature: instead of the one given; NULL: none. NULL: err is set; settings_free() it.
struct settings *generate_sampling(const struct generate *g, const char *temperature, struct error *err);
// --prompts: a JSON line for each prompt, which slots decode together (generate_prompts.c).
bool generate_prompts(struct generate *g, struct error *err);
struct json *generate_settings(const struct generate *g, bool lossless); // all settings, resolved (generate_report.c)
// Prints the object of --json: prompt, tokens, text, steps, times and all settings, resolved (generate_report.c).
void generate_print_json(struct generate *g);
