// names.h - an unknown name in a call or a file: what the person who wrote it may have meant.
#pragma once

struct text;

// Where a name stands. A name of another program is looked up for its place.
enum name_place {
    NAME_COMMAND = 1, // speclab NAME
    NAME_FLAG,        // --NAME
    NAME_KEY,         // a key of an experiment's file
    NAME_OPTION,      // an option of a drafter or a rule
    NAME_STAGE,       // a sampling stage
    NAME_KIND,        // a drafter or a rule
};

// The entry of a NULL-terminated list closest to `word` by Damerau-Levenshtein distance, in which - and _ are equal;
// NULL: none is close.
const char *name_nearest(const char *word, const char *const *names);

// Appends what the unknown name may mean: "; vLLM's num_speculative_tokens is tokens here" if another program calls one
// of `names` so, "; did you mean tokens?" if one of them is close, and nothing if neither is.
void name_hint(struct text *to, enum name_place place, const char *word, const char *const *names);
