// generate_report.c - the JSON object of `speclab generate --json`.
#include <stdio.h>
#include <stdlib.h>

#include "commands/generate.h"
#include "core/json.h"
#include "core/settings.h"
#include "experiments/environment.h"
#include "kernels/backend.h"
#include "models/model.h"

struct json *generate_settings(const struct generate *g, bool lossless)
{
    const struct target *t = &g->target->target;
    struct json *stop = json_new_array();
    for (int i = 0; i < g->stop.n; i++)
        json_push(stop, json_new_text(g->stop.text[i]));
    return json_object_of(
        JSON("model", t->path), JSON("model_hash", hash_text(model_hash(t->model)).s),
        JSON("type", model_type(t->model)), JSON("activations", activations_names[model_activations(t->model)]),
        JSON("cache", type_facts[t->cache].name), JSON("drafter", settings_json(g->drafter_settings)),
        JSON("rule", settings_json(g->rule_settings)), JSON("lossless", lossless),
        JSON("sampling", settings_json(g->sampling_settings)), JSON("seed", g->seed), JSON("tokens", g->tokens),
        JSON("chat", g->ids != NULL ? json_new_null() : json_new_text(g->target->chat.label)),
        JSON("ignore_end", g->ignore_end), JSON("stop", stop), JSON("backend", t->backend->name),
        JSON("device", t->backend->describe(t->backend)), JSON("version", speclab_version()),
        JSON("revision", speclab_revision()));
}

void generate_print_json(struct generate *g)
{
    struct json *j = json_object_of(JSON("prompt_ids", json_new_ids(g->prompt_ids.id, g->prompt_ids.n)),
                                    JSON("text", g->target->target.tokenizer != NULL
                                                     ? json_new_text_n(g->printer.text.s, g->printer.text.n)
                                                     : json_new_null()));
    transcript_json(&g->transcript, j);
    json_set(j, "settings", generate_settings(g, speclab_decoder_is_lossless(g->decoder)));
    json_print(j, stdout);
}
