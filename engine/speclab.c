// speclab.c - the public interface over engine.h: options given as text, errors copied out, steps in public structs.
#include "engine/speclab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "core/utf8.h"
#include "engine/decode.h"
#include "drafters/drafter.h"
#include "engine/engine.h"
#include "engine/transcript.h"
#include "models/model.h"
#include "verifier/rules/rule.h"

struct speclab_target {
    struct target target;
    struct chat_format chat; // kind CHAT_NONE if there is no_chat
    struct error no_chat;    // why conversations have no template; "": they have one, or need none
};

struct speclab_decoder {
    struct speclab_target *target;
    struct pairing pairing;
    struct decoder *decoder;
    struct speclab_listener listener;
    struct request_ends **ends; // (slots) what ends each active sequence; owned
    int slots;
};

static bool copy_error(struct speclab_error *to, const struct error *err)
{
    if (to != NULL)
        snprintf(to->text, sizeof(to->text), "%s", err->text);
    return false;
}

// The index of a word in "a|b|c"; text NULL: 0, the default.
static bool choice(const char *what, const char *text, const char *choices, int *to, struct error *err)
{
    *to = text != NULL ? choice_index(choices, text) : 0;
    return *to >= 0 || fail(err, "%s: expected one of %s, found \"%s\"", what, choices, text);
}

// why: what sets the maximum, for the message.
static bool in_range(const char *what, int value, int max, const char *why, struct error *err)
{
    if (value < 0)
        return fail(err, "%s: expected a positive number, or 0 for the default, found %d", what, value);
    return value <= max || fail(err, "%s: expected at most %d%s, found %d", what, max, why, value);
}

// ---- target

static bool chat_is_known(const char *name, struct error *err)
{
    return name == NULL || chat_name_known(name, err);
}

// A failure is reported when a chat is encoded.
static void open_chat(struct speclab_target *t, const struct speclab_target_options *o)
{
    char today[16];
    const time_t now = time(NULL);
    struct tm date;
    strftime(today, sizeof(today), "%Y-%m-%d", localtime_r(&now, &date));
    struct json *variables = NULL;
    struct error why;
    if (!chat_variables_read(o->chat_variables, &variables, &why))
        fail(&t->no_chat, "chat_variables: %s", why.text);
    else
        target_chat(
            &t->target,
            (struct chat_request){ .name = o->chat != NULL ? o->chat : "auto", .variables = variables, .now = today },
            &t->chat, &t->no_chat);
    json_free(variables);
}

struct speclab_target *speclab_target_open(const char *model, const struct speclab_target_options *options,
                                           struct speclab_error *error)
{
    const struct speclab_target_options none = { 0 }, *o = options != NULL ? options : &none;
    struct speclab_target *t = xcalloc(1, sizeof(*t));
    struct target_options to = { .precision = { .device = o->device },
                                 .threads = o->threads,
                                 .rows = o->rows,
                                 .packed = o->packed_cache ? PACKED_KEEP : PACKED_NO,
                                 .log = o->log,
                                 .self = o->log_self };
    struct error err;
    if (choice("activations", o->activations, ACTIVATIONS_CHOICES, &to.precision.activations, &err) &&
        choice("cache", o->cache, KV_CHOICES, &to.precision.cache, &err) && chat_is_known(o->chat, &err) &&
        in_range("threads", o->threads, MAX_THREADS, "", &err) &&
        in_range("rows", o->rows, MAX_SLOTS * MAX_NODES, "", &err) && target_open(&t->target, model, &to, &err)) {
        open_chat(t, o);
        return t;
    }
    copy_error(error, &err);
    free(t);
    return NULL;
}

void speclab_target_close(struct speclab_target *t)
{
    if (t != NULL) {
        chat_close(&t->chat);
        target_close(&t->target);
    }
    free(t);
}

int speclab_target_vocab(const struct speclab_target *t)
{
    return t->target.used_vocab;
}

int speclab_target_context(const struct speclab_target *t)
{
    return model_shape(t->target.model)->context;
}

bool speclab_encode(const struct speclab_target *t, const char *text, struct speclab_tokens *to,
                    struct speclab_error *error)
{
    struct error err;
    struct ids ids = { to->id, to->n, to->n };
    const bool ok = target_encode(&t->target, ENCODE_BOS, text, strlen(text), &ids, &err);
    *to = (struct speclab_tokens){ ids.id, ok ? ids.n : to->n };
    return ok || copy_error(error, &err);
}

