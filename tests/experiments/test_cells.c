// test_cells.c - identity of cells: equal settings are the same cell, different ones are not.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/yaml.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

// Hashes of every cell, and of its peers, in the experiment's order; the caller frees both.
static int hashes(const char *text, char (**hash)[HASH_TEXT], char (**peers)[HASH_TEXT])
{
    struct error err = { "" };
    struct experiment *e = load(text);
    struct loaded_experiment o;
    int n = 0;
    *hash = xcalloc(64, sizeof(**hash));
    *peers = xcalloc(64, sizeof(**peers));
    assert_ok(loaded_experiment_open(&o, e, 0, &err), err);
    for (int k = 0; k < groups(e); k++) {
        struct group g;
        assert_ok(group_open(&g, k, &o, &err), err);
        for (int i = 0; i < g.n; i++, n++) {
            memcpy((*hash)[n], g.cell_runner[i].identity.hash, HASH_TEXT);
            memcpy((*peers)[n], g.cell_runner[i].identity.peers, HASH_TEXT);
        }
        group_close(&g);
    }
    loaded_experiment_close(&o);
    loaded_experiment_close(&o); // closing twice has no effect
    experiment_free(e);
    return n;
}

#define BODY "target: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
#define CELLS \
    "cells: {sampling: [{temperature: 0}, {temperature: 1, top_k: 5}], batch: [1, 2], rule: [rejection, match], " \
    "drafter: [none, {kind: ngram, longest: 2}]}\n"

static void every_list_under_cells_multiplies(void **state)
{
    char(*hash)[HASH_TEXT], (*peers)[HASH_TEXT];
    int n = hashes("name: x\n" BODY CELLS, &hash, &peers);
    assert_int_equal(n, 16);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(hash[i], hash[k]);
            assert_int_equal(strcmp(peers[i], peers[k]) == 0, i / 4 == k / 4);
        }
    free(hash);
    free(peers);

    struct experiment *e = load("name: x\n" BODY);
    assert_int_equal(groups(e) * e->rule.n * e->drafter.n, 1);
    assert_string_equal(e->sampling.entry[0].shown, "temperature=0");
    assert_string_equal(e->drafter.entry[0].shown, "none");
    assert_false(e->none_added);
    experiment_free(e);
    e = load("name: x\n" BODY "cells: {drafter: {kind: ngram}}\n");
    assert_int_equal(e->drafter.n, 2);
    assert_string_equal(e->drafter.entry[0].shown, "none");
    assert_string_equal(e->drafter.entry[1].shown, "ngram");
    assert_true(e->none_added);
    experiment_free(e);
}

static void equal_settings_are_the_same_cell(void **state)
{
    static const char base[] = "name: x\n" BODY "cells: {drafter: {kind: ngram, longest: 2, tokens: 8}}\n";
    static const struct {
        const char *text;
        bool same;
    } cases[] = {
        { base, true },
        { "cells: {drafter: [{tokens: 08, kind: ngram, longest: 2}, none]}\nprompts: {chat: none, file: conversations.jsonl}\n"
          "threads: 1\ntarget: {model: \"target.gguf\", device: cpu}\nname: x\n",
          true },
        { "name: x\n" BODY "repeat: 3\ncells: {drafter: {kind: ngram, longest: 2}}\n", true },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none, limit: 2, "
          "per_category: 1}\nseed: 0\nlimits: {new_tokens: 256, stop: []}\n"
          "cells: {sampling: {temperature: 0.0}, drafter: {kind: ngram, longest: 2}}\n",
          true },
        { "name: y\n" BODY "cells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {drafter: {kind: ngram, longest: 3}}\n", false },
        { "name: x\n" BODY "seed: 1\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "limits: {new_tokens: 255}\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "limits: {stop: x}\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "limits: {ignore_end: true}\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {batch: 2, drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {rule: match, drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {sampling: {temperature: 0, min_p: 0.1}, drafter: {kind: ngram, longest: 2}}\n",
          false },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 2\nprompts: {file: conversations.jsonl, chat: none}\n"
          "cells: {drafter: {kind: ngram, longest: 2}}\n",
          false },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
          "cells: {drafter: {kind: ngram, longest: 2}}\n",
          false },
    };
    char(*hash)[HASH_TEXT], (*peers)[HASH_TEXT], (*other)[HASH_TEXT], (*other_peers)[HASH_TEXT];
    assert_int_equal(hashes(base, &hash, &peers), 2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int n = hashes(cases[i].text, &other, &other_peers);
        assert_int_equal(n, 2);
        bool found = strcmp(other[0], hash[1]) == 0 || strcmp(other[1], hash[1]) == 0; // `none` may be last
        if (found != cases[i].same)
            fail_msg("%s: %s", cases[i].same ? "another cell" : "the same cell", cases[i].text);
        free(other);
        free(other_peers);
    }
    free(hash);
    free(peers);
}

