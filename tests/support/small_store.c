#include "tests/support/small_store.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "models/formats/datastore.h"
#include "tests/support/check.h"
#include "models/tokenizers/tokenizer.h"

enum { TOKENS = 400 };

static uint16_t text[SMALL_STORE];
static int length;

static int by_text(const void *a, const void *b)
{
    int i = (int)*(const uint32_t *)a, k = (int)*(const uint32_t *)b;
    for (; i < length && k < length; i++, k++)
        if (text[i] != text[k])
            return text[i] < text[k] ? -1 : 1;
    return i == length ? -1 : 1;
}

void small_store_write_of(const char *target, const char *path, const int32_t *token, int n)
{
    static uint32_t suffix[SMALL_STORE];
    struct error err;
    struct tokenizer *t = tokenizer_open(target, &err);
    assert_ok(t != NULL, err);
    struct datastore_header h = { .magic = DATASTORE_MAGIC,
                                  .token_bytes = 2,
                                  .vocab = (uint32_t)tokenizer_size(t),
                                  .tokens = (uint64_t)n,
                                  .text = { 1, 2 },
                                  .vocabulary = tokenizer_tokens_hash(t) };
    assert_true(n <= SMALL_STORE);
    length = n;
    for (int i = 0; i < n; i++) {
        text[i] = (uint16_t)(token[i] < 0 ? h.vocab : (uint32_t)token[i] % h.vocab);
        suffix[i] = (uint32_t)i;
        h.documents += token[i] < 0;
    }
    qsort(suffix, (size_t)n, sizeof(*suffix), by_text);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(&h, sizeof(h), 1, f);
    fwrite(text, sizeof(*text), (size_t)n, f);
    fwrite(&(const uint64_t){ 0 }, 1, (size_t)(-2 * n & 7), f);
    fwrite(suffix, sizeof(*suffix), (size_t)n, f);
    fclose(f);
    tokenizer_close(t);
}

void small_store_write(const char *target, const char *path)
{
    int32_t token[TOKENS];
    uint64_t state = 3;
    for (int i = 0; i < TOKENS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        token[i] = i > 20 && (state >> 40) % 3 > 0 ? token[i - 1 - (int)((state >> 33) % 20)] : (int32_t)(state >> 33);
    }
    small_store_write_of(target, path, token, TOKENS);
}
