// labels.h - short names of drafters: kind(option=value, ..) without what all drafters of the kind have in common.
#pragma once
#include <stdbool.h>

// The drafter without the options that are named (a list that ends with NULL).
char *drafter_without(const char *drafter, const char *const *names);
// "eagle3 tokens=3": without the options that all of others (n) of this kind have, itself among them; paths without folders.
char *drafter_label(const char *drafter, const char *const *others, int n);
