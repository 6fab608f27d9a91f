// ngram.c - prompt lookup: finds the last few tokens earlier in the sequence and proposes the tokens that followed
// them.
//
// Saxena, "Prompt Lookup Decoding" (2023). It needs no weights and keeps no state.
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"

struct ngram_options {
    int longest, shortest; // numbers of tokens to match
    int tokens;            // number of tokens to propose
};

struct ngram {
    struct drafter drafter; // must be first
    struct ngram_options o;
};

static struct drafter *ngram_create(const struct drafter_env *env, const void *options, struct error *err)
{
    (void)env;
    const struct ngram_options *o = options;
    if (o->shortest > o->longest) {
        fail(err, "drafter ngram: shortest (%d) is more than longest (%d)", o->shortest, o->longest);
        return NULL;
    }
    struct ngram *g = xcalloc(1, sizeof(*g));
    g->o = *o;
    g->drafter.nodes = 1 + o->tokens;
    return &g->drafter;
}

// Returns the end of the last occurrence of x before `end`; 0: none. Chunks without x, which are nearly all chunks of a
// long text, are skipped as a whole: this is the cost of a lookup.
static int end_of_last(const int32_t *token, int end, int32_t x)
{
    enum { CHUNK = 32 };
    for (bool found = false; end >= CHUNK; end -= CHUNK) {
        for (int i = end - CHUNK; i < end; i++)
            found |= token[i] == x;
        if (found)
            break;
    }
    while (end > 0 && token[end - 1] != x)
        end--;
    return end;
}

// Returns the end of the most recent earlier occurrence of the last tokens, of as many of them as possible; -1: not
// even `shortest` of them occurred. It is one backward scan: an occurrence that matches more tokens than all later ones
// is the most recent with a match of that length.
static int last_match(const int32_t *token, int n, int longest, int shortest)
{
    int found = -1, best = shortest - 1;
    for (int end = n; best < longest && (end = end_of_last(token, end - 1, token[n - 1])) > best;) {
        int m = 1;
        while (m < longest && m < end && token[end - 1 - m] == token[n - 1 - m])
            m++;
        if (m > best) {
            best = m;
            found = end;
        }
    }
    return found;
}

static bool ngram_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    (void)err;
    const struct ngram *g = (struct ngram *)d;
    for (int i = 0; i < n; i++) {
        int max_tokens = g->o.tokens < r[i].depth ? g->o.tokens : r[i].depth;
        int from = last_match(r[i].token, r[i].n, g->o.longest, g->o.shortest);
        if (from < 0)
            continue;
        int to = from + max_tokens < r[i].n ? from + max_tokens : r[i].n;
        for (int node = 0; from < to && node >= 0; from++)
            node = draft_add(r[i].draft, node, r[i].token[from], DETERMINISTIC);
    }
    return true;
}

static void ngram_destroy(struct drafter *d)
{
    free(d);
}

// clang-format off
static const struct option ngram_options[] = {
    { "longest", OPTION_INT, offsetof(struct ngram_options, longest), "3", "maximum number of tokens to match", 1, 64, NULL },
    { "shortest", OPTION_INT, offsetof(struct ngram_options, shortest), "1", "minimum number of tokens to match", 1, 64, NULL },
    { "tokens", OPTION_INT, offsetof(struct ngram_options, tokens), "8", "tokens to propose", 1, 256, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type ngram_drafter = {
    .name = "ngram",
    .summary = "prompt lookup: the tokens behind an earlier match of the last few tokens",
    .options = ngram_options,
    .options_size = sizeof(struct ngram_options),
    .create = ngram_create,
    .propose = ngram_propose,
    .destroy = ngram_destroy,
};
