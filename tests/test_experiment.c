// test_experiment.c - experiments from file to database: what is wrong with a file is said with its line and column; what
// means the same is the same cell; what is there is not run again; and a runner that is killed at any moment loses nothing
// but what was under way.
#include "tests/check.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/draft.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/prompts.h"
#include "experiments/recorder.h"
#include "experiments/yaml.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/tiny.h"
#include "verifier/rule.h"

// ---- files

static char *in_directory(const char *name)
{
    return xformat("%s/%s", tiny_directory(), name);
}

static void write_bytes(const char *name, const char *bytes, size_t n)
{
    char *path = in_directory(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(path);
}

static void write_file(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

static const char talks[] =
    "{\"id\": \"a\", \"category\": \"talk\", \"turns\": [\"one two one two one\", \"and again\", \"enough\"]}\n"
    "{\"id\": \"b\", \"prompt\": \"a b c a b c a b\"}\n"
    "{\"id\": \"c\", \"category\": \"talk\", \"turns\": [\"ping\", \"pong\"]}\n"
    "{\"id\": \"d\", \"input_ids\": [75, 104, 111, 75, 104, 111]}\n"
    "{\"id\": \"e\", \"prompt\": \"x = x + 1\"}\n";

static int make_files(void **state)
{
    (void)state;
    struct tiny t = tiny_usual;
    char *target = in_directory("target.gguf"), *draft = in_directory("draft.gguf"), *other = in_directory("other.gguf");
    tiny_write_gguf(target, &t);
    t.layers = 1;
    tiny_write_gguf(draft, &t);
    t.seed++;
    tiny_write_gguf(other, &t);
    free(target);
    free(draft);
    free(other);
    write_file("p.jsonl", "{\"prompt\": \"abc\"}\n");
    write_file("talks.jsonl", talks);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    tiny_clean();
    return 0;
}

// ---- bad YAML

// The message without the folder's name.
static void expect_message(const char *got, const char *expected, const char *what)
{
    char *prefix = xformat("%s/", tiny_directory()), *copy = xstrdup(got);
    for (char *at; (at = strstr(copy, prefix)) != NULL;)
        memmove(at, at + strlen(prefix), strlen(at + strlen(prefix)) + 1);
    if (strcmp(copy, expected) != 0)
        fail_msg("%s\nsaid     \"%s\"\nexpected \"%s\"", what, copy, expected);
    free(prefix);
    free(copy);
}

static void bad_yaml_is_refused_with_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;                // 0: up to the NUL
        const char *message;
    } cases[] = {
        { "\n", 0, "f:1:1: expected keys and values, found an empty file" },
        { "# a remark\n", 0, "f:1:1: expected keys and values, found an empty file" },
        { "a: 1\na: 2\n", 0, "f:2:1: the key \"a\" is given twice, first on line 1" },
        { "a: {b: 1, b: 2}\n", 0, "f:1:11: the key \"b\" is given twice, first on line 1" },
        { "a: &x 1\nb: *x\n", 0, "f:1:4: anchors are not supported: leave out &x and write values where they are used" },
        { "b: *x\n", 0, "f:1:4: aliases are not supported: write out what *x stands for" },
        { "a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n", 0,
          "f:1:4: anchors are not supported: leave out &a and write values where they are used" },
        { "a: !!int 5\n", 0, "f:1:4: tags are not supported: leave out tag:yaml.org,2002:int" },
        { "a: !mine {b: 1}\n", 0, "f:1:4: tags are not supported: leave out !mine" },
        { "<<: {a: 1}\n", 0, "f:1:1: merge keys are not supported: write out what << would bring" },
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
        { "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n", 0,
          "f:1:33: nested more than 32 deep" },
        { "a: @x\n", 0,
          "f:1:4: not valid YAML: found character that cannot start any token (while scanning for the next token)" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        size_t n = cases[i].n > 0 ? cases[i].n : strlen(cases[i].text);
        struct settings *s = yaml_parse(cases[i].text, n, "f", &err);
        if (s != NULL)
            fail_msg("taken for good: %s", cases[i].text);
        expect_message(err.text, cases[i].message, cases[i].text);
    }
}

static void good_yaml_keeps_its_places(void **state)
{
    (void)state;
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

    struct settings *again = yaml_parse(t.s, t.n, "g", &err);        // what is written reads back
    struct text u = { 0 };
    assert_non_null(again);
    settings_write(again, &u);
    assert_string_equal(t.s, u.s);
    free(t.s);
    free(u.s);
    settings_free(s);
    settings_free(again);
}

// ---- bad experiments

#define HEAD "name: x\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl, chat: none}\n"
#define DRAFTER HEAD "cells:\n  drafter:\n    - "

static void bad_experiments_are_refused_with_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "- 1\n",
          "x.yaml:1:1: an experiment: expected a mapping (name, target, threads, prompts, limits, seed, repeat, record, "
          "cells), found a list" },
        { "target: {model: target.gguf}\nprompts: {file: p.jsonl}\n",
          "x.yaml:1:1: an experiment needs the key \"name\"" },
        { "name: x\nprompts: {file: p.jsonl}\n", "x.yaml:1:1: an experiment needs the key \"target\"" },
        { "name: x\ntarget: {model: target.gguf}\n", "x.yaml:1:1: an experiment needs the key \"prompts\"" },
        { HEAD "sead: 1\n",
          "x.yaml:4:1: an experiment has no key \"sead\" (it has: name, target, threads, prompts, limits, seed, "
          "repeat, record, cells)" },
        { HEAD "seed: -1\n", "x.yaml:4:7: seed: expected a whole number from 0 to 9223372036854775807, found -1" },
        { HEAD "seed: one\n", "x.yaml:4:7: seed: expected a whole number, found \"one\"" },
        { HEAD "seed: 99999999999999999999\n",
          "x.yaml:4:7: seed: expected a whole number, found \"99999999999999999999\"" },
        { HEAD "repeat: 0\n", "x.yaml:4:9: repeat: expected a whole number from 1 to 256, found 0" },
        { HEAD "repeat: 2.5\n", "x.yaml:4:9: repeat: expected a whole number, found \"2.5\"" },
        { HEAD "threads: -1\n", "x.yaml:4:10: threads: expected a whole number from 0 to 1024, found -1" },
        { HEAD "limits: 5\n",
          "x.yaml:4:9: limits: expected a mapping (new_tokens, context, ignore_end, stop), found 5" },
        { HEAD "limits: {new_token: 5}\n",
          "x.yaml:4:10: limits has no key \"new_token\" (it has: new_tokens, context, ignore_end, stop)" },
        { HEAD "limits: {new_tokens: 0}\n",
          "x.yaml:4:22: new_tokens: expected a whole number from 1 to 16777216, found 0" },
        { HEAD "limits: {ignore_end: yes}\n", "x.yaml:4:22: ignore_end: expected true or false, found \"yes\"" },
        { HEAD "limits: {stop: \"\"}\n", "x.yaml:4:16: stop: expected a text, found an empty one" },
        { HEAD "limits: {stop: [a, [b]]}\n", "x.yaml:4:20: stop: expected a text, found a list" },
        { HEAD "record: {trails: true}\n", "x.yaml:4:10: record has no key \"trails\" (it has: trials)" },
        { "name: x\ntarget: target.gguf\nprompts: {file: p.jsonl}\n",
          "x.yaml:2:9: target: expected a mapping (model, device, activations), found target.gguf" },
        { "name: x\ntarget: {model: target.gguf, device: abacus}\nprompts: {file: p.jsonl}\n",
          "x.yaml:2:38: device: expected cpu, found \"abacus\"" },
        { "name: x\ntarget: {model: target.gguf, activations: f8}\nprompts: {file: p.jsonl}\n",
          "x.yaml:2:43: activations: expected f32, found \"f8\"" },
        { "name: x\ntarget: {model: target.gguf}\nprompts: {file: nowhere.jsonl}\n",
          "x.yaml:3:17: file: nowhere.jsonl: No such file or directory" },
        { "name: x\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl, chat: alpaca}\n",
          "x.yaml:3:32: chat: expected one of auto, none, chatml, found \"alpaca\"" },
        { "name: x\ntarget: {model: target.gguf}\nprompts: {file: }\n",
          "x.yaml:3:17: file: expected a text, found nothing" },
        { "name: \"a\\nb\"\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl}\n",
          "x.yaml:1:7: name: expected one line, found a control character in it" },
        { HEAD "cells: {drafters: [none]}\n",
          "x.yaml:4:9: cells has no key \"drafters\" (it has: sampling, batch, rule, drafter)" },
        { HEAD "cells: {drafter: []}\n",
          "x.yaml:4:18: cells.drafter: expected at least one value, found an empty list" },
        { DRAFTER "{kind: ngram, lenght: 3}\n",
          "x.yaml:6:21: drafter ngram has no option \"lenght\" (it has: longest, shortest, tokens)" },
        { DRAFTER "{kind: ngram, tokens: many}\n", "x.yaml:6:29: tokens: expected a whole number, found \"many\"" },
        { DRAFTER "{longest: 3}\n", "x.yaml:6:7: drafter: expected a kind, as in {kind: none}" },
        { DRAFTER "{kind: small}\n",
          "x.yaml:6:7: drafter small needs the option \"model\" (the draft model: a file, a folder or a name)" },
        { DRAFTER "{kind: none, tokens: 3}\n", "x.yaml:6:20: drafter none has no option \"tokens\" (it has none)" },
        { DRAFTER "{kind: ngram, longest: 4}\n    - {longest: 04, kind: ngram}\n",
          "x.yaml:7:7: cells.drafter: ngram(longest=4) is listed twice, first on line 6" },
        { HEAD "cells: {drafter: [none, {kind: none}]}\n",
          "x.yaml:4:25: cells.drafter: none is listed twice, first on line 4" },
        { HEAD "cells: {rule: {kind: rejection, x: 1}}\n",
          "x.yaml:4:33: rule rejection has no option \"x\" (it has none)" },
        { HEAD "cells: {batch: [1, 4, 1]}\n", "x.yaml:4:23: cells.batch: 1 is listed twice, first on line 4" },
        { HEAD "cells: {batch: 300}\n", "x.yaml:4:16: batch: expected a whole number from 1 to 256, found 300" },
        { HEAD "cells: {sampling: [{temperature: 0, top_p: 1.5}]}\n",
          "x.yaml:4:44: top_p: expected a number from 0 to 1, found 1.5" },
        { HEAD "cells: {sampling: [{temperature: 0.5}, {temperature: 5e-1}]}\n",
          "x.yaml:4:40: cells.sampling: temperature=0.5 is listed twice, first on line 4" },
    };
    char *path = in_directory("x.yaml");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        write_file("x.yaml", cases[i].text);
        struct experiment *e = experiment_load(path, &err);
        if (e != NULL)
            fail_msg("taken for good: %s", cases[i].text);
        expect_message(err.text, cases[i].message, cases[i].text);
    }
    free(path);
}