bool speclab_target_has_chat(const struct speclab_target *t, struct speclab_error *error)
{
    struct error err = t->no_chat;
    return (target_needs_text(&t->target, &err) && *err.text == '\0') || copy_error(error, &err);
}

static bool messages_are_valid(const struct speclab_message *m, int n, struct error *err)
{
    if (n < 0 || (n > 0 && m == NULL))
        return fail(err, "messages: expected an array and its length, found %d%s", n, m == NULL ? " and NULL" : "");
    for (int i = 0; i < n; i++) {
        const char *role = m[i].role;
        if (role == NULL || choice_index(CHAT_ROLES, role) < 0)
            return fail(err, "message %d: expected the role system, user or assistant, found \"%s\"", i,
                        role != NULL ? role : "");
        if (m[i].content == NULL)
            return fail(err, "message %d: expected content, found NULL", i);
    }
    return true;
}

bool speclab_encode_chat(const struct speclab_target *t, const struct speclab_message *message, int n,
                         struct speclab_tokens *to, struct speclab_error *error)
{
    struct error err;
    if (!speclab_target_has_chat(t, error))
        return false;
    if (!messages_are_valid(message, n, &err))
        return copy_error(error, &err);
    struct message *m = xcalloc((size_t)n + 1, sizeof(*m));
    for (int i = 0; i < n; i++)
        m[i] = (struct message){ message[i].role, message[i].content };
    struct ids ids = { to->id, to->n, to->n };
    const bool ok = target_encode_chat(&t->target, &t->chat, m, n, &ids, &err);
    *to = (struct speclab_tokens){ ids.id, ok ? ids.n : to->n };
    free(m);
    return ok || copy_error(error, &err);
}

char *speclab_text(const struct speclab_target *t, const int32_t *token, size_t n, size_t *bytes)
{
    return target_text(&t->target, token, n, bytes);
}

// ---- decoder

struct request_ends { // what ends one sequence
    struct text_ends ends;
    char *stop[]; // (ends.strings.n) owned
};

static struct request_ends *request_ends_create(const struct speclab_target *t, const struct speclab_request *r)
{
    struct request_ends *e = xcalloc(1, sizeof(*e) + (size_t)r->n_stop * sizeof(*e->stop));
    for (int i = 0; i < r->n_stop; i++)
        e->stop[i] = xstrdup(r->stop[i]);
    text_ends_set(&e->ends, &t->target, &t->chat, r->ignore_end, r->n_stop, (const char *const *)e->stop);
    return e;
}

static void request_ends_destroy(struct request_ends *e)
{
    for (int i = 0; e != NULL && i < e->ends.strings.n; i++)
        free(e->stop[i]);
    free(e);
}

static void on_step(void *self, const struct step *s)
{
    struct speclab_decoder *d = self;
    const struct speclab_step step = { s->sequence,     s->verification->token, s->kept,
                                       s->draft->n - 1, transcript_accepted(s), s->propose_ns,
                                       s->verify_ns,    s->advance_ns };
    if (d->listener.step != NULL)
        d->listener.step(d->listener.self, &step);
}

static void on_end(void *self, const struct ending *e)
{
    struct speclab_decoder *d = self;
    struct request_ends **ends = &d->ends[decoder_slot(d->decoder, e->sequence)];
    if (d->listener.end != NULL) {
        size_t bytes = 0;
        char *text = e->why == STOP_STRING ? stop_strings_text(&(*ends)->ends.strings, e->token, e->n, &bytes)
                                           : target_text(&d->target->target, e->token, (size_t)e->n, &bytes);
        const struct speclab_end end = { e->sequence, e->token, e->n, text, bytes, stop_name(e->why) };
        d->listener.end(d->listener.self, &end);
        free(text);
    }
    request_ends_destroy(*ends);
    *ends = NULL;
}

static const struct speclab_decoder_options default_options;

static bool read_pairing(struct pairing *p, const struct speclab_decoder_options *o, struct error *err)
{
    struct settings *drafter =
        settings_inline(o->drafter != NULL ? o->drafter : drafter_types[0]->name, "drafter", err);
    struct settings *rule =
        drafter != NULL ? settings_inline(o->rule != NULL ? o->rule : rules[0]->name, "rule", err) : NULL;
    struct settings *sampling =
        rule != NULL ? settings_pairs(o->sampling != NULL ? o->sampling : "temperature=1", "sampling", err) : NULL;
    const bool ok = sampling != NULL && drafter_length(drafter, err) && pairing_read(p, drafter, rule, sampling, err);
    settings_free(drafter);
    settings_free(rule);
    settings_free(sampling);
    return ok;
}

