// tokens.c - the tokenizer of a model, without its weights.
#include <stdio.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "models/paths.h"

struct speclab_tokenizer; // a struct tokenizer

static struct tokenizer *inner(const struct speclab_tokenizer *t)
{
    return (struct tokenizer *)(uintptr_t)t;
}

struct speclab_tokenizer *speclab_tokenizer_open(const char *model, struct speclab_error *error)
{
    struct error ignored, *err = error != NULL ? error : &ignored;
    char *path = model_path(model, NULL, err);
    struct tokenizer *t = path != NULL ? tokenizer_open(path, err) : NULL;
    free(path);
    return (struct speclab_tokenizer *)t;
}

void speclab_tokenizer_close(struct speclab_tokenizer *t)
{
    tokenizer_close(inner(t));
}

int speclab_tokenizer_size(const struct speclab_tokenizer *t)
{
    return tokenizer_size(inner(t));
}

void speclab_tokenizer_identity(const struct speclab_tokenizer *t, char to[33])
{
    snprintf(to, 33, "%s", hash_text(tokenizer_tokens_hash(inner(t))).s);
}

bool speclab_tokenizer_encode(const struct speclab_tokenizer *t, const char *text, size_t n, struct speclab_tokens *to,
                              struct speclab_error *error)
{
    struct error ignored;
    struct ids ids = { to->id, to->n, to->n };
    const size_t before = to->n;
    const bool ok = tokenizer_encode(inner(t), text, n, false, &ids, error != NULL ? error : &ignored);
    *to = (struct speclab_tokens){ ids.id, ok ? ids.n : before };
    return ok;
}
