// loaded_experiment.c - opens a target of an experiment, resolves what depends on the model (chat template, context,
// end ids) and checks every prompt before anything runs.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/machine.h"
#include "experiments/cells.h"
#include "engine/prompts.h"
#include "kernels/backend.h"
#include "models/model.h"

// Returns whether a prompt is a text; chat: whether one is rendered as a chat.
static bool has_texts(const struct experiment *e, bool chat)
{
    for (int i = 0; i < e->prompts.n; i++)
        if (e->prompts.prompt[i].turn != NULL && !(chat && e->prompts.prompt[i].raw))
            return true;
    return false;
}

static bool resolve_text(struct loaded_experiment *o, struct error *err)
{
    const struct experiment *e = o->e;
    if ((has_texts(e, false) || e->n_stop > 0) && !target_needs_text(o->target, err))
        return false;
    const struct chat_request chat = { .name = e->chat, .variables = e->chat_variables };
    return !has_texts(e, true) || target_set_chat(o->target, chat, err);
}

static bool resolve_context(struct loaded_experiment *o, struct error *err)
{
    const struct experiment *e = o->e;
    int max = model_shape(o->target->model)->context;
    o->context = e->context;
    if (e->context <= max)
        return true;
    o->context = max;
    return !e->context_given ||
           settings_fail(err, settings_get(settings_get(e->file, "limits"), "context"),
                         "context: expected at most %d, which is the model's, found %d", max, e->context);
}

// Checks a prompt's first turn. Later turns depend on the model's answers; a conversation that outgrows the context
// ends there.
static bool check_prompt(struct loaded_experiment *o, const struct prompt *p, struct error *err)
{
    struct ids ids = { 0 };
    bool ok = prompt_token_ids(o->target, p, NULL, 0, &ids, err);
    if (ok && ids.n >= (size_t)o->context)
        ok = fail(err, "%s:%d: prompt %s has %zu tokens, and the context is %d: no new token fits", o->e->prompts.path,
                  p->line, p->id, ids.n, o->context);
    if (ok && ids.n == 0)
        ok = fail(err, "%s:%d: prompt %s has no tokens", o->e->prompts.path, p->line, p->id);
    if ((int)ids.n > o->longest)
        o->longest = (int)ids.n;
    o->tokens += (int64_t)ids.n;
    free(ids.id);
    return ok;
}

// Hashes all that was read of the target. The tokenizer, if supported, reads files beyond the configuration.
static void identify(struct loaded_experiment *o)
{
    struct digest *d = digest_begin();
    digest_hash(d, model_identity(o->target->model));
    digest_hash(d, o->target->tokenizer != NULL ? tokenizer_hash(o->target->tokenizer) : (struct hash){ 0 });
    o->identity = digest_end(d);
    o->weights = model_hash(o->target->model);
}

// A feature that a device switches off changes no bit, so it is recorded with the processor and not with the arithmetic
// (results/store.h).
static void note_given_up(void *self, const char *sentence)
{
    struct loaded_experiment *o = self;
    char *before = o->processor;
    free(o->given_up);
    o->given_up = xstrdup(sentence);
    o->processor = xformat("%s; %s", before != NULL ? before : "", sentence);
    free(before);
}

static size_t available(const struct loaded_experiment *o)
{
    size_t left, all;
    struct backend *b = o->target->backend;
    return b->memory(b, &left, &all) ? left : machine_available();
}

bool loaded_experiment_open(struct loaded_experiment *o, const struct experiment *e, int target, struct error *err)
{
    struct error why;
    const struct entry *t = &e->target.entry[target];
    *o = (struct loaded_experiment){ .e = e, .which = target, .chosen = &t->target };
    const struct speclab_target_options options = { .device = t->target.device,
                                                    .activations = activations_names[t->target.activations],
                                                    .cache = kv_names[t->target.cache],
                                                    .chat =
                                                        "none", // until it is known that prompts are rendered as one
                                                    .folder = e->folder,
                                                    .threads = e->threads,
                                                    .log = note_given_up,
                                                    .log_self = o };
    o->target = speclab_target_open(t->target.model, &options, &why);
    if (o->target == NULL)
        return settings_fail(err, t->given, "%s", why.text);
    o->processor = machine_processor();
    o->available = available(o);
    identify(o);
    bool ok = resolve_text(o, err) && resolve_context(o, err);
    for (int i = 0; i < e->prompts.n && ok; i++)
        ok = check_prompt(o, &e->prompts.prompt[i], err);
    if (!ok)
        loaded_experiment_close(o);
    return ok;
}

void loaded_experiment_close(struct loaded_experiment *o)
{
    speclab_target_close(o->target);
    free(o->processor);
    free(o->given_up);
    *o = (struct loaded_experiment){ 0 };
}
