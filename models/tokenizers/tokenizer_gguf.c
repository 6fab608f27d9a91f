// tokenizer_gguf.c - reads a tokenizer from a GGUF file's metadata.
//
// For byte-level BPE the file has the name of the pre-tokenizer's family (`tokenizer.ggml.pre`), not its pattern. It
// specifies no normalization, since llama.cpp applies none. SentencePiece's models are read as pieces
// (sentencepiece.c).
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/formats/gguf.h"
#include "models/tokenizers/readers.h"

bool tokenizer_in_gguf(const struct gguf *g)
{
    struct gguf_string model = { "", 0 };
    gguf_text(g, "tokenizer.ggml.model", &model);
    return gguf_find(g, "tokenizer.ggml.model") != NULL && !gguf_is(model, "none");
}

static const struct gguf_value *strings(const struct gguf *g, const char *key, struct error *err)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (v != NULL && v->type == GGUF_ARRAY && v->element == GGUF_STRING)
        return v;
    fail(err, "%s is %s", key, v == NULL ? "missing" : "not an array of strings");
    return NULL;
}

static bool numbers_fit(const struct gguf_value *v, const char *key, uint64_t n, bool real, struct error *err)
{
    const bool reals = v != NULL && (v->element == GGUF_F32 || v->element == GGUF_F64);
    const bool others = v != NULL && (v->element == GGUF_BOOL || v->element == GGUF_STRING || v->element == GGUF_ARRAY);
    return (v != NULL && v->type == GGUF_ARRAY && v->n == n && reals == real && !others) ||
           fail(err, "%s does not have one %s for each of the %llu tokens", key, real ? "number" : "integer",
                (unsigned long long)n);
}

static bool read_tokens(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    const struct gguf_value *tokens = strings(g, "tokenizer.ggml.tokens", err);
    const struct gguf_value *types = gguf_find(g, "tokenizer.ggml.token_type");
    if (tokens == NULL)
        return false;
    if (tokens->n > VOCABULARY_MAX)
        return fail(err, "%llu tokens are too many", (unsigned long long)tokens->n);
    if (types != NULL && !numbers_fit(types, "tokenizer.ggml.token_type", tokens->n, false, err))
        return false;
    int64_t count = (int64_t)tokens->n; // excludes tokens that only fill the list
    if (gguf_find(g, TOKENS_GGUF) != NULL &&
        (!gguf_int(g, TOKENS_GGUF, &count) || count < 1 || count > (int64_t)tokens->n))
        return fail(err, "%s: expected a number from 1 to %llu, as tokenizer.ggml.tokens has, found another",
                    TOKENS_GGUF, (unsigned long long)tokens->n);
    vocabulary_init(&t->vocabulary, (int)count, (size_t)count);
    size_t at = 0;
    for (int32_t id = 0; id < (int32_t)count; id++) {
        struct gguf_string s;
        if (!gguf_next_string(tokens, &at, &s))
            return fail(err, "tokenizer.ggml.tokens ends after %d tokens", (int)id);
        int64_t type = types != NULL ? gguf_array_int(types, (uint64_t)id) : PIECE_NORMAL;
        const bool special = type == PIECE_CONTROL || type == PIECE_UNKNOWN;
        if (special || type == PIECE_USER_DEFINED
                ? !tokenizer_add_raw(t, id, s.s, s.n, special ? TOKEN_SPECIAL : TOKEN_ADDED, err)
                : !vocabulary_add(&t->vocabulary, id, s.s, s.n, FORM_LETTERS, err))
            return false;
    }
    return true;
}

static bool read_merges(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    const struct gguf_value *merges = strings(g, "tokenizer.ggml.merges", err);
    if (merges == NULL)
        return false;
    bpe_init(&t->bpe, (size_t)merges->n);
    tokenizer_find_bytes(t, true, t->bpe.byte);
    size_t at = 0;
    for (uint64_t rank = 0; rank < merges->n; rank++) {
        struct gguf_string s;
        const char *space = NULL;
        if (gguf_next_string(merges, &at, &s) && s.n > 1)
            space = memchr(s.s + 1, ' ', s.n - 1); // the left token may itself be a space
        if (space == NULL)
            return fail(err, "merge %llu is not two tokens with a space between", (unsigned long long)rank);
        size_t left = (size_t)(space - s.s);
        if (!tokenizer_merge(t, (size_t)rank, s.s, left, space + 1, s.n - left - 1, err))
            return false;
    }
    return true;
}

