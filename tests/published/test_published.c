// test_published.c - heads and targets with the names, shapes and configurations of published ones, as sparse files of their
// real sizes in their published form: the kind of a head is detected, it fits its target, and the gigabytes of zeros are not
// read.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/config.h"
#include "models/heads/head.h"
#include "models/model.h"
#include "tests/support/check.h"
#include "tests/published/published.h"
#include "tests/support/small_model.h"

static int64_t resident_kb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static const struct expected {
    const char *name;
    const struct known_target *target;
    void (*write)(const char *directory, const struct known_target *t);
    enum head_kind kind;
    int heads, vocab, taps, first_tap;
    double min_gb; // of the file
} list[] = {
    { "EAGLE-Vicuna-7B-v1.3", &vicuna_7b, published_eagle1, HEAD_EAGLE, 0, 32000, 1, FINAL_STATE, 0.7 },
    { "EAGLE-LLaMA3.1-Instruct-8B", &llama_8b, published_eagle2, HEAD_EAGLE, 0, 128256, 1, FINAL_STATE, 1.5 },
    { "EAGLE3-Vicuna1.3-13B", &vicuna_13b, published_eagle3, HEAD_EAGLE3, 0, 32000, 3, 2, 1.0 },
    { "EAGLE3-LLaMA3.1-Instruct-8B", &llama_8b, published_eagle3, HEAD_EAGLE3, 0, 32000, 3, 2, 0.8 },
    { "EAGLE3-LLaMA3.3-Instruct-70B", &llama_70b, published_eagle3, HEAD_EAGLE3, 0, 32000, 3, 2, 2.5 },
    { "medusa-vicuna-7b-v1.3", &vicuna_7b, published_medusa, HEAD_MEDUSA, 5, 32000, 1, FINAL_STATE, 1.4 },
    { "EAGLE3-LLaMA3.1-Instruct-8B-speculators", &llama_8b, published_eagle3_speculators, HEAD_EAGLE3, 0, 32000, 3, 2,
      0.8 },
    { "EAGLE-LLaMA3.1-Instruct-8B-speculators", &llama_8b, published_eagle_speculators, HEAD_EAGLE, 0, 128256, 1,
      FINAL_STATE, 1.5 },
};

// Checks that the weights' file in a head's directory has its real size and takes nearly no disk space.
static void check_file(const struct expected *e, const char *directory)
{
    struct stat st;
    char *file = xformat("%s/model.safetensors", directory);
    assert_int_equal(stat(file, &st), 0);
    assert_true((double)st.st_size > e->min_gb * 1e9 && (double)st.st_blocks * 512 < 1e7);
    free(file);
}

static void check_head(const struct expected *e, const char *directory, const struct model_shape *target,
                       const struct model_shape *other)
{
    struct head_facts f;
    struct error err = { "" };
    enum head_kind kind;
    if (!head_fits(directory, target, &kind, &f, &err))
        fail_msg("%s: %s", e->name, err.text);
    assert_int_equal(kind, e->kind);
    assert_int_equal(f.heads, e->heads);
    assert_int_equal(f.vocab, e->vocab);
    assert_int_equal(f.taps.n, e->taps);
    assert_int_equal(f.taps.layer[0], e->first_tap);
    if (e->taps == 3) {
        assert_int_equal(f.taps.layer[1], e->target->layers / 2);
        assert_int_equal(f.taps.layer[2], e->target->layers - 3);
    }
    assert_false(head_fits(directory, other, &kind, &f, &err)); // the message has both numbers
    assert_non_null(strstr(err.text, "a head for"));
    assert_non_null(strstr(err.text, target->vocab != other->vocab && e->kind != HEAD_MEDUSA ? "128256" : "8192"));
}

static void published_heads_fit_their_targets(void **unused)
{
    const int64_t before = resident_kb();
    const struct known_target *const known[] = { &vicuna_7b, &vicuna_13b, &llama_8b, &llama_70b };
    struct model_shape shape[4];
    for (int i = 0; i < 4; i++)
        shape[i] = published_shape(known[i]);
    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
        const struct expected *e = &list[i];
        char *directory = test_path(e->name);
        int target = 0;
        while (known[target] != e->target)
            target++;
        e->write(directory, e->target);
        check_file(e, directory);
        check_head(e, directory, &shape[target], &shape[target == 3 ? 2 : 3]);
        free(directory);
    }
    assert_true(resident_kb() - before < 100000); // of 197 GB of targets and 11 GB of heads
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(published_heads_fit_their_targets) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    return failed;
}
