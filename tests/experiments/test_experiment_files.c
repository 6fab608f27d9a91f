// test_experiment_files.c - errors in experiment files and prompt files name line and column.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/yaml.h"
#include "core/utf8.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

// ---- bad YAML

// Compares the message without the folder's name.
static void expect_message(const char *got, const char *expected, const char *what)
{
    char *prefix = xformat("%s/", test_directory()), *copy = xstrdup(got);
    for (char *at; (at = strstr(copy, prefix)) != NULL;)
        memmove(at, at + strlen(prefix), strlen(at + strlen(prefix)) + 1);
    if (strcmp(copy, expected) != 0)
        fail_msg("%s\nfound    \"%s\"\nexpected \"%s\"", what, copy, expected);
    free(prefix);
    free(copy);
}

static void bad_yaml_is_refused_with_line_and_column(void **state)
{
    static const struct {
        const char *text;
        size_t n; // 0: up to the NUL
        const char *message;
    } cases[] = {
        { "\n", 0, "f:1:1: expected keys and values, found an empty file" },
        { "# a remark\n", 0, "f:1:1: expected keys and values, found an empty file" },
        { "a: 1\na: 2\n", 0, "f:2:1: the key \"a\" is given twice, first on line 1" },
        { "a: {b: 1, b: 2}\n", 0, "f:1:11: the key \"b\" is given twice, first on line 1" },
        { "b: *x\nc: &x 1\n", 0, "f:1:4: *x: expected the anchor &x before it, found none" },
        { "a: &x [1, {b: *x}]\n", 0, "f:1:15: *x: the value of &x, on line 1, contains itself" },
        { "a: &x 1\nb:\n  - &x 2\n", 0, "f:3:5: the anchor &x is given twice, first on line 1" },
        { "a: &x b\n*x : 1\n", 0, "f:2:1: expected a key, found an alias" },
        { "&x a: 1\n", 0, "f:1:1: expected a key, found the anchor &x: it goes before a value" },
        { "a: &x 1\nb: {<<: *x}\n", 0,
          "f:2:9: <<: expected a mapping or a list of mappings, as in <<: *name, found something else" },
        { "a: &x {b: 1}\nc: {<<: [*x, 2]}\n", 0,
          "f:2:9: <<: expected a mapping or a list of mappings, as in <<: *name, found something else" },
        { "a: &x {b: 1}\nc:\n  <<: *x\n  <<: *x\n", 0, "f:4:3: the key \"<<\" is given twice; expected <<: [*a, *b]" },
        { "a: &x {b: 1}\nc: {<<: *x, d: 1, d: 2}\n", 0, "f:2:19: the key \"d\" is given twice, first on line 2" },
        { "a: &a [[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]\nb: [[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]\n", 0,
          "f:2:19: nested more than 32 deep" },
        { "a: &a [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
          "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
          "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
          "e: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
          0, "f:5:41: expected anchors and aliases for at most 1048576 values, found more" },
        { "a: !!int 5\n", 0, "f:1:4: tags are not supported: leave out tag:yaml.org,2002:int" },
        { "a: !mine {b: 1}\n", 0, "f:1:4: tags are not supported: leave out !mine" },
        { "a: 1\n---\nb: 2\n", 0, "f:2:1: expected the end of the file, found a second document" },
        { "a: [1, 2\n", 0,
          "f:2:1: not valid YAML: did not find expected ',' or ']' (while parsing a flow sequence that begins on line 1)" },
        { "a:\n\tb: 1\n", 0, "f:2:1: not valid YAML: a tab where spaces are expected" },
        { "a: 'x\n", 0,
          "f:2:1: not valid YAML: found unexpected end of stream (while scanning a quoted scalar that begins on line 1)" },
        { "a: b: c\n", 0, "f:1:5: not valid YAML: mapping values are not allowed in this context" },
        { "? [a, b]\n: 1\n", 0, "f:1:3: expected a key, found a list" },
        { "\"\": 1\n", 0, "f:1:1: expected a key, found nothing before the colon" },
        { "a: \"x\\0\"\n", 0, "f:1:4: expected text, found a NUL character in it" },
        { "a: 1\nb: x\0y\n", 12, "f:2:5: expected text, found a NUL character (U+0000)" },
        { "\xC3\xA4: 1\n\xC3\xA4\xC3\xB6: \xFF\n", 0, "f:2:5: expected UTF-8 text, found the byte 0xFF" },
        { "a: \xED\xA0\x80\n", 0, "f:1:4: expected UTF-8 text, found the byte 0xED" },
        { "a: \xC0\x80\n", 0, "f:1:4: expected UTF-8 text, found the byte 0xC0" },
        { "a: \xE2\x82", 5, "f:1:4: expected UTF-8 text, found the byte 0xE2" },
        { "a: \x1B[31m\n", 0, "f:1:4: expected text, found a control character (U+001B)" },
        { "a: 1\r\nb: \x07\r\n", 0, "f:2:4: expected text, found a control character (U+0007)" },
        { "a: 1\rb: \x07\r", 0, "f:2:4: expected text, found a control character (U+0007)" },
        { "a: 1\rb: 2\rc: d: e\r", 0, "f:3:5: not valid YAML: mapping values are not allowed in this context" },
        { "a:\n  \tb: 1\n", 0, "f:2:3: not valid YAML: a tab where spaces are expected" },
        { "\xEF\xBB", 2, "f:1:1: expected UTF-8 text, found the byte 0xEF" },
        { "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n", 0,
          "f:1:33: nested more than 32 deep" },
        { "a: @x\n", 0,
          "f:1:4: not valid YAML: found character that cannot start any token (while scanning for the next token)" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        size_t n = cases[i].n > 0 ? cases[i].n : strlen(cases[i].text);
        char *exact = xmalloc(n); // without a terminating NUL
        memcpy(exact, cases[i].text, n);
        struct settings *s = yaml_parse(exact, n, "f", &err);
        if (s != NULL)
            fail_msg("accepted: %s", cases[i].text);
        expect_message(err.text, cases[i].message, cases[i].text);
        free(exact);
    }
}

static void good_yaml_keeps_its_positions(void **state)
{
    static const char text[] = "\xEF\xBB\xBF# remark\n\"a\": [1, 'two', {b: ~}]\nlong: |\n  x\n  y\nc: \xC3\xA4\n";
    struct error err;
    struct settings *s = yaml_parse(text, sizeof(text) - 1, "f", &err);
    assert_non_null(s);
    struct text t = { 0 };
    settings_write(s, &t);
    assert_string_equal(t.s, "{a: [1, \"two\", {b: ~}], long: \"x\\x0Ay\\x0A\", c: \xC3\xA4}");
    const struct settings *two = settings_get(s, "a")->item[1];
    assert_int_equal(two->line, 2);
    assert_int_equal(two->column, 10);
    assert_true(two->quoted);
    assert_int_equal(s->key_line[2], 6);
    assert_int_equal(s->key_column[2], 1);

    struct settings *again = yaml_parse(t.s, t.n, "g", &err); // written settings read back
    struct text u = { 0 };
    assert_non_null(again);
    settings_write(again, &u);
    assert_string_equal(t.s, u.s);
    free(t.s);
    free(u.s);
    settings_free(s);
    settings_free(again);

    static const char keys[] = "{\"<<\": 1, \"a: b\": 2, \"#\": 3, c d: 4, \"\\x0A\": 5, -1: 6}";
    s = yaml_parse(keys, sizeof(keys) - 1, "f", &err);
    t = (struct text){ 0 };
    settings_write(s, &t);
    assert_string_equal(t.s, keys);
    free(t.s);
    settings_free(s);

    static const char nearly[] = "\xEF\xBB\xBC: 1\n"; // U+FEFC, a letter, where a byte order mark is U+FEFF
    s = yaml_parse(nearly, sizeof(nearly) - 1, "f", &err);
    assert_non_null(settings_get(s, "\xEF\xBB\xBC"));
    settings_free(s);
}

static void aliases_are_copies_that_keep_their_positions(void **state)
{
    static const char text[] = "base: &base {kind: small, tokens: 4,\n  widths: &w [2, 1]}\n"
                               "list:\n  - *base\n  - {<<: *base, tokens: 8}\n  - {\"<<\": 1, widths: *w}\n"
                               "  - <<: [{tokens: 5}, *base]\n    more: &none\nlast: *none\n";
    struct error err = { "" };
    struct settings *s = yaml_parse(text, sizeof(text) - 1, "f", &err);
    assert_ok(s != NULL, err);
    struct text t = { 0 };
    settings_write(settings_get(s, "list"), &t);
    assert_string_equal(t.s, "[{kind: small, tokens: 4, widths: [2, 1]}, {tokens: 8, kind: small, widths: [2, 1]}, "
                             "{\"<<\": 1, widths: [2, 1]}, {more: \"\", tokens: 5, kind: small, widths: [2, 1]}]");
    const struct settings *list = settings_get(s, "list");
    const int at[4][3][2] = {
        // the item, its last key's value, and in it the last value
        { { 4, 5 }, { 2, 11 }, { 2, 18 } },
        { { 5, 5 }, { 2, 11 }, { 2, 18 } },
        { { 6, 5 }, { 6, 23 }, { 2, 18 } },
        { { 7, 5 }, { 2, 11 }, { 2, 18 } },
    };
    for (int i = 0; i < list->n; i++) {
        const struct settings *map = list->item[i], *widths = settings_get(map, "widths"),
                              *found[] = { map, widths, widths->item[1] };
        for (int k = 0; k < 3; k++) {
            assert_int_equal(found[k]->line, at[i][k][0]);
            assert_int_equal(found[k]->column, at[i][k][1]);
        }
    }
    assert_int_equal(list->item[1]->key_line[1], 1); // of a merged key
    assert_int_equal(list->item[1]->key_column[1], 14);
    assert_string_equal(settings_get(s, "last")->text, "");
    free(t.s);
    settings_free(s);
}

static void a_file_of_four_mebibytes_is_read_and_a_larger_one_refused(void **state)
{
    enum { MAX_BYTES = 4 << 20 };
    struct error err = { "" };
    char *path = test_path("large.yaml"), *text = xmalloc(MAX_BYTES + 1);
    memset(text, '#', MAX_BYTES + 1);
    memcpy(text, "a: 1\n", 5);
    write_bytes("large.yaml", text, MAX_BYTES);
    struct settings *s = yaml_read(path, &err);
    assert_ok(s != NULL, err);
    assert_string_equal(settings_get(s, "a")->text, "1");
    settings_free(s);
    write_bytes("large.yaml", text, MAX_BYTES + 1);
    assert_null(yaml_read(path, &err));
    expect_message(err.text, "large.yaml: expected a file of at most 4 MiB, found 4194305 bytes", "a byte more");
    free(path);
    free(text);
}

static void every_character_is_written_and_reads_back(void **state)
{
    static const unsigned others[] = { 0x2027, 0x2028, 0x2029, 0x202A, 0xD7FF, 0xE000,
                                       0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x1F600 };
    const unsigned low = 0x400, n = low - 1 + sizeof(others) / sizeof(others[0]);
    for (unsigned i = 0; i < n; i++) {
        const unsigned c = i < low - 1 ? i + 1 : others[i - (low - 1)];
        char one[8], text[32];
        one[utf8_put(c, one)] = '\0';
        for (int form = 0; form < 3; form++) {
            struct error err = { "" };
            struct text t = { 0 };
            snprintf(text, sizeof(text), form == 0 ? "a%sb" : form == 1 ? "%s" : "a %s", one);
            struct settings *s = settings_list(), *again;
            settings_append(s, settings_scalar(text));
            settings_write(s, &t);
            again = yaml_parse(t.s, t.n, "f", &err);
            if (again == NULL)
                fail_msg("U+%04X: %s: %s", c, t.s, err.text);
            assert_int_equal(again->n, 1);
            assert_string_equal(again->item[0]->text, text);
            settings_free(again);
            free(t.s);
            t = (struct text){ 0 };
            settings_write_json(s, &t); // JSON and YAML
            again = yaml_parse(t.s, t.n, "f", &err);
            assert_ok(again != NULL, err);
            assert_string_equal(again->item[0]->text, text);
            struct json *j = json_parse(t.s, t.n, "f", &err);
            assert_ok(j != NULL, err);
            if (json_is_text(json_at(j, 0)))
                assert_string_equal(json_text(json_at(j, 0)), text);
            json_free(j);
            settings_free(s);
            settings_free(again);
            free(t.s);
        }
    }
}

// ---- bad experiments

#define HEAD "name: x\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl, chat: none}\n"
#define DRAFTER HEAD "cells:\n  drafter:\n    - "

static void bad_experiments_are_refused_with_line_and_column(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "- 1\n",
          "x.yaml:1:1: an experiment: expected a mapping (name, target, threads, prompts, limits, seed, repeat, record, "
          "cells, share_prompts, plugins, x-*), found a list" },
        { "target: {model: target.gguf}\nprompts: {file: p.jsonl}\n",
          "x.yaml:1:1: an experiment needs \"name\" (one line)" },
        { "name: x\nprompts: {file: p.jsonl}\n", "x.yaml:1:1: an experiment needs the key \"target\"" },
        { "name: x\ntarget: {model: target.gguf}\n", "x.yaml:1:1: an experiment needs the key \"prompts\"" },
        { HEAD "sead: 1\n",
          "x.yaml:4:1: an experiment has no key \"sead\" (it has: name, target, threads, prompts, limits, seed, "
          "repeat, record, cells, share_prompts, plugins, x-*); did you mean seed?" },
        { HEAD "seed: -1\n", "x.yaml:4:7: seed: expected an integer from 0 to 9223372036854775807, found -1" },
        { HEAD "seed: one\n", "x.yaml:4:7: seed: expected an integer, found \"one\"" },
        { HEAD "seed: 99999999999999999999\n",
          "x.yaml:4:7: seed: expected an integer, found \"99999999999999999999\"" },
        { HEAD "repeat: 0\n", "x.yaml:4:9: an experiment: repeat: expected an integer from 1 to 255, found 0" },
        { HEAD "repeat: 2.5\n", "x.yaml:4:9: an experiment: repeat: expected an integer, found \"2.5\"" },
        { HEAD "threads: -1\n", "x.yaml:4:10: an experiment: threads: expected an integer from 0 to 1024, found -1" },
        { HEAD "limits: 5\n",
          "x.yaml:4:9: limits: expected a mapping (new_tokens, context, ignore_end, stop), found 5" },
        { HEAD "limits: {new_token: 5}\n",
          "x.yaml:4:10: limits has no key \"new_token\" (it has: new_tokens, context, ignore_end, stop); did you mean new_tokens?" },
        { HEAD "limits: {new_tokens: 0}\n",
          "x.yaml:4:22: limits: new_tokens: expected an integer from 1 to 16777216, found 0" },
        { HEAD "limits: {ignore_end: yes}\n",
          "x.yaml:4:22: limits: ignore_end: expected true or false, found \"yes\"" },
        { HEAD "limits: {stop: \"\"}\n", "x.yaml:4:16: stop: expected a text, found an empty one" },
        { HEAD "limits: {stop: [a, [b]]}\n", "x.yaml:4:20: stop: expected a text, found a list" },
        { HEAD "record: {trails: true}\n",
          "x.yaml:4:10: record has no key \"trails\" (it has: trials, expected, rows); did you mean trials?" },
        { HEAD "record: {rows: some}\n",
          "x.yaml:4:16: rows: expected full, or the number of entries of a row, found some" },
        { HEAD "record: {rows: 0}\n", "x.yaml:4:16: rows: expected an integer from 1 to 16777216, found 0" },
        { "name: x\ntarget: target.gguf\nprompts: {file: p.jsonl}\n",
          "x.yaml:2:9: target: expected a mapping (model, device, activations, cache), found target.gguf" },
        { "name: x\ntarget: {model: target.gguf, device: abacus}\nprompts: {file: p.jsonl}\n",
          "x.yaml:2:38: device: expected cpu, cpu:ISA, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"abacus\"" },
        { "name: x\ntarget: {model: target.gguf, activations: f8}\nprompts: {file: p.jsonl}\n",
          "x.yaml:2:43: target: activations: expected one of default|f32|bf16|int8, found \"f8\"" },
        { "name: x\ntarget: {model: target.gguf, cache: q4_0}\nprompts: {file: p.jsonl}\n",
          "x.yaml:2:37: target: cache: expected one of default|f32|bf16|q8_0, found \"q4_0\"" },
        { "name: x\ntarget: {model: target.gguf, cache: [f32]}\nprompts: {file: p.jsonl}\n",
          "x.yaml:2:37: target: cache: expected a text, found a list" },
        { DRAFTER "{kind: small, model: draft.gguf, activations: f8}\n",
          "x.yaml:6:53: drafter small: activations: expected one of default|f32|bf16|int8, found \"f8\"" },
        { DRAFTER "{kind: small, model: draft.gguf, cache: int8}\n",
          "x.yaml:6:47: drafter small: cache: expected one of default|f32|bf16|q8_0, found \"int8\"" },
        { "name: x\ntarget: {model: target.gguf}\nprompts: {file: nowhere.jsonl}\n",
          "x.yaml:3:17: file: nowhere.jsonl: No such file or directory" },
        { "name: x\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl, chat: alpaca}\n",
          "x.yaml:3:32: chat: unknown chat format \"alpaca\": expected auto|none|chatml|vicuna|zephyr, or a file with a template" },
        { "name: x\ntarget: {model: target.gguf}\nprompts: {file: }\n",
          "x.yaml:3:17: prompts: file: expected a text, found nothing" },
        { "name: x\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl, chat: {template: auto, variables: {enable_thinking: no}}}\n",
          "x.yaml:3:78: variables: expected true, false, null, a number or a text, found no; quote it if it is a text" },
        { "name: \"a\\nb\"\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl}\n",
          "x.yaml:1:7: name: expected one line, found a control character in it" },
        { "name: \"a\\x1Fb\"\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl}\n",
          "x.yaml:1:7: name: expected one line, found a control character in it" },
        { HEAD "cells: {drafters: [none]}\n",
          "x.yaml:4:9: cells has no key \"drafters\" (it has: sampling, batch, rule, drafter, target, zip, exclude); did you mean drafter?" },
        { HEAD "cells: {drafter: []}\n",
          "x.yaml:4:18: cells.drafter: expected at least one value, found an empty list" },
        { DRAFTER "{kind: ngram, lenght: 3}\n",
          "x.yaml:6:21: drafter ngram has no option \"lenght\" (it has: longest, shortest, tokens); did you mean longest?" },
        { DRAFTER "{kind: ngram, tokens: many}\n",
          "x.yaml:6:29: drafter ngram: tokens: expected an integer, found \"many\"" },
        { DRAFTER "{longest: 3}\n", "x.yaml:6:7: drafter: expected a kind, as in {kind: none}" },
        { DRAFTER "{kind: small}\n",
          "x.yaml:6:7: drafter small needs \"model\" (the draft model: a file, a folder or a name)" },
        { DRAFTER "{kind: none, tokens: 3}\n", "x.yaml:6:20: drafter none has no option \"tokens\" (it has none)" },
        { DRAFTER "{kind: ngram, longest: 4}\n    - {longest: 04, kind: ngram}\n",
          "x.yaml:7:7: cells.drafter: ngram(longest=4) is listed twice, first on line 6" },
        { HEAD "cells: {drafter: [none, {kind: none}]}\n",
          "x.yaml:4:25: cells.drafter: none is listed twice, first on line 4" },
        { HEAD "cells: {rule: {kind: rejection, x: 1}}\n",
          "x.yaml:4:33: rule rejection has no option \"x\" (it has none)" },
        { HEAD "cells: {batch: [1, 4, 1]}\n", "x.yaml:4:23: cells.batch: 1 is listed twice, first on line 4" },
        { HEAD "cells: {batch: 300}\n", "x.yaml:4:16: batch: expected an integer from 1 to 256, found 300" },
        { HEAD "cells: {sampling: [{temperature: 0, top_p: 1.5}]}\n",
          "x.yaml:4:44: sampling: top_p: expected a number from 0 to 1, found 1.5" },
        { HEAD "cells: {sampling: [{temperature: 0.5}, {temperature: 5e-1}]}\n",
          "x.yaml:4:40: cells.sampling: temperature=0.5 is listed twice, first on line 4" },
    };
    char *path = test_path("x.yaml");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        write_file("x.yaml", cases[i].text);
        struct experiment *e = experiment_load(path, &err);
        if (e != NULL)
            fail_msg("accepted: %s", cases[i].text);
        expect_message(err.text, cases[i].message, cases[i].text);
    }
    free(path);
    experiment_free(NULL); // NULL: no effect
}

