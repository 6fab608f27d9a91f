// test_packed_cache.c - packed weights kept beside a model: the same bits, or the file is not used; and never a half file.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "kernels/timed.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/model_runner.h"
#include "tests/support/small_model.h"

static struct error err;

static const struct tiny usual = { .vocab = 288,
                                   .width = 64,
                                   .hidden = 96,
                                   .layers = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 32,
                                   .sharp = true,
                                   .tokenizer = true,
                                   .seed = 33 };

enum { TOKENS = 7 };

// Logits of a few tokens; (TOKENS, vocab); free() it. said NULL: nothing is kept.
static float *logits_of(const char *path, enum activations a, bool timed, char **said)
{
    static const int32_t token[TOKENS] = { 5, 99, 17, 203, 17, 5, 250 };
    struct backend *b = backend_cpu(2, &err);
    if (timed)
        b = backend_timed(b);
    struct model *m = said != NULL ? model_open_keeping(path, b, a, RUNNER_ROWS, said, &err)
                                   : model_open(path, b, a, RUNNER_ROWS, &err);
    if (m == NULL)
        fail_msg("%s", err.text);
    struct runner r = runner_of(b, m, 1, F32);
    size_t bytes = (size_t)TOKENS * (size_t)r.vocab * sizeof(float);
    float *copy = xmalloc(bytes);
    memcpy(copy, runner_pass(&r, TOKENS, token, NULL, NULL), bytes);
    runner_close(&r);
    return copy;
}

// Opened so, it must have said this and have the logits of a model that was packed as ever.
static void packed_cache_says(const char *path, enum activations a, const char *with)
{
    char *said = NULL;
    float *x = logits_of(path, a, false, &said), *y = logits_of(path, a, false, NULL);
    if (said == NULL || strstr(said, with) == NULL)
        fail_msg("expected \"%s\" in: %s", with, said);
    assert_memory_equal(x, y, (size_t)TOKENS * 288 * sizeof(float));
    free(said);
    free(x);
    free(y);
}

static void what_was_kept_gives_every_bit(void **state)
{
    (void)state;
    for (int type = 0; type < TYPES; type++)
        for (int gguf = 0; gguf < 2; gguf++) {
            struct tiny t = usual;
            t.type = (enum type)type;
            t.tied = type % 2 == 0;
            t.bias = type % 3 == 0;
            t.shards = 2;
            if (type_facts[type].block == 256)
                t.width = t.hidden = t.heads * t.head_dim * 2;
            if (!gguf && type_is_quantised(t.type))
                continue;
            char *path = xformat("%s/%s_%s%s", tiny_directory(), type_facts[type].name, gguf ? "file" : "directory",
                                 gguf ? ".gguf" : "");
            gguf ? tiny_write_gguf(path, &t) : tiny_write_hf(path, &t);
            packed_cache_says(path, ACTIVATIONS_F32, "packed weights made and kept in ");
            packed_cache_says(path, ACTIVATIONS_F32, "packed weights read from ");
            packed_cache_says(path, ACTIVATIONS_DEFAULT,
                              gguf ? ".gguf.packed" : "/model.packed"); // whatever rows are rounded to
            packed_cache_says(path, ACTIVATIONS_BF16, "read from ");
            free(path);
        }
}

// As bench has it.
static void a_backend_that_keeps_account_passes_it_on(void **state)
{
    (void)state;
    char *path = tiny_path("q4_1_file.gguf"), *said = NULL;
    float *x = logits_of(path, ACTIVATIONS_INT8, true, &said), *y = logits_of(path, ACTIVATIONS_INT8, false, NULL);
    assert_non_null(strstr(said, "read from"));
    assert_memory_equal(x, y, (size_t)TOKENS * 288 * sizeof(float));
    free(path);
    free(said);
    free(x);
    free(y);
}

static void poke(const char *path, long at, int with)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int before = fgetc(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    fputc(before ^ with, f);
    assert_int_equal(fclose(f), 0);
}

static long size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

