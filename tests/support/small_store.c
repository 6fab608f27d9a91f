#include "tests/support/small_store.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "models/formats/datastore.h"
#include "tests/support/check.h"
#include "models/tokenizers/tokenizer.h"

enum { TOKENS = 400 };

static uint16_t token[TOKENS];

static int by_text(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    for (; i < TOKENS && k < TOKENS; i++, k++)
        if (token[i] != token[k])
            return token[i] < token[k] ? -1 : 1;
    return i == TOKENS ? -1 : 1;
}

void small_store_write(const char *target, const char *path)
{
    uint32_t suffix[TOKENS];
    uint64_t state = 3;
    struct error err;
    struct tokenizer *t = tokenizer_open(target, &err);
    assert_ok(t != NULL, err);
    const struct datastore_header h = { .magic = DATASTORE_MAGIC,
                                        .token_bytes = 2,
                                        .vocab = (uint32_t)tokenizer_size(t),
                                        .tokens = TOKENS,
                                        .documents = 1,
                                        .text = { 1, 2 },
                                        .vocabulary = tokenizer_tokens_hash(t) };
    for (int i = 0; i < TOKENS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        token[i] = (uint16_t)(i > 20 && (state >> 40) % 3 > 0 ? token[i - 1 - (int)((state >> 33) % 20)]
                                                              : (state >> 33) % h.vocab);
        suffix[i] = (uint32_t)i;
    }
    qsort(suffix, TOKENS, sizeof(*suffix), by_text);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(&h, sizeof(h), 1, f);
    fwrite(token, sizeof(*token), TOKENS, f); // a multiple of 8 bytes
    fwrite(suffix, sizeof(*suffix), TOKENS, f);
    fclose(f);
    tokenizer_close(t);
}
