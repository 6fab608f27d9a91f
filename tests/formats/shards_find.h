// shards_find.h - a tensor of a checkpoint by its name, and the number of files, for tests.
#pragma once
#include <string.h>
#include "models/formats/shards.h"

static inline const struct safetensor *shards_find(const struct shards *s, const char *name)
{
    size_t i = 0;
    while (i < shards_count(s) && strcmp(shards_at(s, i)->name, name) != 0)
        i++;
    return shards_at(s, i);
}

static inline int shards_files(const struct shards *s)
{
    int n = 0;
    while (shards_file(s, n) != NULL)
        n++;
    return n;
}
