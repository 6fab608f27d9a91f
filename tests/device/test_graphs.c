// test_graphs.c - CUDA graphs of passes, and the padding that makes few distinct ones (kernels/cuda/graphs.cu). Logits and states have
// the same bits as without both: when a pass is queued first, when it is captured, and when its graph is launched with other tokens,
// slots and prefixes.
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/support/tests.h"
#include "tests/device/device_pair.h"
#include "tests/formats/head_forms.h"
#include "tests/support/small_model.h"

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus;

// ---- bits

// A pass of rows of one or two slots, of which a path is kept.
static void pass_of_slots(struct device_pair *c, int n, int slots, enum kind kind)
{
    const int first = slots == 2 ? 1 + device_pair_any(n - 1) : n;
    const struct rows r = rows_of(first, n - first);
    device_pair_both(c, &r, kind);
    device_pair_keep_path(c, &r, 0, 0, first);
    if (slots == 2)
        device_pair_keep_path(c, &r, 1, first, n - first);
    for (int slot = 0; slot < 2; slot++) // a split of attention is 256 positions
        if (kv_length(c->side[0].c, slot) > 180)
            device_pair_cut(c, slot, device_pair_any(100));
}

static void forget_all(struct device_pair *c)
{
    for (int slot = 0; slot < 2; slot++)
        device_pair_cut(c, slot, 0);
}

// 65 and 110 are padded to 128; 513 are too many for a graph.
static void check_many_rows(struct device_pair *c)
{
    for (int k = FIRST; k <= LAUNCHED + 1; k++, forget_all(c))
        pass_of_slots(c, k <= LAUNCHED ? 65 : 110, 2, k <= LAUNCHED ? (enum kind)k : LAUNCHED);
    for (int k = 0; k < 2; k++, forget_all(c))
        pass_of_slots(c, 513, 2, FIRST);
}

static void check_buckets(struct device_pair *c, bool few)
{
    static const int counts[][2] = {
        { 64, 57 }, { 33, 40 }, { 9, 16 }, { 7, 8 }, { 5, 6 }, { 4, 0 }, { 3, 0 }, { 2, 0 }
    };
    if (!few)
        check_many_rows(c);
    for (size_t i = few ? 2 : 0; i < sizeof(counts) / sizeof(*counts); i++) {
        for (int k = FIRST; k <= LAUNCHED; k++) {
            pass_of_slots(c, counts[i][0], 1, (enum kind)k);
            pass_of_slots(c, counts[i][0], 2, (enum kind)k);
        }
        for (int slots = 1; slots <= 2 && counts[i][1] > 0; slots++)
            pass_of_slots(c, counts[i][1], slots, LAUNCHED);
    }
    for (int k = 0; k < 4; k++)
        pass_of_slots(c, 1, 1, k < LAUNCHED ? (enum kind)k : LAUNCHED);
}

// Numbers of splits are rounded up to 1, 2, 3, 4, 6, 8: a pass behind 1,025 positions launches the graph of one behind 1,500.
static void check_long_texts(struct device_pair *c)
{
    static const struct {
        int length;
        enum kind kind;
    } texts[] = {
        { 1600, FIRST },   { 1500, FIRST }, { 1300, CAPTURED }, { 1100, LAUNCHED }, { 1025, LAUNCHED }, { 1000, FIRST },
        { 800, CAPTURED }, { 700, FIRST },  { 300, FIRST },     { 256, CAPTURED },  { 200, LAUNCHED },  { 1, LAUNCHED },
    };
    device_pair_fill(c, texts[0].length);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        device_pair_behind(c, texts[i].length, 5 + (int)i % 2, texts[i].kind);
}

struct bench { // a pair, its devices, its file
    char *path;
    struct backend *b[2];
    struct device_pair c;
};

static struct bench bench_open(const struct gpu_here *g, enum type type, int layers, int head_dim, enum activations a,
                               enum type cache)
{
    struct bench t = { .path = device_pair_model(type, layers, head_dim) };
    device_pair_devices_open(g, t.b);
    t.c = device_pair_open(g, t.b, t.path, a, cache);
    return t;
}