static struct experiment *load(const char *text)
{
    struct error err = { "" };
    char *path = in_directory("x.yaml");
    write_file("x.yaml", text);
    struct experiment *e = experiment_load(path, &err);
    if (e == NULL)
        fail_msg("%s", err.text);
    free(path);
    return e;
}

static struct store *open_store(const char *name)
{
    struct error err = { "" };
    char *path = in_directory(name);
    struct store *s = store_open(path, &err);
    if (s == NULL)
        fail_msg("%s", err.text);
    free(path);
    return s;
}

static void what_only_the_model_knows_is_refused_before_anything_runs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { HEAD "limits: {context: 4096}\n",
          "x.yaml:4:19: context: expected at most 512, which is the model's, found 4096" },
        { HEAD "limits: {context: 3}\n",
          "p.jsonl:1: prompt 0 has 3 tokens, and the context is 3: there is no room for a new one" },
        { "name: x\ntarget: {model: target.gguf}\nprompts: {file: ids.jsonl}\n",
          "ids.jsonl:1: input_ids[1]: expected an id below 270, where the target's vocabulary ends, found 270" },
        { DRAFTER "{kind: small, model: nowhere.gguf}\n", NULL },
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
    char *path = in_directory("read.jsonl");
    write_file("read.jsonl", text);
    if (!prompts_read(path, limit, per_category, &p, &err))
        fail_msg("%s", err.text);
    free(path);
    return p;
}

