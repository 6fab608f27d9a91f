// generate_report.c - the JSON object of `speclab generate --json`.
#include <stdio.h>
#include <stdlib.h>

#include "commands/generate.h"
#include "core/json.h"
#include "core/settings.h"
#include "experiments/environment.h"
#include "kernels/backend.h"
#include "models/model.h"

static struct json *run_settings_json(const struct generate *g)
{
    const struct target *t = &g->target->target;
    struct json *j = json_new_object(), *stop = json_new_array();
    for (int i = 0; i < g->stop.n; i++)
        json_push(stop, json_new_text(g->stop.text[i]));
    char hash[HASH_TEXT];
    hash_write(model_hash(t->model), hash);
    json_set(j, "model", json_new_text(t->path));
    json_set(j, "model_hash", json_new_text(hash));
    json_set(j, "type", json_new_text(model_type(t->model)));
    json_set(j, "activations", json_new_text(activations_names[model_activations(t->model)]));
    json_set(j, "cache", json_new_text(type_facts[t->cache].name));
    json_set(j, "drafter", settings_json(g->drafter_settings));
    json_set(j, "rule", settings_json(g->rule_settings));
    json_set(j, "lossless", json_new_bool(speclab_decoder_is_lossless(g->decoder)));
    json_set(j, "sampling", settings_json(g->sampling_settings));
    json_set(j, "seed", json_new_int(g->seed));
    json_set(j, "tokens", json_new_int(g->tokens));
    json_set(j, "chat", g->ids != NULL ? json_new_null() : json_new_text(g->target->chat.label));
    json_set(j, "ignore_end", json_new_bool(g->ignore_end));
    json_set(j, "stop", stop);
    json_set(j, "backend", json_new_text(t->backend->name));
    json_set(j, "device", json_new_text(t->backend->describe(t->backend)));
    json_set(j, "version", json_new_text(speclab_version()));
    json_set(j, "revision", json_new_text(speclab_revision()));
    return j;
}

void generate_print_json(struct generate *g)
{
    struct json *j = json_new_object();
    json_set(j, "prompt_ids", json_new_ids(g->prompt_ids.id, g->prompt_ids.n));
    json_set(j, "text",
             g->target->target.tokenizer != NULL ? json_new_text_n(g->printer.text.s, g->printer.text.n)
                                                 : json_new_null());
    transcript_json(&g->transcript, j);
    json_set(j, "settings", run_settings_json(g));
    char *line = json_write(j);
    printf("%s\n", line);
    free(line);
    json_free(j);
}
