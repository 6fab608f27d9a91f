// bpe.c - byte-pair encoding in O(n log n) for a piece of n bytes: the symbols are a linked list, the pairs that can be
// merged a heap. A merge does not remove the heap entries of its symbols; stale entries are detected when popped.
#include "tokenizers/bpe.h"

#include <assert.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/utf8.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/vocabulary.h"

void bpe_init(struct bpe *b, size_t merges)
{
    size_t capacity = 64;
    while (capacity < 2 * merges)
        capacity *= 2;
    *b = (struct bpe){ .unknown = -1, .capacity = capacity };
    b->merge = xmalloc(capacity * sizeof(*b->merge));
    for (size_t i = 0; i < capacity; i++)
        b->merge[i].left = -1;
    for (int i = 0; i < 256; i++)
        b->byte[i] = -1;
}

void bpe_free(struct bpe *b)
{
    free(b->merge);
}

// The pair's slot, or the free slot for it.
static struct merge *slot_of(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)left << 32 | (uint32_t)right;
    uint64_t h = key * 0x9E3779B97F4A7C15u; // Fibonacci hashing: the high bits are well mixed
    for (size_t i = (size_t)(h >> 32) & (b->capacity - 1);; i = (i + 1) & (b->capacity - 1)) {
        struct merge *m = &b->merge[i];
        if (m->left < 0 || (m->left == left && m->right == right))
            return m;
    }
}

void bpe_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t merged)
{
    *slot_of(b, left, right) = (struct merge){ left, right, rank, merged };
}

struct symbol {
    int32_t id;             // -1: merged into the one before it
    int32_t previous, next; // -1: none
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
    if (w->n == w->candidates) {
        w->candidates = next_capacity(w->candidates, w->n + 1);
        w->heap = xrealloc(w->heap, w->candidates * sizeof(*w->heap));
    }
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

static void push_pair(const struct bpe *b, struct bpe_work *w, int32_t at)
{
    const struct symbol *s = &w->symbol[at];
    const struct merge *m = slot_of(b, s->id, w->symbol[s->next].id);
    if (m->left >= 0)
        push(w, (struct candidate){ m->rank, at, m->merged });
}

struct symbols {
    const struct bpe *b;
    struct symbol *s;
    int32_t n;
    bool fuse; // the last symbol is unknown, and an unknown one that follows is fused with it
};

static void add_symbol(struct symbols *to, int32_t id)
{
    const bool unknown = id < 0;
    if (unknown)
        id = to->b->unknown;
    if (id >= 0 && !(unknown && to->fuse)) {
        to->s[to->n] = (struct symbol){ id, to->n - 1, to->n + 1 };
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
        if (known || !bytes_have_tokens(b, piece + i, length))
            add_symbol(&to, known ? id : -1);
        else
            for (size_t k = 0; k < length; k++)
                add_symbol(&to, b->byte[(unsigned char)piece[i + k]]);
        i += length;
    }
    if (to.n > 0)
        s[to.n - 1].next = -1;
    return to.n;
}

void bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n, struct ids *to)
{
    assert(n <= INT32_MAX);
    if (n > w->symbols) {
        w->symbols = next_capacity(w->symbols, n);
        w->symbol = xrealloc(w->symbol, w->symbols * sizeof(*w->symbol));
    }
    int32_t count = first_symbols(b, w->symbol, piece, n);
    w->n = 0;
    for (int32_t i = 0; i + 1 < count; i++)
        push_pair(b, w, i);

    while (w->n > 0) {
        struct candidate c = pop(w);
        struct symbol *left = &w->symbol[c.at];
        if (left->id < 0 || left->next < 0)
            continue;
        struct symbol *right = &w->symbol[left->next];
        const struct merge *m = slot_of(b, left->id, right->id);
        if (m->left < 0 || m->merged != c.merged)
            continue; // stale: one of the two symbols has merged since
        left->id = c.merged;
        right->id = -1;
        left->next = right->next;
        if (left->next >= 0) {
            w->symbol[left->next].previous = c.at;
            push_pair(b, w, c.at);
        }
        if (left->previous >= 0)
            push_pair(b, w, left->previous);
    }
    for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = w->symbol[i].next)
        ids_add(to, w->symbol[i].id);
}

void bpe_work_free(struct bpe_work *w)
{
    free(w->symbol);
    free(w->heap);
}
