// prompts.h - reads prompt files in published formats.
//
// JSON lines with `turns` (Spec-Bench, MT-bench), `prompt` (HumanEval: its task_id is the id), `question` (GSM8K),
// `messages` (role and content; the last one is the user's) or `input_ids`; optional `question_id` or `id`, `category`.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"

struct error;
struct ids;
struct json;
struct message; // models/tokenizers/chat_template.h
struct speclab_target;

enum { MAX_PROMPTS = 1 << 18, MAX_TURNS = 1 << 6 }; // a sequence number packs both: experiments/pairs/paired_run.c

struct prompt {
    int number;       // position in the file, from 0, independent of limits; the database identifies the prompt by it
    const char *path; // the file; borrowed
    int line;         // the line in the file
    char *id, *category;     // id: the number if the file has none; category NULL: none
    int n_history;           // messages before the first turn, from `messages`: a system message, a few shots
    struct message *history; // contents are owned
    int n_turns;
    char **turn;  // (n_turns) the user's messages; NULL if ids are given
    int32_t *ids; // (n_ids) given token ids: one turn, no chat
    int n_ids;
    bool raw; // a completion (HumanEval): never rendered as a chat
    int n_answers;
    char **answer; // (n_answers) to the first turns; only prompts_read_answered reads them
};

struct prompts {
    char *path;
    struct hash hash; // the hash of the file's bytes
    int n;
    struct prompt *prompt; // (n)
    bool answered;         // each prompt has an answer
};

// Reads a file. per_category: prompts per category, the first ones (0: all); limit: prompts in total (0: all), applied
// after it. Errors name file and line.
bool prompts_read(const char *path, int limit, int per_category, struct prompts *to, struct error *err);
// Reads all prompts with answers: each line has an `answer` (GSM8K; a text, or a list with one for each turn) or a
// `reference` (Spec-Bench).
bool prompts_read_answered(const char *path, struct prompts *to, struct error *err);
// One line's prompt, by its number; n: of the file's line. opening, if not NULL: whether its only message is {"role":
// "user"} without content, which the model is to write; such a prompt has no turns. prompt_free() it.
bool prompt_of_line(const struct json *line, const char *path, int n, int number, bool *opening, struct prompt *to,
                    struct error *err);
void prompt_free(struct prompt *p);
// Puts the prompts in a random order in which every category is spread evenly. Their numbers stay (prompt_order.c).
void prompts_shuffle(struct prompts *p, uint64_t seed);
void prompts_free(struct prompts *p);

// Token ids of a prompt up to and including a turn. answer: (turn) the answers to earlier turns. The messages are
// rendered with the chat template, unless the prompt is a completion or the chat is none. Errors (a text that cannot be
// tokenized, an id outside the vocabulary) name file and line.
bool prompt_token_ids(const struct speclab_target *t, const struct prompt *p, char *const *answer, int turn,
                      struct ids *to, struct error *err);
