// test_device_verification.c - drafts verified on a device: the decisions of verifier/, token for token and bit for bit.
//
//     test_device_verification [N [SEED]]     N random drafts for each rule and device, instead of a hundred; others with another seed
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/device_step/device_step.h"
#include "kernels/device_step/verification.h"
#include "verifier/exact/instance.h"
#include "kernels/backend.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/device/emulated.h"
#include "tests/device/gpus.h"
#include "verifier/rules/rejection.h"
#include "verifier/rules/rule.h"

enum { FEW_NODES = 24, MOST_NODES = 66, MOST_VOCAB = 1500, MOST_DRAFTS = 5 };

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus, drafts = 100;

static uint64_t random_state = 17;

static uint64_t next(void)
{
    return splitmix(&random_state);
}

static int any(int below)
{
    return (int)(next() % (uint64_t)below);
}

static double uniform(void)
{
    return (double)(next() >> 11) * 0x1p-53;
}

struct table {        // rows in an array
    struct rows rows; // first
    float p[MOST_NODES * MOST_VOCAB];
};

static const float *table_row(struct rows *self, int node)
{
    return ((struct table *)self)->p + node * self->vocab;
}

// Peaked or flat, with impossible tokens, sometimes one-hot; or always.
static void some_row(float *to, int vocab, bool certain)
{
    const double sharp = any(3) == 0 ? 20 : 3, none = any(2) == 0 ? 0.5 : 0;
    double sum = 0;
    const int hot = any(8) == 0 || certain ? any(vocab) : -1;
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

// A tree, or a chain, whose sampled tokens are possible. alike: q equals p, so that paths become long.
static void some_scene(struct scene *s, bool draws, bool chain, bool certain)
{
    static const int many[] = { 31, 32, 33, 63, 64, 65, MOST_NODES }; // nodes, occasionally
    const int n = any(12) == 0 ? many[any(7)] : 1 + any(FEW_NODES);
    const int vocab = n <= FEW_NODES && any(4) == 0 ? 1 + any(MOST_VOCAB) : 2 + any(12);
    const bool alike = any(3) > 0;
    s->draft = (struct draft){ .n = 1,
                               .capacity = MOST_NODES,
                               .token = s->token,
                               .parent = s->parent,
                               .proposal = s->proposal,
                               .q = draws ? &s->q.rows : NULL };
    s->token[0] = 0, s->parent[0] = -1, s->proposal[0] = DETERMINISTIC;
    s->p.rows = (struct rows){ vocab, table_row };
    s->q.rows = (struct rows){ vocab, table_row };
    for (int i = 0; i < n; i++) {
        some_row(s->p.p + i * vocab, vocab, certain);
        some_row(s->q.p + i * vocab, vocab, false);
        for (int x = 0; x < vocab && alike; x++)
            s->q.p[i * vocab + x] = s->p.p[i * vocab + x];
    }
    for (int i = 1; i < n; i++) {
        const int parent = !chain && any(3) == 0 ? any(i) : i - 1;
        const float *q = s->q.p + parent * vocab;
        struct philox source = philox_source(next(), 0);
        const enum proposal how = draws ? (enum proposal)any(3) : DETERMINISTIC;
        const int x = rng_pick_row(&source.rng, q, vocab, (struct address){ FOR_DRAFT, 0, 0 }, NULL);
        bool again = false;
        for (int c = draft_next_child(&s->draft, parent, parent); c >= 0; c = draft_next_child(&s->draft, parent, c))
            again = again || s->token[c] == x;
        draft_add(&s->draft, parent, x, how == SAMPLED_WITHOUT_REPLACEMENT && again ? DETERMINISTIC : how);
    }
}

// ---- a device and the host

struct verified_scene { // by host and device
    struct scene scene;
    struct philox source;
    struct verification expected; // the host's decision
    struct tensor p, q;
    struct part_sum *p_sums, *q_sums;
    int32_t *p_certain; // instead of rows of p; NULL: rows
    void *arrays;       // of a draft on the device
    struct device_draft device_draft;
    int32_t its_tag[MOST_NODES];
    // The device's decision.
    struct verify_result verify_result;
    int32_t token[MOST_NODES], node[MOST_NODES], draft_token[MOST_NODES], draft_parent[MOST_NODES], tag[MOST_NODES];
    uint8_t proposal[MOST_NODES];
    double trial_p[MOST_NODES], trial_q[MOST_NODES];
};

struct kind { // a rule with options and drafts
    const char *rule;
    struct acceptance_test options; // of lenient: lenience; of synthetic: rate; no other rule reads them
    bool draws, chain;
    bool certain; // each row of p has one token, and the device has no rows
};

static struct tensor uploaded(struct backend *b, const float *from, int rows, int vocab)
{
    const struct tensor t = rows_on(b, rows, vocab);
    b->upload(b, t.data, from, tensor_bytes(t));
    return t;
}

// The sums of the parts of these rows; half the time they are not known.
static struct part_sum *uploaded_sums(struct backend *b, const float *from, int rows, int vocab)
{
    if (any(2) == 0)
        return NULL;
    struct part_sum(*sums)[ROW_PARTS] = xcalloc((size_t)rows, sizeof(*sums));
    for (int i = 0; i < rows * vocab; i += vocab)
        for (int k = 0, first = 0, each = row_part(vocab); first < vocab; k++, first += each)
            sums[i / vocab][k].sum = dist_row_sum(from + i + first, vocab - first < each ? vocab - first : each);
    struct part_sum *to = b->alloc(b, (size_t)rows * sizeof(*sums));
    b->upload(b, to, sums, (size_t)rows * sizeof(*sums));
    free(sums);
    return to;
}

// The draft's arrays on the device, with capacity for more nodes, and its rows of q in another order.
static void put_on_device(struct backend *b, struct verified_scene *a)
{
    const struct draft *d = &a->scene.draft;
    const int vocab = a->scene.p.rows.vocab, most = d->n + any((d->n < FEW_NODES ? FEW_NODES : MOST_NODES) - d->n + 1),
              rows = most + any(3);
    int32_t array[5][MOST_NODES + 2];
    uint8_t proposal[MOST_NODES] = { 0 };
    for (int i = 0; i < rows; i++) // q_row: a permutation of all rows
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
    const int32_t(*on_device)[MOST_NODES + 2] = a->arrays;
    a->device_draft = (struct device_draft){
        .max_nodes = most,
        .max_depth = draft_max_depth(d),
        .n = on_device[0],
        .token = on_device[1],
        .parent = on_device[2],
        .proposal = (const uint8_t *)on_device[5],
        .q_row = on_device[3],
        .tag = on_device[4],
    };
    for (int i = 1; i < d->n; i++)
        a->device_draft.branches = a->device_draft.branches || draft_next_child(d, d->parent[i], i) >= 0;
    a->p = uploaded(b, a->scene.p.p, most, vocab);
    a->p_sums = uploaded_sums(b, a->scene.p.p, most, vocab);
    if (d->q == NULL)
        return;
    float *q = xcalloc((size_t)(rows * vocab), sizeof(*q));
    for (int i = 0; i < most; i++)
        memcpy(q + array[3][i] * vocab, a->scene.q.p + i * vocab, (size_t)vocab * sizeof(*q));
    a->device_draft.q = uploaded(b, q, rows, vocab);
    a->device_draft.q_sums = a->q_sums = uploaded_sums(b, q, rows, vocab);
    free(q);
}

// The tokens of the rows of p, in place of the rows, which become NaN.
static void put_certain(struct backend *b, struct verified_scene *a)
{
    int32_t token[MOST_NODES] = { 0 };
    const int vocab = a->scene.p.rows.vocab;
    for (int i = 0; i < a->scene.draft.n; i++)
        while (!(a->scene.p.p[i * vocab + token[i]] > 0))
            token[i]++;
    a->p_certain = b->alloc(b, sizeof(token));
    b->upload(b, a->p_certain, token, sizeof(token));
    float *none = xmalloc(tensor_bytes(a->p));
    memset(none, 0xFF, tensor_bytes(a->p));
    b->upload(b, a->p.data, none, tensor_bytes(a->p));
    free(none);
    b->release(b, a->p_sums);
    a->p_sums = NULL;
}

// Fills in everything but the scene, and decides it on the host. on_device: where the draft is.
static struct verify_request request_of(struct backend *b, struct verified_scene *a, const struct kind *k,
                                        bool on_device)
{
    const struct draft *d = &a->scene.draft;
    const int vocab = a->scene.p.rows.vocab;
    a->source = philox_source(next(), next() >> 32);
    a->source.rng.root = any(5000);
    a->expected = verification_create(MOST_NODES, vocab);
    const struct rule *rule = rule_named(k->rule);
    rule->verify(rule, d, &a->scene.p.rows, &k->options, &a->source.rng, &a->expected);
    a->q.data = a->device_draft.q.data = a->arrays = NULL;
    a->p_sums = a->q_sums = NULL;
    a->p_certain = NULL;
    if (on_device)
        put_on_device(b, a);
    else {
        a->p = uploaded(b, a->scene.p.p, d->n, vocab);
        a->p_sums = uploaded_sums(b, a->scene.p.p, d->n, vocab);
        if (d->q != NULL)
            a->q = uploaded(b, a->scene.q.p, d->n, vocab);
    }
    if (k->certain)
        put_certain(b, a);
    memset(a->draft_token, 0x55, sizeof(a->draft_token));
    a->verify_result = (struct verify_result){ .token = a->token,
                                               .node = a->node,
                                               .trial_p = a->trial_p,
                                               .trial_q = a->trial_q,
                                               .draft_token = a->draft_token,
                                               .draft_parent = a->draft_parent,
                                               .tag = a->tag,
                                               .proposal = a->proposal };
    struct verify_request r = { .body = b->step->rule_body(b, rule->device_body),
                                .n = on_device ? a->device_draft.max_nodes : d->n,
                                .token = on_device ? NULL : d->token,
                                .parent = on_device ? NULL : d->parent,
                                .proposal = on_device ? NULL : d->proposal,
                                .on_device = on_device ? &a->device_draft : NULL,
                                .p = a->p,
                                .q = a->q,
                                .p_sums = a->p_sums,
                                .p_certain = a->p_certain,
                                .seed = a->source.seed,
                                .sequence = a->source.sequence,
                                .root = a->source.rng.root };
    if (rule->device_parameters != NULL)
        rule->device_parameters(&k->options, r.parameter);
    return r;
}

static void done(struct backend *b, struct verified_scene *a)
{
    verification_destroy(&a->expected);
    b->release(b, a->p.data), b->release(b, a->q.data);
    b->release(b, a->p_sums), b->release(b, a->q_sums), b->release(b, a->p_certain);
    b->release(b, a->device_draft.q.data), b->release(b, a->arrays);
}

// Exactly the drafts that were only on the device are returned.
static void check_draft(const char *device, const struct verified_scene *a)
{
    const struct draft *d = &a->scene.draft;
    const size_t n = (size_t)d->n, ids = n * sizeof(int32_t);
    const bool on_device = a->arrays != NULL;
    const int come = on_device ? d->n : 0;
    if (a->verify_result.nodes != come || (come < MOST_NODES && a->draft_token[come] != 0x55555555))
        fail_msg("%s: of a draft of %d nodes %d are returned", device, come, a->verify_result.nodes);
    if (on_device && (memcmp(a->draft_token, d->token, ids) != 0 || memcmp(a->draft_parent, d->parent, ids) != 0 ||
                      memcmp(a->proposal, d->proposal, n) != 0 || memcmp(a->tag, a->its_tag, ids) != 0))
        fail_msg("%s: a draft of %d nodes is returned with other nodes", device, d->n);
}

static void check(const char *device, const char *rule, const struct verified_scene *a)
{
    const struct verification *expected = &a->expected;
    const int nodes = a->scene.draft.n, vocab = a->scene.p.rows.vocab;
    const size_t ids = (size_t)expected->n * sizeof(int32_t), trials = (size_t)nodes * sizeof(double);
    if (a->verify_result.n != expected->n || memcmp(a->token, expected->token, ids) != 0 ||
        memcmp(a->node, expected->node, ids) != 0)
        fail_msg("%s, %s: a draft of %d nodes of %d tokens has another decision on the device", device, rule, nodes,
                 vocab);
    if (memcmp(a->trial_p, expected->trial_p, trials) != 0 || memcmp(a->trial_q, expected->trial_q, trials) != 0 ||
        a->verify_result.empty != expected->empty)
        fail_msg("%s, %s: a draft of %d nodes of %d tokens was decided by other numbers", device, rule, nodes, vocab);
    check_draft(device, a);
}

static struct verified_scene scenes[MOST_DRAFTS];
static struct verify_request verify_request[MOST_DRAFTS];
static struct verify_result verify_result[MOST_DRAFTS];

// No draft takes more memory than one of which only the number of nodes is known, up to rounding of its arrays.
static void check_bytes(struct backend *b, const struct verify_request *j, const char *rule, bool chain)
{
    const struct device_draft any_draft = { .max_nodes = j->n, .max_depth = j->n - 1, .branches = !chain };
    const struct verify_request most = { .body = j->body, .n = j->n, .on_device = &any_draft, .p = j->p };
    const size_t bytes = b->step->verify_bytes(b, j), bound = b->step->verify_bytes(b, &most);
    if (bytes > bound + 16)
        fail_msg("a draft of %d nodes of %d tokens, %s, %s: %zu bytes, more than %zu", j->n, (int)j->p.width,
                 j->on_device != NULL ? "device" : "host", rule, bytes, bound);
}

// Any n drafts, each on the host or the device, are verified in one call.
static void verify_batch(struct backend *b, const struct kind *k, int n)
{
    for (int i = 0; i < n; i++) {
        some_scene(&scenes[i].scene, k->draws, k->chain, k->certain);
        verify_request[i] = request_of(b, &scenes[i], k, any(2) == 0);
        verify_result[i] = scenes[i].verify_result;
        check_bytes(b, &verify_request[i], k->rule, k->chain);
    }
    b->step->verify(b, verify_request, n);
    b->step->verify_wait(b, verify_request, verify_result, n);
    for (int i = 0; i < n; i++)
        scenes[i].verify_result = verify_result[i];
}

static void verify_one(struct backend *b, const struct verify_request *r, struct verified_scene *a)
{
    b->step->verify(b, r, 1);
    b->step->verify_wait(b, r, &a->verify_result, 1);
}

static const struct kind kinds[] = {
    { "rejection", { 0, 0 }, false, false, false },
    { "rejection", { 0, 0 }, true, false, false },
    { "lenient", { 1.25, 0 }, true, false, false },
    { "synthetic", { 0, 0.7 }, false, false, false },
    { "synthetic", { 0, 0.6 }, true, false, false },
    { "match", { 0, 0 }, true, false, false },
    { "block", { 0, 0 }, false, true, false },
    { "block", { 0, 0 }, true, true, false },
    { "traversal", { 0, 0 }, false, false, false },
    { "traversal", { 0, 0 }, true, false, false },
    // Each row of p has one token.
    { "rejection", { 0, 0 }, false, false, true },
    { "lenient", { 0.5, 0 }, false, false, true },
    { "synthetic", { 0, 0.7 }, false, false, true },
    { "match", { 0, 0 }, true, false, true },
    { "block", { 0, 0 }, false, true, true },
    { "traversal", { 0, 0 }, false, false, true },
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), TREES = 8 }; // TREES: of traversal, nothing sampled

