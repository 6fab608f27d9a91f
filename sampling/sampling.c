// sampling.c - reads the stages from settings.
#include "sampling/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/error.h"
#include "core/memory.h"
#include "core/row_stages.h"
#include "core/settings.h"

static bool all_keys_are_stages(const struct settings *s, struct error *err)
{
    for (int i = 0; i < s->n; i++) {
        if (stage_named(s->key[i]) != NULL)
            continue;
        const char *names[MAX_STAGES + 1];
        stage_names(names);
        return settings_fail_name(err, s, i, NAME_STAGE, "sampling has no stage", s->key[i], names);
    }
    return true;
}

static int key_number(const struct settings *s, const char *key)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->key[i], key) == 0)
            return i;
    return -1;
}

bool sampling_read(const struct settings *s, struct sampling *to, struct error *err)
{
    *to = (struct sampling){ 0 };
    if (s == NULL)
        return true;
    if (s->kind != SETTINGS_MAP)
        return settings_fail(err, s, "sampling is a mapping from stages to values, such as {temperature: 0.7}");
    if (!all_keys_are_stages(s, err))
        return false;

    for (int k = 0; stages[k]; k++) {
        int i = key_number(s, stages[k]->name);
        if (i < 0)
            continue;
        struct settings one = *s; // a view of the mapping with this key alone
        one.n = 1;
        one.item += i, one.key += i;
        if (s->key_line)
            one.key_line += i, one.key_column += i;
        void *options = xcalloc(1, stages[k]->options_size);
        to->step[to->n].stage = stages[k];
        to->step[to->n++].options = options;
        if (!options_read(&one, "sampling", stages[k]->option, options, err)) {
            sampling_free(to);
            return false;
        }
    }
    return true;
}

void sampling_free(struct sampling *s)
{
    for (int k = 0; k < s->n; k++) {
        options_free(s->step[k].stage->option, s->step[k].options);
        free(s->step[k].options);
    }
    s->n = 0;
}

bool sampling_check(const struct sampling *s, int used_vocab, struct error *err)
{
    for (int k = 0; k < s->n; k++)
        for (const struct option *o = s->step[k].stage->option; o->name != NULL; o++) {
            const struct pairs *p = (const struct pairs *)((const char *)s->step[k].options + o->at);
            for (int i = 0; o->type == OPTION_PAIRS && i < p->n; i++)
                if (p->key[i] >= used_vocab)
                    return fail(err, "%s: token %d: the vocabulary has the ids 0 to %d", s->step[k].stage->name,
                                p->key[i], used_vocab - 1);
        }
    return true;
}

bool sampling_is_greedy(const struct sampling *s)
{
    for (int k = 0; k < s->n; k++)
        if (s->step[k].stage == &temperature_stage)
            return ((const struct temperature_options *)s->step[k].options)->temperature == 0;
    return false;
}

struct sampling sampling_at(const struct sampling *s, struct temperature_options *t)
{
    struct sampling to = { .workers = s->workers };
    for (int k = 0, i = 0; stages[k] != NULL; k++) {
        const bool given = i < s->n && s->step[i].stage == stages[k];
        if (given)
            to.step[to.n] = s->step[i++];
        if (stages[k] == &temperature_stage) {
            to.step[to.n].stage = stages[k];
            to.step[to.n].options = t;
        }
        to.n += given || stages[k] == &temperature_stage;
    }
    return to;
}

bool sampling_row_stages(const struct sampling *s, struct row_stages *to)
{
    *to = (struct row_stages){ .inverse_temperature = 1, .top_p = 1, .below = -INFINITY };
    for (int k = 0; k < s->n; k++) {
        const struct stage *stage = s->step[k].stage;
        if (stage->on_device == NULL || !stage->on_device(s->step[k].options, to))
            return false;
    }
    return true;
}
