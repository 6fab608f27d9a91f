// test_device_drafts.c - drafts built on a device equal the host's, node for node, and the host sees no token before they are complete.
// Requests differ in depth and capacity, rows in which tokens are possible and in ties.
//
//     test_device_drafts [N [SEED]]     N rounds of each shape on each device, instead of a few; other drafts with another seed
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "kernels/device_step/device_step.h"
#include "kernels/device_step/drafting.h"
#include "drafters/trees/draft_batch.h"
#include "drafters/trees/drafts.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"
#include "tests/support/tests.h"
#include "tests/device/emulated.h"
#include "tests/device/gpus.h"
#include "tests/support/plain_stages.h"
#include "tests/support/small_model.h"

enum { SLOTS = 3, MOST_SLOTS = 70, CAPACITY = 128, LENGTH = 40, VOCAB = 288, MOST_VOCAB = 20011, LEVELS = 17 };

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus, times = 2;
static long compared, nodes_compared;

static uint64_t random_state = 5;

static int any(int below)
{
    return (int)(splitmix(&random_state) % (uint64_t)below);
}

// ---- what is compared

struct built_draft {
    struct draft draft;
    int32_t token[CAPACITY], parent[CAPACITY], row[CAPACITY];
    uint8_t proposal[CAPACITY];
    struct hash q[CAPACITY]; // hash of the row that each node's children were sampled from, if any
};

struct foreign { // a random source that a device does not support
    struct rng rng;
    struct rng *of;
};

static bool foreign_accept(struct rng *self, double num, double den, struct address at)
{
    struct rng *of = ((struct foreign *)self)->of;
    return of->accept(of, num, den, at);
}

static int foreign_pick(struct rng *self, const double *weight, int n, struct address at)
{
    struct rng *of = ((struct foreign *)self)->of;
    return of->pick(of, weight, n, at);
}

static int foreign_pick_row(struct rng *self, const float *weight, int n, struct address at)
{
    struct rng *of = ((struct foreign *)self)->of;
    return of->pick_row(of, weight, n, at);
}

enum row_kind { SMOOTH, TIES, ENDS }; // ENDS: only the first and the last id are possible

struct trial { // a few sequences and their logits, for host and device
    int n;     // requests
    struct philox source[MOST_SLOTS];
    struct request request[MOST_SLOTS];
    int32_t text[MOST_SLOTS][LENGTH];
    uint64_t logits; // their seed
    enum row_kind kind;
    bool shared_rows;
    bool foreign; // random source
};

static void some_trial(struct trial *t, bool shared_rows, int n, int slots)
{
    *t = (struct trial){ .n = n, .logits = splitmix(&random_state), .kind = (enum row_kind)any(3) };
    t->shared_rows = shared_rows;
    for (int i = 0; i < t->n; i++) {
        t->source[i] = philox_source(splitmix(&random_state), splitmix(&random_state) >> 32);
        t->request[i] = (struct request){ .slot = (i + any(2)) % slots, .n = 1 + any(LENGTH), .token = t->text[i] };
        for (int before = 0; before < i; before++)
            if (t->request[before].slot == t->request[i].slot)
                t->request[i].slot = (t->request[i].slot + 1) % slots, before = -1;
        t->request[i].depth = any(4) == 0 ? any(5) : LEVELS;
        t->source[i].rng.root = t->request[i].n - 1;
        for (int k = 0; k < t->request[i].n; k++)
            t->text[i][k] = any(99);
    }
}

// Logits after candidate f of a level, of request i. Integers if ties are wanted.
static void some_logits(const struct trial *t, int level, int i, int f, float *x, int n)
{
    uint64_t at = t->logits + (uint64_t)(1000 * level + 100 * i) + (t->shared_rows ? 0 : (uint64_t)f);
    splitmix(&at);
    for (int k = 0; k < n; k++) {
        const double u = (double)(splitmix(&at) >> 11) * 0x1p-53;
        x[k] = (float)(t->kind == TIES ? floor(5 * u) : -4 * log(u + 1e-9));
        if (t->kind == ENDS && k > 0 && k < n - 1)
            x[k] = -200;
    }
}

