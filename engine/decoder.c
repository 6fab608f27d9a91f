// decoder.c - reads a drafter, a rule and a sampling, and opens them on a target.
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/registry.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "verifier/rules/rule.h"

// ---- reading options

// The kind: of a mapping its key `kind`, of a scalar the scalar itself. NULL on failure.
static const char *kind_of(const struct settings *s, const char *what, const char *default_value, struct error *err)
{
    const char *kind = default_value;
    if (s != NULL && s->kind == SETTINGS_SCALAR)
        return s->text;
    const struct settings *k = settings_get(s, "kind");
    if (s != NULL && k == NULL) {
        settings_fail(err, s, "%s: expected a kind, as in {kind: %s}", what, default_value);
        return NULL;
    }
    return k == NULL || settings_text(k, "kind", &kind, err) ? kind : NULL;
}

static bool read_plugin(const struct settings *s, const char *what, const char *name, const struct option *table,
                        size_t bytes, void **to, struct error *err)
{
    char *owner = xformat("%s %s", what, name);
    *to = xcalloc(1, bytes + 1);
    bool ok = options_read(s != NULL && s->kind == SETTINGS_MAP ? s : NULL, owner, table, *to, err);
    free(owner);
    return ok;
}

static bool read_drafter(struct speclab_decoder *d, const struct settings *s, struct error *err)
{
    const char *name = kind_of(s, "drafter", drafter_types[0]->name, err);
    if (name == NULL)
        return false;
    d->type = drafter_named(name);
    if (d->type == NULL) {
        const char *names[MAX_REGISTERED + 1];
        drafter_names(names);
        return settings_fail_name(err, s, -1, NAME_KIND, "unknown drafter", name, names);
    }
    if (!read_plugin(s, "drafter", name, d->type->options, d->type->options_size, &d->drafter_options, err))
        return false;
    struct error why;
    if (drafter_check(d->type, d->drafter_options, &why))
        return true;
    if (s == NULL ||
        (s->file != NULL && strncmp(why.text, s->file, strlen(s->file)) == 0)) { // a part found it, and named the place
        *err = why;
        return false;
    }
    return settings_fail(err, s, "%s", why.text);
}

static bool read_rule(struct speclab_decoder *d, const struct settings *s, struct error *err)
{
    const char *name = kind_of(s, "rule", rules[0]->name, err);
    if (name == NULL)
        return false;
    d->rule = rule_named(name);
    if (d->rule == NULL) {
        const char *names[MAX_REGISTERED + 1];
        rule_names(names);
        return settings_fail_name(err, s, -1, NAME_KIND, "unknown rule", name, names);
    }
    return read_plugin(s, "rule", name, d->rule->options, d->rule->options_size, &d->rule_options, err);
}

static bool rule_takes_drafts(const struct speclab_decoder *d, const struct settings *rule, struct error *err)
{
    unsigned unsupported = takes_missing(d->rule->takes, drafter_makes(d->type, d->drafter_options));
    if (unsupported == 0)
        return true;
    const char *which = unsupported & TAKES_TREES                 ? "trees"
                        : unsupported & TAKES_CHAINS              ? "several chains"
                        : unsupported & TAKES_WITHOUT_REPLACEMENT ? "siblings sampled without replacement"
                        : unsupported & TAKES_SAMPLED             ? "sampled draft tokens"
                                                                  : "deterministic draft tokens, which have no q";
    return settings_fail(err, rule, "rule %s does not take %s, which drafter %s makes with these options",
                         d->rule->name, which, d->type->name);
}

static struct speclab_decoder *kept_if(bool ok, struct speclab_decoder *d)
{
    if (ok)
        return d;
    speclab_decoder_destroy(d);
    return NULL;
}

