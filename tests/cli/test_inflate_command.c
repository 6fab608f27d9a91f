// test_inflate_command.c - `inflate` from outside: its errors, and the mark that an inflated model carries through every command.
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/memory.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

static void mistakes_are_one_line_errors(void **state)
{
    static const struct mistake mistakes[] = {
        { 2, "inflate", "missing argument" },
        { 2, "inflate %s", "--out PATH is needed" },
        { 2, "inflate %s --out ''", "--out PATH is needed" },
        { 2, "inflate %s --out x.gguf", "nothing would become larger" },
        { 2, "inflate %s --width wide --out x.gguf", "\"wide\"" },
        { 2, "inflate %s --width 0 --out x.gguf", "from 1 to 16777215" },
        { 2, "inflate %s --width 32 --out x.gguf", "width 32: the model has 64" },
        { 2, "inflate %s --heads 5 --out x.gguf", "heads 5: expected a multiple" },
        { 2, "inflate %s --kv-heads 4 --out x.gguf", "heads 4: with 4 key-value heads their groups are of 1" },
        { 2, "inflate %s --layers 9999 --out x.gguf", "from 1 to 1024" },
        { 2, "inflate %s --layer 3 other --out x.gguf", "unexpected argument \"other\"" },
        { 2, "inflate %s --widht 96 --out x.gguf", "did you mean --width" },
        { 2, "inflate %s --layers 4 --out x", "expected an output name that ends with .gguf" },
        { 1, "inflate %s --width 100 --out x.gguf", "its rows would have 100 numbers" },
        { 1, "inflate %s --layers 4 --out /nonexistent/x.gguf", "/nonexistent/x.gguf" },
        { 1, "inflate no-such-model --layers 4 --out x.gguf", "no-such-model" },
        { 1, "inflate /dev/null --layers 4 --out x.gguf", "/dev/null" },
    };
    struct small_model t = small_default;
    char *gguf = test_path("q4.gguf");
    t.type = Q4_1;
    small_write_gguf(gguf, &t);
    child_expect_errors(mistakes, sizeof(mistakes) / sizeof(*mistakes), gguf);
    free(gguf);
}

// The mark appears everywhere: output of inflate, inspect, run, and the reports of an experiment.
static void every_command_shows_that_a_model_is_inflated(void **state)
{
    char *large = test_path("marked.gguf"), *yaml = test_path("marked.yaml"), *db = test_path("marked.db"),
         *prompts = test_path("marked.jsonl");
    struct child_result s = child_run("inflate %s --width 128 --layers 4 --out %s", models.gguf, large);
    child_expect_success(&s, "inflate");
    print_message("%s", s.out);
    expect_contains(s.out, "marked as inflated");
    expect_contains(s.out, "with width 256 they would be equal to the last bit");
    expect_contains(s.out, "width 128 (64), hidden 128 (128), 4 heads on 2 (4 on 2), 4 layers (3)");
    assert_string_equal(s.err, "");
    child_result_free(&s);
    s = child_run("inspect --no-probe %s", large);
    expect_contains(s.out, "marked as inflated from target.gguf (width 64");
    child_result_free(&s);
    s = child_run("inspect --no-probe --json %s", large);
    struct json *j = child_result_json(&s);
    expect_contains(json_text(json_get(j, "inflated_from")), "target.gguf (width 64");
    json_free(j);
    child_result_free(&s);

    char *text = xformat("name: marked\ntarget: {model: %s, device: cpu}\nthreads: 1\nprompts: {file: %s, chat: none}\n"
                         "limits: {new_tokens: 4, context: 128}\nseed: 1\ncells:\n  sampling: [{temperature: 0}]\n"
                         "  drafter: [{kind: none}, {kind: small, model: %s, tokens: 2}]\n",
                         large, prompts, models.gguf);
    file_write(yaml, text);
    file_write(prompts, "{\"prompt\": \"the inning\"}\n");
    s = child_run("run --dry-run %s --db %s", yaml, db);
    expect_contains(s.out, "marked as inflated");
    child_result_free(&s);
    s = child_run("run %s --db %s", yaml, db);
    child_expect_success(&s, "run");
    child_result_free(&s);
    s = child_run("report --db %s", db);
    expect_contains(s.out, "marked as inflated");
    expect_contains(s.out, "INFLATED TARGET");
    expect_contains(s.out, "all 1 equal none's");
    child_result_free(&s);
    s = child_run("report --db %s --csv", db);
    expect_contains(s.out, ",marked_inflated,");
    child_result_free(&s);
    s = child_run("report --db %s --jsonl", db);
    expect_contains(s.out, "\"marked_inflated\":true");
    assert_null(strstr(s.out, "\"marked_inflated\":false"));
    child_result_free(&s);
    free(text);
    free(large);
    free(yaml);
    free(db);
    free(prompts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_one_line_errors),
        cmocka_unit_test(every_command_shows_that_a_model_is_inflated),
    };
    return run_with_models(tests);
}
