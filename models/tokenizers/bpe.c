// bpe.c - byte-pair encoding in O(n log n) for a piece of n bytes: the symbols are a linked list, the pairs that can be
// merged a heap. A merge does not remove the heap entries of its symbols; stale entries are detected when popped.
#include "models/tokenizers/bpe.h"

#include <assert.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/utf8.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/vocabulary.h"

void bpe_init(struct bpe *b, size_t merges)
{
    assert(merges < INT32_MAX);
    *b = (struct bpe){ .unknown = -1, .merge = xmalloc((merges + 1) * sizeof(*b->merge)) };
    hash_table_begin(&b->by_pair, merges);
    for (int i = 0; i < 256; i++)
        b->byte[i] = -1;
}

void bpe_init_texts(struct bpe *b, const struct vocabulary *v, uint32_t *rank, bool *unused)
{
    bpe_init(b, 0);
    b->characters = v;
    b->rank = rank;
    b->unused = unused;
    for (int32_t id = 0; id < v->size; id++) {
        const struct token *t = vocabulary_token(v, id);
        if (t != NULL && rank[id] != NEVER_MADE && t->text_n > b->longest)
            b->longest = t->text_n;
    }
}

void bpe_free(struct bpe *b)
{
    free(b->merge);
    hash_table_free(&b->by_pair);
    free(b->rank);
    free(b->unused);
}

// Returns the place of the pair, or the free place for it.
static int32_t *place_of(const struct bpe *b, int32_t left, int32_t right)
{
    int32_t *at = hash_table_first(&b->by_pair, hash_of_pair(left, right));
    while (*at >= 0 && (b->merge[*at].left != left || b->merge[*at].right != right))
        at = hash_table_next(&b->by_pair, at);
    return at;
}

void bpe_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t merged)
{
    int32_t *at = place_of(b, left, right);
    if (*at < 0)
        *at = b->merges++;
    b->merge[*at] = (struct merge){ left, right, rank, merged };
}

enum { GONE = -2, WITHOUT_TOKEN = -1 };

struct symbol {
    int32_t id;             // GONE: merged into the one before it
    int32_t previous, next; // -1: none
    int32_t at, n;          // its text, in bytes
};

