// sentencepiece.c - SentencePiece's models: BPE by scores, and unigram, from its own files (tokenizer.model) and from
// GGUF.
//
// User-defined pieces are matched in the normalized text before anything else; in unigram models they compete by a high
// score. Control pieces are never made from text; as added tokens they match where special tokens do.
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/formats/protobuf.h"
#include "models/tokenizers/readers.h"

// Adds a user-defined piece in its form in a normalized text.
static void add_user_defined(struct tokenizer *t, int32_t id, const struct piece *p, bool spaces)
{
    struct text normal = { 0 };
    for (size_t i = 0; i < p->n; i++)
        if (p->text[i] == ' ' && spaces)
            text_puts(&normal, METASPACE);
        else
            text_add(&normal, p->text + i, 1);
    added_add(&t->normal, normal.s, normal.n, (struct added_token){ .id = id });
    free(normal.s);
    t->vocabulary.token[id].kind = TOKEN_ADDED;
}

static bool add_piece(struct tokenizer *t, int32_t id, const struct piece *p, const struct piece_model *m,
                      struct error *err)
{
    const bool special = p->kind == PIECE_CONTROL || p->kind == PIECE_UNKNOWN, user = p->kind == PIECE_USER_DEFINED;
    if (p->n == 0)
        return true;
    if (p->kind == PIECE_BYTE && byte_of_token(p->text, p->n) < 0)
        return fail(err, "piece %d is a byte, and its text is not <0x00> to <0xFF>", (int)id);
    if (special)
        return tokenizer_add_raw(t, id, p->text, p->n, TOKEN_SPECIAL, err);
    if (!vocabulary_add(&t->vocabulary, id, p->text, p->n, p->kind == PIECE_BYTE ? FORM_BYTE : FORM_SPACES, err))
        return false;
    if (user) {
        add_user_defined(t, id, p, m->spaces);
        t->vocabulary.token[id].literal = !m->unigram;
    }
    return true;
}

// Returns whether a piece is made from text: normal ones are, in BPE also unused ones, which are taken apart again.
static bool is_made(const struct piece_model *m, const struct piece *p)
{
    return p->kind == PIECE_NORMAL || (p->kind == PIECE_UNUSED && !m->unigram);
}

static void init_unigram(struct tokenizer *t, const struct piece_model *m, int32_t unknown)
{
    double *score = xmalloc(m->n * sizeof(*score));
    for (size_t i = 0; i < m->n; i++)
        score[i] = is_made(m, &m->piece[i]) ? m->piece[i].score : NAN;
    unigram_init(&t->unigram, &t->vocabulary, score);
    t->unigram_model = t->unigram.single = true;
    t->unigram.unknown = unknown;
    for (size_t i = 0; i < m->n; i++)
        if (m->piece[i].kind == PIECE_USER_DEFINED && m->piece[i].n > 0)
            unigram_user_defined(&t->unigram, (int32_t)i);
}

// Returns a number that falls as the score, a float in SentencePiece, rises.
static uint32_t rank_of(double score)
{
    const float x = (float)score + 0.0F; // -0 is 0
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return isnan(x) ? NEVER_MADE : signbit(x) ? bits : INT32_MAX - bits;
}

static void init_bpe(struct tokenizer *t, const struct piece_model *m, int32_t unknown)
{
    uint32_t *rank = xmalloc(m->n * sizeof(*rank));
    bool *unused = NULL;
    for (size_t i = 0; i < m->n; i++) {
        const struct piece *p = &m->piece[i];
        rank[i] = is_made(m, p) ? rank_of(p->score) : NEVER_MADE;
        if (p->kind != PIECE_UNUSED)
            continue;
        unused = unused != NULL ? unused : xcalloc(m->n, sizeof(*unused));
        unused[i] = true;
    }
    bpe_init_texts(&t->bpe, &t->vocabulary, rank, unused);
    t->bpe.unknown = unknown;
    t->bpe.fuse_unknown = true;
}

static bool read_map(struct tokenizer *t, const struct piece_model *m, struct error *err)
{
    struct normal_step step = { .kind = NORMAL_PIECES, .prefix = m->prefix, .collapse = m->collapse };
    step.map = m->map_n > 0 ? character_map_open(m->map, m->map_n, err) : NULL;
    return (step.map != NULL || m->map_n == 0) && normalizer_add(&t->normalizer, step, err);
}

