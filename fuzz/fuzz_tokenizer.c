// fuzz_tokenizer.c - any bytes at all as a tokenizer.json, and any text through what comes of it. The file ends at the
// first NUL, the text begins behind it.
//
// reader: models/tokenizer_json.c models/tokenizer.c models/tokenizer_decode.c models/added.c models/vocabulary.c
// reader: models/bpe.c models/pretokenize.c models/pattern.c models/newer.c models/nfc.c models/letters.c models/utf8.c
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "fuzz/fuzz.h"
#include "models/tokenizer.h"
#include "models/tokenizer_parts.h"
#include "models/utf8.h"

static const struct fuzz_file files[] = { { "tokenizer.json", FUZZ_JSON }, { "text", FUZZ_TEXT }, { NULL, FUZZ_TEXT } };
static const char *const words[] = { "BPE",
                                     "ByteLevel",
                                     "Digits",
                                     "Isolated",
                                     "NFC",
                                     "Regex",
                                     "Removed",
                                     "Sequence",
                                     "Split",
                                     "String",
                                     "add_prefix_space",
                                     "added_tokens",
                                     "behavior",
                                     "byte_fallback",
                                     "content",
                                     "continuing_subword_prefix",
                                     "decoder",
                                     "decoders",
                                     "dropout",
                                     "end_of_word_suffix",
                                     "fuse_unk",
                                     "id",
                                     "ignore_merges",
                                     "individual_digits",
                                     "invert",
                                     "lstrip",
                                     "merges",
                                     "model",
                                     "normalized",
                                     "normalizer",
                                     "normalizers",
                                     "pattern",
                                     "pre_tokenizer",
                                     "pretokenizers",
                                     "rstrip",
                                     "single_word",
                                     "special",
                                     "type",
                                     "unk_token",
                                     "use_regex",
                                     "vocab",
                                     "(?i:'s|'t)|\\p{L}+|\\s+(?!\\S)",
                                     "[^\\s\\p{N}]{1,3}",
                                     "[a-z&&[^b]]",
                                     "(?<=x)y*",
                                     "\\h|(a)\\1",
                                     "\\p{Nd}",
                                     "a b",
                                     "#version: 0.2",
                                     "a\xCC\x88",
                                     NULL };

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

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed)
{
    return fuzz_change(data, n, most, seed, files, words);
}
