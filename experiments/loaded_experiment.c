// loaded_experiment.c - an experiment with its target: settles what only the model can say (chat format, context, ends of a text)
// and checks every prompt against it before anything runs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/machine.h"
#include "experiments/cells.h"
#include "engine/prompt_tokens.h"
#include "kernels/backend.h"
#include "models/model.h"

static bool puts_into_chat(const struct experiment *e)
{
    for (int i = 0; i < e->prompts.n; i++)
        if (e->prompts.prompt[i].turn != NULL && !e->prompts.prompt[i].raw)
            return true;
    return false;
}

static bool resolve_text(struct loaded_experiment *o, struct error *err)
{
    const struct experiment *e = o->e;
    if ((experiment_has_text(e) || e->n_stop > 0) && !target_needs_text(&o->target, err))
        return false;
    o->chat = (struct chat_format){ .kind = CHAT_NONE };
    if (puts_into_chat(e) && !target_chat(&o->target, e->chat, &o->chat, err))
        return false;
    o->n_end = e->ignore_end ? 0 : target_ends(&o->target, o->chat.kind == CHAT_NONE ? NULL : &o->chat, o->end);
    return true;
}

static bool resolve_context(struct loaded_experiment *o, struct error *err)
{
    const struct experiment *e = o->e;
    int most = model_shape(o->target.model)->context;
    o->context = e->context;
    if (e->context <= most)
        return true;
    o->context = most;
    return !e->context_given ||
           settings_fail(err, settings_get(settings_get(e->file, "limits"), "context"),
                         "context: expected at most %d, which is the model's, found %d", most, e->context);
}

// Later turns depend on what the model will say; a conversation that outgrows the context ends there.
static bool fits(struct loaded_experiment *o, const struct prompt *p, struct error *err)
{
    struct ids ids = { 0 };
    bool ok = prompt_token_ids(&o->target, &o->chat, p, NULL, 0, &ids, err);
    if (ok && ids.n >= (size_t)o->context)
        ok = fail(err, "%s:%d: prompt %s has %zu tokens, and the context is %d: there is no room for a new one",
                  o->e->prompts.path, p->line, p->id, ids.n, o->context);
    if (ok && ids.n == 0)
        ok = fail(err, "%s:%d: prompt %s has no tokens", o->e->prompts.path, p->line, p->id);
    if ((int)ids.n > o->longest)
        o->longest = (int)ids.n;
    o->tokens += (int64_t)ids.n;
    free(ids.id);
    return ok;
}

// All that was read of the target. Its tokenizer reads more than its configuration does, where there is one that we know.
static void identify(struct loaded_experiment *o)
{
    struct digest *d = digest_begin();
    digest_hash(d, model_identity(o->target.model));
    digest_hash(d, o->target.tokenizer != NULL ? tokenizer_hash(o->target.tokenizer) : (struct hash){ 0 });
    o->identity = digest_end(d);
    o->weights = model_hash(o->target.model);
}

bool loaded_experiment_open(struct loaded_experiment *o, const struct experiment *e, int rows, struct error *err)
{
    struct error why;
    *o = (struct loaded_experiment){ .e = e };
    if (!target_open(&o->target, e->target, e->folder, e->threads, e->precision, rows, &why))
        return settings_fail(err, settings_get(e->file, "target"), "%s", why.text);
    o->processor = machine_processor();
    identify(o);
    bool ok = resolve_text(o, err) && resolve_context(o, err);
    for (int i = 0; i < e->prompts.n && ok; i++)
        ok = fits(o, &e->prompts.prompt[i], err);
    if (!ok)
        loaded_experiment_close(o);
    return ok;
}

void loaded_experiment_close(struct loaded_experiment *o)
{
    target_close(&o->target);
    free(o->processor);
    *o = (struct loaded_experiment){ 0 };
}
