// test_device_verification.c - drafts judged on a device: the answers of verifier/, token for token and bit for bit.
//
//     test_device_verification [N [SEED]]     so many random drafts for each kind of judging and device, instead of a hundred; others
//                               with another seed
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/device_verification.h"
#include "core/memory.h"
#include "exact/instance.h"
#include "kernels/backend.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/device/emulated.h"
#include "tests/device/gpus.h"
#include "verifier/rules/rule.h"

enum { FEW_NODES = 24, MOST_NODES = 66, MOST_VOCAB = 1500, MOST_DRAFTS = 5 };

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus, drafts = 100;

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
    uint8_t proposal[MOST_NODES];
    struct table p, q;
};

// A tree, or a chain, whose drawn tokens are possible. alike: q is near p, so that paths become long.
static void some_scene(struct scene *s, bool draws, bool chain)
{
    static const int many[] = { 31, 32, 33, 63, 64, 65, MOST_NODES }; // nodes, now and then
    const int n = any(12) == 0 ? many[any(7)] : 1 + any(FEW_NODES);
    const int vocab = n <= FEW_NODES && any(4) == 0 ? 1 + any(MOST_VOCAB) : 2 + any(12);
    const bool alike = any(3) > 0;
    s->draft = (struct draft){ 1, MOST_NODES, s->token, s->parent, s->proposal, draws ? &s->q.rows : NULL, NULL };
    s->token[0] = 0, s->parent[0] = -1, s->proposal[0] = DETERMINISTIC;
    s->p.rows = (struct rows){ vocab, table_row, NULL };
    s->q.rows = (struct rows){ vocab, table_row, NULL };
    for (int i = 0; i < n; i++) {
        some_row(s->p.p + i * vocab, vocab);
        some_row(s->q.p + i * vocab, vocab);
        for (int x = 0; x < vocab && alike; x++)
            s->q.p[i * vocab + x] = s->p.p[i * vocab + x];
    }
    for (int i = 1; i < n; i++) {
        const int parent = !chain && any(3) == 0 ? any(i) : i - 1;
        const float *q = s->q.p + parent * vocab;
        struct philox chance = philox_source(next(), 0);
        const enum proposal how = draws ? (enum proposal)any(3) : DETERMINISTIC;
        const int x = rng_pick_row(&chance.rng, q, vocab, (struct address){ FOR_DRAFT, 0, 0 }, NULL);
        bool again = false;
        for (int c = draft_next_child(&s->draft, parent, parent); c >= 0; c = draft_next_child(&s->draft, parent, c))
            again = again || s->token[c] == x;
        draft_add(&s->draft, parent, x, how == SAMPLED_WITHOUT_REPLACEMENT && again ? DETERMINISTIC : how);
    }
}

// ---- a device and the host

struct asked { // of a device: to judge a scene
    struct scene scene;
    struct philox chance;
    struct verification here; // what the host says
    struct tensor p, q;
    void *arrays; // of a draft on the device
    struct device_draft there;
    int32_t its_tag[MOST_NODES];
    // What the device says.
    struct verify_result verify_result;
    int32_t token[MOST_NODES], node[MOST_NODES], draft_token[MOST_NODES], draft_parent[MOST_NODES], tag[MOST_NODES];
    uint8_t proposal[MOST_NODES];
    double trial_p[MOST_NODES], trial_q[MOST_NODES];
};

struct kind { // of judging
    const char *rule;
    enum device_rule device_rule;
    double lenience, rate;
    bool draws, chain;
};

// lenient's and replayed's are one number each; nobody else looks.
static const void *options_of(const struct kind *k)
{
    return k->rate > 0 ? &k->rate : &k->lenience;
}

static struct tensor uploaded(struct backend *b, const float *from, int rows, int vocab)
{
    const struct tensor t = rows_on(b, rows, vocab);
    b->upload(b, t.data, from, tensor_bytes(t));
    return t;
}

