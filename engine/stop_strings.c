// stop_strings.c - the text of tokens, and stop strings in it: the search looks back only over the tokens that the
// longest one can span.
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

bool target_needs_text(const struct speclab_target *t, struct error *err)
{
    return t->tokenizer != NULL || fail(err, "no text without a tokenizer: %s", t->no_tokenizer.text);
}

char *speclab_text(const struct speclab_target *t, const int32_t *token, size_t n, size_t *bytes)
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

void stop_strings_add(const struct stop_strings *s, int32_t id, struct text *to)
{
    size_t n = 0;
    const char *bytes = tokenizer_is_special(s->tokenizer, id) ? NULL : tokenizer_token(s->tokenizer, id, &n);
    if (bytes != NULL)
        text_add(to, bytes, n);
}

static size_t longest(const struct stop_strings *s)
{
    size_t max = 0;
    for (int i = 0; i < s->n; i++)
        if (strlen(s->string[i]) > max)
            max = strlen(s->string[i]);
    return max;
}

// The first token in which a stop string that ends among the fresh tokens can start.
static int first_in_reach(const struct stop_strings *s, const int32_t *token, int from)
{
    size_t reach = longest(s), bytes = 0;
    for (; from > 0 && bytes + 1 < reach; from--) {
        size_t n = 0;
        if (!tokenizer_is_special(s->tokenizer, token[from - 1]) &&
            tokenizer_token(s->tokenizer, token[from - 1], &n) != NULL)
            bytes += n;
    }
    return from;
}

int stop_strings_find(void *self, const int32_t *token, int n, int fresh)
{
    const struct stop_strings *s = self;
    int first = n - fresh, kept = 0;
    struct text t = { 0 };
    text_puts(&t, "");
    for (int i = s->n > 0 ? first_in_reach(s, token, first) : n; i < n && kept == 0; i++) {
        stop_strings_add(s, token[i], &t);
        if (i >= first && stop_strings_cut(s, t.s, t.n, false) < t.n)
            kept = i + 1;
    }
    free(t.s);
    return kept;
}

// Number of bytes at the end of the text that are a prefix of the string.
static size_t partial_match(const char *text, size_t n, const char *string)
{
    size_t k = strlen(string) - 1;
    for (k = k < n ? k : n; k > 0; k--)
        if (memcmp(text + n - k, string, k) == 0)
            break;
    return k;
}

size_t stop_strings_cut(const struct stop_strings *s, const char *text, size_t n, bool partial)
{
    size_t cut = n;
    for (int i = 0; i < s->n; i++) {
        const char *at = n > 0 ? memmem(text, n, s->string[i], strlen(s->string[i])) : NULL;
        size_t here = at != NULL ? (size_t)(at - text) : partial ? n - partial_match(text, n, s->string[i]) : n;
        if (here < cut)
            cut = here;
    }
    return cut;
}

char *stop_strings_text(const struct stop_strings *s, const int32_t *token, int n, size_t *bytes)
{
    struct text raw = { 0 }, text = { 0 };
    struct decoding hold = { 0 };
    text_puts(&raw, "");
    text_puts(&text, "");
    for (int i = 0; i < n; i++)
        stop_strings_add(s, token[i], &raw);
    tokenizer_decode_bytes(&hold, raw.s, stop_strings_cut(s, raw.s, raw.n, false), &text);
    tokenizer_decode_end(&hold, &text);
    free(raw.s);
    *bytes = text.n;
    return text.s;
}
