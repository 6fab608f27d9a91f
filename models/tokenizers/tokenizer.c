// tokenizer.c - encodes text and decodes ids.
#include "models/tokenizers/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/tokenizers/readers.h"
#include "core/utf8.h"

struct hash tokenizer_hash(const struct tokenizer *t)
{
    return t->hash;
}

struct hash tokenizer_tokens_hash(const struct tokenizer *t)
{
    struct digest *d = digest_begin();
    for (int32_t id = 0; id < tokenizer_size(t); id++) {
        size_t n = 0;
        const char *s = tokenizer_token(t, id, &n);
        digest_text_n(d, s != NULL ? s : "", n);
    }
    return digest_end(d);
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
    unigram_free(&t->unigram);
    normalizer_free(&t->normalizer);
    free(t->name);
    free(t);
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
    bool lost; // a character has no token
    struct splitter *splitter;
    struct bpe_work work;
    struct text letters; // a piece in byte letters, as stored in the checkpoint
    struct text bytes;   // the bytes of a piece in byte letters
    struct ids *to;
};

// Returns the piece in the checkpoint's form of tokens: in byte letters if the tokenizer is byte-level.
static const char *stored_form(struct encoding *e, const char *s, size_t *n)
{
    if ((e->t->bpe.characters != NULL && !e->t->byte_letters) || e->t->cut.letters)
        return s;
    e->letters.n = 0;
    bytes_to_letters(s, *n, &e->letters);
    *n = e->letters.n;
    return e->letters.s;
}

static void encode_piece(void *context, const char *s, size_t n)
{
    struct encoding *e = context;
    const struct tokenizer *t = e->t;
    if (t->unigram_model) {
        e->lost |= !unigram_encode(&t->unigram, s, n, e->to);
        return;
    }
    size_t stored_n = n;
    const char *stored = t->ignore_merges || t->byte_letters ? stored_form(e, s, &stored_n) : NULL;
    if (t->ignore_merges) {
        int32_t id = vocabulary_find(&t->vocabulary, stored, stored_n);
        if (id >= 0 && !vocabulary_token(&t->vocabulary, id)->literal) {
            ids_add(e->to, id);
            return;
        }
    }
    if (t->byte_letters) {
        s = stored;
        n = stored_n;
    } else if (t->cut.letters) {
        e->bytes.n = 0;
        letters_to_bytes(s, n, &e->bytes);
        s = e->bytes.s;
        n = e->bytes.n;
    }
    bpe_encode(&t->bpe, &e->work, s, n, e->to);
}

// Encodes normalized text: the added tokens that match in it, and the pieces between them. first: the text begins here.
static bool encode_normalized(struct encoding *e, const char *s, size_t n, bool first, struct error *err)
{
    if (e->t->unigram_model && e->t->unigram.single) // user-defined pieces compete by their scores
        return n == 0 || splitter_text(e->splitter, s, n, first, err);
    struct added_walk walk = { .a = &e->t->normal, .special = e->special, .text = s, .n = n };
    for (struct added_part part; added_next(&walk, &part); first = false) {
        if (part.token != NULL)
            ids_add(e->to, part.token->id);
        else if (!splitter_text(e->splitter, part.text, part.n, first, err))
            return false;
    }
    return true;
}

static bool encode_raw(struct encoding *e, const char *s, size_t n, struct error *err)
{
    struct added_walk walk = { .a = &e->t->raw, .special = e->special, .text = s, .n = n };
    struct text normal = { 0 };
    bool ok = true, first = true;
    for (struct added_part part; ok && added_next(&walk, &part); first = false) {
        if (part.token != NULL) {
            ids_add(e->to, part.token->id);
            continue;
        }
        if (e->t->normalizer.n > 0) {
            normal.n = 0;
            bool shifted;
            ok = normalizer_run(&e->t->normalizer, part.text, part.n, &e->t->normal, &normal, &shifted, err);
            part.text = normal.s;
            part.n = normal.n;
            first &= !shifted;
        }
        ok = ok && encode_normalized(e, part.text, part.n, first, err);
    }
    free(normal.s);
    return ok;
}