static bool read_family(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct gguf_string pre;
    if (!gguf_text(g, "tokenizer.ggml.pre", &pre))
        return fail(
            err, "expected tokenizer.ggml.pre, which names the pre-tokenizer, found none; newer conversions write it");
    return pretokenizer_family(&t->cut, pre.s, pre.n, &t->ignore_merges, err);
}

// ---- SentencePiece

static bool flag(const struct gguf *g, const char *key, bool default_value)
{
    bool value;
    return gguf_bool(g, key, &value) ? value : default_value;
}

static bool read_pieces(struct tokenizer *t, const struct gguf *g, bool unigram, struct error *err)
{
    const struct gguf_value *tokens = strings(g, "tokenizer.ggml.tokens", err), *map;
    const struct gguf_value *scores = gguf_find(g, "tokenizer.ggml.scores"),
                            *types = gguf_find(g, "tokenizer.ggml.token_type");
    if (tokens == NULL || !numbers_fit(scores, "tokenizer.ggml.scores", tokens->n, true, err) ||
        !numbers_fit(types, "tokenizer.ggml.token_type", tokens->n, false, err))
        return false;
    struct piece *piece = xcalloc((size_t)tokens->n + 1, sizeof(*piece));
    struct piece_model m = { .unigram = unigram,
                             .prefix = flag(g, "tokenizer.ggml.add_space_prefix", true),
                             .collapse = flag(g, "tokenizer.ggml.remove_extra_whitespaces", false),
                             .spaces = true,
                             .piece = piece,
                             .n = (size_t)tokens->n };
    map = gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
    if (map != NULL) {
        if (map->type != GGUF_ARRAY || (map->element != GGUF_U8 && map->element != GGUF_I8)) {
            free(piece);
            return fail(err, "tokenizer.ggml.precompiled_charsmap is not an array of bytes");
        }
        m.map = map->raw;
        m.map_n = map->raw_bytes;
    }
    size_t at = 0;
    bool ok = true;
    for (uint64_t i = 0; i < tokens->n && ok; i++) {
        struct gguf_string s;
        ok = gguf_next_string(tokens, &at, &s) ||
             fail(err, "tokenizer.ggml.tokens ends after %llu tokens", (unsigned long long)i);
        const int64_t kind = gguf_array_int(types, i);
        ok = ok &&
             ((kind >= PIECE_NORMAL && kind <= PIECE_BYTE) ||
              fail(err, "the type of token %llu is %lld; expected 1 to 6", (unsigned long long)i, (long long)kind));
        if (ok)
            piece[i] = (struct piece){ s.s, s.n, gguf_array_real(scores, i), (int)kind };
    }
    ok = ok && tokenizer_of_pieces(t, &m, err);
    free(piece);
    return ok;
}

bool tokenizer_read_gguf(struct tokenizer *t, const struct tokenizer_source *s, struct error *err)
{
    const struct gguf *g = s->gguf;
    struct gguf_string model;
    if (!tokenizer_in_gguf(g) || !gguf_text(g, "tokenizer.ggml.model", &model))
        return fail(err, "expected a tokenizer (tokenizer.ggml.model), found none");
    if (gguf_is(model, "gpt2")) // byte-level BPE
        return read_family(t, g, err) && read_tokens(t, g, err) && read_merges(t, g, err);
    if (gguf_is(model, "llama") || gguf_is(model, "t5")) // SentencePiece's BPE, its unigram
        return read_pieces(t, g, gguf_is(model, "t5"), err);
    return fail(
        err, "its tokenizer is of the kind \"%.*s\"; gpt2 (byte-level BPE), llama and t5 (SentencePiece) are supported",
        model.n < 64 ? (int)model.n : 64, model.s);
}