static void fill(const struct trial *t, struct draft_batch *g, int level, const struct request *r, int m,
                 const int *first, const int *count)
{
    static float x[MOST_VOCAB];
    int rows = 0, row = 0;
    for (int i = 0; i < m; i++)
        rows += t->shared_rows ? 1 : count[i];
    const struct tensor to = draft_batch_logits(g, rows);
    for (int i = 0; i < m; i++)
        for (int f = 0; f < (t->shared_rows ? 1 : count[i]); f++, row++) {
            int which = 0;
            while (t->request[which].slot != r[i].slot)
                which++;
            some_logits(t, level, which, f, x, g->vocab);
            assert_int_equal(row, first[i] + f);
            g->env.backend->upload(g->env.backend, tensor_rows(to, row, 1).data, x, (size_t)g->vocab * sizeof(float));
        }
}

// A pending row as its level and its number in it: on the host levels have as many rows as candidates.
struct numbering {
    int first[LEVELS][MOST_SLOTS];
    int levels;
};

static int32_t level_row(const struct numbering *n, int slot, int32_t row)
{
    int level = n->levels - 1;
    if (row < 0)
        return -1;
    while (n->first[level][slot] > row)
        level--;
    return 1000 * level + row - n->first[level][slot];
}

static void download_draft(struct backend *b, struct draft *d)
{
    const struct device_draft *t = d->on_device;
    int32_t n = 0;
    b->download(b, &n, t->n, sizeof(n));
    assert_true(n >= 1 && n <= t->max_nodes && t->max_nodes <= d->capacity);
    const size_t ids = (size_t)n * sizeof(int32_t);
    d->n = n;
    b->download(b, d->token, t->token, ids);
    b->download(b, d->parent, t->parent, ids);
    b->download(b, t->tag_on_host, t->tag, ids);
    b->download(b, d->proposal, t->proposal, (size_t)n);
    int32_t rest[CAPACITY];
    b->download(b, rest, t->token, (size_t)t->max_nodes * sizeof(int32_t));
    for (int i = n; i < t->max_nodes; i++)
        assert_int_equal(rest[i], 0); // rows of the pass without a node
    d->on_device = NULL;
}

// Levels built on the host, and how often a device made probabilities of a level's rows.
static int host_levels, probabilities;
static void (*made_by)(struct backend *b, struct tensor logits, int used_vocab, const struct row_stages *s,
                       struct part_sum *sums);

static void count_probabilities(struct backend *b, struct tensor logits, int used_vocab, const struct row_stages *s,
                                struct part_sum *sums)
{
    probabilities++;
    made_by(b, logits, used_vocab, s, sums);
}

