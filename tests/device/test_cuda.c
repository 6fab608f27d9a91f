// test_cuda.c - whole models and the loop on a GPU: the emulated one everywhere, a real one where there is one. Logits beside
// the CPU's; a row's bits alone, among others and on a path through a tree; texts of every drafter beside none's.
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
#include "tests/support/decoded_texts.h"
#include "tests/support/small_model.h"

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus;

static uint64_t state = 7;

static int32_t any(int below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((state >> 33) % (uint64_t)below);
}

static char *model_of(enum type type)
{
    struct tiny t = type_is_quantised(type) ? tiny_blocks : tiny_usual;
    if (type_facts[type].block == 256)
        t.width = t.hidden = 256, t.heads = 4, t.kv_heads = 2, t.head_dim = 64;
    t.type = type;
    char *path = xformat("%s/%s.gguf", tiny_directory(), type_facts[type].name);
    tiny_write_gguf(path, &t);
    return path;
}

static struct runner on(const struct gpu_here *g, const char *path, enum activations a, enum type cache)
{
    struct backend *b = gpu_open(g);
    return runner_open_on(b, path, 2, a, cache);
}

static bool is_cublas(const struct gpu_here *g)
{
    return strstr(g->name, "cublas") != NULL;
}

// ---- logits beside the CPU's

static void check_logits(const struct gpu_here *g, enum type type, enum activations a, enum type cache, double most)
{
    enum { TEXT = 24 };
    char *path = model_of(type);
    struct runner cpu = runner_open_as(path, 1, NULL, 2, a, cache), there = on(g, path, a, cache);
    int32_t token[TEXT];
    for (int i = 0; i < TEXT; i++)
        token[i] = any(cpu.vocab);
    const float *p = runner_pass(&cpu, TEXT, token, NULL, NULL), *q = runner_pass(&there, TEXT, token, NULL, NULL);
    double difference = 0, largest = 0;
    for (int i = 0; i < TEXT * cpu.vocab; i++) {
        difference = fmax(difference, fabs((double)p[i] - (double)q[i]));
        largest = fmax(largest, fabs((double)p[i]));
    }
    print_message("    %s, %s, activations %s, cache %s: max |difference| / max |logit| %.1e\n", g->name,
                  type_facts[type].name, activations_names[a], type_facts[cache].name, difference / largest);
    if (!(difference <= most * largest))
        fail_msg("%g is more than %g", difference / largest, most);
    runner_close(&cpu);
    runner_close(&there);
    free(path);
}

static void logits_are_the_cpus_but_for_rounding(void **unused)
{
    (void)unused;
    for (int g = 0; g < gpus; g++) {
        check_logits(&gpu[g], F32, ACTIVATIONS_F32, F32, 1e-5);
        check_logits(&gpu[g], F16, ACTIVATIONS_F32, F32, 1e-5);
        check_logits(&gpu[g], BF16, ACTIVATIONS_F32, F32, 1e-5);
        // What is nearly a half is rounded to one side here and to the other there.
        check_logits(&gpu[g], BF16, ACTIVATIONS_BF16, BF16, 2e-2);
        if (is_cublas(&gpu[g]))
            continue; // it has no others
        check_logits(&gpu[g], Q8_0, ACTIVATIONS_F32, F32, 1e-5);
        check_logits(&gpu[g], Q4_K, ACTIVATIONS_F32, F32, 1e-5);
        check_logits(&gpu[g], Q4_1, ACTIVATIONS_BF16, BF16, 2e-2);
        check_logits(&gpu[g], Q6_K, ACTIVATIONS_BF16, Q8_0, 2e-2);
    }
}

// ---- bits

enum { ACROSS = 250 }; // tokens before a tree, so that it lies across the end of a split of 256