static void errors_that_depend_on_the_model_are_found_before_anything_runs(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { HEAD "limits: {context: 4096}\n",
          "x.yaml:4:19: context: expected at most 512, which is the model's, found 4096" },
        { HEAD "limits: {context: 3}\n", "p.jsonl:1: prompt 0 has 3 tokens, and the context is 3: no new token fits" },
        { "name: x\ntarget: {model: target.gguf}\nprompts: {file: ids.jsonl}\n",
          "ids.jsonl:1: input_ids[1]: expected an id below 270, where the target's vocabulary ends, found 270" },
        { DRAFTER "{kind: small, model: nowhere.gguf}\n", NULL },
        { HEAD "cells: {sampling: [{logit_bias: {5000: 1}}, {temperature: 0}]}\n",
          "x.yaml:4:20: logit_bias: token 5000: the vocabulary has the ids 0 to 269" },
        { "name: x\ntarget: {model: target.gguf, activations: int8}\nprompts: {file: p.jsonl, chat: none}\n",
          "x.yaml:2:9: activations: int8 is for quantized weights; those of target.gguf are f32 (expected bf16 or f32)" },
        { "name: x\ntarget: {model: target.gguf, cache: q8_0}\nprompts: {file: p.jsonl, chat: none}\n",
          "x.yaml:2:9: cache: q8_0 has blocks of 32 numbers, and the heads here have 16 (expected f32 or bf16)" },
        { DRAFTER "{kind: small, model: draft.gguf, activations: int8}\n",
          "x.yaml:6:7: drafter small: activations: int8 is for quantized weights; those of draft.gguf are f32 (expected bf16 or f32)" },
        { DRAFTER "{kind: small, model: draft.gguf, device: abacus}\n",
          "x.yaml:6:7: drafter small: device: expected cpu, cpu:ISA, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"abacus\"" },
        { DRAFTER "{kind: small, model: draft.gguf, cache: q8_0}\n",
          "x.yaml:6:7: drafter small: cache: q8_0 has blocks of 32 numbers, and the heads here have 16 (expected f32 or bf16)" },
        { DRAFTER "{kind: small, model: draft.gguf}\n    - {kind: small, model: draft.gguf, activations: f32}\n",
          "x.yaml:7:7: cells.drafter: small(model=draft.gguf, activations=f32) is the same cell as small(model=draft.gguf) "
          "on line 6, once its defaults are resolved" },
    };
    write_file("ids.jsonl", "{\"input_ids\": [1, 270]}\n");
    struct store *s = open_store("refused.db");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        struct experiment *e = load(cases[i].text);
        assert_false(experiment_run(e, s, NULL, NULL, &err));
        if (cases[i].message != NULL)
            expect_message(err.text, cases[i].message, cases[i].text);
        else
            assert_non_null(strstr(err.text, "x.yaml:6:7: nowhere.gguf: "));
        experiment_free(e);
    }
    store_close(s);
}