static void build(struct draft_batch *g, struct kv_cache *cache, const struct trial *t, struct built_draft *to,
                  bool on_device)
{
    static int32_t token[MOST_SLOTS * CAPACITY], slot[MOST_SLOTS * CAPACITY], parent[MOST_SLOTS * CAPACITY];
    struct error err;
    struct request all[MOST_SLOTS], r[MOST_SLOTS];
    struct numbering rows = { .levels = 0 };
    int first[MOST_SLOTS], count[MOST_SLOTS];
    struct foreign foreign[MOST_SLOTS];
    for (int i = 0; i < t->n; i++) {
        struct built_draft *d = &to[i];
        all[i] = t->request[i];
        d->draft = (struct draft){
            .n = 1, .capacity = d->draft.capacity, .token = d->token, .parent = d->parent, .proposal = d->proposal
        };
        d->token[0] = t->text[i][all[i].n - 1], d->parent[0] = -1, d->proposal[0] = DETERMINISTIC;
        all[i].draft = &d->draft;
        all[i].rng = (struct rng *)&t->source[i].rng;
        foreign[i] =
            (struct foreign){ { foreign_accept, foreign_pick, all[i].rng->root, foreign_pick_row }, all[i].rng };
        if (t->foreign)
            all[i].rng = &foreign[i].rng;
    }
    const int m = draft_batch_begin(g, all, t->n, r);
    assert_true(g->current->on_device == on_device);
    for (int i = 0; i < m; i++)
        first[i] = i, count[i] = 1;
    for (int level = 0; m > 0; level++) {
        fill(t, g, level, r, m, first, count);
        assert_true(draft_batch_children(g, r, m, first, t->shared_rows ? 0 : 1, &err));
        host_levels += !on_device;
        const int wanted = draft_batch_level(g, r, m);
        if (wanted == 0)
            break;
        for (int i = 0; i < m && !t->shared_rows; i++)
            rows.first[rows.levels][r[i].slot] = kv_pending(cache, r[i].slot);
        rows.levels += !t->shared_rows;
        if (t->shared_rows)
            continue;
        const struct pass pass = draft_batch_rows(g, r, m, cache, first, token, slot, parent);
        assert_int_equal(wanted, pass.n);
        assert_true((pass.n_device_rows > 0) == on_device);
        for (int k = 0; k < pass.n_device_rows; k++) // of rows whose parents only the device has
            for (int row = pass.device_rows[k].first; row < pass.device_rows[k].first + pass.device_rows[k].n; row++)
                assert_int_equal(pass.parent[row], -1);
        for (int i = 0; i < m; i++)
            count[i] = (i + 1 < m ? first[i + 1] : pass.n) - first[i];
        kv_admit(cache, &pass, pass.n);
    }
    if (m > 0)
        draft_batch_end(g, r, m);
    for (int i = 0; i < m; i++) {
        struct built_draft *d = &to[i];
        while (d->draft.token != r[i].draft->token)
            d++;
        assert_true(on_device == (d->draft.on_device != NULL) &&
                    (!on_device || d->draft.n == 1)); // else the host has built one, too
        if (on_device)
            download_draft(g->env.backend, &d->draft);
        for (int node = 1; node < d->draft.n; node++) {
            d->row[node] = level_row(&rows, r[i].slot, t->shared_rows ? -1 : draft_batch_row(g, r[i].slot, node));
            if (d->proposal[node] != DETERMINISTIC)
                d->q[d->parent[node]] =
                    hash_of(d->draft.q->row(d->draft.q, d->parent[node]), (size_t)g->target_vocab * sizeof(float));
        }
    }
    for (int s = 0; s < g->env.slots; s++)
        kv_truncate(cache, s, 0);
}

static void same_drafts(const struct built_draft *a, const struct built_draft *b, int n, const char *what)
{
    for (int i = 0; i < n; i++, compared++) {
        const size_t nodes = (size_t)a[i].draft.n, ids = nodes * sizeof(int32_t);
        if (a[i].draft.n != b[i].draft.n || memcmp(a[i].token, b[i].token, ids) != 0 ||
            memcmp(a[i].parent, b[i].parent, ids) != 0 || memcmp(a[i].proposal, b[i].proposal, nodes) != 0)
            fail_msg("%s: draft %d has %d nodes on the host, %d on the device, or other nodes", what, i, a[i].draft.n,
                     b[i].draft.n);
        for (int node = 1; node < a[i].draft.n; node++) {
            if (a[i].row[node] != b[i].row[node])
                fail_msg("%s: draft %d: node %d is row %d on the host, %d on the device", what, i, node, a[i].row[node],
                         b[i].row[node]);
            const int parent = a[i].parent[node];
            if (a[i].proposal[node] != DETERMINISTIC && !hash_equal(a[i].q[parent], b[i].q[parent]))
                fail_msg("%s: draft %d: node %d was sampled from another row on the device", what, i, node);
        }
        nodes_compared += a[i].draft.n;
    }
}

// ---- shapes

struct shape {
    const char *what;
    struct tree_options o;
    bool shared_rows; // as Medusa's
};

