// plugin.h - drafters, rules and sampling stages from outside the tree: `--plugin FILE`. What a plugin registers has a
// name, which is everywhere a name: YAML, --drafter, --rule, `list`, `exact --rules`, the database.
//
// A plugin in C is a shared library, `cc -shared -fPIC -I INCLUDE idea.c -o idea.so`, whose source defines one
// function:
//
//     #include "engine/plugin.h"
//     ...                                          // a struct drafter_type, as drafters/ngram.c has one
//     SPECLAB_PLUGIN(err)
//     {
//         return speclab_register_drafter(&idea_drafter, err);
//     }
//
// The functions that it calls (draft_add, options_read, ..) are the program's. A plugin in Python is a file idea.py
// (docs/python.md), which a program loads that runs in Python. The bytes of the file are in the hash of each cell that
// uses something of it.
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus // C++17: the system's headers that the following include come before
extern "C" {
#endif
#include "core/draft.h"
#include "core/error.h"
#include "drafters/drafter.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

// Sizes of the structs that a plugin shares with the program: a plugin that was compiled with other headers is refused.
enum { PLUGIN_SIZES = 12 };
#define PLUGIN_LAYOUT \
    { \
        sizeof(struct drafter_type), sizeof(struct drafter), sizeof(struct drafter_env), sizeof(struct rule), \
            sizeof(struct verification), sizeof(struct stage), sizeof(struct request), sizeof(struct draft), \
            sizeof(struct advance), sizeof(struct rng), sizeof(struct option), sizeof(struct error) \
    }

extern const size_t speclab_plugin_layout[PLUGIN_SIZES];
bool speclab_plugin(struct error *err); // registers what the plugin has; false, with err set, if something is refused
#define SPECLAB_PLUGIN(err) \
    const size_t speclab_plugin_layout[PLUGIN_SIZES] = PLUGIN_LAYOUT; \
    bool speclab_plugin(struct error *err)

// Loads FILE.so, or FILE.py where the program runs in Python; a file that was loaded already has no effect. Returns
// false and sets err on failure.
bool plugin_load(const char *file, struct error *err);
// Loads the file of every `--plugin FILE` or `--plugin=FILE` before `--`, and takes these words out of argv.
bool plugins_take(int *argc, char **argv, struct error *err);

// Python loads a plugin by this function, which writes a sentence to why (size) and returns false on failure. NULL:
// there is no Python in the process.
void speclab_python_plugins(bool (*load)(const char *file, char *why, size_t size));
// Called with the file of a plugin in Python before loading it fails, as there is no Python in the process: it may
// start the program anew where there is. NULL: nothing is called.
void plugins_without_python(void (*begin_anew)(const char *file));

#ifdef __cplusplus
}
#endif
