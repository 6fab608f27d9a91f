// test_judge.c - drafts judged on a device: the answers of verifier/, token for token and bit for bit.
//
//     test_judge [N]     so many random drafts for each rule and device, instead of a few hundred
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/judging.h"
#include "core/memory.h"
#include "exact/instance.h"
#include "kernels/backend.h"
#include "sampling/rng.h"
#include "tests/check.h"
#include "tests/gpus.h"
#include "verifier/rule.h"

enum { MOST_NODES = 24, MOST_VOCAB = 1500 };

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus, drafts = 300;

static uint64_t state = 17;

static uint64_t next(void)
{
    return splitmix(&state);
}

static int any(int below)
{
    return (int)(next() % (uint64_t)below);
}

static double uniform(void)
{
    return (double)(next() >> 11) * 0x1p-53;
}

struct table {        // rows that are there
    struct rows rows; // first
    float p[MOST_NODES * MOST_VOCAB];
};

static const float *table_row(struct rows *self, int node)
{
    return ((struct table *)self)->p + node * self->vocab;
}

// Peaked or flat, with tokens that are impossible, one-hot at times.
static void some_row(float *to, int vocab)
{
    const double sharp = any(3) == 0 ? 20 : 3, none = any(2) == 0 ? 0.5 : 0;
    double sum = 0;
    const int hot = any(8) == 0 ? any(vocab) : -1;
    for (int i = 0; i < vocab; i++) {
        to[i] = (float)(hot >= 0 ? i == hot : uniform() < none && i > 0 ? 0 : pow(uniform(), sharp) + (i == 0) * 1e-3);
        sum += (double)to[i];
    }
    for (int i = 0; i < vocab; i++)
        to[i] = (float)((double)to[i] / sum);
}

struct scene {
    struct draft draft;
    int32_t token[MOST_NODES], parent[MOST_NODES];
    uint8_t drawn[MOST_NODES];
    struct table p, q;
};

// A tree whose drawn tokens are possible. alike: q is near p, so that paths become long.
static void some_scene(struct scene *s, bool draws)
{
    const int vocab = any(4) == 0 ? 1 + any(MOST_VOCAB) : 2 + any(12), n = 1 + any(MOST_NODES);
    const bool alike = any(3) > 0;
    s->draft = (struct draft){ 1, MOST_NODES, s->token, s->parent, s->drawn, draws ? &s->q.rows : NULL, NULL };
    s->token[0] = 0, s->parent[0] = -1, s->drawn[0] = CHOSEN;
    s->p.rows = (struct rows){ vocab, table_row, NULL };
    s->q.rows = (struct rows){ vocab, table_row, NULL };
    for (int i = 0; i < MOST_NODES; i++) {
        some_row(s->p.p + i * vocab, vocab);
        some_row(s->q.p + i * vocab, vocab);
        for (int x = 0; x < vocab && alike; x++)
            s->q.p[i * vocab + x] = s->p.p[i * vocab + x];
    }
    for (int i = 1; i < n; i++) {
        const int parent = any(3) == 0 ? any(i) : i - 1;
        const float *q = s->q.p + parent * vocab;
        struct philox chance = philox_source(next(), 0);
        const enum drawn how = draws ? (enum drawn)any(3) : CHOSEN;
        const int x = rng_pick_row(&chance.rng, q, vocab, (struct address){ FOR_DRAFT, 0, 0 }, NULL);
        bool again = false;
        for (int c = draft_next_child(&s->draft, parent, parent); c >= 0; c = draft_next_child(&s->draft, parent, c))
            again = again || s->token[c] == x;
        draft_add(&s->draft, parent, x, how == DRAWN_DISTINCT && again ? CHOSEN : how);
    }
}

static void check(struct backend *b, const char *device, const struct scene *s, enum body body, double lenience,
                  const struct rule *rule, struct judgement *here)
{
    const struct draft *d = &s->draft;
    const int vocab = s->p.rows.vocab;
    struct philox chance = philox_source(next(), next() >> 32);
    chance.rng.root = any(5000);
    rule->judge(d, (struct rows *)&s->p.rows, &lenience, &chance.rng, here);

    const struct tensor p = rows_on(b, d->n, vocab), q = rows_on(b, d->n, vocab);
    b->upload(b, p.data, s->p.p, tensor_bytes(p));
    b->upload(b, q.data, s->q.p, tensor_bytes(q));
    int32_t token[MOST_NODES], node[MOST_NODES];
    double trial_p[MOST_NODES], trial_q[MOST_NODES];
    struct ruling there = { .token = token, .node = node, .trial_p = trial_p, .trial_q = trial_q };
    const struct judging j = { .body = body,
                               .lenience = lenience,
                               .n = d->n,
                               .token = d->token,
                               .parent = d->parent,
                               .drawn = d->drawn,
                               .p = p,
                               .q = q,
                               .seed = chance.seed,
                               .sequence = chance.sequence,
                               .root = chance.rng.root };
    b->judge(b, &j, &there, 1);
    const size_t ids = (size_t)here->n * sizeof(int32_t), trials = (size_t)d->n * sizeof(double);
    if (there.n != here->n || memcmp(token, here->token, ids) != 0 || memcmp(node, here->node, ids) != 0)
        fail_msg("%s, %s: a draft of %d nodes of %d tokens ends otherwise there", device, rule->name, d->n, vocab);
    if (memcmp(trial_p, here->trial_p, trials) != 0 || memcmp(trial_q, here->trial_q, trials) != 0 ||
        there.empty != here->empty)
        fail_msg("%s, %s: a draft of %d nodes of %d tokens was judged by other numbers", device, rule->name, d->n,
                 vocab);
    b->release(b, p.data), b->release(b, q.data);
}

static void the_device_answers_as_the_host(void **unused)
{
    (void)unused;
    static const struct {
        const char *rule;
        enum body body;
        double lenience;
        bool draws;
    } cases[] = {
        { "rejection", BODY_REJECTION, 1, false },
        { "rejection", BODY_REJECTION, 1, true },
        { "lenient", BODY_REJECTION, 1.25, true },
        { "match", BODY_MATCH, 1, true },
    };
    static struct scene s;
    for (int g = 0; g < gpus; g++) {
        struct backend *b = gpu_open(&gpu[g]);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            for (int k = 0; k < drafts; k++) {
                some_scene(&s, cases[i].draws);
                struct judgement here = judgement_create(MOST_NODES, s.p.rows.vocab);
                check(b, gpu[g].name, &s, cases[i].body, cases[i].lenience, rule_named(cases[i].rule), &here);
                judgement_destroy(&here);
            }
        gpu_close(b);
    }
}

// The one Philox and the other's header.
static void philox_is_philox(void **unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        const uint64_t seed = next(), sequence = next();
        const struct address at = { (enum purpose)any(5), (int32_t)(next() >> 33), any(PHILOX_NODES) };
        const uint32_t index = (uint32_t)any(PHILOX_INDICES);
        const double k =
            grid_bits53(seed, grid_word0(at.purpose, at.node, index / 2), at.position, sequence, (int)(index % 2));
        assert_true(k * 0x1p-53 == philox_uniform(seed, sequence, at, index));
    }
}

int main(int argc, char **argv)
{
    gpus = gpus_here(gpu);
    if (gpus == 0)
        return 77;
    if (argc > 1)
        drafts = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_is_philox),
        cmocka_unit_test(the_device_answers_as_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
