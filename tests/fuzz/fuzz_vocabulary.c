// fuzz_vocabulary.c - arbitrary bytes as a vocabulary in a file of its own: SentencePiece's or tiktoken's tokenizer.model, tekken.json, GGUF.
// The beginning says which. Texts are encoded and decoded with what opens: a few, and the end of the file.
//
// seeds: tests/cases/pieces
// reader: models/formats/protobuf.c models/tokenizers/base64.c models/tokenizers/sentencepiece.c models/tokenizers/unigram.c models/tokenizers/normalizer.c
// reader: models/tokenizers/tiktoken.c models/tokenizers/tokenizer_gguf.c
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "models/tokenizers/tokenizer.h"

static void use(const struct tokenizer *t, const char *text, size_t n, bool special)
{
    struct error err;
    struct ids ids = { 0 };
    struct decoding held = { 0 };
    struct text out = { 0 };
    const bool ok = tokenizer_encode(t, text, n, special, &ids, &err);
    insist(ok || utf8_valid(text, n) != n || err.text[0] != '\0');
    insist(utf8_valid(text, n) == n || !ok);
    for (size_t i = 0; i < ids.n; i++) {
        size_t length;
        insist(ids.id[i] >= 0 && ids.id[i] < tokenizer_size(t) && tokenizer_token(t, ids.id[i], &length) != NULL);
        tokenizer_decode(t, &ids.id[i], 1, true, &held, &out);
        insist(held.n <= 3);
    }
    tokenizer_decode_end(&held, &out);
    insist(out.n == 0 || utf8_valid(out.s, out.n) == out.n);
    free(out.s);
    free(ids.id);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    static const char *const texts[] = {
        "",
        " the  cats\t12\n",
        "<s>a</s>",
        "\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x8E\x89",
        "a\xCC\x88\xEF\xBC\xA1",
        "\xEF\xAC\x81x\xE2\x80\xA6\xE3\x80\x80\xC2\xBD\xE2\x80\x8B\xE2\x84\xA2  I'm<sep>\xC2\xB2"
    };
    const char *name = n >= 4 && memcmp(input, "GGUF", 4) == 0 ? "vocabulary.gguf"
                       : n > 0 && input[0] == '{'              ? "tekken.json"
                                                               : "tokenizer.model";
    struct error err = { "" };
    fuzz_write(name, input, n);
    char *path = fuzz_path(name);
    struct tokenizer *t = tokenizer_open(path, &err);
    insist(t != NULL || strncmp(err.text, path, strlen(path)) == 0);
    for (int special = 0; t != NULL && special < 2; special++) {
        for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
            use(t, texts[i], strlen(texts[i]), special);
        use(t, (const char *)input + (n < 64 ? 0 : n - 64), n < 64 ? n : 64, special);
    }
    tokenizer_close(t);
    fuzz_write(name, NULL, 0);
    free(path);
    return 0;
}
