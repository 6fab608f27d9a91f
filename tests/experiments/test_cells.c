// test_cells.c - identity of cells: equal settings are the same cell, different ones are not.
#include "tests/support/tests.h"

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

struct hashes { // every cell's and its peers', in the experiment's order
    int n;
    char cell[64][HASH_TEXT], peers[64][HASH_TEXT];
};

static struct hashes hashes_of(const char *text)
{
    struct error err = { "" };
    struct experiment *e = load(text);
    struct loaded_experiment o;
    struct hashes h = { 0 };
    assert_ok(loaded_experiment_open(&o, e, 0, &err), err);
    for (int k = 0; k < groups(e); k++) {
        struct group g;
        assert_ok(group_open(&g, k, &o, &err), err);
        for (int i = 0; i < g.n; i++, h.n++) {
            memcpy(h.cell[h.n], g.cell_runner[i].identity.hash, HASH_TEXT);
            memcpy(h.peers[h.n], g.cell_runner[i].identity.peers, HASH_TEXT);
        }
        group_close(&g);
    }
    loaded_experiment_close(&o);
    loaded_experiment_close(&o); // closing twice has no effect
    experiment_free(e);
    return h;
}

#define BODY "target: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
#define CELLS \
    "cells: {sampling: [{temperature: 0}, {temperature: 1, top_k: 5}], batch: [1, 2], rule: [rejection, match], " \
    "drafter: [none, {kind: ngram, longest: 2}]}\n"

TEST(every_list_under_cells_multiplies)
{
    const struct hashes h = hashes_of("name: x\n" BODY CELLS);
    assert_int_equal(h.n, 16);
    for (int i = 0; i < h.n; i++)
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(h.cell[i], h.cell[k]);
            assert_int_equal(strcmp(h.peers[i], h.peers[k]) == 0, i / 4 == k / 4);
        }
    // More nodes than rows of a pass make it larger.
    assert_int_equal(hashes_of("name: x\n" BODY "cells: {batch: 40, drafter: [{kind: small, model: draft.gguf, widths:"
                               " [4, 4]}, {kind: ngram, tokens: 30}]}\n")
                         .n,
                     3);

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

#define NGRAM2 "drafter: {kind: ngram, longest: 2}}\n"

TEST(equal_settings_are_the_same_cell)
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
        { "name: x\n" BODY "repeat: 3\ncells: {" NGRAM2, true },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none, limit: 2, "
          "per_category: 1}\nseed: 0\nlimits: {new_tokens: 256, stop: []}\ncells: {sampling: {temperature: 0.0}, " NGRAM2,
          true },
        { "name: y\n" BODY "cells: {" NGRAM2, false },
        { "name: x\n" BODY "cells: {drafter: {kind: ngram, longest: 3}}\n", false },
        { "name: x\n" BODY "seed: 1\ncells: {" NGRAM2, false },
        { "name: x\n" BODY "limits: {new_tokens: 255}\ncells: {" NGRAM2, false },
        { "name: x\n" BODY "limits: {stop: x}\ncells: {" NGRAM2, false },
        { "name: x\n" BODY "limits: {ignore_end: true}\ncells: {" NGRAM2, false },
        { "name: x\n" BODY "cells: {batch: 2, " NGRAM2, false },
        { "name: x\n" BODY "cells: {rule: match, " NGRAM2, false },
        { "name: x\n" BODY "cells: {sampling: {temperature: 0, min_p: 0.1}, " NGRAM2, false },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 2\nprompts: {file: conversations.jsonl, chat: none}\ncells: {" NGRAM2,
          false },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\ncells: {" NGRAM2,
          false },
    };
    const struct hashes own = hashes_of(base);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct hashes other = hashes_of(cases[i].text);
        assert_int_equal(other.n, 2);
        const bool found =
            strcmp(other.cell[0], own.cell[1]) == 0 || strcmp(other.cell[1], own.cell[1]) == 0; // `none` may be last
        if (found != cases[i].same)
            fail_msg("%s: %s", cases[i].same ? "another cell" : "the same cell", cases[i].text);
    }
}

TEST(sampling_settings_have_one_spelling)
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

// The draft model does not matter to `none`.
TEST(a_changed_model_or_prompt_file_is_another_cell)
{
    static const char text[] = "name: x\ntarget: {model: target.gguf}\nprompts: {file: changing.jsonl, chat: none}\n"
                               "cells: {drafter: {kind: small, model: changing.gguf}}\n";
    struct hashes h[3];
    struct small_model t = small_default;
    char *draft = test_path("changing.gguf");
    t.layers = 1;
    for (int i = 0; i < 3; i++) {
        t.seed = i == 0 ? 5 : 6;
        small_write_gguf(draft, &t);
        write_file("changing.jsonl", i == 2 ? "{\"prompt\": \"abd\"}\n" : "{\"prompt\": \"abc\"}\n");
        h[i] = hashes_of(text);
        assert_string_equal(h[i].peers[0], h[i].peers[1]);
    }
    for (int k = 0; k < 2; k++) { // none, small
        assert_int_equal(strcmp(h[0].cell[k], h[1].cell[k]) == 0, k == 0);
        assert_string_not_equal(h[1].cell[k], h[2].cell[k]);
    }
    assert_string_equal(h[0].peers[0], h[1].peers[0]);
    assert_string_not_equal(h[1].peers[0], h[2].peers[0]);
    free(draft);
}

// Hashes of `none` and of `small`, with these options of the target and of the drafter.
static struct hashes hashes_with(const char *model, const char *target, const char *drafter)
{
    char *text =
        xformat("name: x\ntarget: {model: %s%s}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
                "cells: {drafter: [none, {kind: small, model: %s%s}]}\n",
                model, target, model, drafter);
    const struct hashes h = hashes_of(text);
    free(text);
    return h;
}

TEST(a_default_is_the_cell_that_it_resolves_to)
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
        const struct hashes defaults = hashes_with(cases[i].model, "", ""),
                            given = hashes_with(cases[i].model, cases[i].target, cases[i].drafter);
        if ((strcmp(defaults.cell[1], given.cell[1]) == 0) != cases[i].same ||
            (strcmp(defaults.cell[0], given.cell[0]) == 0) != cases[i].same_none)
            fail_msg("%s: %s%s", cases[i].model, cases[i].target, cases[i].drafter);
    }
}

TEST(json_keeps_numbers_and_texts_apart)
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

RUN_TESTS(make_files, test_directory_tear_down)