// The draft's arrays on the device, which has room for more nodes, and its rows of q in another order.
static void put_there(struct backend *b, struct asked *a)
{
    const struct draft *d = &a->scene.draft;
    const int vocab = a->scene.p.rows.vocab, most = d->n + any((d->n < FEW_NODES ? FEW_NODES : MOST_NODES) - d->n + 1),
              rows = most + any(3);
    int32_t array[5][MOST_NODES + 2];
    uint8_t proposal[MOST_NODES] = { 0 };
    for (int i = 0; i < rows; i++) // q_row: an order of all rows
        array[3][i] = i;
    for (int i = rows - 1; i > 0; i--) {
        const int k = any(i + 1), row = array[3][i];
        array[3][i] = array[3][k], array[3][k] = row;
    }
    for (int i = 0; i < most; i++) {
        array[1][i] = i < d->n ? d->token[i] : 0;
        array[2][i] = i < d->n ? d->parent[i] : -1;
        array[4][i] = a->its_tag[i] = (int32_t)next();
        proposal[i] = i < d->n ? d->proposal[i] : 0;
    }
    array[0][0] = d->n;
    a->arrays = b->alloc(b, sizeof(array) + sizeof(proposal));
    b->upload(b, a->arrays, array, sizeof(array));
    b->upload(b, (uint8_t *)a->arrays + sizeof(array), proposal, sizeof(proposal));
    const int32_t(*there)[MOST_NODES + 2] = a->arrays;
    a->there = (struct device_draft){
        .most = most,
        .max_depth = draft_max_depth(d),
        .n = there[0],
        .token = there[1],
        .parent = there[2],
        .proposal = (const uint8_t *)there[5],
        .q_row = there[3],
        .tag = there[4],
    };
    for (int i = 1; i < d->n; i++)
        a->there.branches = a->there.branches || draft_next_child(d, d->parent[i], i) >= 0;
    a->p = uploaded(b, a->scene.p.p, most, vocab);
    if (d->q == NULL)
        return;
    float *q = xcalloc((size_t)(rows * vocab), sizeof(*q));
    for (int i = 0; i < most; i++)
        memcpy(q + array[3][i] * vocab, a->scene.q.p + i * vocab, (size_t)vocab * sizeof(*q));
    a->there.q = uploaded(b, q, rows, vocab);
    free(q);
}

static void put_here(struct backend *b, struct asked *a)
{
    const struct draft *d = &a->scene.draft;
    const int vocab = a->scene.p.rows.vocab;
    a->p = uploaded(b, a->scene.p.p, d->n, vocab);
    if (d->q != NULL)
        a->q = uploaded(b, a->scene.q.p, d->n, vocab);
}

// The scene is there; everything else is made. there: the draft is on the device.
static struct verify_request ask(struct backend *b, struct asked *a, const struct kind *k, bool there)
{
    const struct draft *d = &a->scene.draft;
    a->chance = philox_source(next(), next() >> 32);
    a->chance.rng.root = any(5000);
    a->here = verification_create(MOST_NODES, a->scene.p.rows.vocab);
    rule_named(k->rule)->verify(d, &a->scene.p.rows, options_of(k), &a->chance.rng, &a->here);
    a->q.data = a->there.q.data = a->arrays = NULL;
    if (there)
        put_there(b, a);
    else
        put_here(b, a);
    memset(a->draft_token, 0x55, sizeof(a->draft_token));
    a->verify_result = (struct verify_result){ .token = a->token,
                                               .node = a->node,
                                               .trial_p = a->trial_p,
                                               .trial_q = a->trial_q,
                                               .draft_token = a->draft_token,
                                               .draft_parent = a->draft_parent,
                                               .tag = a->tag,
                                               .proposal = a->proposal };
    return (struct verify_request){ .device_rule = k->device_rule,
                                    .lenience = k->lenience,
                                    .rate = k->rate,
                                    .n = there ? a->there.most : d->n,
                                    .token = there ? NULL : d->token,
                                    .parent = there ? NULL : d->parent,
                                    .proposal = there ? NULL : d->proposal,
                                    .there = there ? &a->there : NULL,
                                    .p = a->p,
                                    .q = a->q,
                                    .seed = a->chance.seed,
                                    .sequence = a->chance.sequence,
                                    .root = a->chance.rng.root };
}

static void done(struct backend *b, struct asked *a)
{
    verification_destroy(&a->here);
    b->release(b, a->p.data), b->release(b, a->q.data);
    b->release(b, a->there.q.data), b->release(b, a->arrays);
}

