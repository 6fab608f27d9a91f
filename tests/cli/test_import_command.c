// test_import_command.c - `speclab import` from outside: every prompt against the twin in Python (tests/cases/make_imports.py), the prompt
// reader on each file, bad files, and what is on disk after a failure.
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "engine/prompts.h"
#include "formats/file.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct json *golden;

static void put(const char *name, const char *text)
{
    char *path = test_path(name);
    file_write(path, text);
    free(path);
}

static char *content(const char *name)
{
    struct error err;
    char *path = test_path(name), *text = file_text(path, NULL, &err);
    if (text == NULL)
        fail_msg("%s", err.text);
    free(path);
    return text;
}

// Runs words, which must succeed; returns stdout, to be freed.
static char *run(const char *words)
{
    char *line = words_here(words);
    struct child_result s = child_run("%s", line);
    child_expect_success(&s, line);
    char *out = s.out;
    s.out = NULL;
    child_result_free(&s);
    free(line);
    return out;
}

static void refused(int status, const char *with, const char *words)
{
    char *line = words_here(words), *what = words_here(with);
    child_expect_error(status, what, line);
    free(line);
    free(what);
}

static int write_files(void **state)
{
    golden = golden_json("imports.json");
    const struct json *files = json_get(golden, "files");
    for (void *at = json_first(files); at != NULL; at = json_next(files, at))
        put(json_key(at), json_text(json_value(at)));
    return models_make(state);
}

static int remove_files(void **state)
{
    json_free(golden);
    return models_remove(state);
}

// The twin knows no XXH3: the hashes are checked against the files, which the words name in order, and taken out of the line.
static void check_sources(struct json *line, const char *words)
{
    const struct json *files = json_get(json_get(line, "import"), "files");
    char *all = xstrdup(words), *next = NULL;
    strtok_r(all, " ", &next); // import
    strtok_r(NULL, " ", &next);
    for (size_t i = 0; i < json_count(files); i++) {
        char *name = strtok_r(NULL, " ", &next), *text = content(name + strlen("HERE/")), hash[HASH_TEXT];
        hash_write(hash_of(text, strlen(text)), hash);
        assert_string_equal(json_text(json_get(json_at(files, i), "hash")), hash);
        json_drop(json_at(files, i), "hash");
        free(text);
    }
    free(all);
}

static void expect_lines(const struct json *lines, const char *words)
{
    char *text = content("out.jsonl"), *next = NULL;
    struct error err;
    size_t n = 0;
    for (char *at = strtok_r(text, "\n", &next); at != NULL; at = strtok_r(NULL, "\n", &next), n++) {
        struct json *line = json_parse(at, strlen(at), words, &err);
        assert_ok(line != NULL, err);
        if (n == 0)
            check_sources(line, words);
        struct digest *is = digest_begin(), *due = digest_begin();
        json_digest(line, is);
        if (n < json_count(lines))
            json_digest(json_at(lines, n), due);
        if (!hash_equal(digest_end(is), digest_end(due))) {
            char *expected = n < json_count(lines) ? json_write(json_at(lines, n)) : xstrdup("no line"),
                 *found = json_write(line);
            fail_msg("%s: line %zu: expected\n%s\nfound\n%s", words, n + 1, expected, found);
        }
        json_free(line);
    }
    if (n != json_count(lines))
        fail_msg("%s: expected %zu lines, found %zu", words, json_count(lines), n);
    free(text);
}

static void expect_said(const struct json *said, const char *out, const char *words)
{
    for (size_t i = 0; i < json_count(said); i++) {
        char *part = words_here(json_text(json_at(said, i)));
        if (strstr(out, part) == NULL)
            fail_msg("%s: expected \"%s\" in\n%s", words, part, out);
        free(part);
    }
}

