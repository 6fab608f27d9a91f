#include "models/formats/datastore.h"

#include <inttypes.h>
#include <string.h>

#include "core/error.h"

static size_t padded(size_t n)
{
    return (n + 7) / 8 * 8;
}

bool datastore_open(struct datastore *s, const char *path, struct error *err)
{
    if (!file_map(path, &s->file, err))
        return false;
    const struct datastore_header *h = (const struct datastore_header *)s->file.at;
    bool ok = s->file.n >= sizeof(*h) && memcmp(h->magic, DATASTORE_MAGIC, sizeof(DATASTORE_MAGIC)) == 0;
    if (!ok)
        fail(err, "%s: expected a datastore, as `speclab features --datastore` writes it", path);
    else if ((h->token_bytes != 2 && h->token_bytes != 4) || h->vocab < 1 || h->vocab > INT32_MAX ||
             (h->token_bytes == 2 && h->vocab > UINT16_MAX))
        ok = fail(err, "%s: a damaged datastore: tokens of %" PRIu32 " bytes, a vocabulary of %" PRIu32, path,
                  h->token_bytes, h->vocab);
    else if (h->tokens > UINT32_MAX || s->file.n != sizeof(*h) + padded((size_t)h->tokens * h->token_bytes) +
                                                        (size_t)h->tokens * sizeof(uint32_t))
        ok = fail(err, "%s: a damaged datastore: %" PRIu64 " tokens do not fit the size of the file, %zu bytes", path,
                  h->tokens, s->file.n);
    if (!ok) {
        datastore_close(s);
        return false;
    }
    s->header = h;
    s->token = s->file.at + sizeof(*h);
    s->suffix = (const uint32_t *)(s->file.at + sizeof(*h) + padded((size_t)h->tokens * h->token_bytes));
    return true;
}

void datastore_close(struct datastore *s)
{
    file_unmap(&s->file);
    *s = (struct datastore){ 0 };
}

int32_t datastore_token(const struct datastore *s, uint64_t i)
{
    const struct datastore_header *h = s->header;
    const uint32_t token = i >= h->tokens        ? h->vocab
                           : h->token_bytes == 2 ? ((const uint16_t *)s->token)[i]
                                                 : ((const uint32_t *)s->token)[i];
    return (int32_t)(token < h->vocab ? token : h->vocab);
}

// Compares the text at position `at` with token (n). Below 0: it comes before texts that begin with token; 0: it begins
// with token; above 0: it comes after those.
static int compare(const struct datastore *s, uint64_t at, const int32_t *token, int n)
{
    for (int i = 0; i < n; i++) {
        const int32_t x = at + (uint64_t)i < s->header->tokens ? datastore_token(s, at + (uint64_t)i) : -1;
        if (x != token[i])
            return x < token[i] ? -1 : 1;
    }
    return 0;
}

// Returns the first of low .. high - 1 whose comparison is at least `least`: 0 for texts that begin with token or come
// after it, 1 for texts that come after it.
static uint64_t first(const struct datastore *s, uint64_t low, uint64_t high, const int32_t *token, int n, int least)
{
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (compare(s, s->suffix[middle], token, n) < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t datastore_find(const struct datastore *s, const int32_t *token, int n, uint64_t *from)
{
    uint64_t step = 1, end;
    *from = first(s, 0, s->header->tokens, token, n, 0);
    while (*from + step < s->header->tokens && compare(s, s->suffix[*from + step], token, n) == 0)
        step *= 2; // most ranges are short, and end on the page where they begin
    end = *from + step < s->header->tokens ? *from + step : s->header->tokens;
    return first(s, *from + step / 2, end, token, n, 1) - *from;
}