// What was on the device alone has come back, and nothing else.
static void check_draft(const char *device, const struct asked *a)
{
    const struct draft *d = &a->scene.draft;
    const size_t n = (size_t)d->n, ids = n * sizeof(int32_t);
    const bool there = a->arrays != NULL;
    const int come = there ? d->n : 0;
    if (a->verify_result.nodes != come || (come < MOST_NODES && a->draft_token[come] != 0x55555555))
        fail_msg("%s: of a draft of %d nodes %d come back", device, come, a->verify_result.nodes);
    if (there && (memcmp(a->draft_token, d->token, ids) != 0 || memcmp(a->draft_parent, d->parent, ids) != 0 ||
                  memcmp(a->proposal, d->proposal, n) != 0 || memcmp(a->tag, a->its_tag, ids) != 0))
        fail_msg("%s: a draft of %d nodes does not come back as it was", device, d->n);
}

static void check(const char *device, const char *rule, const struct asked *a)
{
    const struct verification *here = &a->here;
    const int nodes = a->scene.draft.n, vocab = a->scene.p.rows.vocab;
    const size_t ids = (size_t)here->n * sizeof(int32_t), trials = (size_t)nodes * sizeof(double);
    if (a->verify_result.n != here->n || memcmp(a->token, here->token, ids) != 0 ||
        memcmp(a->node, here->node, ids) != 0)
        fail_msg("%s, %s: a draft of %d nodes of %d tokens ends otherwise there", device, rule, nodes, vocab);
    if (memcmp(a->trial_p, here->trial_p, trials) != 0 || memcmp(a->trial_q, here->trial_q, trials) != 0 ||
        a->verify_result.empty != here->empty)
        fail_msg("%s, %s: a draft of %d nodes of %d tokens was judged by other numbers", device, rule, nodes, vocab);
    check_draft(device, a);
}

static struct asked asked[MOST_DRAFTS];
static struct verify_request verify_request[MOST_DRAFTS];
static struct verify_result verify_result[MOST_DRAFTS];

// No draft of as many nodes takes more than one of which only that is known, but for what its arrays are rounded up to.
static void check_bytes(struct backend *b, const struct verify_request *j, bool chain)
{
    const struct device_draft any_draft = { .most = j->n, .max_depth = j->n - 1, .branches = !chain };
    const struct verify_request most = { .device_rule = j->device_rule, .n = j->n, .there = &any_draft, .p = j->p };
    const size_t bytes = b->verify_bytes(b, j), bound = b->verify_bytes(b, &most);
    if (bytes > bound + 16)
        fail_msg("a draft of %d nodes of %d tokens, %s, body %d: %zu bytes, more than %zu", j->n, (int)j->p.width,
                 j->there != NULL ? "there" : "here", (int)j->device_rule, bytes, bound);
}

// Any n drafts, each of the host's or the device's, are judged in one call.
static void judge_batch(struct backend *b, const struct kind *k, int n)
{
    for (int i = 0; i < n; i++) {
        some_scene(&asked[i].scene, k->draws, k->chain);
        verify_request[i] = ask(b, &asked[i], k, any(2) == 0);
        verify_result[i] = asked[i].verify_result;
        check_bytes(b, &verify_request[i], k->chain);
    }
    b->verify(b, verify_request, n);
    b->verify_wait(b, verify_request, verify_result, n);
    for (int i = 0; i < n; i++)
        asked[i].verify_result = verify_result[i];
}