// What experiments and `score --answers` read of the file.
static void expect_prompts(const struct json *lines)
{
    struct prompts p;
    struct error err;
    char *path = test_path("out.jsonl");
    assert_ok(prompts_read(path, 0, 0, &p, &err), err);
    assert_int_equal(p.n, json_count(lines));
    for (int i = 0; i < p.n; i++) {
        const struct json *line = json_at(lines, (size_t)i), *turns = json_get(line, "turns");
        const bool raw = json_is_null(turns);
        assert_int_equal(p.prompt[i].raw, raw);
        assert_int_equal(p.prompt[i].n_turns, raw ? 1 : json_count(turns));
        assert_string_equal(p.prompt[i].category, json_text(json_get(line, "category")));
        for (int k = 0; k < p.prompt[i].n_turns; k++)
            assert_string_equal(p.prompt[i].turn[k],
                                json_text(raw ? json_get(line, "prompt") : json_at(turns, (size_t)k)));
    }
    prompts_free(&p);
    if (!json_is_null(json_get(json_at(lines, 0), "answer"))) {
        assert_ok(prompts_read_answered(path, &p, &err), err);
        prompts_free(&p);
    }
    free(path);
}

static void every_dataset_becomes_the_prompts_of_the_twin(void **state)
{
    const struct json *cases = json_get(golden, "cases");
    assert_true(json_count(cases) > 40);
    for (size_t i = 0; i < json_count(cases); i++) {
        const struct json *c = json_at(cases, i), *lines = json_get(c, "lines");
        const char *words = json_text(json_get(c, "words"));
        char *all = xformat("%s --out HERE/out.jsonl", words), *out = run(all);
        expect_lines(lines, words);
        expect_said(json_get(c, "said"), out, words);
        expect_prompts(lines);
        free(all);
        free(out);
    }
}

static void a_gzipped_file_makes_the_same_prompts(void **state)
{
    char *path = test_path("HumanEval.jsonl"), *pack = xformat("gzip -kf %s", path);
    assert_int_equal(system(pack), 0);
    char *plain = run("import humaneval HERE/HumanEval.jsonl"),
         *packed = run("import humaneval HERE/HumanEval.jsonl.gz");
    assert_string_equal(plain, packed);
    free(plain);
    free(packed);

    // Cut off anywhere, or with a byte changed behind the header, it is refused.
    struct mapping m = { 0 };
    struct error err;
    char *gz = test_path("HumanEval.jsonl.gz"), *cut = test_path("cut.gz");
    assert_ok(file_map(gz, &m, &err), err);
    const size_t lengths[] = { 10, m.n / 2, m.n - 8, m.n - 1 };
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        file_write_bytes(cut, m.at, lengths[i]);
        refused(1, "HERE/cut.gz: expected a gzip file, found one that is damaged or cut off",
                "import humaneval HERE/cut.gz");
    }
    file_write_bytes(cut, m.at, m.n);
    file_flip(cut, -6, 1);
    refused(1, "damaged", "import humaneval HERE/cut.gz");
    file_unmap(&m);
    free(path);
    free(pack);
    free(gz);
    free(cut);
}

static void an_imported_file_is_one_of_an_experiment(void **state)
{
    char *out = run("import spec-bench HERE/question.jsonl --out HERE/prompts.jsonl");
    free(out);
    char *yaml = xformat("name: imported\ntarget: {model: %s}\nthreads: 1\nprompts: {file: prompts.jsonl, chat: none}\n"
                         "limits: {new_tokens: 4}\ncells:\n  drafter: [none]\n",
                         models.gguf);
    put("imported.yaml", yaml);
    out = run("run HERE/imported.yaml --dry-run --db HERE/imported.db");
    assert_non_null(strstr(out, "10 prompts"));
    free(out);
    free(yaml);
}

static void every_dataset_is_listed(void **state)
{
    static const char *const names[] = { "spec-bench", "mt-bench",     "eagle",    "speed-bench", "humaneval",
                                         "mbpp",       "gsm8k",        "cnn-dm",   "alpaca",      "math-500",
                                         "longbench",  "longbench-v2", "sharegpt", "magpie" };
    char *out = run("import --list");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char *line = xformat("\n%s\n", names[i]);
        assert_true(strstr(out, line) != NULL || strncmp(out, line + 1, strlen(line) - 1) == 0);
        free(line);
    }
    free(out);
}

// ---- bad files

