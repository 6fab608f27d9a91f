// fuzz_rows.c - a recorded draft, as a row of a database: arbitrary bytes as its rows, and numbers that are arbitrary in range as its draft.
//
// Input: a byte of flags, the number of nodes, three bytes for each node (token, parent, proposal), then the rows: compressed bytes, or with
// COMPRESS bytes that are compressed first, so that mutations get past the library.
// reader: experiments/replay/packed_rows.c experiments/replay/recorded_drafts.c
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "experiments/replay/recorded_drafts.h"
#include "tests/fuzz/fuzz.h"
#include "verifier/rules/rule.h"

enum { COMPRESS = 1, NODES = 8, VOCAB = 16 };

// A rule may rely on what the reader has checked.
static void decide(struct recorded_rows *r, struct draft *d)
{
    int node[NODES];
    struct verification v = verification_create(d->n, r->vocab);
    for (int i = 0; i < d->n; i++)
        node[i] = i;
    d->q = &r->q.rows;
    for (int i = 0; rules[i] != NULL && i < 2; i++) { // rejection, match: they take every draft
        recorded_rows_point(r, node, 1, 2, 3);
        rules[i]->verify(rules[i], d, &r->p.rows, NULL, &r->source.philox.rng, &v);
        insist(draft_is_path(d, v.node, v.token, v.n, r->vocab));
    }
    verification_destroy(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    int32_t token[NODES], parent[NODES];
    uint8_t proposal[NODES];
    const size_t nodes = n > 1 ? 1 + input[1] % NODES : 0;
    if (n < 2 + 3 * nodes || nodes == 0)
        return 0;
    struct recorded_draft d = {
        .draft = { .n = (int)nodes, .capacity = NODES, .token = token, .parent = parent, .proposal = proposal }
    };
    for (int i = 0; i < d.draft.n; i++) {
        token[i] = input[2 + 3 * i] % (VOCAB + 1);
        parent[i] = i > 0 ? input[3 + 3 * i] % i : -1;
        proposal[i] = input[4 + 3 * i] % 3;
    }
    const size_t from = 2 + 3 * nodes;
    struct text raw = { 0 };
    text_add(&raw, (const char *)input + from, n - from);
    if (input[0] & COMPRESS)
        d.packed = rows_pack(&raw, VOCAB, &d.bytes);
    else {
        d.bytes = n - from;
        d.packed = malloc(d.bytes + 1);
        memcpy(d.packed, raw.s, d.bytes);
    }
    struct recorded_rows r = { .vocab = 0 };
    struct error err = { "" };
    if (recorded_rows_open(&r, &d, "draft", &err))
        decide(&r, &d.draft);
    else
        insist(err.text[0] != '\0');
    recorded_rows_destroy(&r);
    free(d.packed);
    free(raw.s);
    return 0;
}

// Anything, or a number of a row.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max_size, unsigned seed)
{
    fuzz_seed(seed);
    if (n < 16 || fuzz_below(2) == 0)
        return LLVMFuzzerMutate(data, n, max_size);
    LLVMFuzzerMutate(data + fuzz_below(n - 4), 4, 4);
    return n;
}
