// test_tune_command.c - `tune` from outside: a row for each number of layers, the drafter to use; with --drafter an experiment to run; mistakes.
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

// n texts of 30 tokens. answers: the target wrote the last 20.
static char *write_texts(const char *name, int n, bool answers)
{
    struct text t = { 0 };
    char *path = test_path(name);
    for (int i = 0; i < n; i++) {
        text_printf(&t, "{\"id\": \"%d\", \"input_ids\": [", i);
        for (int k = 0; k < 30; k++)
            text_printf(&t, "%s%d", k > 0 ? "," : "", (11 * i + 5 * k) % 250);
        text_puts(&t, "], \"loss_mask\": [");
        for (int k = 0; k < 30; k++)
            text_printf(&t, "%s%d", k > 0 ? "," : "", answers && k >= 10);
        text_puts(&t, "]}\n");
    }
    file_write(path, t.s);
    free(t.s);
    return path;
}

static void the_drafter_it_prints_is_one_that_generate_takes(void **state)
{
    char *texts = write_texts("texts.jsonl", 7, true);
    struct child_result r = child_run("tune %s %s --positions 3 --least 1 --threads 2", models.hf, texts);
    child_expect_success(&r, "tune");
    assert_non_null(strstr(r.out, "chosen by 12 positions, held out 9 others"));
    assert_non_null(strstr(r.out, "without "));
    const char *keep = strstr(r.out, "{kind: layer_skip, keep: \"");
    assert_non_null(keep);
    keep += strlen("{kind: layer_skip, keep: \"");
    const char *tokens = strstr(keep, "tokens: ");
    char *drafter = xformat("layer_skip:keep=%.*s,tokens=%d", (int)strcspn(keep, "\""), keep, atoi(tokens + 8));
    struct child_result g =
        child_run("generate %s --ids [5,6,7] --drafter %s --tokens 4 --temperature 0", models.hf, drafter);
    child_expect_success(&g, "generate");
    child_result_free(&g);
    child_result_free(&r);
    free(drafter);
    free(texts);
}

static char *write_prompts(const char *name, int n)
{
    struct text t = { 0 };
    char *path = test_path(name);
    text_puts(&t, "");
    for (int i = 0; i < n; i++)
        text_printf(&t, "{\"id\": \"%d\", \"input_ids\": [%d, 7, 8, 9, 7, 8, 9, 7, 8]}\n%s", i, 5 + i,
                    i == 1 ? "\n" : "");
    file_write(path, t.s);
    free(t.s);
    return path;
}

static void expect_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("expected \"%s\" in\n%s", part, text);
}

// The experiment of that kind in a database; its name ends with a hash. Until the next call.
static const char *experiment_of(const char *db, const char *kind)
{
    static char name[64];
    struct error err;
    struct store *s = store_open(db, &err);
    assert_non_null(s);
    struct query *q = query_open(s, "SELECT DISTINCT experiment FROM run WHERE instr(experiment, ?) = 1");
    query_put_text(q, kind);
    assert_true(query_next(q));
    snprintf(name, sizeof(name), "%s", query_text(q, 0));
    assert_false(query_next(q));
    assert_true(query_close(q, &err));
    store_close(s);
    return name;
}

// Which setting is best depends on times; that the best one runs, and that the database says what was measured, does not.
static void the_experiment_it_writes_is_one_that_run_takes(void **state)
{
    char *prompts = write_prompts("prompts.jsonl", 5), *db = test_path("tune.db"), *best = test_path("best.yaml");
    struct child_result r = child_run(
        "tune %s --drafter ngram:tokens=2 --drafter ngram:tokens=3 --drafter small:model=%s,tokens=2 --prompts %s --limit 2 --tokens 6"
        " --confirm 2 --context 64 --threads 2 --db %s --out %s",
        models.hf, models.draft, prompts, db, best);
    child_expect_success(&r, "tune");
    expect_text(r.out, " probes on 2 prompts of ");
    expect_text(r.out, ", 2 confirmed on 2 others.\nDo not evaluate with these prompts what was tuned on them.\n");
    expect_text(r.out, "\n{kind: ");
    child_result_free(&r);
    struct child_result dry = child_run("run %s --dry-run --db %s", best, db);
    child_expect_success(&dry, "run --dry-run");
    expect_text(dry.out, "2 cells");
    child_result_free(&dry);
    struct child_result report =
        child_run("report --db %s --experiment %s --csv", db, experiment_of(db, "tune-confirm-"));
    child_expect_success(&report, "report");
    child_result_free(&report);
    struct child_result p =
        child_run("predict --db %s --experiment %s --cost bench", db, experiment_of(db, "tune-probe-"));
    child_expect_success(&p, "predict");
    expect_text(p.out, "Cost of passes from run 2 on: bench 1.");
    child_result_free(&p);
    free(prompts);
    free(db);
    free(best);
}

