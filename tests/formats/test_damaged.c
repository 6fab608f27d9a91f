// test_damaged.c - truncated checkpoints and checkpoints with a few changed bytes are refused or usable, and never crash.
//
// All truncated lengths; bytes changed at random with a fixed seed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/config.h"
#include "models/formats/gguf.h"
#include "models/weights.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/support/small_model.h"

static struct error err;

// Opens the checkpoint at path and reads all of it.
static bool use(const char *path)
{
    struct model_config c;
    if (!config_read(path, &c, &err))
        return false;
    struct weights *w = weights_open(&c, &err);
    bool ok = w != NULL;
    for (size_t i = 0; ok && i < w->n; i++) {
        const struct weight *stored = &w->weight[i];
        struct tensor t;
        struct error ignored;
        if (!weights_get(w, stored->name, stored->tensor.rows, stored->tensor.width, &t, &ignored))
            assert_true(*ignored.text != '\0');
    }
    if (ok)
        weights_hash(w);
    weights_close(w);
    config_free(&c);
    return ok;
}

TEST(a_file_cut_anywhere_is_refused)
{
    struct small_model t = small_minimal;
    t.vocab = 20;
    t.tokenizer = false;
    for (int gguf = 0; gguf < 2; gguf++) {
        t.tokenizer = gguf;
        t.vocab = gguf ? SMALL_TOKENS : 20;
        char *path = test_path(gguf ? "cut.gguf" : "cut"),
             *file = gguf ? xstrdup(path) : xformat("%s/model.safetensors", path);
        gguf ? small_write_gguf(path, &t) : small_write_hf(path, &t);
        assert_true(use(path));
        struct stat st;
        assert_int_equal(stat(file, &st), 0);
        for (off_t n = st.st_size - 1; n >= 0; n--) {
            assert_int_equal(truncate(file, n), 0);
            assert_false(use(path));
            if (strstr(err.text, file) == NULL)
                fail_msg("cut to %ld bytes: %s", (long)n, err.text);
        }
        print_message("%s: %ld lengths\n", file, (long)st.st_size);
        free(file);
        free(path);
    }
}

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

// Changes one to four bytes among the first n of a file, opens the model, and puts the bytes back.
static void change_and_use(const char *file, const char *model, size_t n, int times, uint64_t seed)
{
    struct text good = checkpoint_bytes(file);
    n = n < good.n ? n : good.n;
    FILE *f = fopen(file, "r+");
    assert_non_null(f);
    int refused = 0;
    for (int i = 0; i < times; i++) {
        size_t at[4];
        int changes = 1 + (int)(splitmix64(&seed) % 4);
        for (int k = 0; k < changes; k++) {
            at[k] = splitmix64(&seed) % n;
            fseek(f, (long)at[k], SEEK_SET);
            uint64_t c = splitmix64(&seed);
            // A random byte, a flipped bit, or a boundary value of counts and lengths.
            fputc(c % 3 == 0   ? (int)(c >> 8 & 0xff)
                  : c % 3 == 1 ? good.s[at[k]] ^ 1 << (c >> 8 & 7)
                               : (c >> 8 & 1 ? 0xff : 0),
                  f);
        }
        fflush(f);
        *err.text = '\0';
        if (!use(model)) {
            assert_true(*err.text != '\0');
            refused++;
        }
        for (int k = 0; k < changes; k++) {
            fseek(f, (long)at[k], SEEK_SET);
            fputc(good.s[at[k]], f);
        }
        fflush(f);
    }
    fclose(f);
    print_message("%s: %d of %d refused\n", file, refused, times);
    assert_true(refused > 0);
    assert_true(use(model));
    free(good.s);
}

TEST(files_with_changed_bytes_never_crash)
{
    char *file = test_path("changed.gguf"), *directory = test_path("changed");
    small_write_gguf(file, &small_minimal);
    struct gguf *g = gguf_open(file, &err);
    size_t header =
        (size_t)((const char *)gguf_tensor_at(g, gguf_tensors(g) - 1)->name.s - gguf_value_at(g, 0)->key.s) + 100;
    gguf_close(g);
    change_and_use(file, file, 1200, 3000, 1); // counts, sizes
    change_and_use(file, file, header, 2000, 2);

    struct small_model t = small_minimal;
    t.shards = 2;
    small_write_hf(directory, &t);
    static const char *const files[] = { "model-00001.safetensors", "model.safetensors.index.json", "config.json",
                                         "tokenizer_config.json" };
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        char *path = xformat("%s/%s", directory, files[i]);
        change_and_use(path, directory, 900, i == 0 ? 3000 : 700, 3 + i);
        free(path);
    }
    free(file);
    free(directory);
}

RUN_TESTS(NULL, NULL)