TEST(the_device_decides_as_the_host)
{
    for (int g = 0; g < gpus; g++) {
        struct backend *b = gpu_open(&gpu[g]);
        for (int i = 0; i < KINDS; i++)
            for (int k = 0, n; k < drafts; k += n) {
                verify_batch(b, &kinds[i], n = 1 + any(MOST_DRAFTS));
                for (int d = 0; d < n; d++) {
                    check(gpu[g].name, kinds[i].rule, &scenes[d]);
                    done(b, &scenes[d]);
                }
            }
        gpu_close(b);
    }
}

// In a block instead of a cluster, as on devices without clusters.
TEST(a_block_decides_as_well)
{
    setenv("SPECLAB_CUDA_NO_CLUSTERS", "1", 1);
    const int all = drafts;
    drafts = drafts < 30 ? drafts : 30;
    the_device_decides_as_the_host(NULL);
    drafts = all;
    unsetenv("SPECLAB_CUDA_NO_CLUSTERS");
}

// Each of them is among the kinds above, whose decisions depend on its parameters.
TEST(rules_name_bodies_that_the_device_has)
{
    struct backend *b = gpu_open(&gpu[0]);
    assert_null(b->step->rule_body(b, "no such body"));
    for (int i = 0; rules[i] != NULL; i++) {
        bool is_compared = false;
        for (int k = 0; k < KINDS; k++)
            is_compared = is_compared || strcmp(kinds[k].rule, rules[i]->name) == 0;
        assert_int_equal(is_compared, rules[i]->device_body != NULL);
        assert_true(!is_compared || b->step->rule_body(b, rules[i]->device_body) != NULL);
    }
    gpu_close(b);
}

