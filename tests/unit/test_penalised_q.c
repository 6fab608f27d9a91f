// test_penalised_q.c - rows of q under stages that depend on the text, against a simple implementation over the whole path: the
// sequence and the draft tokens.
//
// The logits are recorded when a drafter downloads them. The stages are applied here in doubles, to the text before each node as
// assembled from the draft. The contract test compares two drafters of the same code, which would both omit draft tokens.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/tokenizers/tokenizer.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/support/small_heads.h"
#include "tests/support/pairings.h"
#include "tests/support/plain_stages.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 96, SLOTS = 2, TEXT = 20, OWN_PROMPT = 9, MAX_DOWNLOADS = 128, WIDE = 288 };

// ---- downloads of a drafter

static struct {
    void (*download)(struct backend *b, void *host, const void *from, size_t bytes);
    int n, width; // rows; their length
    const void *from[MAX_DOWNLOADS];
    float row[MAX_DOWNLOADS][WIDE];
} downloaded;

static void download_and_record(struct backend *b, void *host, const void *from, size_t bytes)
{
    downloaded.download(b, host, from, bytes);
    assert_true(downloaded.n < MAX_DOWNLOADS && bytes <= sizeof(downloaded.row[0]));
    downloaded.from[downloaded.n] = from;
    downloaded.width = (int)(bytes / sizeof(float));
    memcpy(downloaded.row[downloaded.n++], host, bytes);
}

// ---- a simple implementation of the stages

struct stages {
    const char *yaml;
    double penalty, frequency, presence, temperature;
    int biased; // the token with a bias; -1: none
    double bias;
    int top_k; // 0: all
};

static int used_vocab; // ids from here on are no tokens

static void plain_row(double *p, const double *logit, int vocab, const struct stages *s, const int32_t *text, int n)
{
    double x[WIDE];
    int id[WIDE];
    memcpy(x, logit, (size_t)vocab * sizeof(*x));
    for (int token = 0; token < vocab; token++) {
        int occurs = 0, generated = 0;
        for (int i = 0; i < n; i++) {
            occurs += text[i] == token;
            generated += text[i] == token && i >= OWN_PROMPT;
        }
        if (occurs > 0)
            x[token] = x[token] > 0 ? x[token] / s->penalty : x[token] * s->penalty;
        x[token] -= s->frequency * generated + (generated > 0 ? s->presence : 0);
        x[token] += token == s->biased ? s->bias : 0;
        x[token] = token < used_vocab ? x[token] / s->temperature : -INFINITY;
    }
    sort_ids(id, x, vocab);
    for (int rank = s->top_k > 0 ? s->top_k : vocab; rank < vocab; rank++)
        x[id[rank]] = -INFINITY;
    plain_softmax(p, x, vocab);
}

// Maps the logits of a head with a smaller vocabulary, which has every n-th id of the target (tests/support/small_heads.c).
static void to_target_ids(double *to, const float *own, int width, int vocab)
{
    const int every = vocab / width;
    for (int x = 0; x < vocab; x++)
        to[x] = x % every == 0 && x / every < width ? (double)own[x / every] : -INFINITY;
}

// ---- two drafts

struct text_state {
    struct philox rng;
    int32_t token[LENGTH];
    int n;
    struct draft draft;
    int32_t node_token[MAX_NODES], node_parent[MAX_NODES];
    uint8_t node_proposal[MAX_NODES];
};

static void prefill(struct pair *p, int slot, struct text_state *t, struct request *r)
{
    struct error err;
    struct advance a;
    *t = (struct text_state){ .rng = philox_source(3, (uint64_t)slot), .n = TEXT + slot };
    for (int i = 0; i < t->n; i++) // with repeated tokens
        t->token[i] = (7 * i * i + 11 * slot) % 40;
    for (;;) {
        assert_true(verifier_prefill(p->verifier, slot, t->token, t->n, &a, &err));
        if (a.n == 0)
            break;
        a.sequence = t->token;
        a.length = (int)(a.token - t->token) + a.n;
        if (p->type->advance != NULL)
            assert_true(p->type->advance(p->drafter, &a, 1, &err));
    }
    t->rng.rng.root = t->n - 1;
    t->draft = (struct draft){
        .n = 1, .capacity = 64, .token = t->node_token, .parent = t->node_parent, .proposal = t->node_proposal
    };
    t->node_token[0] = t->token[t->n - 1];
    t->node_parent[0] = -1;
    *r = (struct request){
        .slot = slot,
        .n = t->n,
        .prompt = OWN_PROMPT,
        .token = t->token,
        .rng = &t->rng.rng,
        .draft = &t->draft,
        .depth = 16,
    };
}

