// test_every_stage.c - what holds for every registered sampling stage: it turns a row into a distribution, with the same bits for any
// number of threads, and keeps the chunks' maxima (sampling/logits.h) true.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "engine/plugin.h"
#include "kernels/backend.h"
#include "sampling/logits.h"
#include "sampling/sampling.h"
#include "tests/support/tests.h"
#include "tests/support/plain_stages.h"

enum { VALUES = 6, KINDS = 5, LONGEST = 3 * LOGITS_CHUNK + 5 };

static struct backend *threads;

// Value number i of a stage's option: its default, its bounds, and numbers between.
static struct settings *value(const struct option *o, int i)
{
    if (o->type == OPTION_PAIRS) {
        struct settings *map = settings_map();
        for (int k = 0; k < i; k++) {
            char *key = xformat("%d", 3 * k);
            settings_put(map, key, settings_scalar(k % 2 == 0 ? "-1e9" : "2.5"));
            free(key);
        }
        return map;
    }
    static const double place[VALUES] = { 0, 0, 1, 0.5, 1e-2, 1e-6 }; // between the bounds; 0: the default
    const double number = o->min + (o->max - o->min) * place[i];
    char *text = i == 0 ? xstrdup(o->default_value) : xformat(o->type == OPTION_INT ? "%.0f" : "%.17g", number);
    struct settings *s = settings_scalar(text);
    free(text);
    return s;
}

static struct sampling sampling_of(const struct stage *stage, int i)
{
    struct settings *map = settings_map();
    settings_put(map, stage->name, value(stage->option, i));
    return stages_read(map);
}

static void each_row(void (*check)(const struct sampling *s, const char *what, float *x, int n,
                                   const struct path *before))
{
    static const int length[] = { 1, 7, LOGITS_CHUNK, LONGEST };
    static const int32_t text[] = { 1, 6, 3, 1, 4000, 6, 9000 };
    static const struct path paths[] = { { 0, text, 0 }, { 7, text, 2 } };
    static float x[LONGEST];
    for (int s = 0; stages[s] != NULL; s++)
        for (int i = 0; i < VALUES; i++) {
            struct sampling one = sampling_of(stages[s], i);
            for (int k = 0; k < 4 * KINDS; k++) {
                char *what =
                    xformat("%s, value %d, %d logits of kind %d", stages[s]->name, i, length[k / KINDS], k % KINDS);
                make_logits(x, length[k / KINDS], k % KINDS);
                check(&one, what, x, length[k / KINDS], &paths[k % 2]);
                free(what);
            }
            sampling_free(&one);
        }
}

static void expect_distribution(const struct sampling *s, const char *what, float *x, int n, const struct path *before)
{
    const int used = n > 2 ? n - 2 : n; // the others are padding
    static float again[LONGEST];
    struct sampling threaded = *s;
    threaded.workers = threads->workers(threads);
    memcpy(again, x, (size_t)n * sizeof(*x));
    sampling_row(s, x, n, used, before);
    sampling_row(&threaded, again, n, used, before);
    double sum = 0;
    for (int i = 0; i < n; i++) {
        if (!(x[i] >= 0 && x[i] <= 1) || (i >= used && x[i] != 0))
            fail_msg("%s: token %d of %d has the probability %g", what, i, used, (double)x[i]);
        sum += (double)x[i];
    }
    if (fabs(sum - 1) > 1e-5)
        fail_msg("%s: the probabilities sum to %g", what, sum);
    if (memcmp(again, x, (size_t)n * sizeof(*x)) != 0)
        fail_msg("%s: other bits on several threads", what);
}

TEST(every_stage_leaves_a_distribution)
{
    each_row(expect_distribution);
}

// The first chunk whose maximum is not that of its logits; -1: none.
static int wrong_chunk(const struct logits *l)
{
    for (int k = 0; k * LOGITS_CHUNK < l->n; k++) {
        float max = -INFINITY;
        for (int i = k * LOGITS_CHUNK; i < l->n && i < (k + 1) * LOGITS_CHUNK; i++)
            max = fmaxf(max, l->x[i]);
        if (l->max[k] > -INFINITY && l->max[k] != max)
            return k;
    }
    return -1;
}

static void expect_maxima(const struct sampling *s, const char *what, float *x, int n, const struct path *before)
{
    struct logits l = logits_of(x, n, n, (struct workers){ 0 });
    s->step[0].stage->apply(&l, s->step[0].options, before);
    if (wrong_chunk(&l) >= 0)
        fail_msg("%s: the maximum of chunk %d is not that of its logits", what, wrong_chunk(&l));
}

TEST(every_stage_keeps_the_maxima_of_chunks)
{
    each_row(expect_maxima);
    float x[] = { 1, 2, 3 }; // as a stage that writes to the row itself
    struct logits l = logits_of(x, 3, 3, (struct workers){ 0 });
    l.x[1] = 4;
    assert_int_equal(wrong_chunk(&l), 0);
}

static void expect_one_hot(const struct sampling *s, const char *what, float *x, int n, const struct path *before)
{
    for (int i = 0; i < n; i++)
        x[i] = i % 3 == 0 ? NAN : -INFINITY;
    sampling_row(s, x, n, n, before);
    for (int i = 0; i < n; i++)
        if (x[i] != (i == 0 ? 1 : 0))
            fail_msg("%s without tokens: token %d has the probability %g", what, i, (double)x[i]);
}

TEST(a_row_without_tokens_passes_every_stage)
{
    each_row(expect_one_hot);
}

TEST(every_stage_is_found_by_its_name_and_has_one_option_of_that_name)
{
    for (int i = 0; stages[i] != NULL; i++) {
        const struct option *o = stages[i]->option;
        assert_ptr_equal(stage_named(stages[i]->name), stages[i]);
        assert_string_equal(o->name, stages[i]->name);
        assert_true(o[1].name == NULL && o->default_value != NULL && strlen(stages[i]->summary) > 0);
    }
    assert_null(stage_named("no such stage"));
}

static int open_threads(void **state)
{
    struct error err;
    threads = backend_cpu(3, &err);
    return threads != NULL ? 0 : -1;
}

static int close_threads(void **state)
{
    threads->destroy(threads);
    return 0;
}

int main(int argc, char **argv)
{
    struct error err;
    if (!plugins_take(&argc, argv, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return tests_run(open_threads, close_threads);
}
