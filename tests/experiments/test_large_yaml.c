// test_large_yaml.c - files with as many keys, anchors and merged mappings as 4 MiB hold: each is looked up once. Compared with all before it, a key
// or an anchor makes any of these take more than a minute.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "experiments/yaml.h"
#include "tests/support/check.h"

enum { KEYS = 300000, MERGED = 40000, SECONDS = 45 };

// Ends the program after so many seconds of its own processor time; 0: no more.
static void limit(int seconds)
{
    setitimer(ITIMER_VIRTUAL, &(struct itimerval){ .it_value.tv_sec = seconds }, NULL);
}

static struct settings *parse(const struct text *t, struct error *err)
{
    limit(SECONDS);
    struct settings *s = yaml_parse(t->s, t->n, "large", err);
    limit(0);
    return s;
}

static void keys_are_found_and_differ(void **state)
{
    struct error err;
    struct text t = { 0 };
    for (int i = 0; i < KEYS; i++)
        text_printf(&t, "k%x: %d\n", i, i);
    struct settings *s = parse(&t, &err);
    assert_non_null(s);
    assert_int_equal(s->n, KEYS);
    limit(SECONDS);
    struct settings *copy = settings_copy(s);
    settings_put(copy, "k100", settings_scalar("another"));
    settings_put(copy, "more", settings_scalar("1"));
    for (int i = 0; i < KEYS; i += 7) {
        char key[16], value[16];
        snprintf(key, sizeof(key), "k%x", i);
        snprintf(value, sizeof(value), "%d", i);
        assert_int_equal(settings_find(copy, key), i);
        assert_string_equal(settings_get(s, key)->text, value);
    }
    limit(0);
    assert_string_equal(settings_get(copy, "k100")->text, "another");
    assert_int_equal(settings_find(copy, "more"), KEYS);
    assert_int_equal(settings_find(s, "more"), -1);
    settings_free(copy);
    settings_free(s);
    text_printf(&t, "k%x: 0\n", KEYS / 2);
    assert_null(parse(&t, &err));
    char *sentence =
        xformat("large:%d:1: the key \"k%x\" is given twice, first on line %d", KEYS + 1, KEYS / 2, KEYS / 2 + 1);
    assert_string_equal(err.text, sentence);
    free(sentence);
    free(t.s);
}

static void anchors_are_found_and_differ(void **state)
{
    struct error err;
    struct text t = { 0 };
    for (int i = 0; i < KEYS; i++)
        text_printf(&t, "- &a%x %d\n", i, i);
    text_printf(&t, "- *a%x\n", KEYS / 4);
    struct settings *s = parse(&t, &err);
    assert_non_null(s);
    char *value = xformat("%d", KEYS / 4);
    assert_string_equal(s->item[KEYS]->text, value);
    settings_free(s);
    text_puts(&t, "- &a7 x\n");
    assert_null(parse(&t, &err));
    assert_non_null(strstr(err.text, "the anchor &a7 is given twice, first on line 8"));
    free(value);
    free(t.s);
}

static void mappings_are_merged(void **state)
{
    struct error err;
    struct text t = { 0 };
    for (int i = 0; i < MERGED; i++)
        text_printf(&t, "k%d: &b%d {m%d: %d, same: %d}\n", i, i, i, i, i);
    text_puts(&t, "all:\n  <<: [");
    for (int i = 0; i < MERGED; i++)
        text_printf(&t, "%s*b%d", i > 0 ? ", " : "", i);
    text_puts(&t, "]\n");
    struct settings *s = parse(&t, &err), *all = settings_get(s, "all");
    assert_non_null(all);
    assert_int_equal(all->n, MERGED + 1);
    assert_string_equal(settings_get(all, "same")->text, "0"); // the first wins
    assert_string_equal(settings_get(all, "m12345")->text, "12345");
    settings_free(s);
    free(t.s);
}

static void pairs_are_sorted_by_their_numbers(void **state)
{
    struct settings *map = settings_map();
    limit(SECONDS);
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", (int)((long long)i * 7919 % KEYS)); // each once
        settings_put(map, key, settings_scalar(key));
    }
    settings_put(map, "0011", settings_scalar("0.5")); // the later of two spellings
    struct settings *sorted = option_settings(map, OPTION_PAIRS);
    limit(0);
    assert_int_equal(sorted->n, KEYS);
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(atoi(sorted->key[i]), i);
        assert_true(strtod(sorted->item[i]->text, NULL) == (i == 11 ? 0.5 : i));
    }
    settings_free(sorted);
    settings_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_found_and_differ),
        cmocka_unit_test(anchors_are_found_and_differ),
        cmocka_unit_test(mappings_are_merged),
        cmocka_unit_test(pairs_are_sorted_by_their_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