// Each node has two children, of which only the second has children; all tokens have the same probability.
static void comb(struct scene *s)
{
    const int vocab = 8 + any(9);
    some_scene(s, false, false, false);
    s->p.rows.vocab = vocab;
    for (int i = 0; i < MOST_NODES * vocab; i++)
        s->p.p[i] = 1 / (float)vocab;
    s->draft.n = 1;
    for (int i = 1; i < MOST_NODES; i++)
        draft_add(&s->draft, i <= 2 ? 0 : (i - 1) / 2 * 2, i % 2, DETERMINISTIC);
}

// The path goes through second children only, so the maximum number of residuals is kept; in a new workspace, whose end AddressSanitizer
// checks.
TEST(residuals_fit_into_the_workspace)
{
    const struct kind *k = &kinds[TREES];
    struct verified_scene *a = &scenes[0];
    for (int g = 0; g < gpus; g++)
        for (int i = 0; i < 10; i++) {
            struct backend *b = gpu_open(&gpu[g]);
            comb(&a->scene);
            struct verify_request j = request_of(b, a, k, i % 2 == 0);
            verify_one(b, &j, a);
            check(gpu[g].name, k->rule, a);
            done(b, a);
            gpu_close(b);
        }
}

// A token of the root is rejected, and the next one is drawn from the residual where its cumulative sum reaches a multiple of 32 tokens:
// nowhere else does it matter which part of the row has what was missing to a sum of 1.
TEST(a_draw_at_the_edge_of_a_part_has_the_hosts_token)
{
    enum { VOCAB = 1000, STEP = 32 };
    static double p[VOCAB];
    struct verified_scene *a = &scenes[0];
    struct scene *s = &a->scene;
    for (int g = 0; g < gpus; g++) {
        struct backend *b = gpu_open(&gpu[g]);
        for (int k = 0; k < 40; k++) {
            const struct kind *kind = &kinds[TREES];
            some_scene(s, false, true, false);
            s->p.rows.vocab = VOCAB;
            for (int i = 0; i < 2; i++)
                some_row(s->p.p + i * VOCAB, VOCAB, false);
            s->draft.n = 1;
            draft_add(&s->draft, 0, any(VOCAB), DETERMINISTIC);
            struct verify_request r = request_of(b, a, kind, false);
            double below = 0, uniforms[6] = { 0, 1 - 0x1p-53, 0, 0, 0, 0 };
            dist_from_row(p, s->p.p, VOCAB);
            if (p[s->token[1]] == 1 || dist_remove(p, VOCAB, s->token[1]) == 0) {
                done(b, a);
                continue;
            }
            for (int i = 0, n = STEP * (1 + any(VOCAB / STEP)); i < n && i < VOCAB; i++)
                below += p[i];
            uniforms[2] = below < 1 ? below : 0;
            r.uniforms = uniforms;
            verify_one(b, &r, a);
            const int token = rng_invert(uniforms[2], p, VOCAB);
            if (a->verify_result.n != 1 || a->token[0] != token)
                fail_msg("%s: token %d of %d, expected %d", gpu[g].name, a->token[0], a->verify_result.n, token);
            done(b, a);
        }
        gpu_close(b);
    }
}