// clang-format off
static const struct shape shapes[] = {
    { "a chain, sampled", { .tokens = 4, .pick = PICK_SAMPLED, .distinct = true }, false },
    { "a chain, greedy", { .tokens = 6, .pick = PICK_GREEDY }, false },
    { "a chain, coupled", { .tokens = 3, .pick = PICK_COUPLED }, false },
    { "one token", { .tokens = 1, .pick = PICK_SAMPLED }, false },
    { "a tree, sampled", { .widths = { 3, { 4, 3, 2 } }, .pick = PICK_SAMPLED, .distinct = true }, false },
    { "a tree, sampled with replacement", { .widths = { 3, { 3, 2, 2 } }, .pick = PICK_SAMPLED }, false },
    { "a tree, greedy", { .widths = { 3, { 3, 3, 2 } }, .pick = PICK_GREEDY }, false },
    { "best first", { .tokens = 5, .nodes = 20, .top = 4, .pick = PICK_GREEDY }, false },
    { "best first, EAGLE-2's", { .tokens = 6, .nodes = 59, .top = 10, .pick = PICK_GREEDY }, false },
    { "EAGLE-1's tree", { .pick = PICK_GREEDY, .tree = "eagle_25" }, false },
    { "Medusa's tree", { .pick = PICK_GREEDY, .tree = "mc_sim_7b_63" }, true },
    { "a fixed tree, sampled", { .pick = PICK_SAMPLED, .distinct = true, .tree = "[[0], [1], [2], [0, 0], [0, 1], [1, 0]]" }, false },
    { "a tree of shared rows, sampled", { .widths = { 2, { 2, 2 } }, .pick = PICK_SAMPLED, .distinct = true }, true },
};
// clang-format on

struct device_setup { // on one device: a target for its vocabulary, a cache for its pending rows
    struct backend *b;
    struct model *target; // NULL: the drafter's vocabulary
    struct kv_cache *cache;
    int slots;
    bool all; // of the slots have a request
};

static struct device_setup setup_open(const struct gpu_here *g, int slots, bool has_target)
{
    struct error err;
    struct device_setup w = { .b = gpu_open(g), .slots = slots, .all = !has_target };
    const struct kv_shape kv = { 1, 32, 32, MOST_SLOTS, 600, 512, F32, 0, { { 0 } }, 0 };
    w.cache = kv_create(w.b, &kv, &err);
    assert_ok(w.cache != NULL, err);
    if (has_target) {
        char *path = test_path("target.gguf");
        small_write_gguf(path, &small_default);
        w.target = model_open(path, w.b, ACTIVATIONS_F32, 8, &err);
        assert_ok(w.target != NULL, err);
        free(path);
    }
    return w;
}

static void setup_close(struct device_setup *w)
{
    kv_destroy(w->cache);
    if (w->target != NULL)
        model_close(w->target);
    gpu_close(w->b);
}

struct vocabulary {
    int own; // ids of the drafter
    const int32_t *target_id;
};

static bool batch_create(struct draft_batch *g, const struct device_setup *w, const struct tree_options *o,
                         const struct sampling *sampling, const struct vocabulary *v, int used_vocab, bool on_host)
{
    struct error err;
    struct tree_shape shape;
    const struct drafter_env env = { .backend = w->b,
                                     .target_backend = w->b,
                                     .target = w->target,
                                     .sampling = sampling,
                                     .slots = w->slots,
                                     .length = LENGTH,
                                     .drafts_on_host = on_host };
    assert_ok(tree_shape(&shape, o, "test", NULL, &err), err);
    return draft_batch_create(g, &shape, &env, v->own, v->target_id, used_vocab, &err);
}

