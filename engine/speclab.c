// speclab.c - the public interface over engine.h: options given as text, errors copied out, steps in public structs.
#include "engine/speclab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/settings.h"
#include "decode/decode.h"
#include "drafters/drafter.h"
#include "engine/engine.h"
#include "engine/transcript.h"
#include "models/model.h"
#include "verifier/rules/rule.h"

struct speclab_target {
    struct target target;
};

struct speclab_decoder {
    struct speclab_target *t;
    struct pairing pairing;
    struct decoder *decoder;
    struct speclab_listener listener;
    struct stops stops;
    int32_t end[TARGET_ENDS];
};

static bool copy_error(struct speclab_error *to, const struct error *err)
{
    if (to != NULL)
        snprintf(to->text, sizeof(to->text), "%s", err->text);
    return false;
}

// The index of a word in a table that ends with NULL; text NULL: 0, the default.
static bool choice(const char *what, const char *text, const char *const *names, int *to, struct error *err)
{
    struct text known = { 0 };
    for (*to = 0; text != NULL && names[*to] != NULL && strcmp(names[*to], text) != 0; ++*to)
        text_printf(&known, "%s%s", *to > 0 ? ", " : "", names[*to]);
    const bool found = text == NULL || names[*to] != NULL;
    if (!found)
        fail(err, "%s: expected one of %s, found \"%s\"", what, known.s, text);
    free(known.s);
    return found;
}

// ---- target

struct speclab_target *speclab_target_open(const char *model, const struct speclab_target_options *options,
                                           struct speclab_error *error)
{
    const struct speclab_target_options none = { 0 }, *o = options != NULL ? options : &none;
    struct speclab_target *t = xcalloc(1, sizeof(*t));
    struct target_options to = { .precision = { .device = o->device }, .threads = o->threads, .rows = o->rows };
    struct error err;
    if (choice("activations", o->activations, activations_names, &to.precision.activations, &err) &&
        choice("cache", o->cache, kv_type_names, &to.precision.cache, &err) &&
        target_open(&t->target, model, &to, &err))
        return t;
    copy_error(error, &err);
    free(t);
    return NULL;
}

void speclab_target_close(struct speclab_target *t)
{
    if (t != NULL)
        target_close(&t->target);
    free(t);
}

int speclab_target_vocab(const struct speclab_target *t)
{
    return model_shape(t->target.model)->vocab;
}

int speclab_target_context(const struct speclab_target *t)
{
    return model_shape(t->target.model)->context;
}

static bool encode(const struct speclab_target *t, const char *text, size_t n, bool special, struct speclab_tokens *to,
                   struct error *err)
{
    struct ids ids = { to->id, to->n, to->n };
    const bool ok = target_needs_text(&t->target, err) && target_encode(&t->target, text, n, special, &ids, err);
    *to = (struct speclab_tokens){ ids.id, ids.n };
    return ok;
}

bool speclab_encode(const struct speclab_target *t, const char *text, struct speclab_tokens *to,
                    struct speclab_error *error)
{
    struct error err;
    return encode(t, text, strlen(text), false, to, &err) || copy_error(error, &err);
}

bool speclab_encode_chat(const struct speclab_target *t, const struct speclab_message *message, int n,
                         struct speclab_tokens *to, struct speclab_error *error)
{
    struct error err;
    struct chat_format format;
    struct text text = { 0 };
    struct message *m = xcalloc((size_t)n + 1, sizeof(*m));
    for (int i = 0; i < n; i++)
        m[i] = (struct message){ message[i].role, message[i].content };
    bool ok = target_chat(&t->target, "auto", &format, &err);
    if (ok) {
        text_puts(&text, "");
        chat_render(&format, m, n, &text);
        ok = encode(t, text.s, text.n, true, to, &err);
    }
    free(text.s);
    free(m);
    return ok || copy_error(error, &err);
}

char *speclab_text(const struct speclab_target *t, const int32_t *token, size_t n, size_t *bytes)
{
    return target_text(&t->target, token, n, bytes);
}

// ---- decoder

static void on_step(void *self, const struct step *s)
{
    const struct speclab_decoder *d = self;
    const struct speclab_step step = {
        .sequence = s->sequence,
        .token = s->advance->token,
        .n = s->kept,
        .drafted = s->draft->n - 1,
        .accepted = transcript_accepted(s),
        .propose_ns = s->propose_ns,
        .verify_ns = s->verify_ns,
        .advance_ns = s->advance_ns,
        .detail = s,
    };
    if (d->listener.step != NULL)
        d->listener.step(d->listener.self, &step);
}

static void on_end(void *self, const struct ending *e)
{
    const struct speclab_decoder *d = self;
    const struct speclab_end end = { e->sequence, e->token, e->n, stop_name(e->why), e };
    if (d->listener.end != NULL)
        d->listener.end(d->listener.self, &end);
}