static void bench_close(struct bench *t)
{
    device_pair_close(&t->c);
    device_pair_devices_close(t->b);
    free(t->path);
}

// few: no passes of many rows, where they are slow and test nothing new.
static void check_model(const struct gpu_here *g, enum type type, int head_dim, enum activations a, enum type cache,
                        bool few)
{
    struct bench t = bench_open(g, type, 2, head_dim, a, cache);
    check_buckets(&t.c, few);
    check_long_texts(&t.c);
    bench_close(&t);
}

TEST(graphs_and_padding_change_no_bit_of_a_pass)
{
    for (int g = 0; g < gpus; g++) {
        check_model(&gpu[g], BF16, 64, ACTIVATIONS_BF16, BF16, gpu[g].varies);
        if (gpu[g].varies)
            continue;
        check_model(&gpu[g], Q4_1, 32, ACTIVATIONS_F32, Q8_0, true);
        check_model(&gpu[g], F32, 16, ACTIVATIONS_F32, F32, true);
    }
}

// ---- what ends a graph

static void three_times(struct device_pair *c, int n)
{
    for (int kind = FIRST; kind <= LAUNCHED; kind++)
        pass_of_slots(c, n, 1, (enum kind)kind);
}

// An enlarged workspace has another address, and another cache or model may have an address that one had before.
TEST(a_graph_ends_with_the_memory_that_it_reads)
{
    for (int g = 0; g < gpus; g++) {
        struct bench t = bench_open(&gpu[g], BF16, 2, 64, ACTIVATIONS_BF16, BF16);
        three_times(&t.c, 64); // the first enlarges workspaces for the second
        device_pair_behind(&t.c, 0, 150, FIRST);
        three_times(&t.c, 4);
        for (int i = 0; i < 2; i++) {
            kv_destroy(t.c.side[i].c);
            device_pair_new_cache(&t.c.side[i], BF16);
        }
        three_times(&t.c, 4);
        device_pair_close(&t.c);
        t.c = device_pair_open(&gpu[g], t.b, t.path, ACTIVATIONS_BF16, BF16);
        three_times(&t.c, 4);
        bench_close(&t);
    }
}

// Like a target and a drafter.
TEST(two_models_share_a_device)
{
    for (int g = 0; g < gpus; g++) {
        struct bench t = bench_open(&gpu[g], BF16, 2, 64, ACTIVATIONS_BF16, BF16);
        char *other = device_pair_model(BF16, 1, 32);
        struct device_pair c[2] = { t.c, device_pair_open(&gpu[g], t.b, other, ACTIVATIONS_BF16, BF16) };
        for (int round = 0; round < 4; round++)
            for (int m = 0; m < 2; m++) {
                const int first = 7 + round % 2;
                const struct rows r = rows_of(first, 3);
                device_pair_both(&c[m], &r, round < 2 ? (enum kind)round : LAUNCHED);
                device_pair_keep_path(&c[m], &r, 0, 0, first);
                device_pair_keep_path(&c[m], &r, 1, first, 3);
            }
        device_pair_close(&c[1]);
        bench_close(&t);
        free(other);
    }
}

// Operations then write sums of what they round, which they did not when the pass was queued first.
TEST(weights_with_offsets_may_come_later)
{
    for (int g = 0; g < gpus; g++) {
        struct bench t = bench_open(&gpu[g], BF16, 2, 64, ACTIVATIONS_BF16, BF16);
        struct backend *const *b = t.b;
        struct error err;
        float x[64] = { 0 };
        const struct rows r = rows_of(4, 0);
        device_pair_both(&t.c, &r, FIRST);
        device_pair_cut(&t.c, 0, 0);
        struct tensor later[2];
        for (int i = 0; i < 2; i++)
            later[i] = b[i]->prepare(b[i], tensor_of(x, Q4_1, 1, 64), ACTIVATIONS_BF16, &err);
        if (gpu[g].varies) // it refuses such weights, and rounds nothing
            device_pair_behind(&t.c, 0, 4, CAPTURED);
        else
            three_times(&t.c, 4);
        b[0]->unprepare(b[0], later[0]), b[1]->unprepare(b[1], later[1]);
        bench_close(&t);
    }
}

