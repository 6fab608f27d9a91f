// test_distill_plan.c - which conversations `distill` plans: a fair mixture in every prefix, ids once, temperatures in rotation; and the
// words by which texts are compared.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/distill/hash_map.h"
#include "commands/distill/plan.h"
#include "commands/distill/words.h"
#include "core/error.h"
#include "core/memory.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"

// Files of these numbers of prompts.
static struct plan plan_of(int a, int b, int samples, int temperatures, int64_t invented)
{
    struct plan p = { .samples = samples, .temperatures = temperatures, .invented = invented };
    const int n[] = { a, b };
    for (int f = 0; f < 2 && n[f] > 0; f++) {
        struct error err;
        char *path = test_path("prompts.jsonl");
        FILE *to = fopen(path, "w");
        assert_non_null(to);
        for (int i = 0; i < n[f]; i++)
            fprintf(to, "{\"question\": \"%d of %d\"}\n", i, f);
        fclose(to);
        assert_ok(prompts_read(path, 0, 0, &p.file[p.files++], &err), err);
        free(path);
    }
    return p;
}

static void check_plan(int a, int b, int samples, int temperatures, int64_t invented)
{
    struct plan p = plan_of(a, b, samples, temperatures, invented);
    struct hash_map ids = { 0 }, numbers = { 0 };
    const int64_t size = plan_size(&p), given = plan_given(&p);
    int64_t seen = 0, at_temperature[2][8] = { { 0 } };
    assert_int_equal(given, (int64_t)(a + b) * samples);
    assert_int_equal(size, given + invented);
    for (int64_t i = 0; i < size; i++) {
        const struct planned c = plan_at(&p, i);
        const bool is_given = c.prompt != NULL;
        assert_int_equal(c.index, is_given ? seen : i - seen); // each kind in its order
        assert_int_equal(plan_invented_number(c.id), is_given ? -1 : c.index);
        hash_map_add(&ids, hash_of(c.id, strlen(c.id)), 0);
        hash_map_add(&numbers, hash_of(&c.number, sizeof(c.number)), 0);
        assert_true(c.number >= 0 && c.number < PLAN_NUMBERS);
        at_temperature[is_given][c.temperature]++;
        seen += is_given;
        const double fair = (double)(i + 1) * (double)given / (double)size;
        assert_true((double)seen > fair - 1.01 && (double)seen < fair + 1.01);
        if (is_given) { // samples differ in temperature, and all prompts come before any comes again
            assert_int_equal(c.temperature, (c.index % (a + b) + c.index / (a + b)) % temperatures);
            assert_ptr_equal(c.prompt, c.index % (a + b) < a ? &p.file[0].prompt[c.index % (a + b)]
                                                             : &p.file[1].prompt[c.index % (a + b) - a]);
        }
    }
    assert_int_equal(ids.n, size);
    assert_int_equal(numbers.n, size);
    for (int k = 0; k < 2; k++)
        for (int t = 0; t < temperatures; t++) {
            const double fair = (double)(k == 1 ? given : invented) / temperatures;
            assert_true((double)at_temperature[k][t] > fair - 1 - samples &&
                        (double)at_temperature[k][t] < fair + 1 + samples);
        }
    hash_map_free(&ids);
    hash_map_free(&numbers);
    plan_free(&p);
}

static void every_prefix_is_a_fair_mixture(void **state)
{
    check_plan(7, 0, 1, 3, 0);
    check_plan(0, 0, 1, 3, 11);
    check_plan(7, 5, 3, 3, 20);
    check_plan(100, 1, 2, 2, 7);
    check_plan(3, 2, 4, 5, 3000);
}

// The number of a conversation does not depend on how many of the other kind there are: more can be added later.
static void numbers_do_not_depend_on_limits(void **state)
{
    struct plan few = plan_of(5, 0, 2, 3, 3), many = plan_of(5, 0, 2, 3, 50);
    for (int64_t i = 0; i < plan_size(&few); i++) {
        const struct planned a = plan_at(&few, i);
        int found = 0;
        for (int64_t k = 0; k < plan_size(&many); k++) {
            const struct planned b = plan_at(&many, k);
            if (strcmp(a.id, b.id) != 0)
                continue;
            assert_int_equal(a.number, b.number);
            assert_int_equal(a.temperature, b.temperature);
            found++;
        }
        assert_int_equal(found, 1);
    }
    plan_free(&few);
    plan_free(&many);
}

static void words_ignore_case_and_punctuation(void **state)
{
    static const char *const text[][2] = {
        { "  The CAT, sat\ton -- the \"mat\".\n", "the cat sat on the mat" },
        { "\xE2\x80\x9C"
          "Don\xE2\x80\x99t\xE2\x80\x9D \xE2\x80\x94 4.5%",
          "don t 4 5" },
        { "caf\xC3\xA9\xC2\xA0Z\xC3\xBCrich", "caf\xC3\xA9 z\xC3\xBCrich" },
        { "...", "" },
        { "", "" },
    };
    struct words w = { 0 };
    for (size_t i = 0; i < sizeof(text) / sizeof(*text); i++) {
        words_read(&w, text[i][0]);
        assert_string_equal(w.text.s != NULL && w.n > 0 ? w.text.s : "", text[i][1]);
    }
    words_read(&w, "one two three four");
    assert_true(hash_equal(words_hash(&w, 1, 2), hash_of("two three", 9)));
    assert_true(hash_equal(words_hash(&w, 2, 2), hash_of("three four", 10)));
    words_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_prefix_is_a_fair_mixture),
        cmocka_unit_test(numbers_do_not_depend_on_limits),
        cmocka_unit_test(words_ignore_case_and_punctuation),
    };
    return cmocka_run_group_tests(tests, NULL, test_directory_tear_down);
}
