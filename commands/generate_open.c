// generate_open.c - what a call of `speclab generate` reads and opens, for one prompt (generate.c) and for many
// (generate_prompts.c).
#include <stdlib.h>

#include "commands/generate.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "experiments/machine.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

// A number, or an object as logit_bias has it.
static struct settings *settings_of_line(const struct json *v, const char *name, struct error *err)
{
    if (!json_is_number(v) && !json_is_object(v)) {
        fail(err, "%s: expected a number, found %s", name, json_described(v));
        return NULL;
    }
    char *text = json_write(v);
    struct settings *to = json_is_object(v) ? settings_map() : settings_scalar(text);
    free(text);
    for (void *at = json_is_object(v) ? json_first(v) : NULL; at != NULL; at = json_next(v, at)) {
        text = json_write(json_value(at));
        settings_put(to, json_key(at), settings_scalar(text));
        free(text);
    }
    return to;
}

struct settings *generate_sampling(const struct generate *g, const struct json *line, struct error *err)
{
    bool ok = true;
    struct settings *all = settings_map();
    for (int k = 0; ok && stages[k] != NULL; k++) {
        const char *name = stages[k]->name;
        const char *text = g->stage[k] != NULL ? g->stage[k] : stages[k] == &temperature_stage ? "0" : NULL;
        const struct json *own = json_get(line, name);
        char *what = xformat("sampling: %s", name);
        struct settings *value = !json_is_null(own) ? settings_of_line(own, name, err)
                                 : text != NULL     ? settings_value(text, what, err)
                                                    : NULL;
        free(what);
        if (value != NULL)
            settings_put(all, name, value);
        ok = value != NULL || (json_is_null(own) && text == NULL);
    }
    if (ok)
        return all;
    settings_free(all);
    return NULL;
}

// Checks everything that can be checked before a model is opened.
bool generate_read(struct generate *g, struct error *err)
{
    if ((g->sampling_settings = generate_sampling(g, NULL, err)) == NULL)
        return false;
    g->drafter_settings = settings_inline(g->drafter, "--drafter", err);
    g->rule_settings = g->drafter_settings != NULL ? settings_inline(g->rule, "--rule", err) : NULL;
    if (g->rule_settings == NULL || !drafter_length(g->drafter_settings, err))
        return false;
    g->decoder = decoder_read(g->drafter_settings, g->rule_settings, g->sampling_settings, err);
    if (g->decoder == NULL)
        return false;
    options_fill(g->drafter_settings, g->decoder->type->options);
    options_fill(g->rule_settings, g->decoder->rule->options);
    return true;
}

bool generate_open_target(struct generate *g, struct error *err)
{
    g->options.threads = (int)g->threads;
    g->options.packed_cache = g->packed;
    g->options.log = command_log;
    if (g->ids != NULL)
        g->options.chat = "none";
    g->target = speclab_target_open(g->model, &g->options, err);
    return g->target != NULL;
}

bool generate_open(struct generate *g, int slots, int length, struct speclab_listener listener, struct error *err)
{
    g->decoder->seed = (uint64_t)g->seed;
    g->decoder->listener = listener;
    if (!decoder_open(g->decoder, g->target, slots, length, err))
        return false;
    drafter_resolve(g->decoder->drafter, g->drafter_settings);
    return g->stop.n == 0 || target_needs_text(g->target, err);
}

struct speclab_request generate_request(const struct generate *g, int64_t sequence, const struct ids *prompt)
{
    return (struct speclab_request){ .sequence = sequence,
                                     .prompt = prompt->id,
                                     .n = (int)prompt->n,
                                     .max_tokens = (int)g->tokens,
                                     .ignore_end = g->ignore_end,
                                     .stop = g->stop.text,
                                     .n_stop = g->stop.n };
}

struct stop_strings generate_stops(const struct generate *g)
{
    return (struct stop_strings){ g->target->tokenizer, g->stop.n, g->stop.text };
}

struct json *generate_settings(const struct generate *g)
{
    const struct speclab_target *t = g->target;
    struct json *stop = json_new_array();
    for (int i = 0; i < g->stop.n; i++)
        json_push(stop, json_new_text(g->stop.text[i]));
    return json_object_of(
        JSON("model", t->path), JSON("model_hash", hash_text(model_hash(t->model)).s),
        JSON("type", model_type(t->model)), JSON("activations", activations_names[model_activations(t->model)]),
        JSON("cache", type_facts[t->cache].name), JSON("drafter", settings_json(g->drafter_settings)),
        JSON("rule", settings_json(g->rule_settings)), JSON("lossless", g->decoder->rule->exact),
        JSON("sampling", settings_json(g->sampling_settings)), JSON("seed", g->seed), JSON("tokens", g->tokens),
        JSON("chat", g->ids != NULL ? NULL : t->chat.label), JSON("ignore_end", g->ignore_end), JSON("stop", stop),
        JSON("backend", t->backend->name), JSON("device", t->backend->describe(t->backend)),
        JSON("version", speclab_version()), JSON("revision", speclab_revision()));
}