struct speclab_decoder *decoder_read(const struct settings *drafter, const struct settings *rule,
                                     const struct settings *sampling, struct error *err)
{
    struct speclab_decoder *d = xcalloc(1, sizeof(*d));
    return kept_if(read_drafter(d, drafter, err) && read_rule(d, rule, err) &&
                       sampling_read(sampling, &d->sampling, err) && rule_takes_drafts(d, rule, err),
                   d);
}

struct speclab_decoder *decoder_read_drafter(const struct settings *drafter, struct error *err)
{
    struct speclab_decoder *d = xcalloc(1, sizeof(*d));
    return kept_if(read_drafter(d, drafter, err), d);
}

// ---- opening

static void unload(struct speclab_decoder *d)
{
    loop_destroy(d);
    if (d->type == NULL) // the parts are another's
        return;
    verifier_destroy(d->verifier);
    drafter_destroy(d->drafter);
    d->verifier = NULL;
    d->drafter = NULL;
}

void speclab_decoder_destroy(struct speclab_decoder *d)
{
    if (d == NULL)
        return;
    unload(d);
    if (d->type != NULL)
        options_free(d->type->options, d->drafter_options);
    if (d->rule != NULL)
        options_free(d->rule->options, d->rule_options);
    free(d->drafter_options);
    free(d->rule_options);
    sampling_free(&d->sampling);
    free(d);
}

// The checkpoint's end tokens, and the one of the chat template.
static void set_end_ids(struct speclab_decoder *d, const struct speclab_target *t)
{
    const struct model_config *c = model_config(t->model);
    int32_t id = t->chat.end != NULL && t->tokenizer != NULL ? tokenizer_id(t->tokenizer, t->chat.end) : -1;
    for (d->n_end = 0; d->n_end < c->n_end; d->n_end++) {
        d->end[d->n_end] = c->end[d->n_end];
        id = c->end[d->n_end] == id ? -1 : id;
    }
    if (id >= 0)
        d->end[d->n_end++] = id;
}

bool decoder_open_drafter(struct speclab_decoder *d, struct speclab_target *t, const char *folder, int slots,
                          int length, struct error *err)
{
    d->target = t;
    set_end_ids(d, t);
    struct drafter_env env = {
        .backend = t->backend,
        .target_backend = t->backend,
        .devices = t->devices,
        .target = t->model,
        .tokenizer = t->tokenizer,
        .sampling = &d->sampling,
        .beside = folder,
        .slots = slots,
        .length = length,
        .used_vocab = t->used_vocab,
    };
    if (!sampling_check(&d->sampling, t->used_vocab, err))
        return false;
    // The host's threads compute probabilities, wherever the logits are.
    struct backend *host = devices_get(t->devices, "cpu", err);
    if (host == NULL)
        return false;
    d->sampling.workers = host->workers(host);
    d->drafter = drafter_create(d->type, &env, d->drafter_options, err);
    if (d->drafter == NULL)
        return false;
    if (model_reserve(t->model, slots * d->drafter->nodes, err))
        return true;
    unload(d);
    return false;
}

struct verifier_setup decoder_verifier(struct speclab_decoder *d, int slots, int length)
{
    return (struct verifier_setup){
        .target = d->target->model,
        .rule = d->rule,
        .rule_options = d->rule_options,
        .sampling = &d->sampling,
        .taps = d->drafter->taps,
        .top = d->drafter->top,
        .cache_rows = d->drafter->cache_rows,
        .slots = slots,
        .length = length,
        .nodes = d->drafter->nodes,
        .used_vocab = d->target->used_vocab,
        .cache = d->target->cache,
    };
}

bool decoder_open_verifier(struct speclab_decoder *d, const struct verifier_setup *setup, struct error *err)
{
    d->verifier = verifier_create(setup, err);
    if (d->verifier == NULL || !loop_create(d, setup->slots, err)) {
        unload(d);
        return false;
    }
    if (d->type->attach != NULL)
        d->type->attach(d->drafter, verifier_cache(d->verifier));
    return true;
}

