// fuzz_tokenizer.c - arbitrary bytes as a tokenizer.json, and arbitrary text encoded and decoded with it. The file ends at
// the first NUL, the text begins after it.
//
// reader: models/tokenizers/tokenizer_json.c models/tokenizers/tokenizer.c models/tokenizers/tokenizer_open.c models/tokenizers/readers.c models/tokenizers/added_tokens.c models/tokenizers/vocabulary.c
// reader: models/tokenizers/bpe.c models/tokenizers/pretokenize.c models/tokenizers/pattern.c models/tokenizers/normal_form.c core/utf8.c
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tests/fuzz/fuzz.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/readers.h"

static const struct fuzz_file files[] = { { "tokenizer.json", FUZZ_JSON }, { "text", FUZZ_TEXT }, { NULL, FUZZ_TEXT } };
static const char words[] =
    "BPE  ByteFallback  ByteLevel  Digits  Fuse  Isolated  MergedWithPrevious  Metaspace  NFC  NFKC  Precompiled  "
    "Prepend  Punctuation  Regex  Removed  Replace  Sequence  Split  String  Strip  Unigram  Whitespace  "
    "add_prefix_space  added_tokens  behavior  byte_fallback  content  continuing_subword_prefix  decoder  decoders  "
    "dropout  end_of_word_suffix  fuse_unk  id  ignore_merges  individual_digits  invert  lstrip  merges  model  "
    "normalized  normalizer  normalizers  pattern  precompiled_charsmap  prepend_scheme  pre_tokenizer  "
    "pretokenizers  rstrip  single_word  special  type  unk_id  unk_token  use_regex  vocab  "
    "(?i:'s|'t)|\\p{L}+|\\s+(?!\\S)  [^\\s\\p{N}]{1,3}  [a-z&&[^b]]  (?<=x)y*  \\h|(a)\\1  \\p{Nd}  a b  "
    "#version: 0.2  a\xCC\x88";

static struct tokenizer *reference; // for tokenizer_same

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    struct error err;
    struct fuzz_slice part[2];
    size_t n;
    char *path = fuzz_seed_path((*argv)[0], "tokenizer/made");
    uint8_t *bytes = fuzz_read(path, &n);
    fuzz_split(bytes, n, part, 2);
    fuzz_write(files[0].name, part[0].at, part[0].n);
    insist((reference = tokenizer_open(fuzz_folder(), &err)) != NULL);
    free(bytes);
    free(path);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    struct fuzz_slice part[2];
    struct error err = { "" };
    fuzz_split(input, n, part, 2);
    fuzz_write(files[0].name, part[0].at, part[0].n);
    char *path = part[1].n % 2 != 0 ? fuzz_path(files[0].name) : xstrdup(fuzz_folder());
    struct tokenizer *t = tokenizer_open(path, &err);
    insist(t != NULL || strncmp(err.text, path, strlen(path)) == 0);
    for (int special = 0; t != NULL && special < 2; special++)
        fuzz_tokenize(t, (const char *)part[1].at, part[1].n, special != 0);
    if (t != NULL) {
        insist(tokenizer_same(t, t, &err));
        insist(tokenizer_same(t, reference, &err) == tokenizer_same(reference, t, &err));
        insist(tokenizer_id(t, "a") >= -1 && tokenizer_id(t, "a") < tokenizer_size(t));
    }
    tokenizer_close(t);
    free(path);
    return 0;
}

FUZZ_MUTATOR(files, words)
