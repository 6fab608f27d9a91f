// test_library_chat.c - chat templates through speclab.h.
#include <stdlib.h>
#include <string.h>

#include "engine/speclab.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static void a_template_that_is_not_supported_is_an_error_of_the_chat_only(void **state)
{
    struct speclab_error error = { "" };
    char *path = test_path("odd"), *settings = test_path("odd/tokenizer_config.json");
    small_write_hf(path, &small_default);
    file_write(settings, "{\"chat_template\": \"[INST] {{ content\"}");
    const struct speclab_message m = { "user", "red" };
    for (int given = 0; given < 2; given++) {
        const struct speclab_target_options o = { .chat = given ? "chatml" : NULL };
        struct speclab_tokens tokens = { NULL, 0 };
        struct speclab_target *t = speclab_target_open(path, &o, &error);
        assert_non_null(t);
        assert_int_equal(speclab_target_has_chat(t, &error), given);
        assert_true(given || strstr(error.text, "chat template, line 1") != NULL);
        assert_int_equal(speclab_encode_chat(t, &m, 1, &tokens, &error), given);
        assert_true(speclab_encode(t, "red", &tokens, &error));
        free(tokens.id);
        speclab_target_close(t);
    }
    free(path);
    free(settings);
}

static void variables_reach_the_template(void **state)
{
    static const struct {
        const char *variables, *message; // NULL: good
    } cases[] = {
        { NULL, NULL },
        { "{\"color\": \"red\"}", NULL },
        { "[1]", "chat_variables: expected a JSON object" },
        { "{", "chat_variables: JSON:1:1: not valid JSON" },
    };
    struct speclab_error error = { "" };
    char *path = test_path("varied"), *settings = test_path("varied/tokenizer_config.json");
    small_write_hf(path, &small_default);
    file_write(settings, "{\"chat_template\": \"{{ color }}{{ messages[0].content }}\"}");
    size_t before = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct speclab_target_options o = { .chat_variables = cases[i].variables };
        struct speclab_target *t = speclab_target_open(path, &o, &error);
        assert_non_null(t);
        struct speclab_tokens tokens = { NULL, 0 };
        const bool ok = speclab_encode_chat(t, &(struct speclab_message){ "user", "a" }, 1, &tokens, &error);
        assert_int_equal(ok, cases[i].message == NULL);
        assert_true(ok || strncmp(error.text, cases[i].message, strlen(cases[i].message)) == 0);
        assert_true(i != 1 || tokens.n > before);
        before = tokens.n;
        free(tokens.id);
        speclab_target_close(t);
    }
    free(path);
    free(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_that_is_not_supported_is_an_error_of_the_chat_only),
        cmocka_unit_test(variables_reach_the_template),
    };
    return cmocka_run_group_tests(tests, NULL, test_directory_tear_down);
}