// ---- prompts

static struct prompts read_prompts(const char *text, int limit, int per_category)
{
    struct error err = { "" };
    struct prompts p;
    char *path = test_path("read.jsonl");
    write_file("read.jsonl", text);
    assert_ok(prompts_read(path, limit, per_category, &p, &err), err);
    free(path);
    return p;
}

static void every_published_prompt_format_is_read(void **state)
{
    struct prompts p = read_prompts(
        "\xEF\xBB\xBF{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"first\", \"second\"], \"reference\": []}\r\n"
        "\n"
        "{\"task_id\": \"HumanEval/0\", \"prompt\": \"def f():\\n\", \"entry_point\": \"f\", \"canonical_solution\": \"\", \"test\": \"\"}\n"
        "{\"question\": \"How many?\", \"answer\": \"#### 72\"}\n"
        "{\"id\": \"m\", \"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"U\"},"
        " {\"role\": \"assistant\", \"content\": \"A\"}, {\"role\": \"user\", \"content\": \"V\"}]}\n"
        "   \n"
        "{\"input_ids\": [5, 6, 7], \"category\": null}\n"
        "{\"prompt\": \"plain \\u00e4\", \"question\": \"a remark\"}",
        0, 0);
    assert_int_equal(p.n, 6);
    assert_string_equal(p.prompt[0].id, "81");
    assert_string_equal(p.prompt[0].category, "writing");
    assert_int_equal(p.prompt[0].n_turns, 2);
    assert_string_equal(p.prompt[0].turn[1], "second");
    assert_false(p.prompt[0].raw);
    assert_string_equal(p.prompt[1].id, "HumanEval/0");
    assert_true(p.prompt[1].raw);
    assert_string_equal(p.prompt[1].turn[0], "def f():\n");
    assert_int_equal(p.prompt[1].line, 3);
    assert_string_equal(p.prompt[2].id, "2"); // its position: GSM8K has no ids
    assert_string_equal(p.prompt[2].turn[0], "How many?");
    assert_int_equal(p.prompt[3].n_history, 3);
    assert_string_equal(p.prompt[3].history[0].role, "system");
    assert_string_equal(p.prompt[3].history[0].content, "S");
    assert_string_equal(p.prompt[3].history[2].role, "assistant");
    assert_string_equal(p.prompt[3].history[1].content, "U");
    assert_int_equal(p.prompt[3].n_turns, 1);
    assert_string_equal(p.prompt[3].turn[0], "V");
    assert_null(p.prompt[4].turn);
    assert_null(p.prompt[4].category);
    assert_int_equal(p.prompt[4].n_turns, 1);
    assert_int_equal(p.prompt[4].n_ids, 3);
    assert_int_equal(p.prompt[4].ids[2], 7);
    assert_string_equal(p.prompt[5].turn[0], "plain \xC3\xA4");
    assert_false(p.prompt[5].raw);
    prompts_free(&p);
}

