// test_experiment_files.c - errors in experiment files and prompt files name line and column.
#include "tests/support/tests.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/yaml.h"
#include "core/utf8.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

// ---- bad YAML

TEST(bad_yaml_is_refused_with_line_and_column)
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
        { "a: &x 1\nb: {<<: *x}\n", 0, "f:2:9: << .. found something else" },
        { "a: &x {b: 1}\nc: {<<: [*x, 2]}\n", 0, "f:2:9: << .. found something else" },
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
        { "a: [1, 2\n", 0, "f:2:1: not valid YAML: did not find .. on line 1)" },
        { "a:\n\tb: 1\n", 0, "f:2:1: not valid YAML: a tab where spaces are expected" },
        { "a: 'x\n", 0, "f:2:1: not valid YAML: .. end of stream .. on line 1)" },
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
        { "a: @x\n", 0, "f:1:4: not valid YAML: .. cannot start any token" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        size_t n = cases[i].n > 0 ? cases[i].n : strlen(cases[i].text);
        char *exact = xmalloc(n); // without a terminating NUL
        memcpy(exact, cases[i].text, n);
        struct settings *s = yaml_parse(exact, n, "f", &err);
        if (s != NULL)
            fail_msg("accepted: %s", cases[i].text);
        expect_error(&err, cases[i].message, cases[i].text);
        free(exact);
    }
}

TEST(good_yaml_keeps_its_positions)
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

TEST(aliases_are_copies_that_keep_their_positions)
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

TEST(a_file_of_four_mebibytes_is_read_and_a_larger_one_refused)
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
    expect_error(&err, "large.yaml: .. 4 MiB, found 4194305 bytes", "a byte more");
    free(path);
    free(text);
}

// As many keys, anchors and merged mappings as 4 MiB hold are looked up once each: compared with all before it, one makes any of these take minutes.
static struct settings *parse_at_once(const struct text *t, struct error *err)
{
    alarm(60); // ends the program
    struct settings *s = yaml_parse(t->s, t->n, "large", err);
    alarm(0);
    return s;
}

TEST(as_many_keys_as_a_file_holds_are_found_at_once)
{
    enum { MANY = 200000, MERGED = 40000 };
    struct error err = { "" };
    struct text keys = { 0 }, anchors = { 0 }, merged = { 0 };
    for (int i = 0; i < MANY; i++) {
        text_printf(&keys, "%d: %d\n", (int)((long long)i * 7919 % MANY), i); // each once
        text_printf(&anchors, "- &a%x %d\n", i, i);
    }
    for (int i = 0; i < MERGED; i++)
        text_printf(&merged, "k%d: &b%d {m%d: %d, same: %d}\n", i, i, i, i, i);
    text_puts(&anchors, "- *a1234\n");
    text_puts(&merged, "all:\n  <<: [");
    for (int i = 0; i < MERGED; i++)
        text_printf(&merged, "%s*b%d", i > 0 ? ", " : "", i);
    text_puts(&merged, "]\n");

    struct settings *s = parse_at_once(&keys, &err), *copy, *sorted;
    assert_ok(s != NULL, err);
    alarm(60);
    settings_put(copy = settings_copy(s), "0011", settings_scalar("0.5")); // the later of two spellings
    for (int i = 0; i < MANY; i++)
        assert_int_equal(settings_find(s, s->key[i]), i);
    sorted = option_settings(copy, OPTION_PAIRS);
    alarm(0);
    assert_int_equal(sorted->n, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(atoi(sorted->key[i]), i);
        assert_int_equal(strcmp(sorted->item[i]->text, settings_get(s, sorted->key[i])->text) != 0, i == 11);
    }
    settings_free(sorted);
    settings_free(copy);
    settings_free(s);
    s = parse_at_once(&anchors, &err);
    assert_string_equal(s->item[MANY]->text, "4660");
    settings_free(s);
    s = parse_at_once(&merged, &err);
    const struct settings *all = settings_get(s, "all");
    assert_int_equal(all->n, MERGED + 1);
    assert_string_equal(settings_get(all, "same")->text, "0"); // the first wins
    assert_string_equal(settings_get(all, "m12345")->text, "12345");
    settings_free(s);
    text_puts(&keys, "7919: 0\n");
    text_puts(&anchors, "- &a7 x\n");
    assert_null(parse_at_once(&keys, &err));
    expect_error(&err, "large:200001:1: .. \"7919\" .. line 2", "a key");
    assert_null(parse_at_once(&anchors, &err));
    expect_error(&err, "large:200002:3: .. &a7 .. line 8", "an anchor");
    free(keys.s);
    free(anchors.s);
    free(merged.s);
}