static void check_row(const char *drafter, const struct stages *s, const struct text_state *t, int node,
                      const float *logit)
{
    const struct draft *d = &t->draft;
    const float *q = d->q->row(d->q, node);
    const int vocab = d->q->vocab, depth = draft_depth(d, node);
    int32_t text[LENGTH];
    double plain[WIDE], p[WIDE];
    memcpy(text, t->token, sizeof(text));
    for (int at = node, i = t->n + depth - 1; at > 0; at = d->parent[at], i--)
        text[i] = d->token[at];
    to_target_ids(plain, logit, downloaded.width, vocab);
    plain_row(p, plain, vocab, s, text, t->n + depth);
    for (int x = 0; x < vocab; x++)
        if (fabs((double)q[x] - p[x]) > 1e-6 + 1e-5 * p[x])
            fail_msg("%s under %s: node %d, depth %d: token %d has %.9g, expected %.9g", drafter, s->yaml, node, depth,
                     x, (double)q[x], p[x]);
}

static int max_depth_seen;

static void check_drafter(const char *drafter, const struct stages *s)
{
    static struct text_state t[SLOTS];
    struct request r[SLOTS];
    struct error err;
    struct pair *p = pair_open(pair_target, pair_draft, drafter, s->yaml, rule_named("rejection"), SLOTS, LENGTH);
    const char *own = strstr(drafter, "temperature=");
    struct stages at = *s;
    at.temperature = own != NULL ? strtod(own + strlen("temperature="), NULL) : s->temperature;
    used_vocab = tokenizer_size(p->tokenizer);
    assert_true(used_vocab < model_shape(p->target)->vocab);
    for (int slot = 0; slot < SLOTS; slot++)
        prefill(p, slot, &t[slot], &r[slot]);
    downloaded.n = 0;
    downloaded.download = p->backend->download;
    p->backend->download = download_and_record;
    assert_true(p->type->propose(p->drafter, r, SLOTS, &err));
    p->backend->download = downloaded.download;
    int row = 0; // level by level, for each draft the nodes that have children
    for (int depth = 0; depth < draft_max_depth(&t[0].draft); depth++) {
        const int first = row;
        for (int slot = 0; slot < SLOTS; slot++) {
            const int others = row;
            for (int node = 0; node < t[slot].draft.n; node++)
                if (draft_depth(&t[slot].draft, node) == depth) {
                    assert_true(row < downloaded.n);
                    check_row(drafter, &at, &t[slot], node, downloaded.row[row]);
                    for (int i = first; i < others; i++) // each text has rows of its own
                        assert_ptr_not_equal(downloaded.from[row], downloaded.from[i]);
                    row++;
                    max_depth_seen = depth > max_depth_seen ? depth : max_depth_seen;
                }
        }
    }
    assert_int_equal(row, downloaded.n);
    assert_true(row >= 6);
    pair_close(p);
}

static const char *const drafters[] = {
    "small:model=%s,tokens=5",
    "small:model=%s,tokens=4,pick=coupled",
    "small:model=%s,widths=[3,2,1]",
    "small:model=%s,widths=[2,2,2],distinct=false,temperature=2.5",
    "medusa:weights=%s.medusa,tokens=3",
    "medusa:weights=%s.medusa,widths=[2,2,1],temperature=0.4",
    "eagle:weights=%s.eagle",
    "eagle:weights=%s.eagle,widths=[3,2,1]",
    "eagle3:weights=%s.eagle3,tokens=3,temperature=0.5",
    "eagle3:weights=%s.eagle3,widths=[2,2,2],distinct=false",
};

static const struct stages sampling[] = {
    { "{repetition_penalty: 1.7, temperature: 0.8}", 1.7, 0, 0, 0.8, -1, 0, 0 },
    { "{top_k: 20, temperature: 1.3, logit_bias: {9: 2.5}, repetition_penalty: 0.5}", 0.5, 0, 0, 1.3, 9, 2.5, 20 },
    { "{presence_penalty: 0.6, frequency_penalty: 0.9, temperature: 0.7}", 1, 0.9, 0.6, 0.7, -1, 0, 0 },
    { "{repetition_penalty: 1.2, frequency_penalty: -1.5, temperature: 0.7}", 1.2, -1.5, 0, 0.7, -1, 0, 0 },
};

static void rows_of_q_depend_on_every_token_of_the_path(void **state)
{
    max_depth_seen = 0;
    for (size_t i = 0; i < sizeof(drafters) / sizeof(*drafters); i++)
        for (size_t k = 0; k < sizeof(sampling) / sizeof(*sampling); k++)
            check_drafter(drafters[i], &sampling[k]);
    assert_int_equal(max_depth_seen, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows_of_q_depend_on_every_token_of_the_path) };
    return cmocka_run_group_tests(tests, pair_models_make, pair_models_remove);
}
