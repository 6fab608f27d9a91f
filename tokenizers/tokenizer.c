// tokenizer.c - opens tokenizers and encodes text. Files are read by tokenizer_gguf.c and tokenizer_json.c; decoding is in
// tokenizer_decode.c.
#include "tokenizers/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/file.h"
#include "formats/gguf.h"
#include "formats/identity.h"
#include "tokenizers/byte_alphabet.h"
#include "tokenizers/nfc.h"
#include "tokenizers/tokenizer_parts.h"
#include "core/utf8.h"

void ids_add(struct ids *ids, int32_t id)
{
    if (ids->n == ids->capacity) {
        ids->capacity = next_capacity(ids->capacity, ids->n + 1);
        ids->id = xrealloc(ids->id, ids->capacity * sizeof(*ids->id));
    }
    ids->id[ids->n++] = id;
}

// ---- opening ----------------------------------------------------------------------------------------------------

static struct tokenizer *open_json(const char *path, struct error *err)
{
    struct digest *d = digest_begin();
    struct json *j = identity_json(path, d, err);
    struct hash hash = digest_end(d);
    struct tokenizer *t = j != NULL ? tokenizer_from_json(j, path, err) : NULL;
    json_free(j);
    if (t != NULL)
        t->hash = hash;
    return t;
}

static struct tokenizer *open_directory(const char *path, struct error *err)
{
    char *file = xformat("%s/tokenizer.json", path);
    struct tokenizer *t = NULL;
    if (file_exists(file))
        t = open_json(file, err);
    else
        fail(
            err,
            "%s: expected tokenizer.json, found none (tokenizer.model and vocab.json are not read; transformers' save_pretrained writes it)",
            path);
    free(file);
    return t;
}

static struct tokenizer *open_gguf(const char *path, struct error *err)
{
    struct gguf *g = gguf_open(path, err);
    if (g == NULL)
        return NULL;
    struct digest *d = digest_begin();
    identity_gguf(g, d);
    struct hash hash = digest_end(d);
    struct tokenizer *t = tokenizer_from_gguf(g, err);
    gguf_close(g);
    if (t != NULL)
        t->hash = hash;
    return t;
}

struct tokenizer *tokenizer_open(const char *path, struct error *err)
{
    if (file_is_directory(path))
        return open_directory(path, err);
    return ends_with(path, ".json") ? open_json(path, err) : open_gguf(path, err);
}

struct hash tokenizer_hash(const struct tokenizer *t)
{
    return t->hash;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t == NULL)
        return;
    vocabulary_free(&t->vocabulary);
    added_free(&t->raw);
    added_free(&t->normal);
    pretokenizer_free(&t->cut);
    bpe_free(&t->bpe);
    free(t->name);
    free(t);
}

static bool missing_token(const struct tokenizer *t, size_t rank, const char *text, size_t n, struct error *err)
{
    char *shown = printable_text(text, n);
    fail(err, "%s: merge %zu needs the token %s, which is not in the vocabulary", t->name, rank, shown);
    free(shown);
    return false;
}

bool tokenizer_merge(struct tokenizer *t, size_t rank, const char *left, size_t left_n, const char *right,
                     size_t right_n, struct error *err)
{
    int32_t l = vocabulary_find(&t->vocabulary, left, left_n), r = vocabulary_find(&t->vocabulary, right, right_n);
    if (l < 0)
        return missing_token(t, rank, left, left_n, err);
    if (r < 0)
        return missing_token(t, rank, right, right_n, err);
    struct text whole = { 0 };
    text_add(&whole, left, left_n);
    text_add(&whole, right, right_n);
    int32_t id = vocabulary_find(&t->vocabulary, whole.s, whole.n);
    if (id < 0)
        missing_token(t, rank, whole.s, whole.n, err);
    else
        bpe_merge(&t->bpe, l, r, (uint32_t)rank, id);
    free(whole.s);
    return id >= 0;
}

void tokenizer_bytes(struct tokenizer *t)
{
    for (int b = 0; b < 256; b++) {
        char letter[2];
        int n = byte_to_letter((unsigned char)b, letter);
        t->bpe.byte[b] = vocabulary_find(&t->vocabulary, letter, (size_t)n);
    }
}