TEST(a_batch_is_a_launch_or_two_and_one_wait)
{
#if defined(EMULATED_DEVICE)
    struct error err;
    struct backend *b = backend_emulated(0, &err);
    for (int i = 0; i < KINDS; i++) {
        const int64_t launches = emulated_launches(), syncs = emulated_syncs();
        verify_batch(b, &kinds[i], MOST_DRAFTS);
        assert_in_range(emulated_launches() - launches, 1,
                        2); // the decisions, and drafts that are small enough for arguments
        assert_int_equal(emulated_syncs() - syncs, 1);
        for (int d = 0; d < MOST_DRAFTS; d++)
            done(b, &scenes[d]);
    }
    gpu_close(b);
#endif
}

// Whichever call of the runtime fails: allocations, copies, the launch.
TEST(a_device_that_fails_returns_no_decision)
{
#if defined(EMULATED_DEVICE)
    struct error err;
    bool failed = true;
    int calls = 0;
    for (int k = 1; failed; k++) {
        struct backend *b = backend_emulated(0, &err);
        some_scene(&scenes[0].scene, true, false, false);
        struct verify_request j = request_of(b, &scenes[0], &kinds[1], false);
        emulated_fail_next(k);
        verify_one(b, &j, &scenes[0]);
        emulated_fail_next(0);
        failed = scenes[0].verify_result.n == 0;
        calls += failed;
        assert_true(b->sync(b, &err) == !failed);
        if (!failed)
            check("emulated", "rejection", &scenes[0]);
        done(b, &scenes[0]);
        b->destroy(b);
    }
    assert_true(calls >= 6); // two allocations, two copies, the launch, the wait
#endif
}

int main(int argc, char **argv)
{
    gpus = gpus_of_bits(gpu, argc, argv, &drafts, &random_state);
    if (gpus == 0)
        return 77;
    return tests_run(NULL, NULL);
}
