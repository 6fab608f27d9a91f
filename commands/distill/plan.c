#include "commands/distill/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t prompts_of(const struct plan *p)
{
    int64_t n = 0;
    for (int f = 0; f < p->files; f++)
        n += p->file[f].n;
    return n;
}

int64_t plan_given(const struct plan *p)
{
    return prompts_of(p) * p->samples;
}

int64_t plan_size(const struct plan *p)
{
    return plan_given(p) + p->invented;
}

static struct planned given(const struct plan *p, int64_t index)
{
    const int64_t n = prompts_of(p), sample = index / n;
    int64_t prompt = index % n;
    struct planned to = { .number = 2 * index,
                          .index = index,
                          .temperature = (int)((prompt + sample) % p->temperatures) };
    int f = 0;
    for (; prompt >= p->file[f].n; f++)
        prompt -= p->file[f].n;
    char hash[HASH_TEXT];
    hash_write(p->file[f].hash, hash);
    to.prompt = &p->file[f].prompt[prompt];
    snprintf(to.id, sizeof(to.id), "%.8s-%lld-%lld", hash, (long long)prompt, (long long)sample);
    return to;
}

static struct planned invented(const struct plan *p, int64_t index)
{
    struct planned to = { .number = 2 * index + 1, .index = index, .temperature = (int)(index % p->temperatures) };
    snprintf(to.id, sizeof(to.id), "invented-%lld", (long long)index);
    return to;
}

struct planned plan_at(const struct plan *p, int64_t position)
{
    const int64_t n = plan_given(p), all = plan_size(p);
    const int64_t before = position * n / all, after = (position + 1) * n / all; // given conversations
    return after > before ? given(p, before) : invented(p, position - before);
}

int64_t plan_invented_number(const char *id)
{
    static const char prefix[] = "invented-";
    return strncmp(id, prefix, strlen(prefix)) == 0 ? strtoll(id + strlen(prefix), NULL, 10) : -1;
}

void plan_free(struct plan *p)
{
    for (int f = 0; f < p->files; f++)
        prompts_free(&p->file[f]);
    *p = (struct plan){ 0 };
}