static void check_bits(const struct gpu_here *g, enum type type, enum activations a, enum type cache, int before)
{
    enum { TREE = 70, MORE = 20, PROMPT = 33 };
    char *path = model_of(type);
    struct runner r = on(g, path, a, cache);
    int32_t token[TREE], parent[TREE], text[ACROSS + MORE + 1], kept[TREE];
    for (int i = 0; i < ACROSS; i++)
        text[i] = any(r.vocab);
    for (int i = 0; i < TREE; i++) {
        token[i] = any(r.vocab);
        parent[i] = i == 0 ? -1 : i < 12 ? i - 1 : any(i);
    }
    runner_feed(&r, 0, text, before);
    float *tree = xmalloc((size_t)TREE * (size_t)r.vocab * sizeof(float));
    memcpy(tree, runner_pass(&r, TREE, token, NULL, parent), (size_t)TREE * (size_t)r.vocab * sizeof(float));
    int depth = 0;
    for (int at = TREE - 1; at >= 0; at = parent[at])
        depth++;
    for (int at = TREE - 1, i = depth - 1; at >= 0; at = parent[at], i--)
        kept[i] = at;
    depth = depth < MORE ? depth : MORE;
    for (int i = 0; i < depth; i++)
        text[before + i] = token[kept[i]];
    kv_keep(r.cache, 0, kept, depth);
    text[before + depth] = any(r.vocab);
    float *after = xmalloc((size_t)r.vocab * sizeof(float));
    memcpy(after, runner_pass(&r, 1, text + before + depth, NULL, NULL), (size_t)r.vocab * sizeof(float));

    kv_cut(r.cache, 0, before);
    float *alone = runner_one_by_one(&r, text + before, depth + 1);
    for (int i = 0; i < depth; i++)
        runner_same_bits(tree + kept[i] * r.vocab, alone + i * r.vocab, r.vocab, "a path through a tree", TREE);
    runner_same_bits(after, alone + depth * r.vocab, r.vocab, "behind a kept path", 1);
    kv_cut(r.cache, 0, 0);
    float *first = runner_one_by_one(&r, text, PROMPT);
    kv_cut(r.cache, 0, 0);
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

static void a_row_has_its_bits_in_prompts_chains_and_trees(void **unused)
{
    (void)unused;
    for (int g = 0; g < gpus; g++) {
        if (gpu[g].varies)
            continue;
        check_bits(&gpu[g], BF16, ACTIVATIONS_BF16, BF16, ACROSS);
        check_bits(&gpu[g], Q4_0, ACTIVATIONS_F32, F32, ACROSS);
        check_bits(&gpu[g], F32, ACTIVATIONS_F32, F32, 9);
    }
}

// ---- texts

static struct prompts_given prompts;

static void make_prompts(void)
{
    prompts.n = 2;
    for (int i = 0; i < prompts.n; i++) {
        prompts.length[i] = 5 + 9 * i;
        for (int k = 0; k < prompts.length[i]; k++)
            prompts.token[i][k] = any(60);
    }
}

static void against_none(const struct gpu_here *g, const char *sampling, const char *rule)
{
    struct decoded_texts_setup s = { .target = pair_target,
                                     .draft = pair_draft,
                                     .prompts = &prompts,
                                     .drafter = "none",
                                     .sampling = sampling,
                                     .rule = rule,
                                     .slots = 1,
                                     .limit = 6,
                                     .length = 64,
                                     .device = g->open };
    struct decoded_texts *plain = say(&s);
    s.slots = 2;
    for (int i = 0; i < pair_count(); i++) {
        s.drafter = pair_drafter(i);
        struct decoded_texts *other = say(&s);
        same_text(plain, other, &s);
        free(other);
    }
    free(plain);
}

static int make_texts(void **unused)
{
    make_prompts();
    return pair_models_make_bf16(unused);
}

static void texts_of_every_drafter_are_nones(void **unused)
{
    (void)unused;
    for (int g = 0; g < gpus; g++) {
        if (gpu[g].varies)
            continue;
        against_none(&gpu[g], "{temperature: 0}", "rejection");
        against_none(&gpu[g], "{temperature: 1}", "match");
    }
}

// Sums in another order move the logits of these models by a millionth of them; their first two are further apart.
static void greedy_texts_by_cublas_are_the_cpus(void **unused)
{
    (void)unused;
    make_prompts();
    for (int g = 0; g < gpus; g++) {
        if (!is_cublas(&gpu[g]))
            continue;
        struct decoded_texts_setup s = { .target = pair_target,
                                         .draft = pair_draft,
                                         .prompts = &prompts,
                                         .drafter = "none",
                                         .sampling = "{temperature: 0}",
                                         .rule = "rejection",
                                         .slots = 1,
                                         .limit = 6,
                                         .length = 64 };
        struct decoded_texts *cpu = say(&s);
        s.device = gpu[g].open;
        struct decoded_texts *plain = say(&s);
        s.slots = 2;
        s.drafter = pair_drafter(0);
        struct decoded_texts *drafted = say(&s);
        same_text(cpu, plain, &s);
        same_text(cpu, drafted, &s);
        free(cpu);
        free(plain);
        free(drafted);
    }
}

// ---- launches

#if defined(EMULATED_DEVICE)
// Kernels of a pass of n rows.
static int64_t launches_of(int layers, int n)
{
    struct tiny t = tiny_usual;
    t.width = 128, t.hidden = 192, t.heads = 4, t.kv_heads = 2, t.head_dim = 32, t.layers = layers, t.type = BF16;
    char *path = xformat("%s/%d-layers.gguf", tiny_directory(), layers);
    tiny_write_gguf(path, &t);
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

// Two norms, qkv, store, attention and its join, o, gate with up, down: what is rounded is rounded by who made it.
static void a_layer_is_nine_launches(void **unused)
{
    (void)unused;
#if defined(EMULATED_DEVICE)
    for (int n = 1; n <= 4; n += 3)
        assert_int_equal(launches_of(3, n) - launches_of(2, n), 9);
#endif
}

static void rows_of_all_layers_move_in_one_launch(void **unused)
{
    (void)unused;
#if defined(EMULATED_DEVICE)
    struct error err;
    struct backend *b = backend_emulated(0, &err);
    const struct kv_shape shape = { 30, 64, 32, 2, 40, 8, BF16 };
    const int32_t token[6] = { 0 }, slot[6] = { 1, 1, 1, 1, 1, 1 }, parent[6] = { -1, 0, 0, 1, 2, 3 };
    const struct pass p = { .n = 6, .token = token, .slot = slot, .parent = parent };
    struct kv_cache *c = kv_create(b, &shape, &err);
    assert_non_null(c);
    int64_t before = emulated_launches();
    kv_admit(c, &p, p.n);
    kv_keep(c, 1, (const int32_t[]){ 0, 2, 4 }, 3);
    assert_int_equal(emulated_launches() - before, 1);
    before = emulated_launches();
    kv_admit(c, &p, p.n);
    kv_keep(c, 1, (const int32_t[]){ 0, 1 }, 2); // they lie where they belong
    assert_int_equal(emulated_launches() - before, 0);
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

static void with_draft_model_on(const struct decoded_texts_setup *about, const char *drafter,
                                struct backend *(*device)(struct error *err))
{
    struct decoded_texts_setup s = *about;
    struct decoded_texts *plain = say(&s);
    s.drafter = drafter;
    s.draft_device = device;
    struct decoded_texts *other = say(&s);
    same_text(plain, other, &s);
    assert_true(other->drafted > 0);
    free(plain);
    free(other);
}

// Where the draft model is changes what it costs, and nothing else: tokens that a seed couples to are the same as well.
static void a_draft_model_on_another_device_gives_nones_texts(void **unused)
{
    (void)unused;
    static const struct {
        const char *sampling, *rule, *drafter;
    } cases[] = {
        { "{temperature: 0}", "rejection", "small:model=%s,nodes=9,top=3,tokens=4,pick=greedy" },
        { "{temperature: 1}", "match", "small:model=%s,tokens=3,pick=coupled" },
        { "{temperature: 1}", "match", "small:model=%s,widths=[2,2,1]" },
    };
    for (int g = 0; g < gpus; g++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && !gpu[g].varies; i++) {
            struct decoded_texts_setup s = { .target = pair_target,
                                             .draft = pair_draft,
                                             .prompts = &prompts,
                                             .drafter = "none",
                                             .sampling = cases[i].sampling,
                                             .rule = cases[i].rule,
                                             .slots = 2,
                                             .limit = 6,
                                             .length = 64,
                                             .device = gpu[g].open };
            with_draft_model_on(&s, cases[i].drafter, open_cpu);
#if defined(EMULATED_DEVICE)
            with_draft_model_on(&s, cases[i].drafter, open_second);
#endif
            s.device = open_cpu;
            with_draft_model_on(&s, cases[i].drafter, gpu[g].open);
        }
}

// ---- uploads

// What is uploaded is what was there when it was, however much is on its way and whatever is there next.
static void uploads_take_what_is_there_at_once(void **unused)
{
    (void)unused;
    enum { TIMES = 40, MOST = 300000 };
    static const size_t numbers[] = { MOST, 3, 70001, 1, MOST };
    float *host = xcalloc(MOST, sizeof(*host));
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

// ---- what goes wrong

static void what_does_not_fit_is_said_before_it_is_tried(void **unused)
{
    (void)unused;
#if defined(EMULATED_DEVICE)
    struct error err = { "" };
    char *path = model_of(BF16);
    emulated_memory_limit(66 << 20);
    struct backend *b = backend_emulated(0, &err);
    struct model *m = model_open(path, b, ACTIVATIONS_BF16, 8, &err);
    if (m == NULL)
        fail_msg("%s", err.text);
    struct kv_shape shape = model_kv_shape(m, 4, 1 << 16, 8);
    assert_null(kv_create(b, &shape, &err));
    assert_non_null(strstr(err.text, "cuda: no room for a cache of 4 slots of 65536 tokens: "));
    assert_non_null(strstr(err.text, " MB are needed, and "));
    model_close(m);
    b->destroy(b);
    emulated_memory_limit(64 << 20);
    b = backend_emulated(0, &err);
    assert_null(model_open(path, b, ACTIVATIONS_BF16, 8, &err));
    assert_non_null(strstr(err.text, "cuda: no room for the weights of "));
    emulated_memory_limit((size_t)4 << 30);
    assert_null(model_open(path, b, ACTIVATIONS_INT8, 8, &err));
    assert_non_null(strstr(err.text, "activations: int8: cuda does without them"));
    b->destroy(b);
    free(path);
#endif
}

static void what_cublas_lacks_or_refuses_is_said(void **unused)
{
    (void)unused;
#if defined(EMULATED_DEVICE)
    struct error err = { "" };
    emulated_cublas_lacks("libcublas");
    assert_null(backend_emulated_cublas(0, &err));
    assert_non_null(strstr(err.text, "device cublas:0: cuBLAS cannot be loaded: looked for libcublas.so.13, "));
    emulated_cublas_lacks("cublasGemmEx");
    assert_null(backend_emulated_cublas(0, &err));
    assert_non_null(strstr(err.text, "device cublas:0: the cuBLAS that was found has no cublasGemmEx: expected "));
    emulated_cublas_lacks(NULL);
    emulated_memory_limit(1 << 20);
    assert_null(backend_emulated_cublas(0, &err));
    assert_non_null(strstr(err.text, "there is no room for its workspace of 32 MB"));
    emulated_memory_limit((size_t)4 << 30);
    assert_null(backend_emulated_cublas(99, &err));
    assert_non_null(strstr(err.text, "device cublas:99: expected one of the "));

    struct backend *b = backend_emulated_cublas(0, &err);
    char *path = model_of(Q8_0);
    assert_null(model_open(path, b, ACTIVATIONS_DEFAULT, 8, &err));
    assert_non_null(strstr(err.text, "cuBLAS has no products of q8_0 weights, but of f32, f16 and bf16"));
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
    assert_true(b->sync(b, &err)); // said once
    b->unprepare(b, w);
    b->release(b, x.data);
    b->release(b, y.data);
    b->destroy(b);
#endif
}

static void a_failed_copy_is_said_once(void **unused)
{
    (void)unused;
#if defined(EMULATED_DEVICE)
    struct error err = { "" };
    struct backend *b = backend_emulated(0, &err);
    struct tensor x = rows_on(b, 4, 64), y = rows_on(b, 4, 64);
    float numbers[4 * 64] = { 0 };
    emulated_fail_next(1);
    b->upload(b, x.data, numbers, sizeof(numbers));
    assert_false(b->sync(b, &err));
    assert_non_null(strstr(err.text, "cuda:0: upload: invalid argument"));
    b->add(b, x, y);
    assert_true(b->sync(b, &err));
    b->release(b, x.data);
    b->release(b, y.data);
    b->destroy(b);
#endif
}

static void a_failure_on_the_device_is_said_at_the_next_sync(void **unused)
{
    (void)unused;
#if defined(EMULATED_DEVICE)
    struct error err = { "" };
    struct backend *b = backend_emulated(0, &err);
    struct tensor x = rows_on(b, 4, 64), y = rows_on(b, 4, 64);
    emulated_fail_next(1);
    b->add(b, x, y);
    b->add(b, x, y);
    assert_false(b->sync(b, &err));
    assert_non_null(strstr(err.text, "cuda:0: add: "));
    assert_true(b->sync(b, &err)); // said once
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
        cmocka_unit_test(logits_are_the_cpus_but_for_rounding),
        cmocka_unit_test(a_row_has_its_bits_in_prompts_chains_and_trees),
        cmocka_unit_test(a_layer_is_nine_launches),
        cmocka_unit_test(rows_of_all_layers_move_in_one_launch),
        cmocka_unit_test_setup_teardown(greedy_texts_by_cublas_are_the_cpus, pair_models_make, pair_models_remove),
        cmocka_unit_test_setup_teardown(texts_of_every_drafter_are_nones, make_texts, pair_models_remove),
        cmocka_unit_test_setup_teardown(a_draft_model_on_another_device_gives_nones_texts, make_texts,
                                        pair_models_remove),
        cmocka_unit_test(what_does_not_fit_is_said_before_it_is_tried),
        cmocka_unit_test(what_cublas_lacks_or_refuses_is_said),
        cmocka_unit_test(uploads_take_what_is_there_at_once),
        cmocka_unit_test(a_failed_copy_is_said_once),
        cmocka_unit_test(a_failure_on_the_device_is_said_at_the_next_sync),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_clean();
    return failed;
}
