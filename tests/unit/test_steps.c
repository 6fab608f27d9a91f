// test_steps.c - a step allocates nothing: memory is sized when drafter and verifier are created, and scratch memory is enlarged
// at most once. The linker redirects every allocation to the functions here (CMakeLists.txt).
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "verifier/rules/rule.h"

static bool counts;
static int allocations;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
int __real_posix_memalign(void **p, size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
int __wrap_posix_memalign(void **p, size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    allocations += counts;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    allocations += counts;
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    allocations += counts;
    return __real_realloc(p, bytes);
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t bytes)
{
    allocations += counts;
    return __real_posix_memalign(p, alignment, bytes);
}

static void done(void *self, const struct speclab_end *e)
{
    *(int *)self += e->n;
}

// Decodes three sequences in two slots. Returns the number of allocations in steps.
static int decode(struct pair *p, int *tokens)
{
    static const int32_t prompt[] = { 5, 9, 7, 5, 9, 7, 5, 9 };
    struct error err;
    struct speclab_decoder *d =
        decoder_create(p->verifier, p->drafter, 2, 1, (struct speclab_listener){ .end = done, .self = tokens }, &err);
    allocations = 0;
    for (int next = 0; next < 3 || speclab_decoder_active(d) > 0;) {
        while (next < 3 && speclab_decoder_has_free_slot(d)) {
            struct speclab_request a = { .sequence = next, .prompt = prompt, .n = 4 + 2 * next, .max_tokens = 30 };
            assert_true(decoder_start(d, &a, NULL, NULL, &err));
            next++;
        }
        counts = true;
        bool ok = speclab_decoder_step(d, &err);
        counts = false;
        assert_true(ok);
    }
    speclab_decoder_destroy(d);
    return allocations;
}

TEST(allocations_are_counted)
{
    allocations = 0;
    counts = true;
    free(xmalloc(1)), free(xcalloc(1, 1)), free(xrealloc(NULL, 1));
    counts = false;
    assert_int_equal(allocations, 3);
}

TEST(a_step_allocates_nothing)
{
    static const char *const samplings[] = { "{temperature: 0}", "{temperature: 1.0}",
                                             "{repetition_penalty: 1.3, frequency_penalty: 0.4, presence_penalty: 0.2, "
                                             "temperature: 0.8, top_k: 40, top_p: 0.9}" };
    for (int i = 0; i < pair_count(); i++)
        for (int k = 0; k < 3 && strstr(pair_drafter(i), "retokenize") == NULL; k++) // tokenizers allocate
            for (int r = 0; rules[r] != NULL; r++) {
                struct pair *p = pair_open(pair_target, pair_draft, pair_drafter(i), samplings[k], rules[r], 2, 64);
                int tokens = 0, n = takes_missing(rules[r]->takes, drafter_makes(p->type, p->options)) == 0;
                if (n == 0)
                    tokens = 90;                                   // the rule does not take these drafts
                for (int tries = 0; n > 0 && tries < 8; tries++) { // each thread enlarges its scratch at its first job
                    tokens = 0;
                    n = decode(p, &tokens);
                }
                if (n != 0 || tokens != 90)
                    fail_msg("%s, %s, %s: %d allocations, %d tokens", pair_drafter(i), samplings[k], rules[r]->name, n,
                             tokens);
                pair_close(p);
            }
}

RUN_TESTS(pair_models_make_foreign, pair_models_remove)
