// test_cuda.c - models and the decoding loop on a GPU: the emulated one everywhere, and a real one if present. Logits against the
// CPU's; a row's bits alone, among others and on a path through a tree; texts of every drafter against the baseline's.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/support/check.h"
#include "tests/device/emulated.h"
#include "tests/device/gpus.h"
#include "tests/support/pairings.h"
#include "tests/support/model_runner.h"
#include "tests/support/decode_prompts.h"
#include "tests/support/small_model.h"

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus;

static uint64_t state = 7;

static int32_t random_below(int below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((state >> 33) % (uint64_t)below);
}

static char *model_of(enum type type)
{
    struct small_model t = type_is_quantized(type) ? small_blocks : small_default;
    if (type_facts[type].block == 256)
        t.width = t.hidden = 256, t.heads = 4, t.kv_heads = 2, t.head_dim = 64;
    t.type = type;
    char *path = xformat("%s/%s.gguf", test_directory(), type_facts[type].name);
    small_write_gguf(path, &t);
    return path;
}

static bool is_cublas(const struct gpu_here *g)
{
    return strstr(g->name, "cublas") != NULL;
}

// ---- logits against the CPU's

static void check_logits(const struct gpu_here *g, enum type type, enum activations a, enum type cache,
                         double max_error)
{
    enum { TEXT = 24 };
    char *path = model_of(type);
    struct runner cpu = runner_open_as(path, 1, NULL, 2, a, cache),
                  device = runner_open_on(gpu_open(g), path, 2, a, cache);
    int32_t token[TEXT];
    for (int i = 0; i < TEXT; i++)
        token[i] = random_below(cpu.vocab);
    const float *p = runner_pass(&cpu, TEXT, token, NULL, NULL), *q = runner_pass(&device, TEXT, token, NULL, NULL);
    double difference = 0, max_logit = 0;
    for (int i = 0; i < TEXT * cpu.vocab; i++) {
        const double d = fabs((double)p[i] - (double)q[i]);
        if (!(d <= difference)) // not a number is a difference
            difference = d;
        if (fabs((double)p[i]) > max_logit)
            max_logit = fabs((double)p[i]);
    }
    print_message("    %s, %s, activations %s, cache %s: max |difference| / max |logit| %.1e\n", g->name,
                  type_facts[type].name, activations_names[a], type_facts[cache].name, difference / max_logit);
    if (!(difference <= max_error * max_logit))
        fail_msg("%g is more than %g", difference / max_logit, max_error);
    runner_close(&cpu);
    runner_close(&device);
    free(path);
}

