// tokenizer.c - text to ids. Reading the files is tokenizer_gguf.c's and tokenizer_json.c's, the way back
// tokenizer_decode.c's.
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
#include "formats/utf8.h"

void ids_add(struct ids *ids, int32_t id)
{
    if (ids->n == ids->capacity) {
        ids->capacity = grow_capacity(ids->capacity, ids->n + 1);
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
            "%s: no tokenizer.json there (tokenizer.model and vocab.json are not read; transformers' save_pretrained makes one)",
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
    size_t n = strlen(path);
    bool json = n >= 5 && strcmp(path + n - 5, ".json") == 0;
    return json ? open_json(path, err) : open_gguf(path, err);
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

static bool no_token(const struct tokenizer *t, size_t rank, const char *text, size_t n, struct error *err)
{
    char *shown = printable_text(text, n);
    fail(err, "%s: merge %zu needs the token %s, which the vocabulary lacks", t->name, rank, shown);
    free(shown);
    return false;
}

bool tokenizer_merge(struct tokenizer *t, size_t rank, const char *left, size_t left_n, const char *right,
                     size_t right_n, struct error *err)
{
    int32_t l = vocabulary_find(&t->vocabulary, left, left_n), r = vocabulary_find(&t->vocabulary, right, right_n);
    if (l < 0)
        return no_token(t, rank, left, left_n, err);
    if (r < 0)
        return no_token(t, rank, right, right_n, err);
    struct text whole = { 0 };
    text_add(&whole, left, left_n);
    text_add(&whole, right, right_n);
    int32_t id = vocabulary_find(&t->vocabulary, whole.s, whole.n);
    if (id < 0)
        no_token(t, rank, whole.s, whole.n, err);
    else
        bpe_merge(&t->bpe, l, r, (uint32_t)rank, id);
    free(whole.s);
    return id >= 0;
}

void tokenizer_bytes(struct tokenizer *t)
{
    for (int b = 0; b < 256; b++) {
        char letter[2];
        int n = letter_of_byte((unsigned char)b, letter);
        t->bpe.byte[b] = vocabulary_find(&t->vocabulary, letter, (size_t)n);
    }
}

bool tokenizer_ready(struct tokenizer *t, struct error *err)
{
    struct error why;
    if (!added_ready(&t->raw, &why) || !added_ready(&t->normal, &why))
        return fail(err, "%s: %s", t->name, why.text);
    return true;
}

// ---- asking -----------------------------------------------------------------------------------------------------

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
    struct cutting *cutting;
    struct bpe_work work;
    struct text letters; // a piece as the checkpoint writes it
    struct ids *to;
};

static void encode_piece(void *of, const char *s, size_t n)
{
    struct encoding *e = of;
    if (e->t->whole_pieces) {
        e->letters.n = 0;
        alphabet_of_bytes(s, n, &e->letters);
        int32_t id = vocabulary_find(&e->t->vocabulary, e->letters.s, e->letters.n);
        if (id >= 0 && !vocabulary_token(&e->t->vocabulary, id)->beside) {
            ids_add(e->to, id);
            return;
        }
    }
    bpe_encode(&e->t->bpe, &e->work, s, n, e->to);
}

// Normalised text: the tokens that are looked for in it, and pieces in between.
static bool encode_normal(struct encoding *e, const char *s, size_t n, struct error *err)
{
    struct added_walk walk = { .a = &e->t->normal, .special = e->special, .text = s, .n = n };
    for (struct added_part part; added_next(&walk, &part);) {
        if (part.token != NULL)
            ids_add(e->to, part.token->id);
        else if (!cutting_text(e->cutting, part.text, part.n, err))
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
        ok = encode_normal(e, part.text, part.n, err);
    }
    free(normal.s);
    return ok;
}

bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special, struct ids *to,
                      struct error *err)
{
    size_t valid = utf8_valid(text, n);
    if (valid < n)
        return fail(err, "the text is not UTF-8: byte 0x%02X at offset %zu", (unsigned char)text[valid], valid);
    if (n > INT32_MAX / 4) // NFC makes text longer, at most threefold
        return fail(err, "the text is longer than %d bytes", INT32_MAX / 4);
    struct encoding e = { .t = t, .special = special, .to = to };
    size_t before = to->n;
    e.cutting = cutting_begin(&t->cut, encode_piece, &e);
    bool ok = encode_raw(&e, text, n, err);
    if (!ok)
        to->n = before;
    cutting_end(e.cutting);
    bpe_work_free(&e.work);
    free(e.letters.s);
    return ok;
}