static void check(const struct device_setup *w, const struct shape *s, const struct vocabulary *v,
                  const struct sampling *sampling, int most)
{
    const int used_vocab = v->target_id == NULL && v->own < most ? v->own : most; // as drafters compute it
    static struct built_draft on_host[MOST_SLOTS], on_device[MOST_SLOTS];
    struct draft_batch of_host, of_device;
    const struct device_step *full = w->b->step;
    struct device_step counting = *full;
    assert_true(batch_create(&of_device, w, &s->o, sampling, v, used_vocab, false));
    assert_true(batch_create(&of_host, w, &s->o, sampling, v, used_vocab, true));
    const int nodes = of_host.shape.nodes;
    probabilities = host_levels = 0;
    made_by = full->probabilities;
    counting.probabilities = count_probabilities;
    w->b->step = &counting;
    for (int k = 0; k < times; k++) {
        struct trial t;
        some_trial(&t, s->shared_rows, w->all ? w->slots : 1 + any(w->slots), w->slots);
        for (int i = 0; i < t.n; i++)
            on_host[i].draft.capacity = on_device[i].draft.capacity = any(3) == 0 ? 1 + any(nodes) : nodes;
        build(&of_host, w->cache, &t, on_host, false);
        build(&of_device, w->cache, &t, on_device, true);
        same_drafts(on_host, on_device, t.n, s->what);
        t.foreign = true; // then the host builds them, in the device's memory for rows
        build(&of_device, w->cache, &t, on_device, false);
        same_drafts(on_host, on_device, t.n, s->what);
    }
    // The device makes them if it can, wherever drafts are built.
    assert_int_equal(probabilities, s->o.pick != PICK_GREEDY && v->target_id == NULL ? host_levels : 0);
    w->b->step = full;
    draft_batch_destroy(&of_host);
    draft_batch_destroy(&of_device);
}

// Without device memory for them drafts are built on the host; more memory is never worse.
TEST(drafts_are_built_on_the_host_without_device_memory)
{
    if (!EMULATED_HERE)
        skip();
    static int32_t few[100];
    for (int x = 0; x < 100; x++)
        few[x] = 2 * x;
    struct sampling sampling = SAMPLING("temperature", "1");
    struct device_setup w = setup_open(&gpu[0], SLOTS, true);
    size_t free_bytes, all;
    int host = 0, device = 0;
    assert_true(gpu[0].emulated && w.b->memory(w.b, &free_bytes, &all));
    for (size_t more = 0; device < 3; more += 1000) {
        struct draft_batch g;
        emulated_memory_limit(all - free_bytes + more);
        const bool ok = batch_create(&g, &w, &shapes[4].o, &sampling, &(struct vocabulary){ 100, few }, VOCAB, false);
        assert_true(ok || host + device == 0);
        host += ok && !g.drafts->on_device;
        device += ok && g.drafts->on_device;
        draft_batch_destroy(&g);
    }
    assert_true(host > 0);
    emulated_memory_limit(all);
    setup_close(&w);
    sampling_free(&sampling);
}

TEST(drafts_equal_the_hosts)
{
    static int32_t few[100], backwards[VOCAB];
    for (int x = 0; x < 100; x++)
        few[x] = 1 + 2 * x + x / 7; // not the first id, which could have the previous row's value
    for (int x = 0; x < VOCAB; x++)
        backwards[x] = VOCAB - 1 - x;
    const struct vocabulary vocabularies[] = { { VOCAB, NULL }, { 100, few }, { 200, NULL }, { VOCAB, backwards } };
    struct sampling samplings[] = { SAMPLING("temperature", "1"), SAMPLING("temperature", "0.7", "top_p", "0.8"),
                                    SAMPLING("top_k", "2"), SAMPLING("temperature", "0") };
    for (int g = 0; g < gpus; g++) {
        struct device_setup w = setup_open(&gpu[g], SLOTS, true);
        for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
            for (size_t v = 0; v < 4; v++)
                for (size_t how = 0; how < (v < 3 ? 4 : 1); how++)
                    if (v < 3 ? shapes[i].o.pick != PICK_GREEDY || how == 0 : i % 4 == 0)
                        check(&w, &shapes[i], &vocabularies[v], &samplings[how], i % 2 == 0 ? VOCAB : 190);
        setup_close(&w);
    }
    for (size_t how = 0; how < 4; how++)
        sampling_free(&samplings[how]);
}