static void a_single_prompt_serves_twice_and_nothing_needs_confirmation(void **state)
{
    char *prompts = write_prompts("prompts.jsonl", 1);
    struct child_result r = child_run(
        "tune %s --drafter ngram:tokens=2 --prompts %s --tokens 6 --context 64 --confirm 1", models.hf, prompts);
    child_expect_success(&r, "tune");
    expect_text(r.out, " on 1 prompt of ");
    expect_text(r.out, ", 1 confirmed on the same one.");
    child_result_free(&r);
    r = child_run("tune %s --drafter ngram:tokens=2 --prompts %s --tokens 6 --context 64 --confirm 0", models.hf,
                  prompts);
    child_expect_success(&r, "tune");
    assert_null(strstr(r.out, "confirmed"));
    expect_text(r.out, "It is predicted only: nothing was measured.");
    child_result_free(&r);
    free(prompts);
}

static void mistakes_are_named(void **state)
{
    char *texts = write_texts("texts.jsonl", 7, true), *one = write_texts("one.jsonl", 1, true),
         *silent = write_texts("silent.jsonl", 4, false), *empty = write_prompts("empty.jsonl", 0);
    const struct {
        char *line;
        int status;
        const char *said;
    } cases[] = {
        { xformat("%s", models.hf), 2, "missing argument" },
        { xformat("%s /nowhere.jsonl", models.hf), 1, "/nowhere.jsonl" },
        { xformat("/nowhere %s", texts), 1, "/nowhere" },
        { xformat("%s %s --least 99", models.hf, texts), 1, "--least 99: expected fewer than the" },
        { xformat("%s %s --least 0", models.hf, texts), 2, "--least" },
        { xformat("%s %s", models.hf, one), 1, "expected at least 2 conversations" },
        { xformat("%s %s", models.hf, silent), 1, "there are no answers to choose by" },
        { xformat("%s %s --drafter ngram", models.hf, texts), 2, "DATA.jsonl and --drafter exclude each other" },
        { xformat("%s --drafter ngram", models.hf), 2, "--drafter requires --prompts" },
        { xformat("%s %s --prompts %s", models.hf, texts, texts), 2, "DATA.jsonl and --prompts exclude each other" },
        { xformat("%s --drafter ngram --prompts %s --packed keep", models.hf, texts), 2,
          "--packed and --drafter exclude" },
        { xformat("%s --drafter ngram --prompts /nowhere.jsonl", models.hf), 1, "--prompts: /nowhere.jsonl" },
        { xformat("%s --drafter ladder:of=[ngram] --prompts %s", models.hf, texts), 2, "no option that tune searches" },
        { xformat("%s --drafter ngram:tokens=0 --prompts %s", models.hf, texts), 2, "tokens" },
        { xformat("%s --drafter wrong --prompts %s", models.hf, texts), 2, "wrong" },
        { xformat("%s --drafter ngram --prompts %s --sampling heat=1", models.hf, texts), 2, "heat" },
        { xformat("%s --drafter ngram --prompts %s --rule wrong", models.hf, texts), 2, "wrong" },
        { xformat("%s --drafter ngram --prompts %s --chat wrong", models.hf, texts), 2, "wrong" },
        { xformat("/nowhere --drafter ngram --prompts %s", texts), 1, "/nowhere" },
        { xformat("%s --drafter ngram --prompts %s", models.hf, empty), 1, "expected prompts, found an empty file" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct child_result r = child_run("tune %s", cases[i].line);
        if (r.status != cases[i].status || strstr(r.err, cases[i].said) == NULL)
            fail_msg("tune %s: status %d, said: %s", cases[i].line, r.status, r.err);
        child_result_free(&r);
        free(cases[i].line);
    }
    free(texts);
    free(one);
    free(silent);
    free(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_drafter_it_prints_is_one_that_generate_takes),
        cmocka_unit_test(the_experiment_it_writes_is_one_that_run_takes),
        cmocka_unit_test(a_single_prompt_serves_twice_and_nothing_needs_confirmation),
        cmocka_unit_test(mistakes_are_named),
    };
    return run_with_models(tests);
}