static void limits_do_not_change_prompt_numbers(void **state)
{
    static const char text[] = "{\"category\": \"a\", \"prompt\": \"0\"}\n{\"category\": \"a\", \"prompt\": \"1\"}\n"
                               "{\"prompt\": \"2\"}\n{\"category\": \"b\", \"prompt\": \"3\"}\n{\"prompt\": \"4\"}\n";
    static const struct {
        int limit, per_category, n, number[5];
    } cases[] = {
        { 0, 0, 5, { 0, 1, 2, 3, 4 } }, { 2, 0, 2, { 0, 1 } },          { 0, 1, 3, { 0, 2, 3 } },
        { 2, 1, 2, { 0, 2 } },          { 9, 9, 5, { 0, 1, 2, 3, 4 } },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct prompts p = read_prompts(text, cases[i].limit, cases[i].per_category);
        assert_int_equal(p.n, cases[i].n);
        for (int k = 0; k < p.n; k++)
            assert_int_equal(p.prompt[k].number, cases[i].number[k]);
        prompts_free(&p);
    }
}

// Each prompt is looked up among the categories once: compared with all before it, these take minutes.
static void as_many_categories_as_prompts_are_counted_at_once(void **state)
{
    enum { CATEGORIES = 1 << 17, PROMPTS = 2 * CATEGORIES - 1 };
    struct text text = { 0 };
    for (int i = 0; i < PROMPTS; i++)
        text_printf(&text, "{\"category\": \"c%d\", \"prompt\": \"a\"}\n", i < CATEGORIES ? i : i - CATEGORIES);
    alarm(60); // ends the program
    struct prompts p = read_prompts(text.s, CATEGORIES + 5, 1);
    alarm(0);
    assert_int_equal(p.n, CATEGORIES);
    for (int i = 0; i < p.n; i++)
        assert_int_equal(p.prompt[i].number, i);
    prompts_free(&p);
    free(text.s);
}