TEST(every_character_is_written_and_reads_back)
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
#define TARGET "name: x\ntarget: {model: target.gguf"
#define DRAFTER HEAD "cells:\n  drafter:\n    - "

TEST(bad_experiments_are_refused_with_line_and_column)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "- 1\n", "x.yaml:1:1: an experiment .. found a list" },
        { "target: {model: target.gguf}\nprompts: {file: p.jsonl}\n",
          "x.yaml:1:1: an experiment needs \"name\" .. (one line)" },
        { "name: x\nprompts: {file: p.jsonl}\n", "x.yaml:1:1: an experiment needs the key \"target\"" },
        { TARGET "}\n", "x.yaml:1:1: an experiment needs the key \"prompts\"" },
        { HEAD "sead: 1\n", "x.yaml:4:1: an experiment has no key .. did you mean seed?" },
        { HEAD "seed: -1\n", "x.yaml:4:7: seed: expected an integer from 0 to 9223372036854775807, found -1" },
        { HEAD "seed: one\n", "x.yaml:4:7: seed: expected an integer, found \"one\"" },
        { HEAD "seed: 99999999999999999999\n", "x.yaml:4:7: seed .. found \"99999999999999999999\"" },
        { HEAD "repeat: 0\n", "x.yaml:4:9: an experiment: repeat: expected an integer from 1 to 255, found 0" },
        { HEAD "repeat: 2.5\n", "x.yaml:4:9: an experiment: repeat: expected an integer, found \"2.5\"" },
        { HEAD "threads: -1\n", "x.yaml:4:10: an experiment: threads: expected an integer from 0 to 1024, found -1" },
        { HEAD "limits: 5\n", "x.yaml:4:9: limits .. found 5" },
        { HEAD "limits: {new_token: 5}\n", "x.yaml:4:10: limits has no key \"new_token\" .. did you mean new_tokens?" },
        { HEAD "limits: {new_tokens: 0}\n", "x.yaml:4:22: limits: new_tokens .. found 0" },
        { HEAD "limits: {ignore_end: yes}\n", "x.yaml:4:22: limits: ignore_end .. found \"yes\"" },
        { HEAD "limits: {stop: \"\"}\n", "x.yaml:4:16: stop: expected a text, found an empty one" },
        { HEAD "limits: {stop: [a, [b]]}\n", "x.yaml:4:20: stop: expected a text, found a list" },
        { HEAD "record: {trails: true}\n", "x.yaml:4:10: record has no key \"trails\" .. did you mean trials?" },
        { HEAD "record: {rows: some}\n", "x.yaml:4:16: rows .. found some" },
        { HEAD "record: {rows: 0}\n", "x.yaml:4:16: rows: expected an integer from 1 to 16777216, found 0" },
        { "name: x\ntarget: target.gguf\nprompts: {file: p.jsonl}\n", "x.yaml:2:9: target .. found target.gguf" },
        { TARGET ", device: abacus}\nprompts: {file: p.jsonl}\n", "x.yaml:2:38: device .. found \"abacus\"" },
        { TARGET ", activations: f8}\nprompts: {file: p.jsonl}\n", "x.yaml:2:43: target: activations .. found \"f8\"" },
        { TARGET ", cache: q4_0}\nprompts: {file: p.jsonl}\n", "x.yaml:2:37: target: cache .. found \"q4_0\"" },
        { TARGET ", cache: [f32]}\nprompts: {file: p.jsonl}\n", "x.yaml:2:37: target: cache .. found a list" },
        { DRAFTER "{kind: small, model: draft.gguf, activations: f8}\n",
          "x.yaml:6:53: drafter small: activations: .. found \"f8\"" },
        { DRAFTER "{kind: small, model: draft.gguf, cache: int8}\n",
          "x.yaml:6:47: drafter small: cache .. found \"int8\"" },
        { TARGET "}\nprompts: {file: nowhere.jsonl}\n", "x.yaml:3:17: file: nowhere.jsonl" },
        { TARGET "}\nprompts: {file: p.jsonl, chat: alpaca}\n", "x.yaml:3:32: chat: .. \"alpaca\"" },
        { TARGET "}\nprompts: {file: }\n", "x.yaml:3:17: prompts: file .. found nothing" },
        { TARGET "}\nprompts: {file: p.jsonl, chat: {template: auto, variables: {enable_thinking: no}}}\n",
          "x.yaml:3:78: variables .. found no" },
        { "name: \"a\\nb\"\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl}\n",
          "x.yaml:1:7: name .. found a control character in it" },
        { "name: \"a\\x1Fb\"\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl}\n",
          "x.yaml:1:7: name .. found a control character in it" },
        { HEAD "cells: {drafters: [none]}\n", "x.yaml:4:9: cells has no key \"drafters\" .. did you mean drafter?" },
        { HEAD "cells: {drafter: []}\n", "x.yaml:4:18: cells.drafter .. found an empty list" },
        { DRAFTER "{kind: ngram, lenght: 3}\n", "x.yaml:6:21: drafter ngram has no option .. did you mean longest?" },
        { DRAFTER "{kind: ngram, tokens: many}\n", "x.yaml:6:29: drafter ngram: tokens .. found \"many\"" },
        { DRAFTER "{longest: 3}\n", "x.yaml:6:7: drafter: expected a kind, as in {kind: none}" },
        { DRAFTER "{kind: small}\n", "x.yaml:6:7: drafter small needs \"model\" .. or a name)" },
        { DRAFTER "{kind: none, tokens: 3}\n", "x.yaml:6:20: drafter none has no option \"tokens\" (it has none)" },
        { DRAFTER "{kind: ngram, longest: 4}\n    - {longest: 04, kind: ngram}\n",
          "x.yaml:7:7: cells.drafter: ngram(longest=4) .. on line 6" },
        { HEAD "cells: {drafter: [none, {kind: none}]}\n", "x.yaml:4:25: cells.drafter: none is listed .. on line 4" },
        { HEAD "cells: {rule: {kind: rejection, x: 1}}\n",
          "x.yaml:4:33: rule rejection has no option .. (it has none)" },
        { HEAD "cells: {batch: [1, 4, 1]}\n", "x.yaml:4:23: cells.batch: 1 is listed twice, first on line 4" },
        { HEAD "cells: {batch: 300}\n", "x.yaml:4:16: batch: expected an integer from 1 to 256, found 300" },
        { HEAD "cells: {sampling: [{temperature: 0, top_p: 1.5}]}\n", "x.yaml:4:44: sampling: top_p .. found 1.5" },
        { HEAD "cells: {sampling: [{temperature: 0.5}, {temperature: 5e-1}]}\n",
          "x.yaml:4:40: cells.sampling: temperature=0.5 .. on line 4" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_load_error(cases[i].text, cases[i].message);
    experiment_free(NULL); // NULL: no effect
}

