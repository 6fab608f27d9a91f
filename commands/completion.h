// completion.h - `speclab completion bash|zsh`: prints a script that completes words, options and their values, made
// from the tables of options.
#pragma once

struct word { // a word behind `speclab`; a list ends with { 0 }
    const char *name;
    int (*function)(int argc, char **argv); // the command; NULL: one of the Python package, which its --help describes
    const char *option;                     // not NULL: not the word, but one option of it that the Python package has
};

int command_completion(const struct word *words, int argc, char **argv);
