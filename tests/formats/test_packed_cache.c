// test_packed_cache.c - the packed-weight cache: it gives the same bits or is not used, and there is never an incomplete file.
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
#include "models/kv_cache.h"
#include "models/model.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/model_runner.h"
#include "tests/support/small_model.h"

static struct error err;

static const struct small_model usual = { SMALL_SIZES(288, 64, 96, 2, 4, 2, 32), .sharp = true, .tokenizer = true,
                                          .seed = 33 };

enum { TOKENS = 7 };

// Logits of a few tokens, (TOKENS, vocab); the caller frees them. message NULL: without a cache.
static float *logits_of(const char *path, enum activations a, char **message)
{
    static const int32_t token[TOKENS] = { 5, 99, 17, 203, 17, 5, 250 };
    struct backend *b = backend_cpu(2, &err);
    struct model *m = model_open_as(path, b, a, QUANTIZE_NONE, RUNNER_ROWS, message, &err);
    assert_ok(m != NULL, err);
    struct runner r = runner_of(b, m, 1, F32);
    size_t bytes = (size_t)TOKENS * (size_t)r.vocab * sizeof(float);
    float *copy = xmalloc(bytes);
    memcpy(copy, runner_pass(&r, TOKENS, token, NULL, NULL), bytes);
    runner_close(&r);
    return copy;
}

// Opens a model with the cache: the message must contain `expected`, and the logits must be those without a cache.
static void expect_message(const char *path, enum activations a, const char *expected)
{
    char *message = NULL;
    float *x = logits_of(path, a, &message), *y = logits_of(path, a, NULL);
    if (message == NULL || strstr(message, expected) == NULL)
        fail_msg("expected \"%s\" in: %s", expected, message);
    assert_memory_equal(x, y, (size_t)TOKENS * 288 * sizeof(float));
    free(message);
    free(x);
    free(y);
}

TEST(cached_weights_give_the_same_bits)
{
    for (int type = 0; type < TYPES; type++)
        for (int gguf = 0; gguf < 2; gguf++) {
            struct small_model t = usual;
            t.type = (enum type)type;
            t.tied = type % 2 == 0;
            t.bias = type % 3 == 0;
            t.shards = 2;
            if (type_facts[type].block == 256)
                t.width = t.hidden = t.heads * t.head_dim * 2;
            if ((!gguf && type_is_quantized(t.type)) || type == F8_E4M3) // test_fp8.c has it
                continue;
            char *path = xformat("%s/%s_%s%s", test_directory(), type_facts[type].name, gguf ? "file" : "directory",
                                 gguf ? ".gguf" : "");
            gguf ? small_write_gguf(path, &t) : small_write_hf(path, &t);
            expect_message(path, ACTIVATIONS_F32, "packed weights written to ");
            expect_message(path, ACTIVATIONS_F32, "packed weights read from ");
            expect_message(path, ACTIVATIONS_DEFAULT,
                           gguf ? ".gguf.packed" : "/model.packed"); // the same file for all activations
            expect_message(path, ACTIVATIONS_BF16, "read from ");
            free(path);
        }
}

static long size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

