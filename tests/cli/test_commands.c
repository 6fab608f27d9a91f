// test_commands.c - the program from outside: help, and what `list` has.
#include "tests/support/tests.h"

#include <string.h>

#include "core/json.h"
#include "drafters/drafter.h"
#include "sampling/sampling.h"
#include "tests/cli/child_process.h"
#include "verifier/rules/rule.h"

TEST(help_goes_to_stdout_and_usage_errors_do_not)
{
    const char *commands[] = { "", "generate ", "inspect ", "exact ", "list --json ", "run ", "report --csv " };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct child_result s = child_run("%s--help", commands[i]);
        child_expect_success(&s, commands[i]);
        assert_non_null(strstr(s.out, "Usage: speclab"));
        assert_string_equal(s.err, "");
        child_result_free(&s);
    }
    struct child_result s = child_run("--version");
    assert_int_equal(s.status, 0);
    assert_int_equal(strncmp(s.out, "speclab ", 8), 0);
    child_result_free(&s);
    s = child_run("%s", "");
    assert_int_equal(s.status, 2);
    assert_string_equal(s.out, "");
    child_result_free(&s);
}

TEST(list_contains_everything_registered)
{
    struct child_result as_json = child_run("list --json");
    struct json *j = child_result_json(&as_json);
    size_t n = 0;
    for (; drafter_types[n] != NULL; n++)
        assert_string_equal(json_text(json_get(json_at(json_get(j, "drafters"), n), "name")), drafter_types[n]->name);
    assert_int_equal(json_count(json_get(j, "drafters")), n);
    for (n = 0; rules[n] != NULL; n++) {
        const struct json *r = json_at(json_get(j, "rules"), n);
        assert_string_equal(json_text(json_get(r, "name")), rules[n]->name);
        assert_int_equal(json_bool(json_get(r, "exact")), rules[n]->exact);
    }
    for (n = 0; stages[n] != NULL; n++)
        assert_string_equal(json_text(json_get(json_at(json_get(j, "stages"), n), "name")), stages[n]->name);
    json_free(j);
    child_result_free(&as_json);
}

int main(void)
{
    return child_is_present() ? tests_run(NULL, NULL) : child_is_missing();
}
