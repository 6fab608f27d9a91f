// tensor_list.c - a dynamic array of tensors that owns their names.
#include "formats/tensor_list.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

struct safetensor *tensor_list_add(struct tensor_list *l, char *name, int file)
{
    array_reserve(l->at, l->capacity, l->n + 1);
    l->at[l->n] = (struct safetensor){ .name = name, .file = file };
    return &l->at[l->n++];
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

void tensor_list_sort(struct tensor_list *l)
{
    if (l->n != 0)
        qsort(l->at, l->n, sizeof(*l->at), by_name);
}

void tensor_list_free(struct tensor_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free((void *)(uintptr_t)l->at[i].name);
    free(l->at);
    *l = (struct tensor_list){ 0 };
}
