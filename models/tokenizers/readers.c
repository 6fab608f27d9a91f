// readers.c - steps that the readers of several forms share.
#include "models/tokenizers/readers.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/printable.h"

bool tokenizer_add_raw(struct tokenizer *t, int32_t id, const char *text, size_t n, enum token_kind kind,
                       struct error *err)
{
    if (!vocabulary_add_literal(&t->vocabulary, id, text, n, kind, err))
        return false;
    if (n > 0)
        added_add(&t->raw, text, n, (struct added_token){ .id = id, .special = kind == TOKEN_SPECIAL });
    return true;
}

static bool missing_token(size_t rank, const char *text, size_t n, struct error *err)
{
    char *shown = printable_text(text, n);
    fail(err, "merge %zu needs the token %s, which is not in the vocabulary", rank, shown);
    free(shown);
    return false;
}

bool tokenizer_merge(struct tokenizer *t, size_t rank, const char *left, size_t left_n, const char *right,
                     size_t right_n, struct error *err)
{
    int32_t l = vocabulary_find(&t->vocabulary, left, left_n), r = vocabulary_find(&t->vocabulary, right, right_n);
    if (l < 0)
        return missing_token(rank, left, left_n, err);
    if (r < 0)
        return missing_token(rank, right, right_n, err);
    struct text whole = { 0 };
    text_add(&whole, left, left_n);
    text_add(&whole, right, right_n);
    int32_t id = vocabulary_find(&t->vocabulary, whole.s, whole.n);
    if (id < 0)
        missing_token(rank, whole.s, whole.n, err);
    else
        bpe_merge(&t->bpe, l, r, (uint32_t)rank, id);
    free(whole.s);
    return id >= 0;
}

void tokenizer_find_bytes(const struct tokenizer *t, bool letters, int32_t byte[256])
{
    for (int b = 0; b < 256; b++) {
        char text[8];
        const int n =
            letters ? byte_to_letter((unsigned char)b, text) : snprintf(text, sizeof(text), "<0x%02X>", (unsigned)b);
        byte[b] = vocabulary_find(&t->vocabulary, text, (size_t)n);
    }
}