TEST(errors_that_depend_on_the_model_are_found_before_anything_runs)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { HEAD "limits: {context: 4096}\n", "x.yaml:4:19: context .. found 4096" },
        { HEAD "limits: {context: 3}\n", "p.jsonl:1: prompt 0 has 3 tokens, and the context is 3: no new token fits" },
        { TARGET "}\nprompts: {file: ids.jsonl}\n", "ids.jsonl:1: input_ids[1] .. found 270" },
        { DRAFTER "{kind: small, model: nowhere.gguf}\n", "x.yaml:6:7: nowhere.gguf: " },
        { HEAD "cells: {sampling: [{logit_bias: {5000: 1}}, {temperature: 0}]}\n",
          "x.yaml:4:20: logit_bias: token 5000: the .. 0 to 269" },
        { TARGET ", activations: int8}\nprompts: {file: p.jsonl, chat: none}\n",
          "x.yaml:2:9: activations: int8 .. f32" },
        { TARGET ", cache: q8_0}\nprompts: {file: p.jsonl, chat: none}\n", "x.yaml:2:9: cache: q8_0 .. 16" },
        { DRAFTER "{kind: small, model: draft.gguf, activations: int8}\n",
          "x.yaml:6:7: drafter small: activations: .. f32" },
        { DRAFTER "{kind: small, model: draft.gguf, device: abacus}\n",
          "x.yaml:6:7: drafter small: device .. found \"abacus\"" },
        { DRAFTER "{kind: small, model: draft.gguf, cache: q8_0}\n",
          "x.yaml:6:7: drafter small: cache: q8_0 .. f32 or bf16)" },
        { DRAFTER "{kind: small, model: draft.gguf}\n    - {kind: small, model: draft.gguf, activations: f32}\n",
          "x.yaml:7:7: cells.drafter: small(model=draft.gguf, .. line 6" },
    };
    write_file("ids.jsonl", "{\"input_ids\": [1, 270]}\n");
    struct store *s = open_store("refused.db");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        struct experiment *e = load(cases[i].text);
        assert_false(experiment_run(e, s, NULL, NULL, &err));
        expect_error(&err, cases[i].message, cases[i].text);
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