static void sampling_settings_have_one_spelling(void **state)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        { "{top_k: 05}", "temperature=1, top_k=5" },
        { "{top_k: 5, temperature: 0.50}", "temperature=0.5, top_k=5" },
        { "{logit_bias: {11: 1.50, 3: -2e0, 200: 0.1}}", "logit_bias={3: -2, 11: 1.5, 200: 0.1}, temperature=1" },
        { "{logit_bias: {200: 0.1, 11: 7, 3: -2, 011: 1.5}}", "logit_bias={3: -2, 11: 1.5, 200: 0.1}, temperature=1" },
        { "{logit_bias: {0: -0.0}}", "logit_bias={0: 0}, temperature=1" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        struct settings *given = yaml_parse(cases[i].text, strlen(cases[i].text), "f", &err);
        struct settings *full = sampling_settings(given);
        char *shown = sampling_shown(full);
        assert_string_equal(shown, cases[i].shown);
        free(shown);
        settings_free(full);
        settings_free(given);
    }
}

static void a_changed_model_or_prompt_file_is_another_cell(void **state)
{
    static const char text[] = "name: x\ntarget: {model: target.gguf}\nprompts: {file: changing.jsonl, chat: none}\n"
                               "cells: {drafter: {kind: small, model: changing.gguf}}\n";
    char(*hash)[3][HASH_TEXT] = xcalloc(3, sizeof(*hash)), (*h)[HASH_TEXT], (*peers)[HASH_TEXT];
    struct small_model t = small_default;
    char *draft = test_path("changing.gguf");
    t.layers = 1;
    for (int i = 0; i < 3; i++) {
        t.seed = i == 1 ? 5 : 6;
        small_write_gguf(draft, &t);
        write_file("changing.jsonl", i == 2 ? "{\"prompt\": \"abd\"}\n" : "{\"prompt\": \"abc\"}\n");
        assert_int_equal(hashes(text, &h, &peers), 2);
        memcpy(hash[i][0], h[0], HASH_TEXT); // none
        memcpy(hash[i][1], h[1], HASH_TEXT); // small
        memcpy(hash[i][2], peers[1], HASH_TEXT);
        assert_string_equal(peers[0], peers[1]);
        free(h);
        free(peers);
    }
    assert_string_equal(hash[0][0], hash[1][0]); // the draft model does not matter to `none`
    assert_string_equal(hash[0][2], hash[1][2]);
    assert_string_not_equal(hash[0][1], hash[1][1]);
    assert_string_not_equal(hash[0][0], hash[2][0]);
    assert_string_not_equal(hash[0][1], hash[2][1]);
    assert_string_not_equal(hash[0][2], hash[2][2]);
    free(hash);
    free(draft);
}

// Hashes of `small` and of `none`, with these options of the target and of the drafter.
static void hash_with(const char *model, const char *target, const char *drafter, char to[2][HASH_TEXT])
{
    char(*hash)[HASH_TEXT], (*peers)[HASH_TEXT];
    char *text =
        xformat("name: x\ntarget: {model: %s%s}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
                "cells: {drafter: [none, {kind: small, model: %s%s}]}\n",
                model, target, model, drafter);
    assert_int_equal(hashes(text, &hash, &peers), 2);
    memcpy(to[0], hash[1], HASH_TEXT);
    memcpy(to[1], hash[0], HASH_TEXT);
    free(hash);
    free(peers);
    free(text);
}

