// target.c - opens a target, and makes token ids of texts and texts of token ids.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/paths.h"
#include "models/weights.h"

// ---- opening

// The index of a word in "a|b|c"; text NULL: 0, the default.
static bool choice(const char *what, const char *text, const char *choices, int *to, struct error *err)
{
    *to = text != NULL ? choice_index(choices, text) : 0;
    return *to >= 0 || fail(err, "%s: expected one of %s, found \"%s\"", what, choices, text);
}

bool option_in_range(const char *what, int value, int max, const char *why, struct error *err)
{
    if (value < 0)
        return fail(err, "%s: expected a positive number, or 0 for the default, found %d", what, value);
    return value <= max || fail(err, "%s: expected at most %d%s, found %d", what, max, why, value);
}

static bool resolve_cache(struct speclab_target *t, enum kv_type cache, struct error *err)
{
    struct kv_shape shape = model_kv_shape(t->model, 1, 1, 1);
    t->cache = shape.type = kv_type_resolve(cache);
    return kv_fits(&shape, err);
}

static bool open_model(struct speclab_target *t, const char *path, const struct speclab_target_options *o,
                       int activations, struct error *err)
{
    const int rows = o->rows > 0 ? o->rows : TARGET_ROWS;
    char *message = NULL; // what happened to the packed-weight cache
    t->model = model_open_as(path, t->backend, (enum activations)activations, QUANTIZE_NONE, rows,
                             o->packed_cache ? &message : NULL, err);
    if (t->model != NULL && message != NULL && o->log != NULL)
        o->log(o->log_self, message);
    free(message);
    return t->model != NULL;
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
    const char *name = o->ids_only ? "none" : o->chat != NULL ? o->chat : "auto";
    if (!chat_variables_read(o->chat_variables, &variables, &why))
        fail(&t->no_chat, "chat_variables: %s", why.text);
    else
        target_set_chat(t, (struct chat_request){ .name = name, .variables = variables, .now = today }, &why);
    json_free(variables);
}

static void open_tokenizer(struct speclab_target *t)
{
    t->tokenizer = tokenizer_open(model_config(t->model)->path, &t->no_tokenizer);
    if (t->tokenizer != NULL && tokenizer_size(t->tokenizer) < t->used_vocab)
        t->used_vocab = tokenizer_size(t->tokenizer);
}

static struct speclab_target *open_target(const char *name, const struct speclab_target_options *o, struct error *err)
{
    int activations, cache;
    if (!choice("activations", o->activations, ACTIVATIONS_CHOICES, &activations, err) ||
        !choice("cache", o->cache, KV_CHOICES, &cache, err) || (o->chat != NULL && !chat_name_known(o->chat, err)) ||
        !option_in_range("threads", o->threads, MAX_THREADS, "", err) ||
        !option_in_range("rows", o->rows, MAX_SLOTS * MAX_NODES, "", err))
        return NULL;
    char *path = model_path(name, o->folder, err);
    if (path == NULL)
        return NULL;
    struct speclab_target *t = xcalloc(1, sizeof(*t));
    t->path = xstrdup(model_is_shape(name) ? name : path);
    t->devices = devices_create(o->threads);
    devices_log(t->devices, o->log, o->log_self);
    t->backend = devices_get(t->devices, o->device, err);
    const bool ok =
        t->backend != NULL && open_model(t, path, o, activations, err) && resolve_cache(t, (enum kv_type)cache, err);
    free(path);
    if (!ok) {
        speclab_target_close(t);
        return NULL;
    }
    t->used_vocab = model_shape(t->model)->vocab;
    if (!o->ids_only)
        open_tokenizer(t);
    open_chat(t, o);
    return t;
}

struct speclab_target *speclab_target_open(const char *model, const struct speclab_target_options *options,
                                           struct speclab_error *error)
{
    static const struct speclab_target_options none;
    struct error ignored;
    return open_target(model, options != NULL ? options : &none, error != NULL ? error : &ignored);
}

void speclab_target_close(struct speclab_target *t)
{
    if (t == NULL)
        return;
    states_memory_free(t->states, t->backend);
    weights_close(t->weights);
    chat_close(&t->chat);
    tokenizer_close(t->tokenizer);
    model_close(t->model);
    devices_destroy(t->devices);
    free(t->path);
    free(t);
}

int speclab_interface(void)
{
    return SPECLAB_VERSION;
}

// ---- texts

static bool choose_chat(struct speclab_target *t, struct chat_request *r)
{
    struct error why;
    r->jinja = model_config(t->model)->chat_template;
    r->tokens = model_config(t->model)->special_tokens;
    if (chat_choose(r, &t->chat, &why))
        return true;
    const bool own = choice_index(CHAT_NAMES, r->name) >= 0; // otherwise why begins with the template's file
    return own ? fail(&t->no_chat, "%s: %s", t->path, why.text) : fail(&t->no_chat, "%s", why.text);
}

bool target_set_chat(struct speclab_target *t, struct chat_request r, struct error *err)
{
    chat_close(&t->chat);
    t->chat = (struct chat_format){ .kind = CHAT_NONE };
    t->no_chat.text[0] = '\0';
    return choose_chat(t, &r) || fail(err, "%s", t->no_chat.text);
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

bool target_encode(const struct speclab_target *t, int how, const char *text, size_t n, struct ids *to,
                   struct error *err)
{
    return target_needs_text(t, err) && text_encode(t->tokenizer, model_config(t->model), how, text, n, to, err);
}

bool target_encode_chat(const struct speclab_target *t, const struct message *m, int n, struct ids *to,
                        struct error *err)
{
    struct text text = { 0 };
    text_puts(&text, "");
    const bool ok = speclab_target_has_chat(t, err) && chat_render(&t->chat, m, n, &text, err) &&
                    target_encode(t, encode_rendered(&t->chat), text.s, text.n, to, err);
    free(text.s);
    return ok;
}

// Appends what `encode` appended to ids to the caller's tokens, which keep their number after a failure.
static bool give(struct speclab_tokens *to, struct ids ids, bool ok)
{
    *to = (struct speclab_tokens){ ids.id, ok ? ids.n : to->n };
    return ok;
}

bool speclab_encode(const struct speclab_target *t, const char *text, struct speclab_tokens *to,
                    struct speclab_error *error)
{
    struct error ignored;
    struct ids ids = { to->id, to->n, to->n };
    const bool ok = target_encode(t, ENCODE_BOS, text, strlen(text), &ids, error != NULL ? error : &ignored);
    return give(to, ids, ok);
}

bool speclab_target_has_chat(const struct speclab_target *t, struct speclab_error *error)
{
    struct error ignored, *err = error != NULL ? error : &ignored;
    return target_needs_text(t, err) && (t->no_chat.text[0] == '\0' || fail(err, "%s", t->no_chat.text));
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
    struct error ignored, *err = error != NULL ? error : &ignored;
    struct ids ids = { to->id, to->n, to->n };
    if (!speclab_target_has_chat(t, err) || !messages_are_valid(message, n, err))
        return false;
    struct message *m = xcalloc((size_t)n + 1, sizeof(*m));
    for (int i = 0; i < n; i++)
        m[i] = (struct message){ message[i].role, message[i].content };
    const bool ok = target_encode_chat(t, m, n, &ids, err);
    free(m);
    return give(to, ids, ok);
}