bool tokenizer_of_pieces(struct tokenizer *t, const struct piece_model *m, struct error *err)
{
    int32_t unknown = -1;
    if (m->n == 0 || m->n > VOCABULARY_MAX)
        return fail(err, "expected 1 to %d pieces, found %zu", VOCABULARY_MAX, m->n);
    if (!read_map(t, m, err))
        return false;
    vocabulary_init(&t->vocabulary, (int)m->n, m->n);
    bool bytes = false;
    for (size_t i = 0; i < m->n; i++) {
        const struct piece *p = &m->piece[i];
        if (p->kind == PIECE_UNKNOWN && unknown < 0) // phi-3 marks several pieces
            unknown = (int32_t)i;
        bytes |= p->kind == PIECE_BYTE;
        if (!add_piece(t, (int32_t)i, p, m, err))
            return false;
    }
    t->drops = m->collapse ? DROPS_LEADING : m->prefix ? DROPS_PREFIX : DROPS_NOTHING;
    (m->unigram ? init_unigram : init_bpe)(t, m, unknown);
    if (bytes)
        tokenizer_find_bytes(t, false, m->unigram ? t->unigram.byte : t->bpe.byte);
    return true;
}

// ---- tokenizer.model: a ModelProto (sentencepiece_model.proto)

enum { PIECES = 1, TRAINER = 2, NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { UNIGRAM = 1, BPE = 2 };

struct model_file {
    struct piece_model model;
    struct piece *piece;
    size_t capacity;
    uint64_t type, suffix, escape, prefix, collapse;
    bool damaged;
};

// The settings that are read: numbers, and the map of characters.
static const struct setting {
    int message, field;
    size_t at; // offset in struct model_file
} settings[] = {
    { TRAINER, 3, offsetof(struct model_file, type) },
    { TRAINER, 24, offsetof(struct model_file, suffix) },     // treat_whitespace_as_suffix
    { NORMALIZER, 3, offsetof(struct model_file, prefix) },   // add_dummy_prefix
    { NORMALIZER, 4, offsetof(struct model_file, collapse) }, // remove_extra_whitespaces
    { NORMALIZER, 5, offsetof(struct model_file, escape) },   // escape_whitespaces
};
enum { MAP = 2 }; // precompiled_charsmap, a field of NORMALIZER

static void read_piece(struct model_file *f, struct wire_field from)
{
    struct wire_reader r = { .at = from.bytes, .n = from.n };
    struct piece p = { .text = "", .kind = PIECE_NORMAL };
    for (struct wire_field g; wire_next(&r, &g);) {
        if (g.number == PIECE_TEXT && g.type == WIRE_BYTES) {
            p.text = (const char *)g.bytes;
            p.n = g.n;
        } else if (g.number == PIECE_SCORE && g.type == WIRE_32)
            p.score = (double)wire_float(&g);
        else if (g.number == PIECE_TYPE && g.type == WIRE_VARINT)
            p.kind = g.value <= PIECE_BYTE ? (int)g.value : 0;
    }
    f->damaged |= r.damaged || p.kind == 0;
    array_reserve(f->piece, f->capacity, f->model.n + 1);
    f->piece[f->model.n++] = p;
}

static void read_settings(struct model_file *f, int message, struct wire_field from)
{
    struct wire_reader r = { .at = from.bytes, .n = from.n };
    for (struct wire_field g; wire_next(&r, &g);) {
        if (message == NORMALIZER && g.number == MAP && g.type == WIRE_BYTES) {
            f->model.map = g.bytes;
            f->model.map_n = g.n;
        }
        for (size_t i = 0; i < sizeof(settings) / sizeof(*settings) && g.type == WIRE_VARINT; i++)
            if (settings[i].message == message && settings[i].field == g.number)
                memcpy((char *)f + settings[i].at, &g.value, sizeof(g.value));
    }
    f->damaged |= r.damaged;
}

bool tokenizer_read_sentencepiece(struct tokenizer *t, const struct tokenizer_source *s, struct error *err)
{
    struct model_file f = { .type = UNIGRAM, .prefix = true, .collapse = true, .escape = true };
    struct wire_reader r = { .at = (const uint8_t *)s->bytes, .n = s->n };
    for (struct wire_field g; wire_next(&r, &g);) {
        if (g.type != WIRE_BYTES)
            continue;
        if (g.number == PIECES)
            read_piece(&f, g);
        else if (g.number == TRAINER || g.number == NORMALIZER)
            read_settings(&f, g.number, g);
    }
    f.model.unigram = f.type == UNIGRAM;
    f.model.piece = f.piece;
    f.model.prefix = f.prefix != 0;
    f.model.collapse = f.collapse != 0;
    bool ok = !(r.damaged || f.damaged) || fail(err, "not a SentencePiece model, or a damaged one");
    if (ok && f.type != UNIGRAM && f.type != BPE)
        ok = fail(err, "a SentencePiece model of type %llu is not supported (1: unigram, 2: BPE)",
                  (unsigned long long)f.type);
    if (ok && (f.suffix != 0 || f.escape == 0))
        ok = fail(err, "%s is not supported",
                  f.suffix != 0 ? "treat_whitespace_as_suffix" : "escape_whitespaces: false");
    ok = ok && tokenizer_of_pieces(t, &f.model, err);
    free(f.piece);
    return ok;
}
