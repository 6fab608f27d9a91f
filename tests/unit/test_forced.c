// test_forced.c - teacher forcing (core/draft.h, struct forced): the rank of every token is recounted from the logits that the
// drafter copies to the host, with ties, with tokens that the drafter has no id for, and on a device of its own. And a device
// that fails while a drafter proposes.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/splitmix.h"
#include "kernels/backend.h"
#include "models/tokenizers/tokenizer.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 64, PROMPT = 20, DEPTH = 6, ROUNDS = 12, WIDE = 288 };

static struct {
    struct backend real;
    struct backend *of; // of the drafter
    int n, width[DEPTH];
    float row[DEPTH][WIDE];
} seen;

// Rounds the downloaded logits to multiples of 1/4, which gives many ties.
static void see_download(struct backend *b, void *host, const void *from, size_t bytes)
{
    float *x = host;
    assert_ptr_equal(b, seen.of);
    assert_true(seen.n < DEPTH && bytes <= sizeof(seen.row[0]));
    seen.real.download(b, host, from, bytes);
    seen.width[seen.n] = (int)(bytes / sizeof(float));
    for (int i = 0; i < seen.width[seen.n]; i++)
        x[i] = floorf(4 * x[i]) / 4;
    memcpy(seen.row[seen.n++], x, bytes);
}

// A drafter with a smaller vocabulary has every third id, from 0 on (tests/support/small_heads.c).
static int rank_of(const float *row, int width, int token, int used_vocab, int *ties)
{
    const int every = WIDE / width, x = token / every;
    int above = 0;
    if (token % every != 0)
        return WIDE;
    for (int i = 0; i < width && i * every < used_vocab; i++) {
        above += row[i] > row[x] || (row[i] == row[x] && i < x);
        *ties += i < x && row[i] == row[x];
    }
    return above;
}

// The largest probability of the row.
static double confidence_of(const float *row, int width, int used_vocab)
{
    double best = 0;
    for (int k = 0; k < width && k * (WIDE / width) < used_vocab; k++) {
        double others = 0;
        for (int i = 0; i < width && i * (WIDE / width) < used_vocab; i++)
            others += exp((double)row[i] - (double)row[k]);
        best = fmax(best, 1 / others);
    }
    return best;
}

struct one_request {
    struct philox rng;
    struct own_draft own;
};

static struct request make_request(struct one_request *a, const struct pair *p, const int32_t *text, int n,
                                   const struct forced *forced)
{
    a->rng = philox_source(7, 0);
    a->rng.rng.root = n - 1;
    return (struct request){ .n = n,
                             .token = text,
                             .rng = &a->rng.rng,
                             .draft = own_draft_begin(&a->own, text[n - 1], p->drafter->nodes),
                             .depth = forced != NULL ? forced->n : DEPTH,
                             .forced = forced };
}

static struct backend *another_cpu(struct error *err)
{
    return backend_cpu(1, err);
}

static void check_ranks(const char *drafter, pair_device *apart, int *ties, int *foreign_tokens)
{
    static struct one_request a;
    struct error err;
    uint64_t state = 3;
    struct pair *p = pair_open_on(NULL, apart, pair_target, pair_draft, drafter, "{temperature: 1}",
                                  rule_named("rejection"), 1, LENGTH);
    const int used_vocab = tokenizer_size(p->tokenizer);
    for (int round = 0; round < ROUNDS; round++) {
        int32_t text[PROMPT + DEPTH];
        int rank[DEPTH];
        for (int i = 0; i < PROMPT + DEPTH; i++)
            text[i] = (int32_t)(splitmix(&state) % (uint64_t)used_vocab);
        for (int i = 0; i < DEPTH; i++) {
            if (round % 2 == 0)
                text[PROMPT + i] -= text[PROMPT + i] % 3; // ids that every drafter has
            rank[i] = RANK_NOT_REQUESTED;
        }
        pair_feed(p, 0, text, PROMPT, NULL);
        float confidence[DEPTH];
        const struct forced forced = {
            .n = DEPTH, .token = text + PROMPT, .rank = rank, .confidence = round % 3 > 0 ? confidence : NULL
        };
        struct request r = make_request(&a, p, text, PROMPT, &forced);
        seen.of = apart != NULL ? p->draft_backend : p->backend;
        seen.real = *seen.of;
        seen.of->download = see_download;
        seen.n = 0;
        const bool ok = p->type->propose(p->drafter, &r, 1, &err);
        seen.of->download = seen.real.download;
        assert_true(ok && seen.n > 0 && a.own.draft.n == 1 + seen.n);
        for (int d = 0; d < DEPTH; d++) {
            const int expected = d < seen.n ? rank_of(seen.row[d], seen.width[d], text[PROMPT + d], used_vocab, ties)
                                            : RANK_NOT_REQUESTED;
            if (rank[d] != expected)
                fail_msg("%s: token %d at depth %d has rank %d, expected %d", drafter, text[PROMPT + d], d, rank[d],
                         expected);
            if (d < seen.n)
                assert_int_equal(a.own.token[1 + d], text[PROMPT + d]);
            if (d < seen.n && round % 3 > 0)
                assert_true(fabs((double)confidence[d] - confidence_of(seen.row[d], seen.width[d], used_vocab)) < 1e-6);
            *foreign_tokens += expected == WIDE;
        }
        verifier_forget(p->verifier, 0);
        p->type->forget(p->drafter, 0);
    }
    pair_close(p);
}

TEST(forced_tokens_have_the_rank_of_their_logit)
{
    for (int i = 0; i < pair_count(); i++) {
        const char *drafter = pair_drafter(i);
        int ties = 0, foreign_tokens = 0;
        if (!pair_declares(drafter, "activations")) // without logits
            continue;
        if (strstr(drafter, "vocabulary=") != NULL) // own ids: tests/tokenizers/test_vocabularies.c
            continue;
        check_ranks(drafter, NULL, &ties, &foreign_tokens);
        if (strncmp(drafter, "small", 5) == 0)
            check_ranks(drafter, another_cpu, &ties, &foreign_tokens);
        assert_true(ties > 20);
        assert_true((foreign_tokens > 10) == (strncmp(drafter, "eagle3", 6) == 0));
    }
}

static bool sync_fails(struct backend *b, struct error *err)
{
    return fail(err, "cpu: device lost");
}

TEST(a_device_that_fails_fails_the_proposal)
{
    static struct one_request a;
    for (int i = 0; i < pair_count(); i++) {
        const char *drafter = pair_drafter(i);
        if (!pair_declares(drafter, "activations"))
            continue;
        struct error err = { "" };
        int32_t text[PROMPT];
        struct pair *p =
            pair_open(pair_target, pair_draft, drafter, "{temperature: 1}", rule_named("rejection"), 1, LENGTH);
        for (int k = 0; k < PROMPT; k++)
            text[k] = 5 * k + 3;
        pair_feed(p, 0, text, PROMPT, NULL);
        struct request r = make_request(&a, p, text, PROMPT, NULL);
        const struct backend real = *p->backend;
        p->backend->sync = sync_fails;
        const bool ok = p->type->propose(p->drafter, &r, 1, &err);
        p->backend->sync = real.sync;
        if (ok || strcmp(err.text, "cpu: device lost") != 0)
            fail_msg("%s: the failure is not reported: \"%s\"", drafter, err.text);
        pair_close(p);
    }
}

RUN_TESTS(pair_models_make, pair_models_remove)