TEST(every_published_prompt_format_is_read)
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
    static const struct {
        const char *id, *category, *last_turn; // last_turn NULL: token ids
        int line, turns, history;
        bool raw;
    } expected[] = {
        { "81", "writing", "second", 1, 2, 0, false },
        { "HumanEval/0", NULL, "def f():\n", 3, 1, 0, true },
        { "2", NULL, "How many?", 4, 1, 0, false }, // its position: GSM8K has no ids
        { "m", NULL, "V", 5, 1, 3, false },
        { "4", NULL, NULL, 7, 1, 0, false },
        { "5", NULL, "plain \xC3\xA4", 8, 1, 0, false },
    };
    static const char *const history[3][2] = { { "system", "S" }, { "user", "U" }, { "assistant", "A" } };
    assert_int_equal(p.n, 6);
    for (int i = 0; i < 6; i++) {
        const struct prompt *q = &p.prompt[i];
        assert_string_equal(q->id, expected[i].id);
        assert_true((q->category != NULL) == (expected[i].category != NULL));
        if (q->category != NULL)
            assert_string_equal(q->category, expected[i].category);
        assert_true(q->line == expected[i].line && q->n_turns == expected[i].turns &&
                    q->n_history == expected[i].history);
        assert_int_equal(q->raw, expected[i].raw);
        if (expected[i].last_turn != NULL)
            assert_string_equal(q->turn[q->n_turns - 1], expected[i].last_turn);
        else
            assert_true(q->turn == NULL && q->n_ids == 3 && q->ids[0] == 5 && q->ids[2] == 7);
        for (int k = 0; k < q->n_history; k++) {
            assert_string_equal(q->history[k].role, history[k][0]);
            assert_string_equal(q->history[k].content, history[k][1]);
        }
    }
    prompts_free(&p);
}

TEST(limits_do_not_change_prompt_numbers)
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
TEST(as_many_categories_as_prompts_are_counted_at_once)
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