// "temperature=0.8,top_p=0.95" as a mapping of stages.
static struct settings *read_sampling(const char *text, struct error *err)
{
    char *line = xformat("sampling:%s", text);
    struct settings *all = settings_inline(line, "sampling", err), *map = NULL;
    if (all != NULL) {
        map = settings_map();
        for (int i = 0; i < all->n; i++)
            if (strcmp(all->key[i], "kind") != 0)
                settings_put(map, all->key[i], settings_copy(all->item[i]));
    }
    settings_free(all);
    free(line);
    return map;
}

static bool read_pairing(struct pairing *p, const struct speclab_decoder_options *o, struct error *err)
{
    struct settings *drafter = settings_inline(o->drafter != NULL ? o->drafter : "none", "drafter", err);
    struct settings *rule =
        drafter != NULL ? settings_inline(o->rule != NULL ? o->rule : "rejection", "rule", err) : NULL;
    struct settings *sampling =
        rule != NULL ? read_sampling(o->sampling != NULL ? o->sampling : "temperature=1", err) : NULL;
    const bool ok = sampling != NULL && pairing_read(p, drafter, rule, sampling, err);
    settings_free(drafter);
    settings_free(rule);
    settings_free(sampling);
    return ok;
}

// The chat's end token ends an answer too, where the model has a template that is supported.
static void find_ends(struct speclab_decoder *d)
{
    struct chat_format format;
    struct error ignored;
    const bool chat = target_chat(&d->t->target, "auto", &format, &ignored);
    d->stops = (struct stops){ .n = target_end_ids(&d->t->target, chat ? &format : NULL, d->end), .token = d->end };
}

struct speclab_decoder *speclab_decoder_create(struct speclab_target *t, const struct speclab_decoder_options *options,
                                               struct speclab_error *error)
{
    const struct speclab_decoder_options none = { 0 }, *o = options != NULL ? options : &none;
    struct speclab_decoder *d = xcalloc(1, sizeof(*d));
    const int slots = o->slots > 0 ? o->slots : 1, context = speclab_target_context(t);
    struct error err;
    d->t = t;
    d->listener = o->listener;
    find_ends(d);
    if ((slots <= MAX_SLOTS || fail(&err, "slots: expected at most %d, found %d", MAX_SLOTS, slots)) &&
        (o->length <= context ||
         fail(&err, "length: the model's context is %d tokens, found %d", context, o->length)) &&
        read_pairing(&d->pairing, o, &err) &&
        pairing_open(&d->pairing, &t->target, NULL, slots, o->length > 0 ? o->length : context, &err) &&
        (d->decoder = decoder_create(d->pairing.verifier, d->pairing.drafter, slots, o->seed,
                                     (struct listener){ on_step, on_end, d }, &err)) != NULL)
        return d;
    copy_error(error, &err);
    speclab_decoder_destroy(d);
    return NULL;
}

void speclab_decoder_destroy(struct speclab_decoder *d)
{
    if (d == NULL)
        return;
    decoder_destroy(d->decoder);
    pairing_close(&d->pairing);
    free(d);
}

bool speclab_decoder_is_lossless(const struct speclab_decoder *d)
{
    return d->pairing.rule->exact;
}

bool speclab_decoder_has_free_slot(const struct speclab_decoder *d)
{
    return decoder_has_free_slot(d->decoder);
}

static bool request_is_valid(const struct speclab_decoder *d, const struct speclab_request *r, struct error *err)
{
    const int vocab = speclab_target_vocab(d->t);
    if (r->n < 1 || r->max_tokens < 1)
        return fail(err, "a request needs a prompt and max_tokens of at least 1, found %d tokens and %d", r->n,
                    r->max_tokens);
    if (r->sequence < 0 || r->sequence > UINT32_MAX)
        return fail(err, "sequence: expected a number from 0 to 2^32 - 1, found %lld", (long long)r->sequence);
    for (int i = 0; i < r->n; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab)
            return fail(err, "prompt: token %d is %d, expected an id from 0 to %d", i, r->prompt[i], vocab - 1);
    return decoder_has_free_slot(d->decoder) || fail(err, "no slot is free: step until a sequence ends");
}

bool speclab_decoder_start(struct speclab_decoder *d, const struct speclab_request *r, struct speclab_error *error)
{
    struct error err;
    const struct assignment a = {
        .sequence = r->sequence,
        .prompt = r->prompt,
        .n = r->n,
        .limit = r->max_tokens,
        .stops = r->ignore_end ? NULL : &d->stops,
    };
    return (request_is_valid(d, r, &err) && decoder_start(d->decoder, &a, &err)) || copy_error(error, &err);
}

int speclab_decoder_active(const struct speclab_decoder *d)
{
    return decoder_active(d->decoder);
}

bool speclab_decoder_step(struct speclab_decoder *d, struct speclab_error *error)
{
    struct error err;
    return decoder_step(d->decoder, &err) || copy_error(error, &err);
}
