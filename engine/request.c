#include "engine/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/settings.h"
#include "core/utf8.h"

static bool stop_is_text(const char *stop, int i, struct error *err)
{
    char what[32];
    snprintf(what, sizeof(what), "stop string %d", i);
    if (stop == NULL || *stop == '\0')
        return fail(err, "%s: expected a text that is not empty", what);
    return require_utf8(stop, strlen(stop), what, err);
}

bool request_check(const struct speclab_decoder *d, const struct speclab_request *r, struct error *err)
{
    const int vocab = verifier_setup(d->verifier)->used_vocab;
    if (r->n < 1 || r->max_tokens < 1)
        return fail(err, "a request needs a prompt and max_tokens of at least 1, found %d tokens and %d", r->n,
                    r->max_tokens);
    if (r->sequence < 0 || r->sequence > UINT32_MAX)
        return fail(err, "sequence: expected a number from 0 to 2^32 - 1, found %lld", (long long)r->sequence);
    if (r->n_stop < 0)
        return fail(err, "n_stop: expected at least 0, found %d", r->n_stop);
    if (r->n_stop > 0 && (d->target == NULL || !target_needs_text(d->target, err)))
        return false;
    for (int i = 0; i < r->n_stop; i++)
        if (!stop_is_text(r->stop[i], i, err))
            return false;
    for (int i = 0; i < r->n; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab)
            return fail(err, "prompt: token %d is %d, expected an id from 0 to %d", i, r->prompt[i], vocab - 1);
    return true;
}

static bool read_sampling(struct request_copy *to, const struct verifier_setup *v, const char *text, struct error *err)
{
    struct settings *s = settings_pairs(text, "sampling", err);
    const bool ok = s != NULL && sampling_read(s, &to->own, err) && sampling_check(&to->own, v->used_vocab, err);
    to->own.workers = v->sampling->workers;
    to->sampling = &to->own;
    settings_free(s);
    return ok;
}

bool request_copy(struct request_copy *to, const struct speclab_decoder *d, const struct speclab_request *r,
                  struct error *err)
{
    *to = (struct request_copy){ .stop = r->n_stop > 0 ? xcalloc((size_t)r->n_stop, sizeof(*to->stop)) : NULL };
    for (int i = 0; i < r->n_stop; i++)
        to->stop[i] = xstrdup(r->stop[i]);
    to->strings = (struct stop_strings){ d->target != NULL ? d->target->tokenizer : NULL, r->n_stop,
                                         (const char *const *)to->stop };
    to->stops = (struct stops){ .n = r->ignore_end ? 0 : d->n_end,
                                .token = d->end,
                                .string = r->n_stop > 0 ? stop_strings_find : NULL,
                                .self = &to->strings };
    return r->sampling == NULL || read_sampling(to, verifier_setup(d->verifier), r->sampling, err);
}

void request_free(struct request_copy *r)
{
    for (int i = 0; r->stop != NULL && i < r->strings.n; i++)
        free(r->stop[i]);
    free(r->stop);
    sampling_free(&r->own);
    *r = (struct request_copy){ 0 };
}

char *request_text(const struct request_copy *r, const struct speclab_decoder *d, enum speclab_stop why,
                   const int32_t *token, int n, size_t *bytes)
{
    *bytes = 0;
    if (d->target == NULL || d->target->tokenizer == NULL)
        return NULL;
    return why == SPECLAB_STOP_STRING ? stop_strings_text(&r->strings, token, n, bytes)
                                      : speclab_text(d->target, token, (size_t)n, bytes);
}