static void swap_caches(struct device_pair *c, struct kv_cache *other[2])
{
    for (int i = 0; i < 2; i++) {
        struct kv_cache *was = c->side[i].c;
        c->side[i].c = other[i];
        other[i] = was;
    }
}

// Each in turn.
TEST(caches_models_and_taps_have_graphs_of_their_own)
{
    for (int g = 0; g < gpus; g++) {
        struct bench t = bench_open(&gpu[g], BF16, 1, 64, ACTIVATIONS_BF16, BF16);
        struct device_pair *c = &t.c, d = device_pair_open(&gpu[g], t.b, t.path, ACTIVATIONS_BF16, BF16);
        struct kv_cache *other[2] = { d.side[0].c, d.side[1].c };
        for (int kind = FIRST; kind <= LAUNCHED; kind++) {
            device_pair_behind(c, 0, 4, (enum kind)kind);
            swap_caches(c, other);
            device_pair_behind(c, 0, 4, (enum kind)kind);
            swap_caches(c, other);
            device_pair_behind(&d, 0, 4, (enum kind)kind);
            c->side[0].taps = c->side[1].taps = (struct taps){ 2, { 1, 0 } };
            device_pair_behind(c, 0, 4, (enum kind)kind);
            c->side[0].taps = c->side[1].taps = d.side[0].taps;
        }
        device_pair_close(&d);
        bench_close(&t);
    }
}

// More distinct passes than graphs that are kept; the first is used again in between.
TEST(the_most_recently_used_graphs_are_kept)
{
    static const int lengths[] = { 1400, 900, 600, 300, 100 };
    static const int counts[] = { 1, 2, 3, 4, 6, 8, 16, 24, 32, 40, 48, 56, 64 };
    enum { LENGTHS = sizeof(lengths) / sizeof(*lengths), COUNTS = sizeof(counts) / sizeof(*counts), KEPT = 64 };
    for (int g = 0; g < gpus; g++) {
        if (gpu[g].varies)
            continue; // the same there
        struct bench t = bench_open(&gpu[g], BF16, 1, 16, ACTIVATIONS_BF16, BF16);
        device_pair_fill(&t.c, lengths[0]);
        device_pair_behind(&t.c, lengths[0], 100, FIRST); // enlarges the workspaces
        for (int i = 0; i < LENGTHS * COUNTS; i++) {
            device_pair_behind(&t.c, lengths[i / COUNTS], counts[i % COUNTS], FIRST);
            device_pair_behind(&t.c, lengths[i / COUNTS], counts[i % COUNTS], CAPTURED);
            if (i == KEPT / 2) {
                device_pair_fill(&t.c, lengths[0]);
                device_pair_behind(&t.c, lengths[0], counts[0], LAUNCHED);
            }
        }
        device_pair_behind(&t.c, lengths[LENGTHS - 1], counts[COUNTS - 1], LAUNCHED);
        if (gpu[g].emulated)
            assert_int_equal(emulated_graphs(), KEPT);
        device_pair_fill(&t.c, lengths[0]);
        device_pair_behind(&t.c, lengths[0], counts[0], LAUNCHED);
        device_pair_behind(&t.c, lengths[0], counts[1], FIRST);
        bench_close(&t);
    }
}

// ---- EAGLE's heads

struct reader {
    struct form_bench bench;
    struct eagle *e;
    struct kv_cache *c;
    struct eagle_states own;
    struct tensor of_target, logits;
    float *got; // (ROWS, vocab) logits of the last pass
    int64_t launches;
};