static void a_damaged_file_is_made_anew(void **state)
{
    (void)state;
    char *path = tiny_path("damaged.gguf"), *kept = tiny_path("damaged.gguf.packed");
    struct tiny t = usual;
    t.type = Q4_0;
    tiny_write_gguf(path, &t);
    packed_cache_says(path, ACTIVATIONS_INT8, "made and kept");
    long whole = size_of(kept);
    static const struct {
        long at;
        const char *with;
    } places[] = {
        { 0, "it is no file of packed weights" },
        { 8, "another version of speclab" },
        { 12, "another version of speclab" },
        { 16, "another version of speclab" },
        { 20, "damaged: " },
        { 24, "the model's files have changed" },
        { 32, "the model's files have changed" },
        { 47, "the model's files have changed" },
        { 55, "the model's files have changed" },
        { 56, "damaged: it is not as long" },
        { 64, "damaged: its list of tensors" },
        { 72, "damaged: its list of tensors" },
        { 116, "damaged: its list of tensors" },
        { 4096, "damaged: a tensor is not what was written" },
        { 4096 + 777, "damaged: a tensor is not what" },
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        for (int bit = 1; bit < 256; bit *= 4) {
            poke(kept, places[i].at, bit);
            packed_cache_says(path, ACTIVATIONS_INT8, places[i].with);
            assert_int_equal(size_of(kept), whole);
            packed_cache_says(path, ACTIVATIONS_INT8, "read from");
        }
    for (long n = 0; n < whole; n += n < 200 ? 37 : 4093) {
        assert_int_equal(truncate(kept, n), 0);
        packed_cache_says(path, ACTIVATIONS_INT8, "made anew and kept");
    }
    assert_int_equal(truncate(kept, whole + 1), 0);
    packed_cache_says(path, ACTIVATIONS_INT8, "it is not as long as it says");
    packed_cache_says(path, ACTIVATIONS_INT8, "read from");
    free(path);
    free(kept);
}

static void a_file_of_another_model_is_made_anew(void **state)
{
    (void)state;
    char *path = tiny_path("changing.gguf"), *hf = tiny_path("f32_directory"),
         *shard = xformat("%s/model-00001.safetensors", hf);
    struct tiny t = usual;
    tiny_write_gguf(path, &t);
    packed_cache_says(path, ACTIVATIONS_F32, "made and kept");
    t.seed++;
    tiny_write_gguf(path, &t);
    packed_cache_says(path, ACTIVATIONS_F32, "the model's files have changed since");
    t.layers = 1;
    tiny_write_gguf(path, &t);
    packed_cache_says(path, ACTIVATIONS_F32, "made anew");
    packed_cache_says(path, ACTIVATIONS_F32, "read from");
    // The same bytes at another time, of any of its files: nobody can know that they are the same.
    const struct timespec when[2] = { { 1000000000, 1 }, { 1000000000, 1 } };
    assert_int_equal(utimensat(AT_FDCWD, shard, when, 0), 0);
    packed_cache_says(hf, ACTIVATIONS_F32, "the model's files have changed since");
    packed_cache_says(hf, ACTIVATIONS_F32, "read from");
    free(path);
    free(hf);
    free(shard);
}

static void nothing(const char *path)
{
    if (access(path, F_OK) == 0)
        fail_msg("%s was left behind", path);
}

static void what_cannot_be_written_is_a_sentence_and_no_failure(void **state)
{
    (void)state;
    char *path = tiny_path("unkept.gguf"), *kept = tiny_path("unkept.gguf.packed"),
         *own = xformat("%s.%ld", kept, (long)getpid()), *part = xformat("%s.part", own);
    tiny_write_gguf(path, &usual);
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    now = before;
    now.rlim_cur = 50000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    packed_cache_says(path, ACTIVATIONS_F32, "packed weights were not kept: ");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    nothing(kept);
    nothing(own);
    nothing(part);
    assert_int_equal(mkdir(kept, 0777), 0);
    packed_cache_says(path, ACTIVATIONS_F32, "packed weights were not kept: ");
    nothing(own);
    nothing(part);
    assert_int_equal(rmdir(kept), 0);
    assert_int_equal(symlink("/dev/zero", kept), 0);
    packed_cache_says(path, ACTIVATIONS_F32, "it is no file");
    packed_cache_says(path, ACTIVATIONS_F32, "read from");
    free(path);
    free(kept);
    free(own);
    free(part);
}

static void one_that_is_killed_leaves_nothing_under_the_name(void **state)
{
    (void)state;
    static const struct rlimit little = { 50000, 50000 };
    char *path = tiny_path("killed.gguf"), *kept = tiny_path("killed.gguf.packed");
    tiny_write_gguf(path, &usual);
    fflush(NULL);
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_DFL);
        char *said;
        if (setrlimit(RLIMIT_FSIZE, &little) == 0)
            free(logits_of(path, ACTIVATIONS_F32, false, &said));
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    nothing(kept);
    packed_cache_says(path, ACTIVATIONS_F32, "made and kept");
    packed_cache_says(path, ACTIVATIONS_F32, "read from");
    free(path);
    free(kept);
}

