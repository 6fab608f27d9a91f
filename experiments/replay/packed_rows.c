// packed_rows.c - packs rows of probabilities into bytes, and unpacks them.
//
// The bytes before compression, in the machine's order (every supported one is little-endian), are the size of the
// vocabulary, and for each row
//
//     n  drawn position  drawn token  rest  token[n]  p[n]
//
// The tokens are differences. Both arrays are divided into planes, first the lowest byte of every word, then the next,
// since neighbours in a plane resemble each other. The compressed bytes are preceded by their size before compression.
#include "experiments/replay/packed_rows.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/error.h"
#include "core/grid.h"
#include "sampling/rng.h"

enum { MAX_VOCAB = PHILOX_INDICES, MAX_STEP = 1 << 30 }; // no draw is from more tokens

// ---- packing

// Orders larger entries first, equal ones by token.
static int by_size(const void *a, const void *b)
{
    const struct kept_entry *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p) - (x->p > y->p) : (x->token > y->token) - (x->token < y->token);
}

static int by_token(const void *a, const void *b)
{
    const struct kept_entry *x = a, *y = b;
    return (x->token > y->token) - (x->token < y->token);
}

// member: offset of a word of four bytes in struct kept_entry.
static void put_planes(const struct kept_entry *entries, size_t member, size_t n, struct text *to)
{
    const char *from = (const char *)entries + member;
    char *planes = xmalloc(4 * n + 1), *at = planes;
    for (size_t plane = 0; plane < 4; plane++)
        for (size_t i = 0; i < n; i++)
            *at++ = from[i * sizeof(struct kept_entry) + plane];
    text_add(to, planes, 4 * n);
    free(planes);
}

static bool is_among(int32_t token, const int32_t *also, int n)
{
    for (int i = 0; i < n; i++)
        if (also[i] == token)
            return true;
    return false;
}

// Puts the entries that are kept first, and returns their number. *rest: mass of the others.
static int select_entries(struct kept_entry *e, int n, int keep, const int32_t *also, int n_also, double *rest)
{
    *rest = 0;
    if (keep == ROWS_FULL || n <= keep)
        return n;
    qsort(e, (size_t)n, sizeof(*e), by_size);
    int kept = keep;
    for (int i = keep; i < n; i++)
        if (is_among(e[i].token, also, n_also)) {
            e[kept++] = e[i];
        } else {
            *rest += grid_round((double)e[i].p);
        }
    qsort(e, (size_t)kept, sizeof(*e), by_token);
    return kept;
}

void row_pack(const float *row, int vocab, int keep, const int32_t *also, int n_also, struct drawn drawn,
              struct text *to)
{
    struct kept_entry *e = xmalloc(((size_t)vocab + 1) * sizeof(*e));
    int n = 0;
    for (int x = 0; x < vocab; x++)
        if (row[x] != 0)
            e[n++] = (struct kept_entry){ x, row[x] };
    double rest;
    n = select_entries(e, n, keep, also, n_also, &rest);
    for (int i = n - 1; i > 0; i--)
        e[i].token -= e[i - 1].token;
    text_add(to, (const char *)&n, sizeof(n));
    text_add(to, (const char *)&drawn, sizeof(drawn));
    text_add(to, (const char *)&rest, sizeof(rest));
    put_planes(e, offsetof(struct kept_entry, token), (size_t)n, to);
    put_planes(e, offsetof(struct kept_entry, p), (size_t)n, to);
    free(e);
}

bool rows_packable(int nodes, bool sampled, int keep, int support, struct error *err)
{
    const int64_t kept = keep == ROWS_FULL || keep + nodes > support ? support : keep + nodes,
                  rows = sampled ? 2 * nodes - 1 : nodes,
                  bytes = rows * ((int64_t)(sizeof(int32_t) + sizeof(struct drawn) + sizeof(double)) +
                                  kept * (int64_t)(sizeof(int32_t) + sizeof(float)));
    return bytes < MAX_STEP ||
           fail(err,
                "rows: a draft of up to %d tokens has %lld rows of up to %lld probabilities, %.2f GiB a step; expected"
                " less than 1 GiB: shorter drafts, or fewer entries (rows: N)",
                nodes - 1, (long long)rows, (long long)kept, (double)bytes / MAX_STEP);
}

void *rows_pack(const struct text *rows, int vocab, size_t *bytes)
{
    const uint32_t head[2] = { (uint32_t)rows->n, (uint32_t)vocab };
    uLongf size = compressBound((uLong)rows->n);
    char *to = xmalloc(sizeof(head) + size);
    assert(rows->n < MAX_STEP);
    memcpy(to, head, sizeof(head));
    if (compress2((Bytef *)to + sizeof(head), &size, (const Bytef *)rows->s, (uLong)rows->n, 6) != Z_OK)
        memory_out(0); // there is no other reason for a failure
    *bytes = sizeof(head) + size;
    return xrealloc(to, *bytes);
}

