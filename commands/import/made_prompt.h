// made_prompt.h - one entry of a dataset as a line of a prompt file (engine/prompts.h).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"
#include "core/memory.h"

struct dataset;
struct entries;
struct error;
struct json;
struct prompt_template;

struct prompt_choice { // which entries become prompts, and how
    const struct dataset *dataset;
    const struct prompt_template *template; // NULL: the dataset's own file
    const char *template_name;              // the template's, or the file's
    struct json *template_by_category;      // of that file: texts by category, ..
    struct text template_text;              // .. or one text for all
    bool answers;                           // keep reference answers
    int turns;                              // the first ones of a conversation; 0: all
    int64_t least, most;                    // characters of all turns; 0: no bound
    const char *split;                      // NULL: any
    const char *const *category;            // (categories) only these; none: any
    int categories;
};

// Reads the template that --template names: one of the dataset's, or a file of its own ones.
bool prompt_choice_template(struct prompt_choice *c, const char *name, struct error *err);
void prompt_choice_free(struct prompt_choice *c);

enum drop { // why an entry is no prompt
    DROP_NOT,
    DROP_OTHER_CATEGORY, // not chosen
    DROP_OTHER_SPLIT,
    DROP_SHORT,
    DROP_LONG,
    DROP_EMPTY, // from here on: entries of collected datasets that cannot be used
    DROP_SYSTEM,
    DROP_ROLE,
    DROP_ORDER,
    DROP_TURNS,
    DROP_NO_ANSWER,
    DROP_REPEATED,
    DROPS
};
extern const char *const drop_reasons[DROPS];

struct made_prompt {
    enum drop drop; // if not DROP_NOT, the rest is empty
    char *line;     // a JSON object with id, category, turns
    char *category;
    struct hash id, text;
};

// number: of the entry, over all files. False: the entry is not as the dataset's are; err names the place.
bool made_prompt_of(const struct prompt_choice *c, const struct entries *e, int64_t number, struct made_prompt *to,
                    struct error *err);
void made_prompt_free(struct made_prompt *p);