static const struct {
    const char *dataset, *name, *text, *with; // with: after the file's path
} bad[] = {
    { "gsm8k", "a", "{\"question\": \"Who?\", \"answer\": \"I\"}\n{\"question\": \"Who", ":2:17: not valid JSON" },
    { "gsm8k", "a", "{\"question\": \"Who", "the file ends in this line: is it complete?" },
    { "gsm8k", "a", "\n\n{\"question\": 5, \"answer\": \"I\"}\n", ":3: question: expected a text, found an integer" },
    { "gsm8k", "a", "{\"question\": \" \", \"answer\": \"I\"}\n", ":1: question: expected a text, found an empty one" },
    { "gsm8k", "a", "{\"question\": \"a\\u0000\", \"answer\": \"\"}\n",
      ":1: question: expected a text, found a NUL character" },
    { "gsm8k", "a", "{\"question\": null, \"answer\": \"\"}\n", ":1: question: expected a text, found nothing" },
    { "gsm8k", "a", "{\"question\": \"\xE9\", \"answer\": \"\"}\n",
      ":1:14: not valid JSON: unable to decode byte 0xe9" },
    { "gsm8k", "a", "{\"question\": \"a\"}\n",
      ":1: answer: expected an entry of gsm8k (question, answer), found none" },
    { "gsm8k", "a", "[]", ": expected entries of gsm8k, found none" },
    { "gsm8k", "a", "  \n", ": expected entries of gsm8k, found none" },
    { "gsm8k", "a", "17\n", ":1: expected an object, found an integer" },
    { "gsm8k", "a", "[17]", "[0]: expected an object, found an integer" },
    { "gsm8k", "a", "[{\"question\": \"a\", \"answer\": \"\"}, {\"question\": [\"]\\\"\"], \"answer\": \"\"}",
      "[1]: question: expected a text, found a list" },
    { "gsm8k", "a", "[{\"question\": \"a\", \"answer\": \"\"}, {\"question\": \"]}\\\"",
      "[1]: expected an object, found the end of the file" },
    { "gsm8k", "a", "[{\"question\": \"a\", \"answer\": \"\"}", "the end of the file: is it complete?" },
    { "gsm8k", "a", "[{\"question\": \"a\", \"answer\": \"\"} {}]",
      "[0]: expected a comma or the end of the list behind the object" },
    { "gsm8k", "a", "[{\"question\": \"a\", \"answer\": \"\"},]", "[1]: not valid JSON" },
    { "gsm8k", "a", "[{\"question\": \"a\", \"answer\": \"\"}] {}",
      ": expected the end of the file behind the list, found more" },
    { "gsm8k", "a", "PK\3\4xyz", "found a ZIP archive; `unzip` unpacks it" },
    { "gsm8k", "a", "\xFF\xFE{", "expected UTF-8, found UTF-16" },
    { "gsm8k", "a", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
      "found Git LFS's pointer to the file" },
    { "gsm8k", "a", "", ": the file is empty" },
    // files of other datasets
    { "gsm8k", "HumanEval.jsonl", NULL,
      ":1: question: expected an entry of gsm8k (question, answer), found none; this looks like humaneval (task_id, prompt, entry_point)" },
    { "humaneval", "mbpp.jsonl", NULL, "this looks like mbpp (task_id, text or prompt, test_list)" },
    { "mbpp", "test.jsonl", NULL, "this looks like gsm8k (question, answer)" },
    { "math-500", "question.jsonl", NULL, "this looks like spec-bench (" },
    { "spec-bench", "speed.jsonl", NULL,
      ":1: expected an entry of spec-bench, found more: this looks like speed-bench (" },
    { "mt-bench", "question.jsonl", NULL,
      ":5: category: expected one of mt-bench's, such as writing, found \"translation\"" },
    { "sharegpt", "magpie.jsonl", NULL, "this looks like magpie (uuid, conversations or instruction)" },
    { "alpaca", "sg.json", NULL,
      "[0]: instruction: expected an entry of alpaca (instruction, input, output), found none; this looks like sharegpt" },
    { "longbench --template plain", "data.json", NULL, "this looks like longbench-v2 (" },
    { "gsm8k", "dataset2prompt.json", NULL, "not valid JSON" },
    // entries that are not as published
    { "speed-bench", "speed_raw.jsonl", NULL,
      ":2: turns[0]: expected a prompt, found NVIDIA's placeholder for a text of made-up/source; `python3 prepare_data.py" },
    { "spec-bench", "a", "{\"question_id\": 1, \"category\": \"qa\", \"turns\": \"a\"}\n",
      ":1: turns: expected a list of texts, found a text" },
    { "spec-bench", "a", "{\"question_id\": 1, \"category\": \"qa\", \"turns\": []}\n",
      ":1: turns: expected a list of texts, found an empty one" },
    { "spec-bench", "a", "{\"question_id\": 1, \"category\": \"qa\", \"turns\": [\"a\", \"\"]}\n",
      ":1: turns[1]: expected a text, found an empty one" },
    { "spec-bench", "a", "{\"question_id\": 1, \"category\": 2, \"turns\": [\"a\"]}\n",
      ":1: category: expected a text, found an integer" },
    { "spec-bench", "a", "{\"question_id\": [], \"category\": \"qa\", \"turns\": [\"a\"]}\n",
      ":1: question_id: expected a text or an integer, found a list" },
    { "spec-bench", "a",
      "{\"question_id\": 1, \"category\": \"qa\", \"turns\": [\"a\"]}\n\n{\"question_id\": \"1\", \"category\": \"qa\", \"turns\": [\"b\"]}\n",
      ":3: expected an id that no other entry has, found that of HERE/a:1" },
    { "mbpp", "a", "{\"task_id\": 1, \"text\": \"a\", \"test_list\": [\"a\", 2]}\n",
      ":1: test_list: expected a text, found an integer" },
    { "sharegpt", "a", "[{\"conversations\": 5}]",
      "[0]: conversations: expected a list of messages, found an integer" },
    { "sharegpt", "a", "[{\"conversations\": [5]}]",
      "[0]: conversations[0]: expected an object with from and value, found an integer" },
    { "sharegpt", "a", "[{\"conversations\": [{\"role\": \"user\", \"content\": \"a\"}]}]",
      "[0]: conversations[0].from: expected a text, found nothing" },
    { "sharegpt", "a", "[{\"conversations\": [{\"from\": \"human\", \"value\": null}]}]",
      "[0]: conversations[0].value: expected a text, found nothing" },
    { "sharegpt", "a", "[{\"conversations\": []}]", ": expected prompts, found none among 1 entries" },
    { "longbench --template HERE/dataset2prompt.json", "a",
      "{\"context\": \"a\", \"input\": \"b\", \"dataset\": \"vcsum\", \"_id\": \"1\"}\n",
      ":1: dataset: expected one that dataset2prompt.json has a template for, found \"vcsum\"" },
    { "spec-bench --answers", "question.jsonl", NULL, ":1: reference: expected an answer (--answers), found none" },
};