// Rows of more chunks than one, each of more tokens than threads; more requests than are arguments of a launch.
TEST(long_rows_and_many_requests_equal_the_hosts)
{
    static const struct vocabulary large = { MOST_VOCAB, NULL }, small = { VOCAB, NULL };
    struct sampling samplings[] = { SAMPLING("temperature", "1"), SAMPLING("top_k", "3"), SAMPLING("top_p", "0.9") };
    const int how_many = times;
    times = 1;
    for (int g = 0; g < gpus; g++) {
        struct device_setup w = setup_open(&gpu[g], 1, false);
        for (size_t how = 0; how < 3; how++)
            for (size_t i = 0; i < 6; i += i == 0 ? 4 : 1) // sampled: a chain, trees
                check(&w, &shapes[i], &large, &samplings[how], MOST_VOCAB);
        w.slots = MOST_SLOTS;
        check(&w, &shapes[1], &small, &samplings[0], VOCAB);
        check(&w, &shapes[4], &small, &samplings[0], VOCAB);
        setup_close(&w);
    }
    times = how_many;
    for (size_t how = 0; how < 3; how++)
        sampling_free(&samplings[how]);
}

// Launches of a draft of three levels: its beginning, its levels, which make rows of probabilities as well, and the tree masks of the
// two passes between.
TEST(a_level_is_few_launches)
{
    static const struct {
        struct tree_options o;
        int launches; // of a level
    } some[] = { { { .tokens = 3, .pick = PICK_GREEDY }, 2 },
                 { { .tokens = 3, .nodes = 8, .top = 4, .pick = PICK_GREEDY }, 2 },
                 { { .tokens = 3, .pick = PICK_SAMPLED }, 1 },
                 { { .tokens = 3, .pick = PICK_COUPLED }, 2 } };
    static struct built_draft built[MOST_SLOTS];
    if (!EMULATED_HERE)
        skip();
    struct sampling sampling = SAMPLING("temperature", "1");
    struct device_setup w = setup_open(&gpu[0], SLOTS, false);
    for (size_t i = 0; i < sizeof(some) / sizeof(*some); i++) {
        struct draft_batch g;
        struct trial t;
        assert_true(batch_create(&g, &w, &some[i].o, &sampling, &(struct vocabulary){ VOCAB, NULL }, VOCAB, false));
        some_trial(&t, false, SLOTS, SLOTS);
        for (int k = 0; k < SLOTS; k++) {
            t.request[k].depth = 3;
            built[k].draft.capacity = g.shape.nodes;
        }
        int64_t before = emulated_launches();
        w.b->step->probabilities(w.b, draft_batch_logits(&g, SLOTS), VOCAB, &g.stages, NULL);
        const int64_t of_rows = some[i].o.pick == PICK_GREEDY ? 0 : emulated_launches() - before;
        before = emulated_launches();
        build(&g, w.cache, &t, built, true);
        assert_int_equal(emulated_launches() - before, 1 + 3 * (of_rows + some[i].launches) + 2);
        draft_batch_destroy(&g);
    }
    setup_close(&w);
    sampling_free(&sampling);
}

// A device has no text, so stages that need it keep sampled drafts on the host; greedy ones need only logits.
TEST(drafts_are_built_on_the_device_if_its_stages_suffice)
{
    struct sampling samplings[] = { SAMPLING("temperature", "1", "presence_penalty", "0", "frequency_penalty", "0"),
                                    SAMPLING("frequency_penalty", "0.3") };
    struct device_setup w = setup_open(&gpu[0], SLOTS, true);
    for (size_t i = 0; i < 2 * sizeof(shapes) / sizeof(*shapes); i++) {
        struct draft_batch g;
        assert_true(batch_create(&g, &w, &shapes[i / 2].o, &samplings[i % 2], &(struct vocabulary){ VOCAB, NULL },
                                 VOCAB, false));
        assert_true(g.drafts->on_device == (i % 2 == 0 || shapes[i / 2].o.pick == PICK_GREEDY));
        draft_batch_destroy(&g);
    }
    setup_close(&w);
    sampling_free(&samplings[0]);
    sampling_free(&samplings[1]);
}

int main(int argc, char **argv)
{
    gpus = gpus_of_bits(gpu, argc, argv, &times, &random_state);
    if (gpus == 0)
        return 77;
    const int failed = tests_run(NULL, NULL);
    printf("%ld drafts of %ld nodes were compared\n", compared, nodes_compared);
    test_directory_remove();
    return failed;
}
