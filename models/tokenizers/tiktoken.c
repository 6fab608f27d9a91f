// tiktoken.c - byte-level BPE in tiktoken's form: tokens with ranks. Two tokens merge if their bytes form a token, the
// lowest rank first. A piece that is a token is not merged.
//
// A tiktoken file has neither a pattern nor special tokens: those of Llama 3 and Qwen, which publish such files, are
// recognized by the number of ranks. Mistral's tekken.json has both.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/tokenizers/base64.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/tokenizers/readers.h"

// Messages name the token by unit and number: "line 3" or "token 3".
static bool add_token(struct tokenizer *t, int32_t id, const char *base64, size_t n, const char *unit, long long number,
                      struct error *err)
{
    size_t bytes_n;
    char *bytes = base64_decode(base64, n, &bytes_n);
    struct text letters = { 0 };
    bool ok = (bytes != NULL && bytes_n > 0) || fail(err, "%s %lld: expected a token in base64", unit, number);
    if (ok) {
        bytes_to_letters(bytes, bytes_n, &letters);
        const int32_t other = vocabulary_find(&t->vocabulary, letters.s, letters.n);
        ok = other < 0 ? vocabulary_add(&t->vocabulary, id, letters.s, letters.n, FORM_LETTERS, err)
                       : fail(err, "%s %lld: the same token as id %d", unit, number, (int)other);
    }
    free(letters.s);
    free(bytes);
    return ok;
}

static bool finish(struct tokenizer *t, struct error *err)
{
    const int size = t->vocabulary.size;
    uint32_t *rank = xmalloc((size_t)size * sizeof(*rank));
    for (int32_t id = 0; id < size; id++) {
        const struct token *token = vocabulary_token(&t->vocabulary, id);
        rank[id] = token == NULL || token->literal ? NEVER_MADE : (uint32_t)id; // ids are ordered like ranks
    }
    bpe_init_texts(&t->bpe, &t->vocabulary, rank, NULL);
    t->ignore_merges = t->byte_letters = true;
    tokenizer_find_bytes(t, true, t->bpe.byte);
    for (int b = 0; b < 256; b++)
        if (t->bpe.byte[b] < 0)
            return fail(err, "the byte 0x%02X has no token", (unsigned)b);
    return true;
}

// ---- tiktoken's file: lines of a token in base64, a space, its rank

struct known { // a published file
    int ranks;
    bool nfc;             // texts are normalized to NFC
    const char *family;   // the family of its pattern
    const char *named;    // its first special tokens, separated by spaces
    const char *reserved; // the names of the others, which are numbered
    int first, n;         // first: the first number; n: number of special tokens
};
enum { TEKKEN = 2 };
static const struct known published[] = {
    { 128000, false, "llama-bpe",
      "<|begin_of_text|> <|end_of_text|> <|reserved_special_token_0|> <|reserved_special_token_1|> "
      "<|finetune_right_pad_id|> <|step_id|> <|start_header_id|> <|end_header_id|> <|eom_id|> <|eot_id|> "
      "<|python_tag|> <|image|>",
      "<|reserved_special_token_%d|>", 2, 256 },
    { 151643, true, "qwen2", "<|endoftext|> <|im_start|> <|im_end|>", "<|extra_%d|>", 0, 208 },
    // Mistral's: tekken.json has the other fields, but older files do not list the special tokens.
    { 0, false, NULL,
      "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] "
      "[TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] "
      "[/SYSTEM_PROMPT] [TOOL_CONTENT]",
      "<SPECIAL_%d>", 20, 0 },
};

// Returns the name of special token i; free() it.
static char *special_name(const struct known *k, int i)
{
    const char *s = k->named;
    for (; i > 0 && *s != '\0'; i--) {
        s += strcspn(s, " ");
        s += *s == ' ';
    }
    return *s != '\0' ? xstrndup(s, strcspn(s, " ")) : xformat(k->reserved, k->first + i);
}

static bool read_line(struct tokenizer *t, const char *line, size_t n, long long number, int32_t rank,
                      struct error *err)
{
    const char *space = memchr(line, ' ', n);
    const size_t base64_n = space != NULL ? (size_t)(space - line) : n;
    char number_text[16];
    const int length = snprintf(number_text, sizeof(number_text), " %d", (int)rank);
    if (space != NULL && n - base64_n == (size_t)length && memcmp(space, number_text, (size_t)length) == 0)
        return add_token(t, rank, line, base64_n, "line", number, err);
    char *found = printable_text(line, n);
    fail(err, "line %lld: expected a token in base64 and its rank, %d, found %s", number, (int)rank, found);
    free(found);
    return false;
}