// ---- unpacking

struct reader {
    const unsigned char *at;
    size_t left;
};

static bool take(struct reader *r, void *to, size_t bytes)
{
    if (bytes > r->left)
        return false;
    memcpy(to, r->at, bytes);
    r->at += bytes;
    r->left -= bytes;
    return true;
}

static void take_planes(struct reader *r, struct kept_entry *entries, size_t member, size_t n)
{
    unsigned char *to = (unsigned char *)entries + member;
    for (size_t plane = 0; plane < 4; plane++)
        for (size_t i = 0; i < n; i++)
            to[i * sizeof(struct kept_entry) + plane] = *r->at++;
    r->left -= 4 * n;
}

// Returns false if the bytes are no row.
static bool take_row(struct reader *r, int vocab, struct kept_row *to)
{
    if (!take(r, &to->n, sizeof(to->n)) || !take(r, &to->drawn, sizeof(to->drawn)) ||
        !take(r, &to->rest, sizeof(to->rest)) || to->n < 0 || to->n > vocab || 8 * (size_t)to->n > r->left ||
        !(to->rest >= 0 && to->rest <= 2) || to->drawn.token < -1 || to->drawn.token >= vocab ||
        (to->rest > 0 && (to->n == 0 || to->n == vocab)))
        return false;
    to->entry = xmalloc(((size_t)to->n + 1) * sizeof(*to->entry));
    take_planes(r, to->entry, offsetof(struct kept_entry, token), (size_t)to->n);
    take_planes(r, to->entry, offsetof(struct kept_entry, p), (size_t)to->n);
    int64_t token = 0;
    for (int i = 0; i < to->n; i++) {
        struct kept_entry *e = &to->entry[i];
        token += e->token;
        if (token < 0 || token >= vocab || (i > 0 && e->token <= 0) || !(e->p > 0 && e->p <= 2))
            return false;
        e->token = (int32_t)token;
    }
    return true;
}

static bool take_rows(struct reader *r, struct unpacked_rows *to)
{
    while (r->left > 0) {
        to->row = xrealloc(to->row, ((size_t)to->n + 1) * sizeof(*to->row));
        to->row[to->n] = (struct kept_row){ 0 };
        if (!take_row(r, to->vocab, &to->row[to->n++]))
            return false;
    }
    return true;
}

bool rows_unpack(const void *packed, size_t bytes, const char *what, struct unpacked_rows *to, struct error *err)
{
    uint32_t head[2];
    *to = (struct unpacked_rows){ 0 };
    if (bytes < sizeof(head))
        return fail(err, "%s: rows: expected packed rows, found %zu bytes", what, bytes);
    memcpy(head, packed, sizeof(head));
    if (head[0] > MAX_STEP || head[1] < 1 || head[1] > MAX_VOCAB)
        return fail(err, "%s: rows: expected packed rows, found other bytes", what);
    unsigned char *raw = xmalloc((size_t)head[0] + 1);
    to->vocab = (int)head[1];
    uLongf size = head[0];
    const int code = uncompress(raw, &size, (const Bytef *)packed + sizeof(head), (uLong)(bytes - sizeof(head)));
    if (code == Z_MEM_ERROR)
        memory_out(0);
    bool ok = code == Z_OK && size == head[0];
    struct reader r = { raw, ok ? head[0] : 0 };
    ok = ok && take_rows(&r, to);
    free(raw);
    return ok || fail(err, "%s: rows: expected packed rows, found damaged ones", what);
}

void rows_free(struct unpacked_rows *r)
{
    for (int i = 0; i < r->n; i++)
        free(r->row[i].entry);
    free(r->row);
    *r = (struct unpacked_rows){ 0 };
}

void row_write(const struct kept_row *r, int vocab, float *to)
{
    memset(to, 0, (size_t)vocab * sizeof(*to));
    double rest = r->rest;
    for (int x = 0, i = 0; x < vocab && rest > 0; x++) { // a rest has 53 bits and a float 24, so three tokens take it
        while (i < r->n && r->entry[i].token < x)
            i++;
        if (i < r->n && r->entry[i].token == x)
            continue;
        to[x] = (float)rest;
        if ((double)to[x] > rest)
            to[x] = __builtin_nextafterf(to[x], 0);
        rest -= (double)to[x];
    }
    for (int i = 0; i < r->n; i++)
        to[r->entry[i].token] = r->entry[i].p;
}