static void every_published_shape_of_prompts_is_read(void **state)
{
    (void)state;
    struct prompts p = read_prompts(
        "\xEF\xBB\xBF{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"first\", \"second\"], \"reference\": []}\r\n"
        "\n"
        "{\"task_id\": \"HumanEval/0\", \"prompt\": \"def f():\\n\", \"entry_point\": \"f\", \"canonical_solution\": \"\", \"test\": \"\"}\n"
        "{\"question\": \"How many?\", \"answer\": \"#### 72\"}\n"
        "{\"id\": \"m\", \"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"U\"},"
        " {\"role\": \"assistant\", \"content\": \"A\"}, {\"role\": \"user\", \"content\": \"V\"}]}\n"
        "   \n"
        "{\"input_ids\": [5, 6, 7], \"category\": null}\n"
        "{\"prompt\": \"plain \\u00e4\", \"question\": \"a remark\"}", 0, 0);
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
    assert_string_equal(p.prompt[2].id, "2");            // its number: GSM8K has no ids
    assert_string_equal(p.prompt[2].turn[0], "How many?");
    assert_string_equal(p.prompt[3].system, "S");
    assert_int_equal(p.prompt[3].n_history, 2);
    assert_string_equal(p.prompt[3].history_role[1], "assistant");
    assert_string_equal(p.prompt[3].history_content[0], "U");
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

static void limits_leave_prompts_their_numbers(void **state)
{
    (void)state;
    static const char text[] = "{\"category\": \"a\", \"prompt\": \"0\"}\n{\"category\": \"a\", \"prompt\": \"1\"}\n"
                               "{\"prompt\": \"2\"}\n{\"category\": \"b\", \"prompt\": \"3\"}\n{\"prompt\": \"4\"}\n";
    static const struct {
        int limit, per_category, n, number[5];
    } cases[] = {
        { 0, 0, 5, { 0, 1, 2, 3, 4 } },
        { 2, 0, 2, { 0, 1 } },
        { 0, 1, 3, { 0, 2, 3 } },
        { 2, 1, 2, { 0, 2 } },
        { 9, 9, 5, { 0, 1, 2, 3, 4 } },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct prompts p = read_prompts(text, cases[i].limit, cases[i].per_category);
        assert_int_equal(p.n, cases[i].n);
        for (int k = 0; k < p.n; k++)
            assert_int_equal(p.prompt[k].number, cases[i].number[k]);
        prompts_free(&p);
    }
}

static void bad_prompts_are_refused_with_file_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "r.jsonl: expected prompts, found none" },
        { "\n  \n", "r.jsonl: expected prompts, found none" },
        { "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"\n", "r.jsonl:2:14: not valid JSON: '}' expected near end of file" },
        { "[{\"prompt\": \"a\"}]\n",
          "r.jsonl:1: expected one JSON object a line, found a list; `jq -c '.[]'` turns it into lines" },
        { "\n5\n", "r.jsonl:2: expected a JSON object, found a whole number" },
        { "{\"text\": \"a\"}\n",
          "r.jsonl:1: expected one of turns, messages, input_ids, prompt or question, found none of them" },
        { "{\"turns\": [\"a\"], \"prompt\": \"b\"}\n", "r.jsonl:1: expected one of turns and prompt, found both" },
        { "{\"prompt\": 5}\n", "r.jsonl:1: prompt: expected a text, found a whole number" },
        { "{\"prompt\": \"\"}\n", "r.jsonl:1: prompt: expected a text, found an empty one" },
        { "{\"prompt\": \"a\\u0000b\"}\n", "r.jsonl:1: prompt: expected a text, found a NUL character in it" },
        { "{\"turns\": []}\n", "r.jsonl:1: turns: expected a list of texts, found an empty one" },
        { "{\"turns\": \"a\"}\n", "r.jsonl:1: turns: expected a list of texts, found a text" },
        { "{\"turns\": [\"a\", null]}\n", "r.jsonl:1: turns[1]: expected a text, found nothing" },
        { "{\"messages\": [{\"role\": \"user\"}]}\n", "r.jsonl:1: messages[0].content: expected a text, found nothing" },
        { "{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}\n",
          "r.jsonl:1: messages[0]: expected the role system, user or assistant, found \"tool\"" },
        { "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n",
          "r.jsonl:1: messages[0]: expected the last message to be the user's, found the role \"assistant\"" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"system\", \"content\": \"y\"}]}\n",
          "r.jsonl:1: messages[1]: expected the role user or assistant, found a system message that is not the first" },
        { "{\"input_ids\": []}\n", "r.jsonl:1: input_ids: expected a list of token ids, found an empty one" },
        { "{\"input_ids\": [1, 2.5]}\n", "r.jsonl:1: input_ids[1]: expected a token id, found a number" },
        { "{\"input_ids\": [1, -5]}\n", "r.jsonl:1: input_ids[1]: expected a token id, found -5" },
        { "{\"prompt\": \"a\", \"id\": [1]}\n", "r.jsonl:1: id: expected a text or a whole number, found a list" },
        { "{\"prompt\": \"a\", \"category\": 3}\n", "r.jsonl:1: category: expected a text, found a whole number" },
        { "{\"id\": 7, \"prompt\": \"a\"}\n\n{\"id\": \"7\", \"prompt\": \"b\"}\n",
          "r.jsonl:3: expected an id of its own, found \"7\", which line 1 has" },
        { "\x1F\x8B\x08 and so on", "r.jsonl: expected JSON lines, found a gzip file; `gunzip -k` unpacks it" },
    };
    char *path = in_directory("r.jsonl");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        struct prompts p;
        write_file("r.jsonl", cases[i].text);
        if (prompts_read(path, 0, 0, &p, &err))
            fail_msg("taken for good: %s", cases[i].text);
        expect_message(err.text, cases[i].message, cases[i].text);
    }
    free(path);
}