static const struct kind kinds[] = {
    { "rejection", DEVICE_REJECTION, 1, 0, false, false },  { "rejection", DEVICE_REJECTION, 1, 0, true, false },
    { "lenient", DEVICE_REJECTION, 1.25, 0, true, false },  { "synthetic", DEVICE_REJECTION, 0, 0.7, false, false },
    { "synthetic", DEVICE_REJECTION, 0, 0.6, true, false }, { "match", DEVICE_MATCH, 1, 0, true, false },
    { "block", DEVICE_TRAVERSAL, 1, 0, false, true },       { "block", DEVICE_TRAVERSAL, 1, 0, true, true },
    { "traversal", DEVICE_TRAVERSAL, 1, 0, false, false },  { "traversal", DEVICE_TRAVERSAL, 1, 0, true, false },
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void the_device_answers_as_the_host(void **unused)
{
    (void)unused;
    for (int g = 0; g < gpus; g++) {
        struct backend *b = gpu_open(&gpu[g]);
        for (int i = 0; i < KINDS; i++)
            for (int k = 0, n; k < drafts; k += n) {
                judge_batch(b, &kinds[i], n = 1 + any(MOST_DRAFTS));
                for (int d = 0; d < n; d++) {
                    check(gpu[g].name, kinds[i].rule, &asked[d]);
                    done(b, &asked[d]);
                }
            }
        gpu_close(b);
    }
}

static void rules_name_the_bodies_that_answer_as_they_do(void **unused)
{
    (void)unused;
    for (int i = 0; i < KINDS; i++) {
        const struct rule *r = rule_named(kinds[i].rule);
        assert_int_equal(r->device_rule, kinds[i].device_rule);
        assert_true((r->lenience != NULL ? r->lenience(options_of(&kinds[i])) : 1) == kinds[i].lenience);
        assert_true((r->rate != NULL ? r->rate(options_of(&kinds[i])) : 0) == kinds[i].rate);
    }
}

// Each node has two children, and only the second has some of its own; all tokens are as likely.
static void comb(struct scene *s)
{
    const int vocab = 8 + any(9);
    some_scene(s, false, false);
    s->p.rows.vocab = vocab;
    for (int i = 0; i < MOST_NODES * vocab; i++)
        s->p.p[i] = 1 / (float)vocab;
    s->draft.n = 1;
    for (int i = 1; i < MOST_NODES; i++)
        draft_add(&s->draft, i <= 2 ? 0 : (i - 1) / 2 * 2, i % 2, DETERMINISTIC);
}

// The way down goes through second children alone, so as many rows are kept as can be. In a room that nobody used
// before: AddressSanitizer knows its end.
static void rows_have_room(void **unused)
{
    (void)unused;
    const struct kind *k = &kinds[KINDS - 2];
    struct asked *a = &asked[0];
    for (int g = 0; g < gpus; g++)
        for (int i = 0; i < 10; i++) {
            struct backend *b = gpu_open(&gpu[g]);
            comb(&a->scene);
            struct verify_request j = ask(b, a, k, i % 2 == 0);
            b->verify(b, &j, 1), b->verify_wait(b, &j, &a->verify_result, 1);
            check(gpu[g].name, k->rule, a);
            done(b, a);
            gpu_close(b);
        }
}

static void a_batch_is_one_launch_and_one_wait(void **unused)
{
    (void)unused;
#if defined(EMULATED_DEVICE)
    struct error err;
    struct backend *b = backend_emulated(0, &err);
    for (int i = 0; i < KINDS; i++) {
        const int64_t launches = emulated_launches(), syncs = emulated_syncs();
        judge_batch(b, &kinds[i], MOST_DRAFTS);
        assert_int_equal(emulated_launches() - launches, 1);
        assert_int_equal(emulated_syncs() - syncs, 1);
        for (int d = 0; d < MOST_DRAFTS; d++)
            done(b, &asked[d]);
    }
    gpu_close(b);
#endif
}

// Whichever of the runtime's calls it is: room, copies, the launch.
static void a_device_that_fails_rules_nothing(void **unused)
{
    (void)unused;
#if defined(EMULATED_DEVICE)
    struct error err;
    bool failed = true;
    int calls = 0;
    for (int k = 1; failed; k++) {
        struct backend *b = backend_emulated(0, &err);
        some_scene(&asked[0].scene, true, false);
        struct verify_request j = ask(b, &asked[0], &kinds[1], false);
        emulated_fail_next(k);
        b->verify(b, &j, 1), b->verify_wait(b, &j, &asked[0].verify_result, 1);
        emulated_fail_next(0);
        failed = asked[0].verify_result.n == 0;
        calls += failed;
        assert_true(b->sync(b, &err) == !failed);
        if (!failed)
            check("emulated", "rejection", &asked[0]);
        done(b, &asked[0]);
        b->destroy(b);
    }
    assert_true(calls >= 6); // two rooms, two copies, the launch, the wait
#endif
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
    gpus = gpus_of_bits(gpu, argc > 1);
    if (gpus == 0)
        return 77;
    if (argc > 1)
        drafts = atoi(argv[1]);
    if (argc > 2)
        state = strtoull(argv[2], NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_is_philox),
        cmocka_unit_test(the_device_answers_as_the_host),
        cmocka_unit_test(rules_name_the_bodies_that_answer_as_they_do),
        cmocka_unit_test(rows_have_room),
        cmocka_unit_test(a_batch_is_one_launch_and_one_wait),
        cmocka_unit_test(a_device_that_fails_rules_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
