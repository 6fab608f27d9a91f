// test_replay_command.c - `replay` from outside: its table and JSON, mistakes.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/memory.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

// Runs a small experiment and returns its database.
static char *decode(const char *name, const char *record)
{
    char *yaml = test_path("x.yaml"), *prompts = test_path("p.jsonl"), *db = test_path(name);
    file_write(prompts, "{\"prompt\": \"abc abc abc\"}\n{\"prompt\": \"one two one two\"}\n");
    char *text =
        xformat("name: x\ntarget: {model: %s}\nthreads: 1\nprompts: {file: %s, chat: none}\n"
                "limits: {new_tokens: 20, ignore_end: true}\n%scells: {drafter: {kind: small, model: %s, tokens: 3}}\n",
                models.hf, prompts, record, models.draft);
    file_write(yaml, text);
    struct child_result r = child_run("run %s --db %s --no-probe", yaml, db);
    child_expect_success(&r, "run");
    child_result_free(&r);
    free(text);
    free(prompts);
    free(yaml);
    return db;
}

static void table_and_json_say_the_same(void **state)
{
    (void)state;
    char *db = decode("rows.db", "record: {rows: full}\n");
    struct child_result r = child_run("replay %s --rule match", db), j = child_run("replay %s --rule match --json", db);
    child_expect_success(&r, "replay");
    struct json *all = child_result_json(&j);
    assert_int_equal(json_count(all), 1);
    const struct json *run = json_at(all, 0), *covered = json_get(run, "covered");
    assert_int_equal(json_int(json_get(run, "complete")), 2);
    assert_int_equal(json_int(json_get(covered, "tokens")), 40);
    char *line =
        xformat("  covered        %7lld %12.2f %10lld %9lld", (long long)json_int(json_get(covered, "steps")),
                json_number(json_get(covered, "tokens_per_step")), (long long)json_int(json_get(covered, "drafted")),
                (long long)json_int(json_get(covered, "accepted")));
    assert_non_null(strstr(r.out, line));
    assert_non_null(strstr(r.out, "rows: full\nreplay: match\n"));
    assert_non_null(strstr(r.out, "  2 of 2 texts are covered to their end\n"));
    free(line);
    json_free(all);
    child_result_free(&r);
    child_result_free(&j);
    r = child_run("replay %s --run 2 --tokens 1", db);
    child_expect_success(&r, "replay");
    assert_non_null(strstr(r.out, "replay: rejection, drafts at most 1 deep\n"));
    child_result_free(&r);
    free(db);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    char *db = decode("rows.db", "record: {rows: full}\n"), *bare = decode("bare.db", "");
    const struct {
        char *line;
        int status;
        const char *said;
    } cases[] = {
        { xformat("%s", ""), 2, "missing argument" },
        { xformat("/nowhere.db"), 2, "/nowhere.db: no such database" },
        { xformat("%s --tokens 0", db), 2, "--tokens: expected an integer from 1" },
        { xformat("%s --tree none", db), 2, "none" },
        { xformat("%s --rule rejektion", db), 2, "unknown rule \"rejektion\"" },
        { xformat("%s --rule typical:epsilon=x", db), 2, "epsilon" },
        { xformat("%s --run 2 --run 1", db), 2, "--run is given twice; expected it once" },
        { xformat("%s --run 1", db), 1, "run 1 (none, rejection) has no recorded rows" },
        { xformat("%s --run 7", db), 2, "there is no run 7 in it" },
        { xformat("%s", bare), 1, "no run has recorded rows: run an experiment with `record: {rows: full}`" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct child_result r = child_run("replay %s", cases[i].line);
        if (r.status != cases[i].status || strstr(r.err, cases[i].said) == NULL)
            fail_msg("replay %s: status %d, said: %s", cases[i].line, r.status, r.err);
        child_result_free(&r);
        free(cases[i].line);
    }
    free(db);
    free(bare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_and_json_say_the_same),
        cmocka_unit_test(mistakes_are_named),
    };
    return run_with_models(tests);
}
