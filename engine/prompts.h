// prompts.h - what is to be decoded: files of prompts as the field publishes them.
//
// JSON lines with `turns` (Spec-Bench, MT-bench), `prompt` (HumanEval: its task_id is the id), `question` (GSM8K),
// `messages` (role and content; the last one is the user's) or `input_ids`; optional `question_id` or `id`, `category`.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"

struct error;

enum { MAX_PROMPTS = 1 << 18, MAX_TURNS = 1 << 6 }; // a decode's number packs both: experiments/paired_run.c

struct prompt {
    int number;          // in the file's order, from 0, whatever limits left out: its name in the database
    const char *path;    // of the file, which has it; borrowed
    int line;            // of the file
    char *id, *category; // id: the number, where the file has none; category NULL: the file has none
    char *system;        // from messages; NULL
    int n_history;       // messages before the first turn (few-shot, from `messages`): role, content
    char **history_role, **history_content;
    int n_turns;
    char **turn;  // (n_turns) what the user says; NULL when ids are given
    int32_t *ids; // (n_ids) given token ids: one turn, no chat
    int n_ids;
    bool raw; // a completion (HumanEval): never put into a chat
    int n_answers;
    char **answer; // (n_answers) to the first turns; only prompts_read_answered looks for them
};

struct prompts {
    char *path;
    struct hash hash; // of the file's bytes
    int n;
    struct prompt *prompt; // (n)
    bool answered;         // each has an answer
};

// limit 0: all. per_category: the first so many of each category (0: all), applied before limit. An error names file
// and line.
bool prompts_read(const char *path, int limit, int per_category, struct prompts *to, struct error *err);
// All of them, with answers: each line has an `answer` (GSM8K; a text, or a list of one for each turn) or a `reference`
// (Spec-Bench).
bool prompts_read_answered(const char *path, struct prompts *to, struct error *err);
void prompts_free(struct prompts *p);
