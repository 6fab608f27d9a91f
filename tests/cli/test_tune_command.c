// test_tune_command.c - `tune` from outside: a row for each number of layers, the drafter to use, mistakes.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
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

static void mistakes_are_named(void **state)
{
    char *texts = write_texts("texts.jsonl", 7, true), *one = write_texts("one.jsonl", 1, true),
         *silent = write_texts("silent.jsonl", 4, false);
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_drafter_it_prints_is_one_that_generate_takes),
        cmocka_unit_test(mistakes_are_named),
    };
    return run_with_models(tests);
}