static void a_default_is_the_cell_that_it_resolves_to(void **state)
{
    write_blocks("blocks.gguf");
    static const struct {
        const char *model, *target, *drafter;
        bool same, same_none; // as with defaults only
    } cases[] = {
        { "target.gguf", ", activations: f32", "", true, true },
        { "target.gguf", ", cache: f32", ", cache: f32, activations: f32", true, true },
        { "target.gguf", ", activations: bf16", "", false, false },
        { "target.gguf", ", cache: bf16", "", false, false },
        { "target.gguf", "", ", activations: bf16", false, true },
        { "target.gguf", "", ", cache: bf16", false, true },
        { "blocks.gguf", ", activations: int8", ", activations: int8", true, true },
        { "blocks.gguf", ", activations: default, cache: default", ", cache: default", true, true },
        { "blocks.gguf", ", activations: f32", "", false, false },
        { "blocks.gguf", "", ", activations: bf16", false, true },
        { "blocks.gguf", ", cache: q8_0", "", false, false },
        { "blocks.gguf", "", ", cache: q8_0", false, true },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char defaults[2][HASH_TEXT], explicit[2][HASH_TEXT];
        hash_with(cases[i].model, "", "", defaults);
        hash_with(cases[i].model, cases[i].target, cases[i].drafter, explicit);
        if ((strcmp(defaults[0], explicit[0]) == 0) != cases[i].same)
            fail_msg("%s, small: %s%s", cases[i].model, cases[i].target, cases[i].drafter);
        if ((strcmp(defaults[1], explicit[1]) == 0) != cases[i].same_none)
            fail_msg("%s, none: %s%s", cases[i].model, cases[i].target, cases[i].drafter);
    }
}

static void more_nodes_than_rows_of_a_pass_make_it_larger(void **state)
{
    char(*hash)[HASH_TEXT], (*peers)[HASH_TEXT];
    int n = hashes("name: x\n" BODY "cells: {batch: 40, drafter: [{kind: small, model: draft.gguf, widths: [4, 4]}, "
                   "{kind: ngram, tokens: 30}]}\n",
                   &hash, &peers);
    assert_int_equal(n, 3);
    free(hash);
    free(peers);
}

static void json_keeps_numbers_and_texts_apart(void **state)
{
    // The first ten are numbers, true or false of JSON.
    static const char *const texts[] = { "0",     "-1",  "12",  "0.5",  "-0.25", "1e5",  "1E-5",     "2.5e+3", "true",
                                         "false", "",    "-",   "01",   ".5",    "1.",   "1e",       "+1",     "1 ",
                                         "0x1",   "inf", "nan", "null", "True",  "1.5e", "9'\"\\{}", "1_0" };
    for (size_t i = 0; i < 2 * sizeof(texts) / sizeof(*texts); i++) {
        struct error err = { "" };
        struct settings *s = settings_map(), *v = settings_scalar(texts[i / 2]);
        struct text t = { 0 };
        v->quoted = i % 2 != 0;
        settings_put(s, "a \"b\"", v);
        settings_write_json(s, &t);
        struct json *j = json_parse(t.s, t.n, "f", &err);
        assert_ok(j != NULL, err);
        assert_int_equal(json_is_text(json_get(j, "a \"b\"")), v->quoted || i >= 20);
        assert_int_equal(json_count(j), 1);
        json_free(j);
        settings_free(s);
        free(t.s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_keeps_numbers_and_texts_apart),
        cmocka_unit_test(every_list_under_cells_multiplies),
        cmocka_unit_test(equal_settings_are_the_same_cell),
        cmocka_unit_test(sampling_settings_have_one_spelling),
        cmocka_unit_test(a_changed_model_or_prompt_file_is_another_cell),
        cmocka_unit_test(a_default_is_the_cell_that_it_resolves_to),
        cmocka_unit_test(more_nodes_than_rows_of_a_pass_make_it_larger),
    };
    return cmocka_run_group_tests(tests, make_files, test_directory_tear_down);
}