TEST(a_damaged_file_is_written_anew)
{
    char *path = test_path("damaged.gguf"), *cache = test_path("damaged.gguf.packed");
    struct small_model t = usual;
    t.type = Q4_0;
    small_write_gguf(path, &t);
    expect_message(path, ACTIVATIONS_INT8, "packed weights written to");
    long whole = size_of(cache);
    static const struct {
        long at;
        const char *message;
    } places[] = {
        { 0, "it is not a file of packed weights" },
        { 8, "another version of speclab" },
        { 16, "another version of speclab" },
        { 20, "damaged: " },
        { 24, "the model's files have changed" },
        { 55, "the model's files have changed" },
        { 56, "damaged: its size is not" },
        { 64, "damaged: the checksum of its list" },
        { 116, "damaged: the checksum of its list" },
        { 4096, "damaged: the checksum of a tensor does not match" },
        { 4096 + 777, "damaged: the checksum of a tensor" },
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        for (int bit = 1; bit < 256; bit *= 4) {
            file_flip(cache, places[i].at, bit);
            expect_message(path, ACTIVATIONS_INT8, places[i].message);
            assert_int_equal(size_of(cache), whole);
            expect_message(path, ACTIVATIONS_INT8, "read from");
        }
    // The top bits of two words that a sum by multiplication adds up to nothing.
    file_flip(cache, 4096 + 7, 128);
    file_flip(cache, 4096 + 64 + 7, 128);
    expect_message(path, ACTIVATIONS_INT8, "damaged: the checksum of a tensor");
    for (long n = 0; n < whole; n += n < 200 ? 37 : 4093) {
        assert_int_equal(truncate(cache, n), 0);
        expect_message(path, ACTIVATIONS_INT8, "written anew");
    }
    assert_int_equal(truncate(cache, whole + 1), 0);
    expect_message(path, ACTIVATIONS_INT8, "its size is not the one in its head");
    expect_message(path, ACTIVATIONS_INT8, "read from");
    free(path);
    free(cache);
}

TEST(a_file_of_another_model_is_written_anew)
{
    char *path = test_path("changing.gguf"), *hf = test_path("f32_directory"),
         *shard = xformat("%s/model-00001.safetensors", hf);
    struct small_model t = usual;
    small_write_gguf(path, &t);
    expect_message(path, ACTIVATIONS_F32, "packed weights written to");
    t.seed++;
    small_write_gguf(path, &t);
    expect_message(path, ACTIVATIONS_F32, "the model's files have changed since");
    t.layers = 1;
    small_write_gguf(path, &t);
    expect_message(path, ACTIVATIONS_F32, "written anew");
    expect_message(path, ACTIVATIONS_F32, "read from");
    // A new time of any of its files: the same bytes are no longer assumed.
    const struct timespec when[2] = { { 1000000000, 1 }, { 1000000000, 1 } };
    assert_int_equal(utimensat(AT_FDCWD, shard, when, 0), 0);
    expect_message(hf, ACTIVATIONS_F32, "the model's files have changed since");
    expect_message(hf, ACTIVATIONS_F32, "read from");
    free(path);
    free(hf);
    free(shard);
}

static void assert_missing(const char *path)
{
    if (access(path, F_OK) == 0)
        fail_msg("%s exists", path);
}

TEST(a_failed_write_is_reported_and_harmless)
{
    char *path = test_path("unwritten.gguf"), *cache = test_path("unwritten.gguf.packed");
    small_write_gguf(path, &usual);
    file_size_limit(50000);
    expect_message(path, ACTIVATIONS_F32, "packed weights not cached: ");
    file_size_limit(-1);
    assert_missing(cache);
    assert_no_partial_files(cache);
    assert_int_equal(mkdir(cache, 0777), 0);
    expect_message(path, ACTIVATIONS_F32, "packed weights not cached: ");
    assert_no_partial_files(cache);
    assert_int_equal(rmdir(cache), 0);
    assert_int_equal(symlink("/dev/zero", cache), 0);
    expect_message(path, ACTIVATIONS_F32, "it is not a file");
    expect_message(path, ACTIVATIONS_F32, "read from");
    free(path);
    free(cache);
}

TEST(a_killed_writer_leaves_no_file)
{
    static const struct rlimit small = { 50000, 50000 };
    char *path = test_path("killed.gguf"), *cache = test_path("killed.gguf.packed");
    small_write_gguf(path, &usual);
    fflush(NULL);
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_DFL);
        char *message;
        if (setrlimit(RLIMIT_FSIZE, &small) == 0)
            free(logits_of(path, ACTIVATIONS_F32, &message));
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    assert_missing(cache);
    expect_message(path, ACTIVATIONS_F32, "packed weights written to");
    expect_message(path, ACTIVATIONS_F32, "read from");
    free(path);
    free(cache);
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

static uint64_t fnv_of(const uint8_t *bytes, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

// Cache files hold these bytes: a change of them changes PACKED_LAYOUT (kernels/cpu/packed.h), and then these hashes.
TEST(all_instruction_sets_pack_the_same_bytes)
{
    enum { LAYOUT = 1, ROWS = 21, WIDTH = 512 };
    static const char *const isa[] = { "plain",       "avx2",        "avx2_vnni", "avx512",
                                       "avx512_vnni", "avx512_bf16", "neon",      "neon_dotprod" };
    static const uint64_t hash[TYPES] = {
        [F32] = 0x901a4c8adebc0f9d,    [F16] = 0x3390740cc06adef3,   [BF16] = 0xb973f80c03d9515b,
        [Q8_0] = 0xb9e46852a19ea881,   [Q4_0] = 0xef7c610f19ab9819,  [Q4_1] = 0xfacf290e9a390259,
        [Q5_0] = 0xfb21f2eb25dd30e1,   [Q5_1] = 0x75a26069e73cf02b,  [Q4_K] = 0x3fc5c5ed039b751b,
        [Q5_K] = 0x42d9405c4aaff974,   [Q6_K] = 0xc4487652eb034586,
        [IQ4_NL] = 0xef7c610f19ab9819, // as q4_0: codes instead of numbers
        [IQ4_XS] = 0xe508f8c88b75368d, [MXFP4] = 0xb933ac714fc4a042, [F8_E4M3] = 0x238368f01a0fcb8d
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
            if (b->packed_layout != LAYOUT || fnv_of(packed, bytes) != hash[t])
                print_message("%s %s: 0x%016llx\n", isa[i], type_facts[t].name,
                              (unsigned long long)fnv_of(packed, bytes)),
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

TEST(commands_report_reads_and_writes_of_the_cache)
{
    if (!child_is_present())
        skip();
    static const char *const messages[] = { "packed weights written to ", "packed weights read from " };
    char *path = test_path("command.gguf"), *lines = test_path("lines.jsonl");
    small_write_gguf(path, &usual);
    file_write(lines, "{\"text\": \"the inning and then\"}\n");
    struct child_result plain = child_run("inspect --score %s %s", path, lines);
    child_expect_success(&plain, "score");
    for (int i = 0; i < 2; i++) {
        struct child_result kept = child_run("inspect --score %s %s --packed keep", path, lines);
        child_expect_success(&kept, "score");
        assert_string_equal(plain.out, kept.out);
        assert_non_null(strstr(kept.err, messages[i]));
        child_result_free(&kept);
    }
    child_result_free(&plain);
    struct child_result text = child_run("generate %s --packed keep --chat none --tokens 3 then", path);
    child_expect_success(&text, "generate");
    assert_non_null(strstr(text.err, messages[1]));
    child_result_free(&text);
    struct child_result refused = child_run("generate %s --packed maybe --tokens 3 then", path);
    assert_int_equal(refused.status, 2);
    assert_non_null(strstr(refused.err, "maybe"));
    child_result_free(&refused);
    free(path);
    free(lines);
}

RUN_TESTS(NULL, test_directory_tear_down)