// ---- the bytes

static void fill(uint8_t *bytes, size_t n)
{
    uint64_t x = 7;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005 + 1442695040888963407;
        bytes[i] = (uint8_t)(x >> 56);
    }
}

static uint64_t fnv(const uint8_t *bytes, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

// Files hold these bytes: who changes them changes PACKED_LAYOUT (kernels/cpu/packed.h), and then these sums.
static void every_instruction_set_packs_the_bytes_of_this_layout(void **state)
{
    (void)state;
    enum { LAYOUT = 1, ROWS = 21, WIDTH = 512 };
    static const char *const isa[] = { "plain", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16" };
    static const uint64_t sum[TYPES] = {
        [F32] = 0x901a4c8adebc0f9d,  [F16] = 0x3390740cc06adef3,  [BF16] = 0xb973f80c03d9515b,
        [Q8_0] = 0xb9e46852a19ea881, [Q4_0] = 0xef7c610f19ab9819, [Q4_1] = 0xfacf290e9a390259,
        [Q5_0] = 0xfb21f2eb25dd30e1, [Q5_1] = 0x75a26069e73cf02b, [Q4_K] = 0x3fc5c5ed039b751b,
        [Q5_K] = 0x42d9405c4aaff974, [Q6_K] = 0xc4487652eb034586
    };
    size_t bytes;
    bool bad = false;
    uint8_t *from = xmalloc(ROWS * WIDTH * sizeof(float));
    fill(from, ROWS * WIDTH * sizeof(float));
    for (size_t i = 0; i < sizeof(isa) / sizeof(*isa); i++) {
        struct backend *b = backend_cpu_with(1 + (int)i, isa[i], &err);
        for (int t = 0; t < TYPES && b != NULL; t++) {
            struct tensor w =
                b->prepare(b, tensor_of(from, (enum type)t, ROWS, WIDTH), (enum activations)(1 + t % 2), &err);
            const void *packed = b->packed(b, w, &bytes);
            if (b->packed_layout != LAYOUT || fnv(packed, bytes) != sum[t])
                print_message("%s %s: 0x%016llx\n", isa[i], type_facts[t].name, (unsigned long long)fnv(packed, bytes)),
                    bad = true;
            b->unprepare(b, w);
        }
        if (b != NULL)
            b->destroy(b);
    }
    free(from);
    assert_false(bad);
}

// ---- the commands

static void commands_say_what_became_of_it(void **state)
{
    (void)state;
    if (!child_is_present())
        skip();
    char *path = tiny_path("command.gguf"), *lines = tiny_path("lines.jsonl");
    tiny_write_gguf(path, &usual);
    file_write(lines, "{\"text\": \"the inning and then\"}\n");
    struct said s = child_run("score %s %s", path, lines), k;
    said_insist(&s, "score");
    static const char *const with[] = { "packed weights made and kept in ", "packed weights read from " };
    for (int i = 0; i < 2; i++) {
        k = child_run("score %s %s --packed keep", path, lines);
        said_insist(&k, "score");
        assert_string_equal(s.out, k.out);
        assert_non_null(strstr(k.err, with[i]));
        said_free(&k);
    }
    said_free(&s);
    k = child_run("generate %s --packed keep --chat none --tokens 3 then", path);
    said_insist(&k, "generate");
    assert_non_null(strstr(k.err, with[1]));
    said_free(&k);
    k = child_run("generate %s --packed maybe --tokens 3 then", path);
    assert_int_equal(k.status, 2);
    assert_non_null(strstr(k.err, "maybe"));
    said_free(&k);
    free(path);
    free(lines);
}

static int tear_down(void **state)
{
    (void)state;
    tiny_clean();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_kept_gives_every_bit),
        cmocka_unit_test(a_backend_that_keeps_account_passes_it_on),
        cmocka_unit_test(a_damaged_file_is_made_anew),
        cmocka_unit_test(a_file_of_another_model_is_made_anew),
        cmocka_unit_test(what_cannot_be_written_is_a_sentence_and_no_failure),
        cmocka_unit_test(one_that_is_killed_leaves_nothing_under_the_name),
        cmocka_unit_test(every_instruction_set_packs_the_bytes_of_this_layout),
        cmocka_unit_test(commands_say_what_became_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