static void logits_equal_those_of_the_cpu_up_to_rounding(void **unused)
{
    static const struct {
        enum type type;
        enum activations activations;
        enum type cache;
        double max_error; // 2e-2: values near a half are rounded to different sides on the two devices
    } cases[] = {
        { F32, ACTIVATIONS_F32, F32, 1e-5 },    { F16, ACTIVATIONS_F32, F32, 1e-5 },
        { BF16, ACTIVATIONS_F32, F32, 1e-5 },   { BF16, ACTIVATIONS_BF16, BF16, 2e-2 },
        { Q8_0, ACTIVATIONS_F32, F32, 1e-5 },   { Q4_K, ACTIVATIONS_F32, F32, 1e-5 },
        { Q4_1, ACTIVATIONS_BF16, BF16, 2e-2 }, { Q6_K, ACTIVATIONS_BF16, Q8_0, 2e-2 },
    };
    for (int g = 0; g < gpus; g++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            if (!is_cublas(&gpu[g]) || !type_is_quantized(cases[i].type))
                check_logits(&gpu[g], cases[i].type, cases[i].activations, cases[i].cache, cases[i].max_error);
}

// ---- bits

enum { BEFORE_TREE = 250 }; // tokens before a tree, so that the tree crosses the end of a split of 256

static void check_bits(const struct gpu_here *g, enum type type, enum activations a, enum type cache, int before)
{
    enum { TREE = 70, MORE = 20, PROMPT = 33 };
    char *path = model_of(type);
    struct runner r = runner_open_on(gpu_open(g), path, 2, a, cache);
    int32_t token[TREE], parent[TREE], text[BEFORE_TREE + MORE + 1], path_rows[TREE];
    for (int i = 0; i < BEFORE_TREE; i++)
        text[i] = random_below(r.vocab);
    for (int i = 0; i < TREE; i++) {
        token[i] = random_below(r.vocab);
        parent[i] = i == 0 ? -1 : i < 12 ? i - 1 : random_below(i);
    }
    runner_prefill(&r, 0, text, before);
    float *tree = xmalloc((size_t)TREE * (size_t)r.vocab * sizeof(float));
    memcpy(tree, runner_pass(&r, TREE, token, NULL, parent), (size_t)TREE * (size_t)r.vocab * sizeof(float));
    int depth = 0;
    for (int at = TREE - 1; at >= 0; at = parent[at])
        depth++;
    for (int at = TREE - 1, i = depth - 1; at >= 0; at = parent[at], i--)
        path_rows[i] = at;
    depth = depth < MORE ? depth : MORE;
    for (int i = 0; i < depth; i++)
        text[before + i] = token[path_rows[i]];
    kv_keep(r.cache, 0, path_rows, depth);
    text[before + depth] = random_below(r.vocab);
    float *after = xmalloc((size_t)r.vocab * sizeof(float));
    memcpy(after, runner_pass(&r, 1, text + before + depth, NULL, NULL), (size_t)r.vocab * sizeof(float));

    kv_truncate(r.cache, 0, before);
    float *alone = runner_one_by_one(&r, text + before, depth + 1);
    for (int i = 0; i < depth; i++)
        runner_same_bits(tree + path_rows[i] * r.vocab, alone + i * r.vocab, r.vocab, "a path through a tree", TREE);
    runner_same_bits(after, alone + depth * r.vocab, r.vocab, "after an accepted path", 1);
    kv_truncate(r.cache, 0, 0);
    float *first = runner_one_by_one(&r, text, PROMPT);
    kv_truncate(r.cache, 0, 0);
    const float *chain = runner_pass(&r, PROMPT, text, NULL, NULL);
    for (int i = 0; i < PROMPT; i++)
        runner_same_bits(chain + i * r.vocab, first + i * r.vocab, r.vocab, "a prompt", PROMPT);
    free(tree);
    free(after);
    free(alone);
    free(first);
    runner_close(&r);
    free(path);
}

static void a_row_has_the_same_bits_in_prompts_chains_and_trees(void **unused)
{
    for (int g = 0; g < gpus; g++) {
        if (gpu[g].varies)
            continue;
        check_bits(&gpu[g], BF16, ACTIVATIONS_BF16, BF16, BEFORE_TREE);
        check_bits(&gpu[g], Q4_0, ACTIVATIONS_F32, F32, BEFORE_TREE);
        check_bits(&gpu[g], F32, ACTIVATIONS_F32, F32, 9);
    }
}

// ---- texts

static struct prompt_set prompts;

static void make_prompts(void)
{
    prompts.n = 2;
    for (int i = 0; i < prompts.n; i++) {
        prompts.length[i] = 5 + 9 * i;
        for (int k = 0; k < prompts.length[i]; k++)
            prompts.token[i][k] = random_below(60);
    }
}

// Texts of up to six tokens without drafts.
static struct decode_setup setup_on(struct backend *(*device)(struct error *err), const char *sampling,
                                    const char *rule, int slots)
{
    return (struct decode_setup){ .target = pair_target,
                                  .draft = pair_draft,
                                  .prompts = &prompts,
                                  .drafter = "none",
                                  .sampling = sampling,
                                  .rule = rule,
                                  .slots = slots,
                                  .limit = 6,
                                  .length = 64,
                                  .device = device };
}

static void check_against_none(const struct gpu_here *g, const char *sampling, const char *rule)
{
    struct decode_setup s = setup_on(g->open, sampling, rule, 1);
    struct decode_result *plain = decode_prompts(&s);
    s.slots = 2;
    for (int i = 0; i < pair_count(); i++) {
        s.drafter = pair_drafter(i);
        struct decode_result *other = decode_prompts(&s);
        assert_same_texts(plain, other, &s);
        free(other);
    }
    free(plain);
}

static int make_pair(void **unused)
{
    make_prompts();
    return pair_models_make_bf16(unused);
}

static void texts_of_every_drafter_equal_the_baseline(void **unused)
{
    for (int g = 0; g < gpus; g++) {
        if (gpu[g].varies)
            continue;
        check_against_none(&gpu[g], "{temperature: 0}", "rejection");
        check_against_none(&gpu[g], "{temperature: 1}", "match");
    }
}

// Another order of sums changes the logits of these models by about one millionth; the two largest logits are further apart.
static void greedy_texts_by_cublas_equal_those_of_the_cpu(void **unused)
{
    make_prompts();
    for (int g = 0; g < gpus; g++) {
        if (!is_cublas(&gpu[g]))
            continue;
        struct decode_setup s = setup_on(NULL, "{temperature: 0}", "rejection", 1);
        struct decode_result *cpu = decode_prompts(&s);
        s.device = gpu[g].open;
        struct decode_result *plain = decode_prompts(&s);
        s.slots = 2;
        s.drafter = pair_drafter(0);
        struct decode_result *drafted = decode_prompts(&s);
        assert_same_texts(cpu, plain, &s);
        assert_same_texts(cpu, drafted, &s);
        free(cpu);
        free(plain);
        free(drafted);
    }
}

// ---- launches

#if defined(EMULATED_DEVICE)
// Number of kernel launches of a pass of n rows.
static int64_t launches_of(int layers, int n, int head_dim)
{
    struct small_model t = small_default;
    t.width = 128, t.hidden = 192, t.heads = 4, t.kv_heads = 2, t.head_dim = head_dim, t.layers = layers, t.type = BF16;
    char *path = xformat("%s/%d-layers-%d.gguf", test_directory(), layers, head_dim);
    small_write_gguf(path, &t);
    struct error err;
    struct runner r = runner_open_on(backend_emulated(0, &err), path, 1, ACTIVATIONS_BF16, BF16);
    const int32_t token[4] = { 1, 2, 3, 4 };
    const int64_t before = emulated_launches();
    runner_pass(&r, n, token, NULL, NULL);
    const int64_t launches = emulated_launches() - before;
    runner_close(&r);
    free(path);
    return launches;
}
#endif

// Two norms, qkv, attention with RoPE and writes to the cache, o, gate with up, down: rounding is fused into the kernels that make the
// input of products. The plain attention kernel, for other head sizes, has the writes to the cache before it.
static void a_layer_is_seven_launches(void **unused)
{
#if defined(EMULATED_DEVICE)
    for (int n = 1; n <= 4; n += 3) {
        assert_int_equal(launches_of(3, n, 64) - launches_of(2, n, 64), 7);
        assert_int_equal(launches_of(3, n, 32) - launches_of(2, n, 32), 8);
    }
#endif
}

static void rows_of_all_layers_and_slots_move_in_one_launch(void **unused)
{
#if defined(EMULATED_DEVICE)
    struct error err;
    struct backend *b = backend_emulated(0, &err);
    const struct kv_shape shape = { 30, 64, 32, 2, 40, 8, BF16, 0, { { 0 } }, 0 };
    const int32_t token[6] = { 0 }, slot[6] = { 0, 0, 0, 1, 1, 1 }, parent[6] = { -1, 0, 0, -1, 0, 0 };
    const struct pass p = { .n = 6, .token = token, .slot = slot, .parent = parent };
    struct kv_cache *c = kv_create(b, &shape, &err);
    assert_non_null(c);
    const int64_t before = emulated_launches();
    kv_admit(c, &p, p.n);
    kv_keep(c, 0, (const int32_t[]){ 0, 2 }, 2);
    kv_keep(c, 1, (const int32_t[]){ 0, 2 }, 2);
    assert_int_equal(emulated_launches() - before, 1); // the layout
    kv_admit(c, &p, p.n);
    assert_int_equal(emulated_launches() - before, 3);
    kv_keep(c, 0, (const int32_t[]){ 0, 1 }, 2); // already in place
    kv_keep(c, 1, NULL, 0);
    kv_admit(c, &p, p.n);
    assert_int_equal(emulated_launches() - before, 4);
    kv_destroy(c);
    gpu_close(b);
#endif
}

#if defined(EMULATED_DEVICE)
static struct backend *open_second(struct error *err)
{
    return backend_emulated(1, err);
}
#endif

static struct backend *open_cpu(struct error *err)
{
    return backend_cpu(1, err);
}

static void with_draft_model_on(const struct decode_setup *about, const char *drafter,
                                struct backend *(*device)(struct error *err))
{
    struct decode_setup s = *about;
    struct decode_result *plain = decode_prompts(&s);
    s.drafter = drafter;
    s.draft_device = device;
    struct decode_result *other = decode_prompts(&s);
    assert_same_texts(plain, other, &s);
    assert_true(other->drafted > 0);
    free(plain);
    free(other);
}

// The device of the draft model changes the cost only, not the text, even for coupled sampling.
static void a_draft_model_on_another_device_gives_the_same_texts(void **unused)
{
    static const struct {
        const char *sampling, *rule, *drafter;
    } cases[] = {
        { "{temperature: 0}", "rejection", "small:model=%s,nodes=9,top=3,tokens=4,pick=greedy" },
        { "{temperature: 1}", "match", "small:model=%s,tokens=3,pick=coupled" },
        { "{temperature: 1}", "match", "small:model=%s,widths=[2,2,1]" },
    };
    for (int g = 0; g < gpus; g++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && !gpu[g].varies; i++) {
            struct decode_setup s = setup_on(gpu[g].open, cases[i].sampling, cases[i].rule, 2);
            with_draft_model_on(&s, cases[i].drafter, open_cpu);
#if defined(EMULATED_DEVICE)
            with_draft_model_on(&s, cases[i].drafter, open_second);
#endif
            s.device = open_cpu;
            with_draft_model_on(&s, cases[i].drafter, gpu[g].open);
        }
}

// ---- uploads

// upload() reads the host's memory before it returns, however much is queued and whatever is written there next.
static void uploads_read_host_memory_before_they_return(void **unused)
{
    enum { TIMES = 40, MAX_COUNT = 300000 };
    static const size_t numbers[] = { MAX_COUNT, 3, 70001, 1, MAX_COUNT };
    float *host = xcalloc(MAX_COUNT, sizeof(*host));
    for (int g = 0; g < gpus; g++) {
        struct backend *b = gpu_open(&gpu[g]);
        struct tensor x[TIMES];
        for (int i = 0; i < TIMES; i++) {
            const size_t n = numbers[i % 5];
            x[i] = rows_on(b, 1, (int64_t)n);
            for (size_t k = 0; k < n; k++)
                host[k] = (float)(i + 1) + (float)k * 0x1p-20f;
            b->upload(b, x[i].data, host, n * sizeof(*host));
        }
        for (int i = 0; i < TIMES; i++) {
            const size_t n = numbers[i % 5];
            b->download(b, host, x[i].data, n * sizeof(*host));
            for (size_t k = 0; k < n; k++)
                assert_true(host[k] == (float)(i + 1) + (float)k * 0x1p-20f);
            b->release(b, x[i].data);
        }
        gpu_close(b);
    }
    free(host);
}

// ---- failures

static void too_little_memory_is_reported_before_allocation(void **unused)
{
#if defined(EMULATED_DEVICE)
    struct error err = { "" };
    char *path = model_of(BF16);
    emulated_memory_limit(66 << 20);
    struct backend *b = backend_emulated(0, &err);
    struct model *m = model_open(path, b, ACTIVATIONS_BF16, 8, &err);
    assert_ok(m != NULL, err);
    struct kv_shape shape = model_kv_shape(m, 4, 1 << 16, 8);
    assert_null(kv_create(b, &shape, &err));
    assert_non_null(strstr(err.text, "cuda: not enough memory for a cache of 4 slots of 65536 tokens: "));
    assert_non_null(strstr(err.text, " MB are needed, and "));
    assert_false(model_reserve(m, 1 << 17, &err));
    assert_non_null(strstr(err.text, "cuda: not enough memory for a pass of 131072 rows"));
    assert_int_equal(model_rows(m), 8);
    assert_ok(model_reserve(m, 9, &err), err); // the memory is there again
    model_close(m);
    b->destroy(b);
    emulated_memory_limit(64 << 20);
    b = backend_emulated(0, &err);
    assert_null(model_open(path, b, ACTIVATIONS_BF16, 8, &err));
    assert_non_null(strstr(err.text, "cuda: not enough memory for the weights of "));
    emulated_memory_limit((size_t)4 << 30);
    assert_null(model_open(path, b, ACTIVATIONS_INT8, 8, &err));
    assert_non_null(strstr(err.text, "activations: int8: not supported by cuda"));
    b->destroy(b);
    free(path);
#endif
}

static void missing_or_failing_cublas_is_reported(void **unused)
{
#if defined(EMULATED_DEVICE)
    struct error err = { "" };
    emulated_cublas_lacks("libcublas");
    assert_null(backend_emulated_cublas(0, &err));
    assert_non_null(strstr(err.text, "device cublas:0: cuBLAS cannot be loaded: looked for libcublas.so.13, "));
    emulated_cublas_lacks("cublasGemmEx");
    assert_null(backend_emulated_cublas(0, &err));
    assert_non_null(strstr(err.text, "device cublas:0: cuBLAS has no cublasGemmEx: expected "));
    emulated_cublas_lacks(NULL);
    emulated_memory_limit(1 << 20);
    assert_null(backend_emulated_cublas(0, &err));
    assert_non_null(strstr(err.text, "not enough memory for its workspace of 32 MB"));
    emulated_memory_limit((size_t)4 << 30);
    assert_null(backend_emulated_cublas(99, &err));
    assert_non_null(strstr(err.text, "device cublas:99: expected one of the "));

    struct backend *b = backend_emulated_cublas(0, &err);
    char *path = model_of(Q8_0);
    assert_null(model_open(path, b, ACTIVATIONS_DEFAULT, 8, &err));
    assert_non_null(strstr(err.text, "cuBLAS supports f32, f16 and bf16 weights, not q8_0"));
    free(path);

    float numbers[4 * 64] = { 0 };
    struct tensor x = rows_on(b, 4, 64), y = rows_on(b, 4, 4);
    struct tensor w = b->prepare(b, tensor_of(numbers, F32, 4, 64), ACTIVATIONS_F32, &err);
    assert_non_null(w.data);
    b->upload(b, x.data, numbers, sizeof(numbers));
    emulated_cublas_fails(1);
    multiply(b, y, x, w);
    multiply(b, y, x, w);
    assert_false(b->sync(b, &err));
    assert_non_null(strstr(err.text, "cublas:0: matmul: CUBLAS_STATUS_EXECUTION_FAILED"));
    assert_true(b->sync(b, &err)); // reported once
    b->unprepare(b, w);
    b->release(b, x.data);
    b->release(b, y.data);
    b->destroy(b);
#endif
}

static void a_failure_is_reported_once_at_the_next_sync(void **unused)
{
#if defined(EMULATED_DEVICE)
    struct error err = { "" };
    struct backend *b = backend_emulated(0, &err);
    const struct tensor x = rows_on(b, 4, 64), y = rows_on(b, 4, 64);
    float numbers[4 * 64] = { 0 };
    for (int copy = 0; copy < 2; copy++) {
        emulated_fail_next(1);
        if (copy == 1)
            b->upload(b, x.data, numbers, sizeof(numbers));
        b->add(b, x, y);
        b->add(b, x, y);
        assert_false(b->sync(b, &err));
        assert_non_null(strstr(err.text, copy == 1 ? "cuda:0: upload: invalid argument" : "cuda:0: add: "));
        assert_true(b->sync(b, &err));
    }
    b->release(b, x.data);
    b->release(b, y.data);
    b->destroy(b);
#endif
}

int main(void)
{
    gpus = gpus_here(gpu);
    if (gpus == 0)
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_those_of_the_cpu_up_to_rounding),
        cmocka_unit_test(a_row_has_the_same_bits_in_prompts_chains_and_trees),
        cmocka_unit_test(a_layer_is_seven_launches),
        cmocka_unit_test(rows_of_all_layers_and_slots_move_in_one_launch),
        cmocka_unit_test_setup_teardown(greedy_texts_by_cublas_equal_those_of_the_cpu, pair_models_make,
                                        pair_models_remove),
        cmocka_unit_test_setup_teardown(texts_of_every_drafter_equal_the_baseline, make_pair, pair_models_remove),
        cmocka_unit_test_setup_teardown(a_draft_model_on_another_device_gives_the_same_texts, make_pair,
                                        pair_models_remove),
        cmocka_unit_test(too_little_memory_is_reported_before_allocation),
        cmocka_unit_test(missing_or_failing_cublas_is_reported),
        cmocka_unit_test(uploads_read_host_memory_before_they_return),
        cmocka_unit_test(a_failure_is_reported_once_at_the_next_sync),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    return failed;
}