struct candidate { // symbol `at` can merge with the one after it
    uint32_t rank;
    int32_t at;
    int32_t merged;
};

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct bpe_work *w, struct candidate c)
{
    array_reserve(w->heap, w->candidates, w->n + 1);
    size_t i = w->n++;
    for (; i > 0 && before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static struct candidate pop(struct bpe_work *w)
{
    struct candidate top = w->heap[0], last = w->heap[--w->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w->n; i = child) {
        if (child + 1 < w->n && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

// Returns whether symbol `at` merges with the one after it, and into which token.
static bool pair_of(const struct bpe *b, const struct bpe_work *w, const char *text, int32_t at, struct candidate *to)
{
    const struct symbol *left = &w->symbol[at], *right = &w->symbol[left->next];
    if (b->rank == NULL) {
        const int32_t i = *place_of(b, left->id, right->id);
        if (i >= 0)
            *to = (struct candidate){ b->merge[i].rank, at, b->merge[i].merged };
        return i >= 0;
    }
    const size_t n = (size_t)left->n + (size_t)right->n;
    const int32_t id = n <= b->longest ? vocabulary_find(b->characters, text + left->at, n) : -1;
    if (id < 0 || b->rank[id] == NEVER_MADE)
        return false;
    *to = (struct candidate){ b->rank[id], at, id };
    return true;
}

static void push_pair(const struct bpe *b, struct bpe_work *w, const char *text, int32_t at)
{
    struct candidate c;
    if (!pair_of(b, w, text, at, &c))
        return;
    push(w, c);
    if (b->unused != NULL && b->unused[c.merged])
        w->left[c.merged] = w->symbol[at].n;
}

// ---- the first symbols

struct symbols {
    const struct bpe *b;
    struct symbol *s;
    int32_t n;
    bool fuse; // the last symbol is unknown, and an unknown one that follows is fused with it
};

static void add_symbol(struct symbols *to, int32_t id, size_t at, size_t n)
{
    const bool unknown = id < 0;
    if (unknown && to->b->rank == NULL)
        id = to->b->unknown;
    if (to->b->rank != NULL || (id >= 0 && !(unknown && to->fuse))) {
        to->s[to->n] = (struct symbol){ id, to->n - 1, to->n + 1, (int32_t)at, (int32_t)n };
        to->n++;
    }
    to->fuse = unknown && to->b->fuse_unknown;
}

static bool bytes_have_tokens(const struct bpe *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (b->byte[(unsigned char)s[i]] < 0)
            return false;
    return true;
}

// Fills s with the tokens of the bytes or characters as a linked list; returns their number.
static int32_t first_symbols(const struct bpe *b, struct symbol *s, const char *piece, size_t n)
{
    struct symbols to = { .b = b, .s = s };
    for (size_t i = 0; i < n;) {
        const size_t length = b->characters != NULL ? utf8_character(piece + i, n - i) : 1;
        const int32_t id = b->characters != NULL ? vocabulary_find(b->characters, piece + i, length) : -1;
        const bool known = id >= 0 && !vocabulary_token(b->characters, id)->literal;
        if (known || b->rank != NULL || !bytes_have_tokens(b, piece + i, length))
            add_symbol(&to, known ? id : WITHOUT_TOKEN, i, length);
        else
            for (size_t k = 0; k < length; k++)
                add_symbol(&to, b->byte[(unsigned char)piece[i + k]], i + k, 1);
        i += length;
    }
    if (to.n > 0)
        s[to.n - 1].next = -1;
    return to.n;
}

// ---- the ids of the remaining symbols

// Appends the ids for the text (n) of one symbol: its token, the two parts of an unused one, its bytes' tokens, or the
// unknown token.
static void add_ids(const struct bpe *b, const struct bpe_work *w, const char *text, int32_t n, int32_t id, bool *fuse,
                    struct ids *to)
{
    const bool unused = id >= 0 && b->unused != NULL && b->unused[id];
    const int32_t left = unused ? w->left[id] : 0;
    if (left > 0) {
        add_ids(b, w, text, left, vocabulary_find(b->characters, text, (size_t)left), fuse, to);
        const char *right = text + left;
        add_ids(b, w, right, n - left, vocabulary_find(b->characters, right, (size_t)(n - left)), fuse, to);
        return;
    }
    id = unused ? WITHOUT_TOKEN : id;
    const bool bytes = id < 0 && bytes_have_tokens(b, text, (size_t)n), unknown = id < 0 && !bytes;
    if (id >= 0)
        ids_add(to, id);
    for (int32_t k = 0; bytes && k < n; k++)
        ids_add(to, b->byte[(unsigned char)text[k]]);
    if (unknown && b->unknown >= 0 && !*fuse)
        ids_add(to, b->unknown);
    *fuse = unknown && b->fuse_unknown;
}

void bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n, struct ids *to)
{
    assert(n <= INT32_MAX);
    if (b->unused != NULL && w->left == NULL)
        w->left = xcalloc((size_t)b->characters->size, sizeof(*w->left));
    if (n > w->symbols) {
        w->symbols = next_capacity(w->symbols, n);
        w->symbol = xrealloc(w->symbol, w->symbols * sizeof(*w->symbol));
    }
    int32_t count = first_symbols(b, w->symbol, piece, n);
    w->n = 0;
    for (int32_t i = 0; i + 1 < count; i++)
        push_pair(b, w, piece, i);

    while (w->n > 0) {
        struct candidate c = pop(w);
        struct symbol *left = &w->symbol[c.at];
        if (left->id == GONE || left->next < 0)
            continue;
        struct symbol *right = &w->symbol[left->next];
        struct candidate now;
        if (!pair_of(b, w, piece, c.at, &now) || now.merged != c.merged)
            continue; // stale: one of the two symbols has merged since
        left->id = c.merged;
        left->n += right->n;
        right->id = GONE;
        left->next = right->next;
        if (left->next >= 0) {
            w->symbol[left->next].previous = c.at;
            push_pair(b, w, piece, c.at);
        }
        if (left->previous >= 0)
            push_pair(b, w, piece, left->previous);
    }
    bool fuse = false;
    for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = w->symbol[i].next) {
        const struct symbol *s = &w->symbol[i];
        add_ids(b, w, piece + s->at, s->n, s->id, &fuse, to);
    }
}

void bpe_work_free(struct bpe_work *w)
{
    free(w->symbol);
    free(w->heap);
    free(w->left);
}
