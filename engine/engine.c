// engine.c - opens targets and pairings; closing frees in reverse order.
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/model.h"
#include "models/paths.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

// ---- the target

static bool resolve_cache(struct target *t, struct precision p, struct error *err)
{
    struct kv_shape shape = model_kv_shape(t->model, 1, 1, 1);
    t->cache = shape.type = kv_type_resolve((enum kv_type)p.cache);
    return kv_fits(&shape, err);
}

static bool open_model(struct target *t, const char *path, const struct target_options *o, struct error *err)
{
    const enum activations activations = (enum activations)o->precision.activations;
    const int rows = o->rows > 0 ? o->rows : TARGET_ROWS;
    char *message = NULL; // of the packed-weight cache
    t->model = model_open_as(path, t->backend, activations, QUANTIZE_NONE, rows,
                             o->packed == PACKED_KEEP ? &message : NULL, err);
    if (t->model != NULL && message != NULL && o->log != NULL)
        o->log(o->self, message);
    free(message);
    return t->model != NULL && resolve_cache(t, o->precision, err);
}

bool target_open(struct target *t, const char *name, const struct target_options *o, struct error *err)
{
    char *path = model_path(name, o->folder, err);
    if (path == NULL)
        return false;
    *t = (struct target){ .path = model_is_shape(name) ? xstrdup(name) : xstrdup(path) };
    t->devices = devices_create(o->threads);
    devices_log(t->devices, o->log, o->self);
    t->backend = devices_get(t->devices, o->precision.device, err);
    const bool ok = t->backend != NULL && open_model(t, path, o, err);
    free(path);
    if (!ok) {
        target_close(t);
        return false;
    }
    t->used_vocab = model_shape(t->model)->vocab;
    if (!o->ids_only)
        t->tokenizer = tokenizer_open(model_config(t->model)->path, &t->no_tokenizer);
    if (t->tokenizer != NULL && tokenizer_size(t->tokenizer) < t->used_vocab)
        t->used_vocab = tokenizer_size(t->tokenizer);
    return true;
}

void target_close(struct target *t)
{
    tokenizer_close(t->tokenizer);
    model_close(t->model);
    devices_destroy(t->devices);
    free(t->path);
    *t = (struct target){ 0 };
}

bool target_needs_text(const struct target *t, struct error *err)
{
    return t->tokenizer != NULL || fail(err, "no text without a tokenizer: %s", t->no_tokenizer.text);
}

bool target_chat(const struct target *t, struct chat_request r, struct chat_format *to, struct error *err)
{
    struct error why;
    r.jinja = model_config(t->model)->chat_template;
    r.tokens = model_config(t->model)->special_tokens;
    if (chat_choose(&r, to, &why))
        return true;
    const bool own = choice_index(CHAT_NAMES, r.name) >= 0; // otherwise why begins with the template's file
    return own ? fail(err, "%s: %s", t->path, why.text) : fail(err, "%s", why.text);
}

bool text_encode(const struct tokenizer *t, const struct model_config *c, int how, const char *text, size_t n,
                 struct ids *to, struct error *err)
{
    if ((how & ENCODE_BOS) != 0 && c->add_bos && c->bos >= 0)
        ids_add(to, c->bos);
    size_t before = to->n;
    if (!tokenizer_encode(t, text, n, (how & ENCODE_SPECIAL) != 0, to, err))
        return false;
    for (size_t i = before; i < to->n; i++)
        if (c->vocab > 0 && to->id[i] >= c->vocab) // 0: a vocabulary alone
            return fail(err, "%s: its tokenizer makes id %d, its vocabulary ends at %d", c->path, to->id[i],
                        c->vocab - 1);
    return true;
}

bool target_encode(const struct target *t, int how, const char *text, size_t n, struct ids *to, struct error *err)
{
    return target_needs_text(t, err) && text_encode(t->tokenizer, model_config(t->model), how, text, n, to, err);
}

bool target_encode_chat(const struct target *t, const struct chat_format *chat, const struct message *m, int n,
                        struct ids *to, struct error *err)
{
    struct text text = { 0 };
    text_puts(&text, "");
    const bool ok = target_needs_text(t, err) && chat_render(chat, m, n, &text, err) &&
                    target_encode(t, encode_rendered(chat), text.s, text.n, to, err);
    free(text.s);
    return ok;
}