bool decoder_open(struct speclab_decoder *d, struct speclab_target *t, int slots, int length, struct error *err)
{
    if (!decoder_open_drafter(d, t, NULL, slots, length, err))
        return false;
    const struct verifier_setup setup = decoder_verifier(d, slots, length);
    return decoder_open_verifier(d, &setup, err);
}

bool decoder_shares_randomness(const struct speclab_decoder *d)
{
    return d->rule->drafter_invariant && (drafter_makes(d->type, d->drafter_options) & SHARES_RANDOMNESS) != 0;
}

bool speclab_decoder_is_lossless(const struct speclab_decoder *d)
{
    return d->rule->exact;
}

// ---- rows, for a listener

const float *speclab_rows_p(struct speclab_rows *r, int node)
{
    return r->of != NULL ? r->of->p->row(r->of->p, node) : NULL;
}

const float *speclab_rows_q(struct speclab_rows *r, int node)
{
    const struct draft *d = r->of != NULL ? r->of->request->draft : NULL;
    for (int c = d != NULL ? draft_next_child(d, node, node) : -1; c >= 0; c = draft_next_child(d, node, c))
        if (d->proposal[c] != DETERMINISTIC)
            return d->q->row(d->q, node);
    return NULL;
}

const float *speclab_rows_logits(struct speclab_rows *r, int node)
{
    if (r->logits.data == NULL)
        return NULL;
    const struct tensor row = tensor_rows(r->logits, node, 1);
    const float *host = r->backend->host(r->backend, row.data);
    if (host != NULL)
        return host;
    r->copy = xrealloc(r->copy, tensor_bytes(row));
    r->backend->download(r->backend, r->copy, row.data, tensor_bytes(row));
    return r->copy;
}

// ---- options as texts

static struct speclab_decoder *read_options(const struct speclab_decoder_options *o, struct error *err)
{
    struct speclab_decoder *d = NULL;
    struct settings *drafter =
        settings_inline(o->drafter != NULL ? o->drafter : drafter_types[0]->name, "drafter", err);
    struct settings *rule =
        drafter != NULL ? settings_inline(o->rule != NULL ? o->rule : rules[0]->name, "rule", err) : NULL;
    struct settings *sampling =
        rule != NULL ? settings_pairs(o->sampling != NULL ? o->sampling : "temperature=1", "sampling", err) : NULL;
    if (sampling != NULL && drafter_length(drafter, err))
        d = decoder_read(drafter, rule, sampling, err);
    settings_free(drafter);
    settings_free(rule);
    settings_free(sampling);
    return d;
}

static const struct speclab_decoder_options default_options;

bool speclab_decoder_options_check(const struct speclab_decoder_options *options, struct speclab_error *error)
{
    struct error ignored;
    struct speclab_decoder *d =
        read_options(options != NULL ? options : &default_options, error != NULL ? error : &ignored);
    const bool ok = d != NULL;
    speclab_decoder_destroy(d);
    return ok;
}

static bool open_as(struct speclab_decoder *d, struct speclab_target *t, const struct speclab_decoder_options *o,
                    struct error *err)
{
    const int context = speclab_target_context(t);
    d->seed = o->seed;
    d->listener = o->listener;
    d->texts = o->listener.end != NULL;
    return option_in_range("slots", o->slots, MAX_SLOTS, "", err) &&
           option_in_range("length", o->length, context, ", the model's context", err) &&
           decoder_open(d, t, o->slots > 0 ? o->slots : 1, o->length > 0 ? o->length : context, err);
}

struct speclab_decoder *speclab_decoder_create(struct speclab_target *t, const struct speclab_decoder_options *options,
                                               struct speclab_error *error)
{
    const struct speclab_decoder_options *o = options != NULL ? options : &default_options;
    struct error ignored, *err = error != NULL ? error : &ignored;
    struct speclab_decoder *d = read_options(o, err);
    return d != NULL ? kept_if(open_as(d, t, o, err), d) : NULL;
}
