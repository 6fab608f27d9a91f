#include "models/tokenizers/unigram.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/utf8.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/vocabulary.h"

#define UNKNOWN_COST 10

void unigram_init(struct unigram *u, const struct vocabulary *v, double *score)
{
    double least = INFINITY;
    *u = (struct unigram){ .vocabulary = v, .score = score, .unknown = -1 };
    for (int32_t id = 0; id < v->size; id++) {
        const struct token *t = vocabulary_token(v, id);
        if (t == NULL || isnan(score[id]))
            continue;
        least = score[id] < least ? score[id] : least;
        u->longest = t->text_n > u->longest ? t->text_n : u->longest;
    }
    u->unknown_score = least - UNKNOWN_COST;
    for (int b = 0; b < 256; b++)
        u->byte[b] = -1;
}

void unigram_user_defined(struct unigram *u, int32_t id)
{
    const size_t n = vocabulary_token(u->vocabulary, id)->text_n;
    u->score[id] = (double)(0.1F * (float)(n - 1));
    u->longest = n > u->longest ? n : u->longest;
}

void unigram_free(struct unigram *u)
{
    free(u->score);
}

struct ending { // the best segmentation of the text before an offset
    double score;
    int32_t id;   // its last token; -1: an unknown character
    int32_t from; // offset where that token begins; -1: there is none yet
};

static void improve(const struct unigram *u, struct ending *e, double before, double score, int32_t id, size_t from)
{
    const double sum = u->single ? (double)((float)before + (float)score) : before + score;
    if (e->from < 0 || sum > e->score)
        *e = (struct ending){ sum, id, (int32_t)from };
}

// Finds the best ending at every character boundary.
static void search_best(const struct unigram *u, const char *s, size_t n, struct ending *best)
{
    for (size_t at = 0, first; at < n; at += first) {
        bool alone = false; // a token covers this character alone
        first = utf8_character(s + at, n - at);
        uint64_t hash = FNV_EMPTY;
        for (size_t stop = at, next = at + first;; next = stop + utf8_character(s + stop, n - stop)) {
            if (next - at > u->longest)
                break;
            hash = fnv(hash, s + stop, next - stop);
            stop = next;
            const int32_t id = vocabulary_find_hashed(u->vocabulary, s + at, stop - at, hash);
            if (id >= 0 && !isnan(u->score[id])) {
                improve(u, &best[stop], best[at].score, u->score[id], id, at);
                alone |= stop == at + first;
            }
            if (stop == n)
                break;
        }
        if (!alone)
            improve(u, &best[at + first], best[at].score, u->unknown_score, -1, at);
    }
}

// Appends a run of characters without tokens: the token of the whole run, its bytes' tokens, or one unknown token.
static bool add_unknown(const struct unigram *u, const char *s, size_t n, struct ids *to)
{
    const int32_t id = vocabulary_find(u->vocabulary, s, n);
    bool bytes = true;
    if (id >= 0 && !isnan(u->score[id])) {
        ids_add(to, id);
        return true;
    }
    for (size_t i = 0; i < n && bytes; i++)
        bytes = u->byte[(unsigned char)s[i]] >= 0;
    for (size_t i = 0; i < n && bytes; i++)
        ids_add(to, u->byte[(unsigned char)s[i]]);
    if (!bytes && u->unknown >= 0)
        ids_add(to, u->unknown);
    return bytes || u->unknown >= 0;
}

bool unigram_encode(const struct unigram *u, const char *s, size_t n, struct ids *to)
{
    struct ending *best = xmalloc((n + 1) * sizeof(*best));
    for (size_t i = 0; i <= n; i++)
        best[i] = (struct ending){ 0, -1, -1 };
    search_best(u, s, n, best);
    // This walks from the end to the beginning. Afterwards `from` of a boundary points forward, to the end of the token
    // that begins there.
    int32_t next = (int32_t)n;
    for (int32_t at = (int32_t)n; at > 0;) {
        const int32_t from = best[at].from;
        best[at].from = next; // the end of the token after it
        next = at;
        at = from;
    }
    bool known_all = true;
    int32_t run = -1; // the beginning of a run of unknown characters
    for (int32_t at = 0, stop = next; at < (int32_t)n; at = stop, stop = best[at].from) {
        const int32_t id = best[stop].id;
        const bool known = id >= 0 && id != u->unknown;
        if (known && run >= 0)
            known_all &= add_unknown(u, s + run, (size_t)(at - run), to);
        if (known)
            ids_add(to, id);
        run = known ? -1 : run >= 0 ? run : at;
        if (stop == (int32_t)n)
            break;
    }
    if (run >= 0)
        known_all &= add_unknown(u, s + run, n - (size_t)run, to);
    free(best);
    return known_all;
}