char *target_text(const struct target *t, const int32_t *token, size_t n, size_t *bytes)
{
    struct decoding hold = { 0 };
    struct text text = { 0 };
    if (bytes != NULL)
        *bytes = 0;
    if (t->tokenizer == NULL)
        return NULL;
    text_puts(&text, "");
    tokenizer_decode(t->tokenizer, token, n, false, &hold, &text);
    tokenizer_decode_end(&hold, &text);
    if (bytes != NULL)
        *bytes = text.n;
    return text.s;
}

// The checkpoint's, and the end token of the chat template (chat NULL: none). Returns their number.
static int end_ids(const struct target *t, const struct chat_format *chat, int32_t end[TARGET_ENDS])
{
    const struct model_config *c = model_config(t->model);
    int n = 0;
    for (; n < c->n_end; n++)
        end[n] = c->end[n];
    int32_t id = chat != NULL && chat->end != NULL && t->tokenizer != NULL ? tokenizer_id(t->tokenizer, chat->end) : -1;
    for (int i = 0; i < n && id >= 0; i++)
        if (end[i] == id)
            id = -1;
    if (id >= 0)
        end[n++] = id;
    return n;
}

void text_ends_set(struct text_ends *e, const struct target *t, const struct chat_format *chat, bool ignore_end, int n,
                   const char *const *string)
{
    e->strings = (struct stop_strings){ t->tokenizer, n, string };
    e->stops = (struct stops){ .n = ignore_end ? 0 : end_ids(t, chat, e->end),
                               .token = e->end,
                               .string = n > 0 ? stop_strings_find : NULL,
                               .self = &e->strings };
}

// ---- the pairing

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

static bool fail_drafter(struct error *err, const struct settings *s, const char *name)
{
    int n = 0;
    while (drafter_types[n] != NULL)
        n++;
    const char **names = xcalloc((size_t)n + 1, sizeof(*names));
    for (int i = 0; i < n; i++)
        names[i] = drafter_types[i]->name;
    settings_fail_name(err, s, -1, NAME_KIND, "unknown drafter", name, names);
    free(names);
    return false;
}

static bool fail_rule(struct error *err, const struct settings *s, const char *name)
{
    int n = 0;
    while (rules[n] != NULL)
        n++;
    const char **names = xcalloc((size_t)n + 1, sizeof(*names));
    for (int i = 0; i < n; i++)
        names[i] = rules[i]->name;
    settings_fail_name(err, s, -1, NAME_KIND, "unknown rule", name, names);
    free(names);
    return false;
}

static bool read_drafter(struct pairing *p, const struct settings *s, struct error *err)
{
    const char *name = kind_of(s, "drafter", drafter_types[0]->name, err);
    if (name == NULL)
        return false;
    p->type = drafter_named(name);
    if (p->type == NULL)
        return fail_drafter(err, s, name);
    if (!read_plugin(s, "drafter", name, p->type->options, p->type->options_size, &p->drafter_options, err))
        return false;
    struct error why;
    if (drafter_check(p->type, p->drafter_options, &why))
        return true;
    if (s == NULL ||
        (s->file != NULL && strncmp(why.text, s->file, strlen(s->file)) == 0)) { // a part found it, and named the place
        *err = why;
        return false;
    }
    return settings_fail(err, s, "%s", why.text);
}

static bool read_rule(struct pairing *p, const struct settings *s, struct error *err)
{
    const char *name = kind_of(s, "rule", rules[0]->name, err);
    if (name == NULL)
        return false;
    p->rule = rule_named(name);
    if (p->rule == NULL)
        return fail_rule(err, s, name);
    return read_plugin(s, "rule", name, p->rule->options, p->rule->options_size, &p->rule_options, err);
}