bool tokenizer_finish(struct tokenizer *t, struct error *err)
{
    struct error why;
    if (!added_finish(&t->raw, &why) || !added_finish(&t->normal, &why))
        return fail(err, "%s: %s", t->name, why.text);
    return true;
}

// ---- lookup -----------------------------------------------------------------------------------------------------

int tokenizer_size(const struct tokenizer *t)
{
    return t->vocabulary.size;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *token)
{
    return vocabulary_find(&t->vocabulary, token, strlen(token));
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *n)
{
    const struct token *token = vocabulary_token(&t->vocabulary, id);
    if (token == NULL)
        return NULL;
    *n = token->bytes_n;
    return t->vocabulary.strings.s + token->bytes;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    const struct token *token = vocabulary_token(&t->vocabulary, id);
    return token != NULL && token->kind == TOKEN_SPECIAL;
}

bool tokenizer_same(const struct tokenizer *a, const struct tokenizer *b, struct error *err)
{
    int both = tokenizer_size(a) < tokenizer_size(b) ? tokenizer_size(a) : tokenizer_size(b);
    for (int32_t id = 0; id < both; id++) {
        size_t an, bn;
        const char *as = tokenizer_token(a, id, &an), *bs = tokenizer_token(b, id, &bn);
        if (as == NULL || bs == NULL || (an == bn && memcmp(as, bs, an) == 0))
            continue;
        char *one = printable_text(as, an), *other = printable_text(bs, bn);
        fail(err, "%s and %s have different vocabularies: token %d is %s in the first, %s in the second", a->name,
             b->name, (int)id, one, other);
        free(one);
        free(other);
        return false;
    }
    return true;
}

// ---- encoding ---------------------------------------------------------------------------------------------------

struct encoding {
    const struct tokenizer *t;
    bool special;
    struct splitter *splitter;
    struct bpe_work work;
    struct text letters; // a piece in byte letters, as stored in the checkpoint
    struct ids *to;
};

static void encode_piece(void *context, const char *s, size_t n)
{
    struct encoding *e = context;
    if (e->t->ignore_merges) {
        e->letters.n = 0;
        bytes_to_letters(s, n, &e->letters);
        int32_t id = vocabulary_find(&e->t->vocabulary, e->letters.s, e->letters.n);
        if (id >= 0 && !vocabulary_token(&e->t->vocabulary, id)->literal) {
            ids_add(e->to, id);
            return;
        }
    }
    bpe_encode(&e->t->bpe, &e->work, s, n, e->to);
}

// Encodes normalized text: the added tokens that match in it, and the pieces between them.
static bool encode_normalized(struct encoding *e, const char *s, size_t n, struct error *err)
{
    struct added_walk walk = { .a = &e->t->normal, .special = e->special, .text = s, .n = n };
    for (struct added_part part; added_next(&walk, &part);) {
        if (part.token != NULL)
            ids_add(e->to, part.token->id);
        else if (!splitter_text(e->splitter, part.text, part.n, err))
            return false;
    }
    return true;
}

static bool encode_raw(struct encoding *e, const char *s, size_t n, struct error *err)
{
    struct added_walk walk = { .a = &e->t->raw, .special = e->special, .text = s, .n = n };
    struct text normal = { 0 };
    bool ok = true;
    for (struct added_part part; ok && added_next(&walk, &part);) {
        if (part.token != NULL) {
            ids_add(e->to, part.token->id);
            continue;
        }
        if (e->t->nfc) {
            normal.n = 0;
            nfc_add(&normal, part.text, part.n);
            part.text = normal.s;
            part.n = normal.n;
        }
        ok = encode_normalized(e, part.text, part.n, err);
    }
    free(normal.s);
    return ok;
}

bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special, struct ids *to,
                      struct error *err)
{
    if (!utf8_require(text, n, "the text", err))
        return false;
    if (n > INT32_MAX / 4) // NFC lengthens text at most threefold
        return fail(err, "the text is longer than %d bytes", INT32_MAX / 4);
    struct encoding e = { .t = t, .special = special, .to = to };
    size_t before = to->n;
    e.splitter = splitter_begin(&t->cut, encode_piece, &e);
    bool ok = encode_raw(&e, text, n, err);
    if (!ok)
        to->n = before;
    splitter_end(e.splitter);
    bpe_work_free(&e.work);
    free(e.letters.s);
    return ok;
}