static void a_bad_file_is_named_with_its_place(void **state)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        if (bad[i].text != NULL)
            put(bad[i].name, bad[i].text);
        char *words = xformat("import %s HERE/%s --out HERE/none.jsonl", bad[i].dataset, bad[i].name),
             *none = test_path("none.jsonl");
        const bool place = strchr(":[", *bad[i].with) != NULL;
        char *with = xformat("%s%s%s", place ? "HERE/" : "", place ? bad[i].name : "", bad[i].with);
        refused(1, with, words);
        assert_false(file_exists(none));
        free(words);
        free(with);
        free(none);
    }
}

static void a_wrong_call_is_explained(void **state)
{
    static const struct {
        const char *words, *with;
    } calls[] = {
        { "import", "missing argument: speclab import [OPTION...] DATASET FILE...; --list describes the datasets" },
        { "import gsm8k", "missing file of gsm8k: https://github.com/openai/grade-school-math" },
        { "import --list gsm8k", "unexpected argument \"gsm8k\"" },
        { "import gsm9k HERE/test.jsonl", "unknown dataset \"gsm9k\"; did you mean gsm8k?" },
        { "import imagenet HERE/test.jsonl", "unknown dataset \"imagenet\": expected one of spec-bench, mt-bench" },
        { "import gsm8k HERE/test.jsonl --template instruct",
          "--template: expected one of gsm8k's (question, boxed), found \"instruct\"" },
        { "import longbench HERE/hotpotqa.jsonl", "missing --template: expected longbench's own file of templates" },
        { "import longbench HERE/hotpotqa.jsonl --template nowhere.json",
          "--template: expected one of longbench's (plain) or a file" },
        { "import longbench HERE/hotpotqa.jsonl --template HERE/data.json",
          "expected an object with a template for each task, found a list" },
        { "import gsm8k HERE/test.jsonl --split test",
          "--split: expected a dataset whose entries belong to splits (mbpp), found gsm8k" },
        { "import gsm8k HERE/test.jsonl --turns 1", "--turns: expected a dataset of conversations, found gsm8k" },
        { "import gsm8k HERE/test.jsonl --out HERE/test.jsonl",
          "--out: expected another file than HERE/test.jsonl, which is read" },
        { "import speed-bench HERE/speed.jsonl --answers",
          "--answers: expected a dataset with reference answers, found speed-bench" },
        { "import gsm8k HERE/test.jsonl HERE/test.jsonl", "HERE/test.jsonl: expected each file once" },
        { "import sharegpt HERE/sg.json --min-characters 9 --max-characters 8",
          "--min-characters: expected at most --max-characters, 8, found 9" },
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        refused(2, calls[i].with, calls[i].words);
    refused(1, "--category: expected one of HERE/question.jsonl's, found \"law\", which no prompt has",
            "import spec-bench HERE/question.jsonl --category law");
}

static void a_failed_write_keeps_the_earlier_file(void **state)
{
    put("kept.jsonl", "as it was\n");
    file_size_limit(500);
    refused(1, "HERE/kept.jsonl: cannot be written", "import gsm8k HERE/test.jsonl --out HERE/kept.jsonl");
    file_size_limit(-1);
    char *text = content("kept.jsonl"), *part = test_path("kept.jsonl.part");
    assert_string_equal(text, "as it was\n");
    assert_false(file_exists(part));
    free(text);
    free(part);
}

static void a_line_of_forty_megabytes_is_read(void **state)
{
    enum { LONG = 40 << 20 };
    struct text t = { 0 };
    text_puts(&t, "[{\"article\": \"");
    char *words = xmalloc(LONG);
    memset(words, 'a', LONG);
    text_add(&t, words, LONG);
    text_puts(&t, "\", \"highlights\": \"a\"}]");
    put("long.json", t.s);
    char *out = run("import cnn-dm HERE/long.json --out HERE/out.jsonl");
    struct prompts p;
    struct error err;
    char *path = test_path("out.jsonl");
    assert_ok(prompts_read(path, 0, 0, &p, &err), err);
    assert_int_equal(strlen(p.prompt[0].turn[0]), LONG + strlen("Summarize: "));
    prompts_free(&p);
    free(path);
    free(out);
    free(words);
    free(t.s);
}

// No library of Debian 12 reads parquet. The message has a command for Python with pyarrow; where that is installed, it
// is run as it is printed.
static void a_parquet_file_is_answered_by_the_command_that_converts_it(void **state)
{
    put("t.parquet", "PAR1");
    refused(1, "found a parquet file; Python with pyarrow (pip install pyarrow) writes lines: python3 -c 'import json",
            "import gsm8k HERE/t.parquet");
    if (system("python3 -c 'import pyarrow.parquet' 2>/dev/null") != 0) {
        print_message("python3 has no pyarrow: the conversion itself is not run\n");
        return;
    }
    char *make = words_here(
        "python3 -c \"import json, pyarrow as a, pyarrow.parquet as p; "
        "p.write_table(a.Table.from_pylist([json.loads(l) for l in open('HERE/speed.jsonl')]), 'HERE/t.parquet')\"");
    assert_int_equal(system(make), 0);
    char *line = words_here("import speed-bench HERE/t.parquet");
    struct child_result s = child_run("%s", line);
    assert_int_equal(s.status, 1);
    assert_int_equal(system(strstr(s.err, "python3 -c")), 0);
    char *converted = run("import speed-bench HERE/t.parquet.jsonl"),
         *plain = run("import speed-bench HERE/speed.jsonl");
    assert_string_equal(strstr(converted, "\"prompts\""), strstr(plain, "\"prompts\"")); // behind the file's hash
    free(make);
    free(line);
    free(converted);
    free(plain);
    child_result_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dataset_becomes_the_prompts_of_the_twin),
        cmocka_unit_test(a_gzipped_file_makes_the_same_prompts),
        cmocka_unit_test(an_imported_file_is_one_of_an_experiment),
        cmocka_unit_test(every_dataset_is_listed),
        cmocka_unit_test(a_bad_file_is_named_with_its_place),
        cmocka_unit_test(a_wrong_call_is_explained),
        cmocka_unit_test(a_failed_write_keeps_the_earlier_file),
        cmocka_unit_test(a_line_of_forty_megabytes_is_read),
        cmocka_unit_test(a_parquet_file_is_answered_by_the_command_that_converts_it),
    };
    return child_is_present() ? cmocka_run_group_tests(tests, write_files, remove_files) : child_is_missing();
}