// ---- cells

// Hashes of every cell, and of its peers, in the experiment's order; free() both.
static int hashes(const char *text, char (**hash)[17], char (**peers)[17])
{
    struct error err = { "" };
    struct experiment *e = load(text);
    struct opened o;
    int n = 0;
    *hash = xcalloc(64, sizeof(**hash));
    *peers = xcalloc(64, sizeof(**peers));
    if (!opened_open(&o, e, TARGET_ROWS, &err))
        fail_msg("%s", err.text);
    for (int k = 0; k < groups(e); k++) {
        struct group g;
        if (!group_open(&g, k, &o, &err))
            fail_msg("%s", err.text);
        for (int i = 0; i < g.n; i++, n++) {
            memcpy((*hash)[n], g.contender[i].identity.hash, 17);
            memcpy((*peers)[n], g.contender[i].identity.peers, 17);
        }
        group_close(&g);
    }
    opened_close(&o);
    experiment_free(e);
    return n;
}

#define BODY "target: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: none}\n"
#define CELLS \
    "cells: {sampling: [{temperature: 0}, {temperature: 1, top_k: 5}], batch: [1, 2], rule: [rejection, match], " \
    "drafter: [none, {kind: ngram, longest: 2}]}\n"

static void every_list_under_cells_multiplies(void **state)
{
    (void)state;
    char (*hash)[17], (*peers)[17];
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

static void a_cell_is_known_by_what_it_means(void **state)
{
    (void)state;
    static const char usual[] = "name: x\n" BODY "cells: {drafter: {kind: ngram, longest: 2, tokens: 8}}\n";
    static const struct {
        const char *text;
        bool same;
    } cases[] = {
        { usual, true },
        { "cells: {drafter: [{tokens: 08, kind: ngram, longest: 2}, none]}\nprompts: {chat: none, file: talks.jsonl}\n"
          "threads: 1\ntarget: {model: \"target.gguf\", device: cpu}\nname: x\n", true },
        { "name: x\n" BODY "repeat: 3\ncells: {drafter: {kind: ngram, longest: 2}}\n", true },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: none, limit: 2, per_category: 1}\n"
          "seed: 0\nlimits: {new_tokens: 256, stop: []}\ncells: {sampling: {temperature: 0.0}, drafter: {kind: ngram, longest: 2}}\n",
          true },
        { "name: y\n" BODY "cells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {drafter: {kind: ngram, longest: 3}}\n", false },
        { "name: x\n" BODY "seed: 1\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "limits: {new_tokens: 255}\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "limits: {stop: x}\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "limits: {ignore_end: true}\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {batch: 2, drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {rule: match, drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {sampling: {temperature: 0, min_p: 0.1}, drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 2\nprompts: {file: talks.jsonl, chat: none}\n"
          "cells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
          "cells: {drafter: {kind: ngram, longest: 2}}\n", false },
    };
    char (*hash)[17], (*peers)[17], (*other)[17], (*others_peers)[17];
    assert_int_equal(hashes(usual, &hash, &peers), 2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int n = hashes(cases[i].text, &other, &others_peers);
        assert_int_equal(n, 2);
        bool found = strcmp(other[0], hash[1]) == 0 || strcmp(other[1], hash[1]) == 0;       // `none` may stand last
        if (found != cases[i].same)
            fail_msg("%s: %s", cases[i].same ? "another cell" : "the same cell", cases[i].text);
        free(other);
        free(others_peers);
    }
    free(hash);
    free(peers);
}

static void a_changed_model_or_prompt_file_is_another_cell(void **state)
{
    (void)state;
    static const char text[] = "name: x\ntarget: {model: target.gguf}\nprompts: {file: changing.jsonl, chat: none}\n"
                               "cells: {drafter: {kind: small, model: changing.gguf}}\n";
    char (*hash)[3][17] = xcalloc(3, sizeof(*hash)), (*h)[17], (*peers)[17];
    struct tiny t = tiny_usual;
    char *draft = in_directory("changing.gguf");
    t.layers = 1;
    for (int i = 0; i < 3; i++) {
        t.seed = i == 1 ? 5 : 6;
        tiny_write_gguf(draft, &t);
        write_file("changing.jsonl", i == 2 ? "{\"prompt\": \"abd\"}\n" : "{\"prompt\": \"abc\"}\n");
        assert_int_equal(hashes(text, &h, &peers), 2);
        memcpy(hash[i][0], h[0], 17);                    // none
        memcpy(hash[i][1], h[1], 17);                    // small
        memcpy(hash[i][2], peers[1], 17);
        assert_string_equal(peers[0], peers[1]);
        free(h);
        free(peers);
    }
    assert_string_equal(hash[0][0], hash[1][0]);         // the draft model is nothing to `none`
    assert_string_equal(hash[0][2], hash[1][2]);
    assert_string_not_equal(hash[0][1], hash[1][1]);
    assert_string_not_equal(hash[0][0], hash[2][0]);
    assert_string_not_equal(hash[0][1], hash[2][1]);
    assert_string_not_equal(hash[0][2], hash[2][2]);
    free(hash);
    free(draft);
}

static void more_nodes_than_a_usual_pass_has_rows_open_the_target_anew(void **state)
{
    (void)state;
    char (*hash)[17], (*peers)[17];
    int n = hashes("name: x\n" BODY "cells: {batch: 40, drafter: [{kind: small, model: draft.gguf, widths: [4, 4]}, "
                   "{kind: ngram, tokens: 30}]}\n", &hash, &peers);
    assert_int_equal(n, 3);
    free(hash);
    free(peers);
}

// ---- records

static void a_step_is_recorded_as_it_was_judged(void **state)
{
    (void)state;
    // 0 -+- 1 -+- 3        stands: 1, 4; the text ends behind token of 1: kept 1
    //    `- 2  `- 4
    int32_t token[] = { 9, 10, 20, 30, 40 }, parent[] = { -1, 0, 0, 1, 1 }, node[] = { 0, 1, 4 }, out[] = { 10, 40, 50 };
    uint8_t drawn[] = { CHOSEN, DRAWN, CHOSEN, DRAWN, DRAWN_DISTINCT };
    double p[] = { NAN, 0.5, NAN, 0.25, 0.125 }, q[] = { NAN, 0.4, NAN, 0.5, 0.75 };
    struct draft d = { 5, 5, token, parent, drawn, NULL };
    struct advance a = { .slot = 0, .n = 3, .token = out, .node = node };
    struct judgement j = { .n = 3, .token = out, .node = node, .trial_p = p, .trial_q = q };
    struct step s = { 77, 4, &d, &a, &j, 3, 1, 2, 3, 1 };
    struct recorder *r = recorder_create(1, true);
    struct listener l = recorder_listener(r);
    struct sequence_row row;

    l.step(l.self, &s);                                  // nobody asked: a warm-up
    recorder_expect(r, 77);
    l.step(l.self, &s);
    s.kept = 1;
    l.step(l.self, &s);
    assert_int_equal(recorder_take(r, &row), -1);
    int32_t all[] = { 10, 40, 50, 10 };
    struct ending e = { 77, all, 4, STOP_LIMIT, 5, 6, 7 };
    l.done(l.self, &e);
    assert_int_equal(recorder_take(r, &row), 77);
    assert_int_equal(recorder_take(r, &(struct sequence_row){ 0 }), -1);

    assert_int_equal(row.new_tokens, 4);
    assert_memory_equal(row.token, all, sizeof(all));
    assert_string_equal(row.stop, "limit");
    assert_int_equal(row.n_steps, 2);
    assert_int_equal(row.step[0].drafted, 4);
    assert_int_equal(row.step[0].depth, 2);
    assert_int_equal(row.step[0].accepted, 2);
    assert_int_equal(row.step[1].accepted, 1);           // the text ended there
    assert_int_equal(row.step[0].n_trials, 3);           // node 2 was never looked at
    const struct trial_row *t = row.step[1].trial;
    assert_int_equal(t[0].node, 1);
    assert_int_equal(t[0].rank, 0);
    assert_true(t[0].stood);
    assert_true(t[0].q == 0.4);
    assert_int_equal(t[1].node, 3);
    assert_false(t[1].stood);
    assert_int_equal(t[2].node, 4);
    assert_int_equal(t[2].depth, 2);
    assert_int_equal(t[2].rank, 1);
    assert_int_equal(t[2].drawn, DRAWN_DISTINCT);
    assert_true(t[2].stood);
    recorder_destroy(r);
}

// ---- running

static int64_t ask(struct store *s, const char *sql)
{
    struct error err = { "" };
    struct query *q = query_open(s, sql);
    int64_t v = query_next(q) ? query_int(q, 0) : -1;
    if (!query_close(q, &err))
        fail_msg("%s: %s", sql, err.text);
    return v;
}

static void run(const char *text, struct store *s)
{
    struct error err = { "" };
    struct experiment *e = load(text);
    if (!experiment_run(e, s, NULL, NULL, &err))
        fail_msg("%s", err.text);
    experiment_free(e);
}

#define RUN_BODY "target: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: chatml}\n" \
                 "limits: {new_tokens: 12, context: 400, ignore_end: true}\nseed: 3\nrecord: {trials: true}\n"
#define THREE "cells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  rule: match\n  drafter: [none, ngram, " \
              "{kind: small, model: draft.gguf, widths: [2, 2, 1], pick: likeliest}]\n"

enum { TURNS = 8 };              // of talks

static void an_experiment_runs_once(void **state)
{
    (void)state;
    struct store *s = open_store("once.db");
    static const char text[] = "name: once\n" RUN_BODY THREE;
    run(text, s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run"), 6);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE finished IS NULL"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 6 * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM pair"), 2 * 5);
    assert_int_equal(ask(s, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);
    // `match`: one text for every drafter, at temperature 1 too, and another at every temperature
    assert_int_equal(ask(s, "SELECT count(*) FROM texts"), 4 * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM texts WHERE NOT equal"), 0);
    assert_true(ask(s, "SELECT count(DISTINCT text_hash) FROM sequence") > TURNS);
    // Cells run back to back, in rotated order: each is first on some occasion.
    assert_int_equal(
        ask(s, "SELECT count(DISTINCT run) FROM sequence WHERE id IN (SELECT min(id) FROM sequence GROUP BY pair)"), 6);
    assert_int_equal(
        ask(s, "SELECT count(*) FROM (SELECT pair FROM sequence GROUP BY pair HAVING count(DISTINCT run) <> 3)"), 0);
    assert_true(ask(s, "SELECT count(*) FROM trial") > 0);

    run(text, s);                                        // again: nothing
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 6 * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM pair"), 2 * 5);

    // A fourth drafter runs, `none` beside it, and nobody else.
    run("name: once\n" RUN_BODY
        "cells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  rule: match\n  drafter: [none, ngram, "
        "{kind: small, model: draft.gguf, widths: [2, 2, 1], pick: likeliest}, {kind: small, model: draft.gguf, tokens: 2}]\n",
        s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run"), 8);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 10 * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence JOIN run ON run.id = run WHERE drafter_kind = 'none'"),
                     4 * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM texts WHERE NOT equal"), 0);

    // More repeats are more of the same cells.
    run("name: once\n" RUN_BODY "repeat: 2\n" THREE, s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run"), 8);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 16 * TURNS);
    store_close(s);
}

static void a_raised_limit_adds_prompts(void **state)
{
    (void)state;
    struct store *s = open_store("limit.db");
    static const char *const limit[] = { "limit: 2", "limit: 4", "per_category: 1" };
    static const int sequences[] = { 2 * 4, 2 * 7, 2 * 7 };
    for (int i = 0; i < 3; i++) {
        char *text = xformat(
            "name: limit\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: none, %s}\n"
            "limits: {new_tokens: 6}\ncells: {batch: 3, drafter: ngram}\n",
            limit[i]);
        run(text, s);
        assert_int_equal(ask(s, "SELECT count(*) FROM run"), 2);
        assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), sequences[i]);
        free(text);
    }
    store_close(s);
}

static void a_stored_cell_is_an_experiment_of_its_own(void **state)
{
    (void)state;
    struct store *s = open_store("stored.db");
    run("name: stored\n" RUN_BODY THREE, s);
    int64_t before = ask(s, "SELECT count(*) FROM sequence");
    for (int id = 1; id <= 6; id++) {
        struct error err = { "" };
        struct query *q = query_open(s, "SELECT settings FROM run WHERE id = ?");
        query_put_int(q, id);
        assert_true(query_next(q));
        char *text = xstrdup(query_text(q, 0));
        assert_true(query_close(q, &err));
        run(text, s);
        free(text);
    }
    assert_int_equal(ask(s, "SELECT count(*) FROM run"), 6);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), before);
    store_close(s);
}

static void batches_and_trees_say_what_plain_decoding_says(void **state)
{
    (void)state;
    struct store *s = open_store("batches.db");
    run("name: batches\n" RUN_BODY "cells:\n  batch: [1, 2, 5]\n  rule: [rejection, match]\n  drafter: [none, ngram, "
        "{kind: small, model: draft.gguf, widths: [3, 2, 1], pick: drawn}, {kind: small, model: other.gguf, nodes: 9, pick: likeliest}]\n",
        s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run"), 24);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 24 * TURNS);
    assert_int_equal(
        ask(s, "SELECT count(*) FROM (SELECT 1 FROM sequence GROUP BY prompt, turn HAVING count(DISTINCT tokens) > 1)"),
        0);
    assert_int_equal(ask(s, "SELECT max(step.batch) FROM step"), 5);
    store_close(s);
}

static void a_conversation_that_outgrows_the_context_ends(void **state)
{
    (void)state;
    struct store *s = open_store("outgrown.db");
    static const char text[] =
        "name: outgrown\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: none}\n"
        "limits: {new_tokens: 30, context: 34, ignore_end: true}\ncells: {drafter: ngram}\n";
    for (int i = 0; i < 2; i++) {
        run(text, s);
        assert_int_equal(ask(s, "SELECT count(*) FROM sequence WHERE turn = 0"), 10);
        assert_int_equal(ask(s, "SELECT count(*) FROM sequence WHERE turn > 0"), 0);
        assert_true(ask(s, "SELECT count(*) FROM sequence WHERE stop = 'context'") > 0);
        assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE finished IS NULL"), 0);
    }
    store_close(s);
}

static void stop_strings_end_texts_in_the_same_place_for_every_drafter(void **state)
{
    (void)state;
    // A letter out of what the target says without a stop.
    struct error err = { "" };
    struct store *s = open_store("stops.db");
    static const char body[] =
        "target: {model: target.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
        "cells: {drafter: [ngram, {kind: small, model: draft.gguf, widths: [2, 2, 2], pick: likeliest}]}\n";
    char *text = xformat("name: free\n%slimits: {new_tokens: 40, ignore_end: true}\n", body);
    run(text, s);
    free(text);
    struct query *q = query_open(s, "SELECT text FROM sequence WHERE new_tokens = 40 LIMIT 1");
    assert_true(query_next(q));
    const char *said = query_text(q, 0);
    char stop[32] = "";
    for (const char *c = said + strlen(said) / 2; *c != '\0' && stop[0] == '\0'; c++)
        if (c[0] > 0x20 && c[0] < 0x7F && c[0] != '"' && c[0] != '\\')
            snprintf(stop, sizeof(stop), "%c", *c);
    assert_true(query_close(q, &err));
    if (stop[0] == '\0')
        store_close(s), skip();                          // nothing but odd bytes: other arithmetic, another text
    text = xformat("name: stopped\n%slimits: {new_tokens: 40, ignore_end: true, stop: [\"%s\"]}\n", body, stop);
    run(text, s);
    free(text);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence JOIN run ON run.id = run WHERE experiment = 'stopped'"), 3);
    assert_int_equal(
        ask(s, "SELECT count(DISTINCT tokens) FROM sequence JOIN run ON run.id = run WHERE experiment = 'stopped'"), 1);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence WHERE stop = 'string'"), 3);
    store_close(s);
}

// ---- dying

#define LONG_BODY \
    "name: long\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: chatml}\n" \
    "limits: {new_tokens: 40, context: 480, ignore_end: true}\nseed: 11\nrepeat: 2\nrecord: {trials: true}\n" \
    "cells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  batch: [1, 2]\n  drafter: [none, ngram, " \
    "{kind: small, model: draft.gguf, tokens: 3}]\n"
enum { LONG_RUNS = 12, LONG_SEQUENCES = LONG_RUNS * TURNS * 2 };

// Every prompt, turn and repeat of every cell is there, once or more, and each is a whole sequence.
static void expect_all_of_it(struct store *s)
{
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE finished IS NOT NULL"), LONG_RUNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM (SELECT DISTINCT run, prompt, turn, repeat FROM sequence)"),
                     LONG_SEQUENCES);
    assert_int_equal(
        ask(s, "SELECT count(*) FROM sequence AS q WHERE steps <> (SELECT count(*) FROM step WHERE sequence = q.id)"),
        0);
    assert_int_equal(
        ask(s,
            "SELECT count(*) FROM sequence AS q WHERE new_tokens <> (SELECT sum(tokens) FROM step WHERE sequence = q.id)"),
        0);
    assert_int_equal(ask(s, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    // Only `none` is ever run again with one sequence at a time.
    assert_int_equal(ask(s, "SELECT count(*) FROM (SELECT 1 FROM sequence JOIN run ON run.id = run WHERE batch = 1 AND"
                            " drafter_kind <> 'none' GROUP BY run, prompt, turn, repeat HAVING count(*) > 1)"), 0);
}

// The texts of a database, as one hash for each cell, prompt, turn and repeat; several of the same must be equal.
static void expect_the_same_texts(struct store *a, struct store *b)
{
    static const char texts[] =
        "SELECT cell, prompt, turn, repeat, min(tokens), max(tokens) FROM sequence JOIN run ON run.id = run"
        " GROUP BY cell, prompt, turn, repeat ORDER BY cell, prompt, turn, repeat";
    struct error err = { "" };
    struct query *p = query_open(a, texts), *q = query_open(b, texts);
    int n = 0;
    for (; query_next(p) && query_next(q); n++) {
        assert_string_equal(query_text(p, 0), query_text(q, 0));
        for (int i = 1; i < 4; i++)
            assert_int_equal(query_int(p, i), query_int(q, i));
        assert_string_equal(query_text(p, 4), query_text(p, 5));
        assert_string_equal(query_text(p, 4), query_text(q, 4));
        assert_string_equal(query_text(q, 4), query_text(q, 5));
    }
    assert_int_equal(n, LONG_SEQUENCES);
    assert_true(query_close(p, &err));
    assert_true(query_close(q, &err));
}

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// In a child: runs the experiment and leaves. 0: it came to its end.
static pid_t start_run(const char *db)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct error err = { "" };
    char *path = in_directory("long.yaml"), *to = in_directory(db);
    struct experiment *e = experiment_load(path, &err);
    struct store *s = e != NULL ? store_open(to, &err) : NULL;
    bool ok = s != NULL && experiment_run(e, s, NULL, NULL, &err);
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    _exit(ok ? 0 : 1);
}

// Kills it after so many microseconds, unless it has ended; true: it was killed.
static bool kill_after(pid_t pid, int64_t us)
{
    int64_t until = now_us() + us;
    int status = 0;
    pid_t gone = 0;
    while (now_us() < until && (gone = waitpid(pid, &status, WNOHANG)) == 0)
        usleep(500);
    if (gone == 0) {
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    assert_true(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return killed;
}

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static void a_killed_runner_resumes_to_the_same_texts(void **state)
{
    (void)state;
    write_file("long.yaml", LONG_BODY);
    int64_t began = now_us();
    assert_false(kill_after(start_run("whole.db"), INT64_C(600000000)));
    int64_t whole_us = now_us() - began;
    struct store *whole = open_store("whole.db");
    expect_all_of_it(whole);
    assert_int_equal(ask(whole, "SELECT count(*) FROM sequence"), LONG_SEQUENCES);
    assert_int_equal(ask(whole, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);

    uint64_t chance = 2024;
    int killed = 0, completed = 0, middle = 0;
    for (int attempt = 0; attempt == 0 || killed < 20; attempt++) {
        char db[32];
        snprintf(db, sizeof(db), "killed%d.db", attempt);
        while (killed < 20) {
            if (!kill_after(start_run(db), 1000 + (int64_t)(splitmix(&chance) % (uint64_t)(whole_us / 5))))
                break;
            killed++;
            struct store *s = open_store(db);            // what it left behind is whole
            assert_int_equal(ask(s, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
            assert_int_equal(
                ask(s,
                    "SELECT count(*) FROM sequence AS q WHERE steps <> (SELECT count(*) FROM step WHERE sequence = q.id)"),
                0);
            middle +=
                ask(s,
                    "SELECT count(*) FROM (SELECT 1 FROM sequence WHERE prompt = 0 GROUP BY run, repeat HAVING max(turn) < 2)") >
                0;
            store_close(s);
        }
        assert_false(kill_after(start_run(db), INT64_C(600000000)));
        struct store *s = open_store(db);
        expect_all_of_it(s);
        expect_the_same_texts(whole, s);
        store_close(s);
        completed++;
    }
    print_message("killed %d times, %d of them in the middle of a conversation; completed %d times, %.1f s each\n",
                  killed, middle, completed, (double)whole_us / 1e6);
    store_close(whole);
}

static volatile int stop_now;

static void ring(int number)
{
    (void)number;
    stop_now = 1;
}

static void an_interrupted_run_leaves_a_consistent_database_and_goes_on(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = open_store("interrupted.db");
    struct experiment *e = load(LONG_BODY);
    signal(SIGALRM, ring);
    int interrupted = 0;
    for (;;) {
        stop_now = 0;
        setitimer(ITIMER_REAL, &(struct itimerval){ .it_value = { 0, 300000 } }, NULL);
        if (experiment_run(e, s, NULL, &stop_now, &err))
            break;
        assert_string_equal(err.text, "interrupted");
        assert_int_equal(
            ask(s,
                "SELECT count(*) FROM sequence AS q WHERE steps <> (SELECT count(*) FROM step WHERE sequence = q.id)"),
            0);
        if (++interrupted == 4)
            signal(SIGALRM, SIG_IGN);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
    expect_all_of_it(s);
    struct store *whole = open_store("whole.db");
    expect_the_same_texts(whole, s);
    store_close(whole);
    experiment_free(e);
    store_close(s);
}

// ---- the dry run, and the files that come with the project

static void a_dry_run_tells_what_is_done_and_changes_nothing(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = open_store("dry.db");
    static const char text[] = "name: dry\n" RUN_BODY "cells: {drafter: [ngram, {kind: small, model: draft.gguf}]}\n";
    for (int i = 0; i < 2; i++) {
        char *out = NULL;
        size_t n = 0;
        FILE *to = open_memstream(&out, &n);
        struct experiment *e = load(text);
        if (!experiment_dry_run(e, s, to, &err))
            fail_msg("%s", err.text);
        experiment_free(e);
        fclose(to);
        assert_non_null(strstr(out, "dry: 3 cells, 5 prompts of 8 turns, 1 repeat\n"));
        assert_non_null(strstr(out, "was added to the list of drafters"));
        assert_non_null(
            strstr(out, i == 0 ? "      0 of 5      ngram, rejection\n" : "      5 of 5      ngram, rejection\n"));
        assert_int_equal(strstr(out, "everything is in the database") != NULL, i == 1);
        free(out);
        assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), i == 0 ? 0 : 3 * TURNS);
        assert_int_equal(ask(s, "SELECT count(*) FROM run"), i == 0 ? 0 : 3);
        if (i == 0)
            run(text, s);
    }
    store_close(s);
}

static void the_smoke_experiment_runs(void **state)
{
    (void)state;
    struct error err = { "" };
    char *cache = in_directory("speclab"), *models = in_directory("speclab/models"),
         *target = xformat("%s/tiny.gguf", models), *draft = xformat("%s/tiny-pruned.gguf", models);
    struct tiny t = tiny_usual;
    assert_int_equal(mkdir(cache, 0755) | mkdir(models, 0755), 0);
    tiny_write_gguf(target, &t);
    t.layers = 2;
    tiny_write_gguf(draft, &t);
    setenv("XDG_CACHE_HOME", tiny_directory(), 1);
    struct experiment *e = experiment_load(SOURCE "/experiments/smoke.yaml", &err);
    if (e == NULL)
        fail_msg("%s", err.text);
    struct store *s = open_store("smoke.db");
    if (!experiment_run(e, s, NULL, NULL, &err))
        fail_msg("%s", err.text);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE finished IS NULL"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM texts JOIN run ON run.id = texts.run WHERE NOT equal AND"
                            " (sampling = 'temperature=0' OR rule = 'match')"), 0);
    store_close(s);
    experiment_free(e);
    free(cache);
    free(models);
    free(target);
    free(draft);
}

static void the_prompt_set_is_what_its_readme_says(void **state)
{
    (void)state;
    struct error err = { "" };
    struct prompts p;
    if (!prompts_read(SOURCE "/experiments/data/prompts.jsonl", 0, 2, &p, &err))
        fail_msg("%s", err.text);
    assert_int_equal(p.n, 12);                           // six kinds
    prompts_free(&p);
    assert_true(prompts_read(SOURCE "/experiments/data/prompts.jsonl", 0, 0, &p, &err));
    assert_true(p.n >= 60);
    prompts_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_yaml_is_refused_with_line_and_column),
        cmocka_unit_test(good_yaml_keeps_its_places),
        cmocka_unit_test(bad_experiments_are_refused_with_line_and_column),
        cmocka_unit_test(what_only_the_model_knows_is_refused_before_anything_runs),
        cmocka_unit_test(every_published_shape_of_prompts_is_read),
        cmocka_unit_test(limits_leave_prompts_their_numbers),
        cmocka_unit_test(bad_prompts_are_refused_with_file_and_line),
        cmocka_unit_test(every_list_under_cells_multiplies),
        cmocka_unit_test(a_cell_is_known_by_what_it_means),
        cmocka_unit_test(a_changed_model_or_prompt_file_is_another_cell),
        cmocka_unit_test(more_nodes_than_a_usual_pass_has_rows_open_the_target_anew),
        cmocka_unit_test(a_step_is_recorded_as_it_was_judged),
        cmocka_unit_test(an_experiment_runs_once),
        cmocka_unit_test(a_raised_limit_adds_prompts),
        cmocka_unit_test(a_stored_cell_is_an_experiment_of_its_own),
        cmocka_unit_test(batches_and_trees_say_what_plain_decoding_says),
        cmocka_unit_test(a_conversation_that_outgrows_the_context_ends),
        cmocka_unit_test(stop_strings_end_texts_in_the_same_place_for_every_drafter),
        cmocka_unit_test(a_killed_runner_resumes_to_the_same_texts),
        cmocka_unit_test(an_interrupted_run_leaves_a_consistent_database_and_goes_on),
        cmocka_unit_test(a_dry_run_tells_what_is_done_and_changes_nothing),
        cmocka_unit_test(the_smoke_experiment_runs),
        cmocka_unit_test(the_prompt_set_is_what_its_readme_says),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