bool tokenizer_read_tiktoken(struct tokenizer *t, const struct tokenizer_source *s, struct error *err)
{
    const char *const data = s->bytes;
    const size_t n = s->n;
    int lines = 0, at_line = 0;
    for (size_t i = 0; i < n; i++)
        lines += data[i] == '\n' || i + 1 == n;
    const struct known *k = NULL;
    for (size_t i = 0; i < sizeof(published) / sizeof(*published); i++)
        if (published[i].ranks == lines)
            k = &published[i];
    if (lines > VOCABULARY_MAX)
        return fail(err, "%d lines are too many", lines);
    const int size = lines + (k != NULL ? k->n : 0);
    vocabulary_init(&t->vocabulary, size, (size_t)size);
    for (size_t at = 0; at < n; at_line++) {
        const char *end = memchr(data + at, '\n', n - at);
        const size_t length = end != NULL ? (size_t)(end - (data + at)) : n - at;
        if (!read_line(t, data + at, length, at_line + 1, at_line, err))
            return false;
        at += length + 1;
    }
    if (k == NULL)
        return fail(
            err,
            "a tiktoken file with %d ranks is not known (Llama 3's has 128000, Qwen's 151643): its pattern and its special "
            "tokens are not in it",
            lines);
    bool ignored, ok = pretokenizer_family(&t->cut, k->family, strlen(k->family), &ignored, err);
    if (k->nfc)
        ok &= normalizer_add(&t->normalizer, (struct normal_step){ .kind = NORMAL_FORM, .form = NFC }, err);
    for (int i = 0; i < k->n && ok; i++) {
        char *name = special_name(k, i);
        ok = tokenizer_add_raw(t, k->ranks + i, name, strlen(name), TOKEN_SPECIAL, err);
        free(name);
    }
    return ok && finish(t, err);
}

// ---- tekken.json

static bool read_tekken_specials(struct tokenizer *t, const struct json *list, int n, struct error *err)
{
    if ((int)json_count(list) > n)
        return fail(err, "expected %d special_tokens (config.default_num_special_tokens), found %zu", n,
                    json_count(list));
    for (int i = 0; i < n; i++) {
        const struct json *s = json_at(list, (size_t)i), *text = json_get(s, "token_str");
        char *name = i < (int)json_count(list) ? xstrdup(json_text(text))
                     : json_is_null(list)      ? special_name(&published[TEKKEN], i)
                                               : xformat(published[TEKKEN].reserved, i);
        const struct json *rank = json_get(s, "rank");
        bool ok = name[0] != '\0' && (json_is_null(s) || (json_is_int(rank) && json_int(rank) == i));
        ok = ok ? tokenizer_add_raw(t, i, name, strlen(name), TOKEN_SPECIAL, err)
                : fail(err, "special token %d: expected rank %d and a token_str", i, i);
        free(name);
        if (!ok)
            return false;
    }
    return true;
}

bool tokenizer_read_tekken(struct tokenizer *t, const struct tokenizer_source *s, struct error *err)
{
    const struct json *config = json_get(s->json, "config"), *vocab = json_get(s->json, "vocab"),
                      *pattern = json_get(config, "pattern");
    const struct json *size = json_get(config, "default_vocab_size"),
                      *specials = json_get(config, "default_num_special_tokens");
    if (!json_is_text(pattern) || !json_is_int(size) || !json_is_int(specials) || !json_is_array(vocab) ||
        json_int(specials) < 0 || json_int(size) <= json_int(specials) || json_int(size) > VOCABULARY_MAX)
        return fail(err,
                    "expected vocab, a list, and in config pattern, a text, and default_num_special_tokens and "
                    "default_vocab_size, integers of which the second is larger, up to %d",
                    VOCABULARY_MAX);
    const int n = (int)json_int(size), first = (int)json_int(specials);
    if ((int)json_count(vocab) < n - first)
        return fail(err, "expected %d tokens, found %zu", n - first, json_count(vocab));
    if (!pretokenizer_split(&t->cut, json_text(pattern), json_text_length(pattern), KEEP_ALL, err))
        return false;
    vocabulary_init(&t->vocabulary, n, (size_t)n);
    for (int i = 0; i < n - first; i++) {
        const struct json *token = json_at(vocab, (size_t)i), *bytes = json_get(token, "token_bytes"),
                          *rank = json_get(token, "rank");
        if (!json_is_text(bytes) || !json_is_int(rank) || json_int(rank) != i)
            return fail(err, "token %d of vocab: expected rank %d and token_bytes", i, i);
        if (!add_token(t, first + i, json_text(bytes), json_text_length(bytes), "token", i, err))
            return false;
    }
    return read_tekken_specials(t, json_get(s->json, "special_tokens"), first, err) && finish(t, err);
}
