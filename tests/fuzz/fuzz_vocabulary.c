// fuzz_vocabulary.c - arbitrary bytes as a vocabulary in a file of its own: SentencePiece's or tiktoken's tokenizer.model, tekken.json, GGUF.
// The beginning says which. Texts are encoded and decoded with what opens: a few, and the end of the file.
//
// seeds: tests/cases/pieces
// reader: models/formats/protobuf.c models/tokenizers/base64.c models/tokenizers/sentencepiece.c models/tokenizers/unigram.c models/tokenizers/normalizer.c
// reader: models/tokenizers/tiktoken.c models/tokenizers/tokenizer_gguf.c
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "tests/fuzz/fuzz.h"
#include "models/tokenizers/tokenizer.h"

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
            fuzz_tokenize(t, texts[i], strlen(texts[i]), special);
        fuzz_tokenize(t, (const char *)input + (n < 64 ? 0 : n - 64), n < 64 ? n : 64, special);
    }
    tokenizer_close(t);
    fuzz_write(name, NULL, 0);
    free(path);
    return 0;
}