static void answers_are_read_on_request(void **state)
{
    static const char text[] = "{\"question\": \"How many?\", \"answer\": \"#### 72\"}\n"
                               "{\"turns\": [\"a\", \"b\", \"c\"], \"answer\": [\"x\", \"\"]}\n"
                               "{\"turns\": [\"a\", \"b\"], \"reference\": [\"y\", \"z\"], \"answer\": null}\n";
    struct error err = { "" };
    struct prompts p = read_prompts(text, 0, 0);
    assert_int_equal(p.prompt[0].n_answers, 0);
    prompts_free(&p);
    char *path = test_path("read.jsonl");
    assert_ok(prompts_read_answered(path, &p, &err), err);
    assert_int_equal(p.n, 3);
    assert_int_equal(p.prompt[0].n_answers, 1);
    assert_string_equal(p.prompt[0].answer[0], "#### 72");
    assert_int_equal(p.prompt[1].n_answers, 2); // the third turn has none
    assert_string_equal(p.prompt[1].answer[1], "");
    assert_int_equal(p.prompt[2].n_answers, 2);
    assert_string_equal(p.prompt[2].answer[1], "z");
    prompts_free(&p);

    static const struct {
        const char *text, *message;
    } cases[] = {
        { "{\"prompt\": \"a\"}\n", "read.jsonl:1: expected an answer (answer or reference), found none" },
        { "{\"prompt\": \"a\", \"answer\": 72}\n", "read.jsonl:1: answer: expected a text, found an integer" },
        { "{\"prompt\": \"a\", \"answer\": []}\n",
          "read.jsonl:1: answer: expected a text for each of 1 turns, found 0" },
        { "{\"prompt\": \"a\", \"answer\": [\"x\", \"y\"]}\n",
          "read.jsonl:1: answer: expected a text for each of 1 turns, found 2" },
        { "{\"turns\": [\"a\"], \"reference\": [null]}\n", "read.jsonl:1: reference: expected a text, found nothing" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_file("read.jsonl", cases[i].text);
        if (prompts_read_answered(path, &p, &err))
            fail_msg("accepted: %s", cases[i].text);
        expect_message(err.text, cases[i].message, cases[i].text);
    }
    free(path);
}

static void bad_prompts_are_refused_with_file_and_line(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "r.jsonl: expected prompts, found none" },
        { "\n  \n", "r.jsonl: expected prompts, found none" },
        { "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"\n", "r.jsonl:2:14: not valid JSON: '}' expected near end of file" },
        { "[{\"prompt\": \"a\"}]\n",
          "r.jsonl:1: expected one JSON object a line, found a list; `jq -c '.[]'` turns it into lines" },
        { "\n5\n", "r.jsonl:2: expected a JSON object, found an integer" },
        { "{\"text\": \"a\"}\n",
          "r.jsonl:1: expected one of turns, messages, input_ids, prompt or question, found none of them" },
        { "{\"turns\": [\"a\"], \"prompt\": \"b\"}\n", "r.jsonl:1: expected one of turns and prompt, found both" },
        { "{\"prompt\": 5}\n", "r.jsonl:1: prompt: expected a text, found an integer" },
        { "{\"prompt\": \"\"}\n", "r.jsonl:1: prompt: expected a text, found an empty one" },
        { "{\"prompt\": \"a\\u0000b\"}\n", "r.jsonl:1: prompt: expected a text, found a NUL character in it" },
        { "{\"turns\": []}\n", "r.jsonl:1: turns: expected a list of texts, found an empty one" },
        { "{\"turns\": \"a\"}\n", "r.jsonl:1: turns: expected a list of texts, found a text" },
        { "{\"turns\": [\"a\", null]}\n", "r.jsonl:1: turns[1]: expected a text, found nothing" },
        { "{\"messages\": [{\"role\": \"user\"}]}\n",
          "r.jsonl:1: messages[0].content: expected a text, found nothing" },
        { "{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}\n",
          "r.jsonl:1: messages[0]: expected the role system, user or assistant, found \"tool\"" },
        { "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n",
          "r.jsonl:1: messages[0]: expected the last message to be the user's, found the role \"assistant\"" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"system\", \"content\": \"y\"}]}\n",
          "r.jsonl:1: messages[1]: expected the role user or assistant, found a system message that is not the first" },
        { "{\"input_ids\": []}\n", "r.jsonl:1: input_ids: expected a list of token ids, found an empty one" },
        { "{\"input_ids\": [1, 2.5]}\n", "r.jsonl:1: input_ids[1]: expected a token id, found a number" },
        { "{\"input_ids\": [1, -5]}\n", "r.jsonl:1: input_ids[1]: expected a token id, found -5" },
        { "{\"prompt\": \"a\", \"id\": [1]}\n", "r.jsonl:1: id: expected a text or an integer, found a list" },
        { "{\"prompt\": \"a\", \"category\": 3}\n", "r.jsonl:1: category: expected a text, found an integer" },
        { "{\"id\": 7, \"prompt\": \"a\"}\n\n{\"id\": \"7\", \"prompt\": \"b\"}\n",
          "r.jsonl:3: expected a unique id, found \"7\", which line 1 has" },
        { "\x1F\x8B\x08 and so on", "r.jsonl: expected JSON lines, found a gzip file; `gunzip -k` unpacks it" },
    };
    char *path = test_path("r.jsonl");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        struct prompts p;
        write_file("r.jsonl", cases[i].text);
        if (prompts_read(path, 0, 0, &p, &err))
            fail_msg("accepted: %s", cases[i].text);
        expect_message(err.text, cases[i].message, cases[i].text);
    }
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_yaml_is_refused_with_line_and_column),
        cmocka_unit_test(good_yaml_keeps_its_positions),
        cmocka_unit_test(aliases_are_copies_that_keep_their_positions),
        cmocka_unit_test(a_file_of_four_mebibytes_is_read_and_a_larger_one_refused),
        cmocka_unit_test(every_character_is_written_and_reads_back),
        cmocka_unit_test(bad_experiments_are_refused_with_line_and_column),
        cmocka_unit_test(errors_that_depend_on_the_model_are_found_before_anything_runs),
        cmocka_unit_test(every_published_prompt_format_is_read),
        cmocka_unit_test(limits_do_not_change_prompt_numbers),
        cmocka_unit_test(as_many_categories_as_prompts_are_counted_at_once),
        cmocka_unit_test(answers_are_read_on_request),
        cmocka_unit_test(bad_prompts_are_refused_with_file_and_line),
    };
    return cmocka_run_group_tests(tests, make_files, test_directory_tear_down);
}
