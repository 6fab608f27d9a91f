// datasets.h - the datasets that `speclab import` knows: what their entries have, and how a prompt is made of one.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct error;
struct json;

enum shape {
    SHAPE_TEXT,     // one turn, from the template
    SHAPE_TURNS,    // a list of the user's turns
    SHAPE_MESSAGES, // a conversation: a list of messages with `from` and `value`, or one instruction
};

struct prompt_template {
    const char *name;
    // {key} stands for the text of a field, {a|b} for the first of them that the entry has, {key[]} for
    // a list's texts, each on a line.
    // NULL: what the entry has, as it is.
    const char *text;
    const char *without; // instead, if the field `input` is missing or empty; NULL: there is no such case
    const char *source;  // who uses it
    bool completion;     // code to continue, which no chat template renders (engine/prompts.h)
};

enum { MAX_TEMPLATES = 3 };

// Keys are separated by spaces; a|b: one of them.
struct dataset {
    const char *name, *what, *from, *licence;
    const char *keys;     // that every entry has; they tell a dataset's file from another's
    const char *id;       // NULL: an entry's number after the dataset's name
    const char *category; // the dataset's name, if an entry has none
    const char *answer;   // the reference answer; of SHAPE_MESSAGES the other side's messages
    enum shape shape;
    const char *turns;             // key of SHAPE_TURNS
    const char *const *categories; // all that there are, then NULL; NULL: any
    bool numbered;                 // its ids are bare numbers: the dataset's name goes before them
    bool collected; // gathered from the web or by a model: entries without a usable prompt are left out and counted
    const char *template_file;                      // --template FILE: where the dataset's own templates are published
    struct prompt_template template[MAX_TEMPLATES]; // the first is the default, unless template_file is given
};

extern const struct dataset datasets[]; // ends with a name of NULL

const struct dataset *dataset_find(const char *name);                                   // NULL: unknown
const struct dataset *dataset_nearest(const char *name);                                // NULL: none is close
const char *dataset_names(void);                                                        // "spec-bench, mt-bench, .."
const struct prompt_template *template_find(const struct dataset *d, const char *name); // NULL: the dataset has none
void datasets_list(FILE *to);                                                           // what each is, for people

// The field at the first of the keys a|b that is not null; NULL: none. *key (n): its name, or the first one's.
const struct json *entry_field(const struct json *entry, const char *keys, const char **key, int *n);
// Whether entries like this are d's: all its keys are there, and no other dataset has more keys that are. If not, err is
// "KEY: expected .., found ..; this looks like NAME (KEYS)".
bool dataset_fits(const struct dataset *d, const struct json *entry, struct error *err);

// The split that an MBPP task belongs to; NULL: none.
const char *mbpp_split(int64_t task_id);