TEST(answers_are_read_on_request)
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
        { "{\"prompt\": \"a\", \"answer\": []}\n", "read.jsonl:1: answer .. found 0" },
        { "{\"prompt\": \"a\", \"answer\": [\"x\", \"y\"]}\n", "read.jsonl:1: answer .. found 2" },
        { "{\"turns\": [\"a\"], \"reference\": [null]}\n", "read.jsonl:1: reference: expected a text, found nothing" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_file("read.jsonl", cases[i].text);
        if (prompts_read_answered(path, &p, &err))
            fail_msg("accepted: %s", cases[i].text);
        expect_error(&err, cases[i].message, cases[i].text);
    }
    free(path);
}

TEST(bad_prompts_are_refused_with_file_and_line)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "r.jsonl: expected prompts, found none" },
        { "\n  \n", "r.jsonl: expected prompts, found none" },
        { "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"\n", "r.jsonl:2:14: not valid JSON: '}' expected near end of file" },
        { "[{\"prompt\": \"a\"}]\n", "r.jsonl:1: expected one JSON object .. found a list" },
        { "\n5\n", "r.jsonl:2: expected a JSON object, found an integer" },
        { "{\"text\": \"a\"}\n", "r.jsonl:1: expected one of turns, messages, .. found none of them" },
        { "{\"turns\": [\"a\"], \"prompt\": \"b\"}\n", "r.jsonl:1: expected one of turns and prompt, found both" },
        { "{\"prompt\": 5}\n", "r.jsonl:1: prompt: expected a text, found an integer" },
        { "{\"prompt\": \"\"}\n", "r.jsonl:1: prompt: expected a text, found an empty one" },
        { "{\"prompt\": \"a\\u0000b\"}\n", "r.jsonl:1: prompt: expected a text, found a NUL character in it" },
        { "{\"turns\": []}\n", "r.jsonl:1: turns: expected a list of texts, found an empty one" },
        { "{\"turns\": \"a\"}\n", "r.jsonl:1: turns: expected a list of texts, found a text" },
        { "{\"turns\": [\"a\", null]}\n", "r.jsonl:1: turns[1]: expected a text, found nothing" },
        { "{\"messages\": [{\"role\": \"user\"}]}\n", "r.jsonl:1: messages[0].content .. found nothing" },
        { "{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}\n", "r.jsonl:1: messages[0] .. found \"tool\"" },
        { "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n",
          "r.jsonl:1: messages[0] .. found the role \"assistant\"" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"system\", \"content\": \"y\"}]}\n",
          "r.jsonl:1: messages[1] .. system" },
        { "{\"input_ids\": []}\n", "r.jsonl:1: input_ids: expected a list of token ids, found an empty one" },
        { "{\"input_ids\": [1, 2.5]}\n", "r.jsonl:1: input_ids[1]: expected a token id, found a number" },
        { "{\"input_ids\": [1, -5]}\n", "r.jsonl:1: input_ids[1]: expected a token id, found -5" },
        { "{\"prompt\": \"a\", \"id\": [1]}\n", "r.jsonl:1: id: expected a text or an integer, found a list" },
        { "{\"prompt\": \"a\", \"category\": 3}\n", "r.jsonl:1: category: expected a text, found an integer" },
        { "{\"id\": 7, \"prompt\": \"a\"}\n\n{\"id\": \"7\", \"prompt\": \"b\"}\n",
          "r.jsonl:3: expected a unique id .. found \"7\", which line 1 has" },
        { "\x1F\x8B\x08 and so on", "r.jsonl: expected JSON lines, found a gzip file; `gunzip -k` unpacks it" },
    };
    char *path = test_path("r.jsonl");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        struct prompts p;
        write_file("r.jsonl", cases[i].text);
        if (prompts_read(path, 0, 0, &p, &err))
            fail_msg("accepted: %s", cases[i].text);
        expect_error(&err, cases[i].message, cases[i].text);
    }
    free(path);
}

RUN_TESTS(make_files, test_directory_tear_down)
