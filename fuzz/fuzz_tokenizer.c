// fuzz_tokenizer.c - any bytes at all as a tokenizer.json, and any text through what comes of it. The file ends at the
// first NUL, the text begins behind it.
//
//     clang -g -O1 -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -I. fuzz/fuzz_tokenizer.c \
//         models/{files,gguf,gguf_cursor,gguf_value,utf8,letters,vocabulary,bpe,pattern,newer,nfc,pretokenize,added}.c \
//         models/tokenizer{,_decode,_gguf,_json}.c core/{error,json,memory,tensor}.c -lpcre2-8 -lutf8proc -ljansson -lm
//
// Good first inputs: tests/cases/tokenizer_*/tokenizer.json, each with a NUL and a line of its .jsonl behind it.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/tokenizer.h"
#include "models/tokenizer_parts.h"
#include "models/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n);

static void insist(bool holds)
{
    if (!holds)
        abort();
}

static void use(const struct tokenizer *t, const char *text, size_t n)
{
    struct error err;
    insist(tokenizer_same(t, t, &err));
    for (int special = 0; special < 2; special++) {
        struct ids ids = { 0 };
        struct decoding hold = { 0 };
        struct text out = { 0 };
        bool ok = tokenizer_encode(t, text, n, special != 0, &ids, &err);
        insist(ok ? utf8_valid(text, n) == n : ids.n == 0);
        for (size_t i = 0; i < ids.n; i++) {
            size_t length;
            insist(ids.id[i] >= 0 && ids.id[i] < tokenizer_size(t) && tokenizer_token(t, ids.id[i], &length) != NULL);
            tokenizer_decode(t, &ids.id[i], 1, true, &hold, &out);
            insist(hold.n <= 3);
        }
        tokenizer_decode_end(&hold, &out);
        insist(out.n == 0 || utf8_valid(out.s, out.n) == out.n);
        free(out.s);
        free(ids.id);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    const uint8_t *nul = n > 0 ? memchr(input, 0, n) : NULL;
    size_t file = nul != NULL ? (size_t)(nul - input) : n;
    struct error err;
    struct json *j = json_parse((const char *)input, file, "fuzz", &err);
    struct tokenizer *t = j != NULL ? tokenizer_from_json(j, "fuzz", &err) : NULL;
    if (t != NULL && nul != NULL)
        use(t, (const char *)nul + 1, n - file - 1);
    tokenizer_close(t);
    json_free(j);
    return 0;
}