enum {
    TEXT_MAX = INT32_MAX / 32
}; // normal forms lengthen a text, up to NORMAL_MAX; pieces in byte letters are up to six times as long

bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special, struct ids *to,
                      struct error *err)
{
    if (!require_utf8(text, n, "the text", err))
        return false;
    if (n > TEXT_MAX)
        return fail(err, "the text is longer than %d bytes", (int)TEXT_MAX);
    struct encoding e = { .t = t, .special = special, .to = to };
    struct error why;
    size_t before = to->n;
    e.splitter = splitter_begin(&t->cut, encode_piece, &e);
    bool ok = (encode_raw(&e, text, n, &why) || fail(err, "%s: %s", t->name, why.text)) &&
              (!e.lost || fail(err, "%s: a character has no token, and the model has no unk_id", t->name));
    if (!ok)
        to->n = before;
    splitter_end(e.splitter);
    bpe_work_free(&e.work);
    free(e.letters.s);
    free(e.bytes.s);
    return ok;
}

// ---- decoding: a token may end inside a character, so up to three bytes are held until the next one. Malformed bytes
// are replaced, by one U+FFFD for each maximal subpart (Unicode, 3.9).

static void replace(struct decoding *state, struct text *to)
{
    if (state->n > 0)
        text_puts(to, "\xEF\xBF\xBD");
    state->n = 0;
}

void tokenizer_decode_bytes(struct decoding *state, const char *s, size_t n, struct text *to)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)s[i];
        if (state->n == 0 && b < 0x80) { // a run of ASCII
            size_t from = i;
            while (i + 1 < n && (unsigned char)s[i + 1] < 0x80)
                i++;
            text_add(to, s + from, i + 1 - from);
            continue;
        }
        if (state->n > 0 && !utf8_continues(state->held, state->n, b)) {
            replace(state, to);
            i--; // b may begin a new character
            continue;
        }
        state->held[state->n++ & 3] = b; // n <= 3 here: four bytes would have completed a character
        if (state->n == 1 && utf8_length(b) == 0) {
            replace(state, to);
        } else if (state->n == utf8_length(state->held[0])) {
            text_add(to, (const char *)state->held, (size_t)state->n);
            state->n = 0;
        }
    }
}

// Returns how many spaces the bytes (n) of the token lose.
static size_t dropped(const struct tokenizer *t, int32_t id, const char *bytes, size_t n, struct decoding *state)
{
    const bool first = !state->begun, space = n > 0 && bytes[0] == ' ';
    const struct token *token = vocabulary_token(&t->vocabulary, id);
    state->begun |= n > 0;
    if (!first || !space)
        return 0;
    size_t spaces = 1;
    while (t->drops == DROPS_FIRST_TOKEN && spaces < n && bytes[spaces] == ' ')
        spaces++;
    if (t->drops < DROPS_PREFIX)
        return t->drops == DROPS_NOTHING ? 0 : spaces;
    if (n == 1 && byte_of_token(t->vocabulary.strings.s + token->text, token->text_n) >= 0)
        return 0;
    state->begun = t->drops == DROPS_PREFIX || n > 1;
    return 1;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, bool special, struct decoding *state,
                      struct text *to)
{
    for (size_t i = 0; i < n; i++) {
        size_t length;
        const char *bytes = tokenizer_token(t, id[i], &length);
        if (bytes == NULL || (!special && tokenizer_is_special(t, id[i])))
            continue;
        const size_t spaces = dropped(t, id[i], bytes, length, state);
        tokenizer_decode_bytes(state, bytes + spaces, length - spaces, to);
    }
}

void tokenizer_decode_end(struct decoding *state, struct text *to)
{
    replace(state, to);
}