static struct reader reader_open(struct backend *b, const char *target, const char *head, enum head_kind kind)
{
    struct error err;
    struct reader r = { .bench = { b, model_open(target, b, ACTIVATIONS_F32, ROWS, &err) } };
    assert_non_null(r.bench.target);
    r.e = form_open_eagle(&r.bench, head, kind, TRI_UNSET, &err);
    assert_ok(r.e != NULL, err);
    const struct kv_shape shape = eagle_kv_shape(r.e, 1, 64, ROWS);
    r.c = kv_create(b, &shape, &err);
    assert_non_null(r.c);
    r.of_target = rows_on(b, ROWS, eagle_facts(r.e)->taps.n * WIDTH);
    r.own = (struct eagle_states){ rows_on(b, 1 + ROWS, eagle_facts(r.e)->width), 1 + ROWS };
    r.logits = rows_on(b, ROWS, eagle_facts(r.e)->vocab);
    r.got = xmalloc(tensor_bytes(r.logits));
    return r;
}

static void reader_close(struct reader *r)
{
    struct backend *b = r->bench.backend;
    kv_destroy(r->c);
    eagle_close(r->e);
    model_close(r->bench.target);
    b->release(b, r->of_target.data), b->release(b, r->own.rows.data), b->release(b, r->logits.data);
    free(r->got);
}

// A pass of rows, of which the first `certain` are kept.
static void read_rows(struct reader *r, const struct rows *rows, const float *f, bool own, int certain)
{
    static const int32_t places[] = { 0, 1, 2, 3, 4 };
    struct backend *b = r->bench.backend;
    const struct pass p = pass_of(rows);
    const struct tensor states = own ? r->own.rows : tensor_rows(r->of_target, 0, p.n),
                        logits = tensor_rows(r->logits, 0, p.n);
    b->upload(b, states.data, f, tensor_bytes(states));
    const int64_t before = emulated_launches();
    const struct tensor out = eagle_forward(r->e, r->c, &p, own ? (struct tensor){ 0 } : states, &r->own);
    r->launches = emulated_launches() - before;
    eagle_logits(r->e, logits, out);
    b->download(b, r->got, logits.data, tensor_bytes(logits));
    kv_keep(r->c, 0, places, certain);
}

// A pass of draft tokens is two launches: of its layout and of the graph.
static void check_eagle(const struct gpu_here *g, const char *target, const char *head, enum head_kind kind)
{
    struct backend *b[2];
    struct reader r[2];
    float f[ROWS * 3 * WIDTH];
    device_pair_devices_open(g, b);
    for (int i = 0; i < 2; i++)
        r[i] = reader_open(b[i], target, head, kind);
    for (int round = 0; round < 8; round++) {
        const bool own = round % 2 == 1;
        const struct rows rows = rows_of(own ? 3 : 5, 0);
        for (int i = 0; i < ROWS * 3 * WIDTH; i++)
            f[i] = (float)device_pair_any(2000) / 1000 - 1;
        for (int i = 0; i < 2; i++)
            read_rows(&r[i], &rows, f, own, own ? 0 : 5);
        assert_memory_equal(r[0].got, r[1].got, (size_t)(rows.n * eagle_facts(r[0].e)->vocab) * sizeof(float));
        if (g->emulated && own)
            assert_int_equal(r[0].launches > 2, round == 1);
    }
    reader_close(&r[0]), reader_close(&r[1]);
    device_pair_devices_close(b);
}

TEST(passes_of_eagle_heads_are_captured)
{
    static const char *const forms[] = { "eagle", "eagle_layers", "eagle3", "eagle3_norm_output" };
    struct form_bench bench = form_bench_open(LAYERS); // writes the target
    char *target = xformat("%s/target_%d", test_directory(), LAYERS);
    form_bench_close(&bench);
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        char *head = test_path(forms[i]);
        const enum head_kind kind = form_write(head, forms[i], NULL);
        for (int g = 0; g < gpus; g++)
            check_eagle(&gpu[g], target, head, kind);
        free(head);
    }
    free(target);
}

int main(void)
{
    gpus = gpus_here(gpu);
    if (gpus == 0)
        return 77;
    const int failed = tests_run(NULL, NULL);
    test_directory_remove();
    return failed;
}