static bool rule_takes_drafts(const struct pairing *p, const struct settings *rule, struct error *err)
{
    unsigned unsupported = takes_missing(p->rule->takes, drafter_makes(p->type, p->drafter_options));
    if (unsupported == 0)
        return true;
    const char *which = unsupported & TAKES_TREES                 ? "trees"
                        : unsupported & TAKES_CHAINS              ? "several chains"
                        : unsupported & TAKES_WITHOUT_REPLACEMENT ? "siblings sampled without replacement"
                        : unsupported & TAKES_SAMPLED             ? "sampled draft tokens"
                                                                  : "deterministic draft tokens, which have no q";
    return settings_fail(err, rule, "rule %s does not take %s, which drafter %s makes with these options",
                         p->rule->name, which, p->type->name);
}

bool pairing_read(struct pairing *p, const struct settings *drafter, const struct settings *rule,
                  const struct settings *sampling, struct error *err)
{
    *p = (struct pairing){ 0 };
    if (read_drafter(p, drafter, err) && read_rule(p, rule, err) && sampling_read(sampling, &p->sampling, err) &&
        rule_takes_drafts(p, rule, err))
        return true;
    pairing_close(p);
    return false;
}

bool pairing_read_drafter(struct pairing *p, const struct settings *drafter, struct error *err)
{
    *p = (struct pairing){ 0 };
    if (read_drafter(p, drafter, err))
        return true;
    pairing_close(p);
    return false;
}

static void unload(struct pairing *p)
{
    verifier_destroy(p->verifier);
    drafter_destroy(p->drafter);
    p->verifier = NULL;
    p->drafter = NULL;
}

bool pairing_open_drafter(struct pairing *p, struct target *t, const char *folder, int slots, int length,
                          struct error *err)
{
    struct drafter_env env = {
        .backend = t->backend,
        .target_backend = t->backend,
        .devices = t->devices,
        .target = t->model,
        .tokenizer = t->tokenizer,
        .sampling = &p->sampling,
        .beside = folder,
        .slots = slots,
        .length = length,
        .used_vocab = t->used_vocab,
    };
    if (!sampling_check(&p->sampling, t->used_vocab, err))
        return false;
    // The host's threads compute probabilities, wherever the logits are.
    struct backend *host = devices_get(t->devices, "cpu", err);
    if (host == NULL)
        return false;
    p->sampling.workers = host->workers(host);
    p->drafter = drafter_create(p->type, &env, p->drafter_options, err);
    if (p->drafter == NULL)
        return false;
    if (model_reserve(t->model, slots * p->drafter->nodes, err))
        return true;
    unload(p);
    return false;
}

struct verifier_setup pairing_verifier(const struct pairing *p, const struct target *t, int slots, int length)
{
    return (struct verifier_setup){
        .target = t->model,
        .rule = p->rule,
        .rule_options = p->rule_options,
        .sampling = &p->sampling,
        .taps = p->drafter->taps,
        .top = p->drafter->top,
        .cache_rows = p->drafter->cache_rows,
        .slots = slots,
        .length = length,
        .nodes = p->drafter->nodes,
        .used_vocab = t->used_vocab,
        .cache = t->cache,
        .observer = p->observer,
    };
}

bool pairing_open_verifier(struct pairing *p, const struct verifier_setup *setup, struct error *err)
{
    p->verifier = verifier_create(setup, err);
    if (p->verifier == NULL)
        unload(p);
    else if (p->type->attach != NULL)
        p->type->attach(p->drafter, verifier_cache(p->verifier));
    return p->verifier != NULL;
}

bool pairing_open(struct pairing *p, struct target *t, int slots, int length, struct error *err)
{
    if (!pairing_open_drafter(p, t, NULL, slots, length, err))
        return false;
    const struct verifier_setup setup = pairing_verifier(p, t, slots, length);
    return pairing_open_verifier(p, &setup, err);
}

bool pairing_shares_randomness(const struct pairing *p)
{
    return p->rule->drafter_invariant && (drafter_makes(p->type, p->drafter_options) & SHARES_RANDOMNESS) != 0;
}

void pairing_close(struct pairing *p)
{
    unload(p);
    if (p->type != NULL)
        options_free(p->type->options, p->drafter_options);
    if (p->rule != NULL)
        options_free(p->rule->options, p->rule_options);
    free(p->drafter_options);
    free(p->rule_options);
    sampling_free(&p->sampling);
    *p = (struct pairing){ 0 };
}