bool speclab_decoder_options_check(const struct speclab_decoder_options *options, struct speclab_error *error)
{
    struct pairing p = { 0 };
    struct error err;
    const bool ok = read_pairing(&p, options != NULL ? options : &default_options, &err);
    pairing_close(&p);
    return ok || copy_error(error, &err);
}

static bool open_decoder(struct speclab_decoder *d, const struct speclab_decoder_options *o, struct error *err)
{
    const int context = speclab_target_context(d->target), length = o->length > 0 ? o->length : context;
    if (!read_pairing(&d->pairing, o, err) || !in_range("slots", o->slots, MAX_SLOTS, "", err) ||
        !in_range("length", o->length, context, ", the model's context", err))
        return false;
    d->slots = o->slots > 0 ? o->slots : 1;
    d->ends = xcalloc((size_t)d->slots, sizeof(struct request_ends *));
    if (pairing_open(&d->pairing, &d->target->target, d->slots, length, err))
        d->decoder = decoder_create(d->pairing.verifier, d->pairing.drafter, d->slots, o->seed,
                                    (struct listener){ on_step, on_end, d }, err);
    return d->decoder != NULL;
}

struct speclab_decoder *speclab_decoder_create(struct speclab_target *t, const struct speclab_decoder_options *options,
                                               struct speclab_error *error)
{
    const struct speclab_decoder_options *o = options != NULL ? options : &default_options;
    struct speclab_decoder *d = xcalloc(1, sizeof(*d));
    struct error err;
    d->target = t;
    d->listener = o->listener;
    if (open_decoder(d, o, &err))
        return d;
    speclab_decoder_destroy(d);
    copy_error(error, &err);
    return NULL;
}

void speclab_decoder_destroy(struct speclab_decoder *d)
{
    if (d == NULL)
        return;
    decoder_destroy(d->decoder);
    for (int i = 0; i < d->slots; i++)
        request_ends_destroy(d->ends[i]);
    pairing_close(&d->pairing);
    free(d->ends);
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
    const int vocab = speclab_target_vocab(d->target);
    if (r->n < 1 || r->max_tokens < 1)
        return fail(err, "a request needs a prompt and max_tokens of at least 1, found %d tokens and %d", r->n,
                    r->max_tokens);
    if (r->sequence < 0 || r->sequence > UINT32_MAX)
        return fail(err, "sequence: expected a number from 0 to 2^32 - 1, found %lld", (long long)r->sequence);
    if (decoder_slot(d->decoder, r->sequence) >= 0)
        return fail(err, "sequence: %lld has not ended, expected another number", (long long)r->sequence);
    if (r->n_stop < 0)
        return fail(err, "n_stop: expected at least 0, found %d", r->n_stop);
    if (r->n_stop > 0 && !target_needs_text(&d->target->target, err))
        return false;
    for (int i = 0; i < r->n_stop; i++)
        if (r->stop[i] == NULL || *r->stop[i] == '\0')
            return fail(err, "stop string %d: expected a text that is not empty", i);
    for (int i = 0; i < r->n_stop; i++) {
        char what[32];
        snprintf(what, sizeof(what), "stop string %d", i);
        if (!require_utf8(r->stop[i], strlen(r->stop[i]), what, err))
            return false;
    }
    for (int i = 0; i < r->n; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab)
            return fail(err, "prompt: token %d is %d, expected an id from 0 to %d", i, r->prompt[i], vocab - 1);
    return decoder_has_free_slot(d->decoder) || fail(err, "no slot is free: step until a sequence ends");
}

bool speclab_decoder_start(struct speclab_decoder *d, const struct speclab_request *r, struct speclab_error *error)
{
    struct error err;
    if (!request_is_valid(d, r, &err))
        return copy_error(error, &err);
    struct request_ends *e = request_ends_create(d->target, r);
    const struct assignment a = { r->sequence, r->prompt, r->n, r->max_tokens, &e->ends.stops, NULL };
    if (!decoder_start(d->decoder, &a, &err)) {
        request_ends_destroy(e);
        return copy_error(error, &err);
    }
    d->ends[decoder_slot(d->decoder, r->sequence)] = e;
    return true;
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
