// test_generate_command.c - `generate` from outside: its text, its JSON, its settings.
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/cli/child_process.h"
#include "tests/cli/printed_json.h"

static void every_drafter_gives_the_text_of_none(void **state)
{
    const char *drafters[] = { "ngram", "ngram:longest=2,tokens=5", "small:model=%s,tokens=4,pick=greedy",
                               "small:model=%s,widths=[3,2,1]", "small:model=%s,nodes=9,tokens=4,pick=greedy" };
    const char *modes[] = { "", "--rule match --temperature 1 --seed 11" };
    for (size_t w = 0; w < 2; w++) {
        char *arguments =
            xformat("%s --ids '[5, 6, 7, 5, 6, 7, 5, 6]' --tokens 40 --ignore-end %s", models.gguf, modes[w]);
        struct json *plain = generated_json(arguments);
        assert_int_equal(json_count(json_get(plain, "new_ids")), 40);
        for (size_t i = 0; i < sizeof(drafters) / sizeof(drafters[0]); i++) {
            char *drafter = words_with(drafters[i], models.draft),
                 *line = xformat("%s --drafter %s", arguments, drafter);
            struct json *j = generated_json(line);
            assert_same_ids(plain, j, line);
            json_free(j);
            free(line);
            free(drafter);
        }
        json_free(plain);
        free(arguments);
    }
}

// The drafts cross from one device to the other; the target is an emulated GPU.
static void a_draft_model_on_the_cpu_gives_the_text_of_a_target_on_a_gpu(void **state)
{
    static const char *const modes[] = { "", "--rule match --temperature 1 --seed 11" };
    static const char *const drafters[] = { "small:model=%s,tokens=3,pick=greedy,device=cpu",
                                            "small:model=%s,widths=[2,1],device=cpu" };
    const bool is_built = child_use(SPECLAB_EMULATED);
    for (size_t w = 0; is_built && w < 2; w++) {
        char *arguments =
            xformat("%s --device cuda --ids '[5, 6, 7, 5, 6, 7]' --tokens 12 --ignore-end %s", models.gguf, modes[w]);
        struct json *plain = generated_json(arguments);
        for (size_t i = 0; i < 2; i++) {
            char *drafter = words_with(drafters[i], models.draft),
                 *line = xformat("%s --drafter %s", arguments, drafter);
            struct json *j = generated_json(line);
            assert_same_ids(plain, j, line);
            json_free(j);
            free(line), free(drafter);
        }
        json_free(plain);
        free(arguments);
    }
    child_use(NULL);
}

static void both_formats_and_a_padded_draft_model_give_equal_texts(void **state)
{
    char *a = xformat("%s --tokens 20 Hello", models.gguf),
         *b = xformat("%s --tokens 20 Hello --drafter small:model=%s", models.hf, models.padded);
    struct json *x = generated_json(a), *y = generated_json(b);
    assert_same_ids(x, y, b);
    assert_string_equal(json_text(json_get(x, "text")), json_text(json_get(y, "text")));
    json_free(x);
    json_free(y);
    free(a);
    free(b);
}

static void a_trace_contains_each_draft(void **state)
{
    char *arguments = xformat(
        "%s --ids '[5, 6, 7]' --tokens 12 --ignore-end --temperature 1 --trace --drafter small:model=%s,widths=[2,2]",
        models.gguf, models.draft);
    struct json *j = generated_json(arguments);
    const struct json *steps = json_get(j, "steps");
    for (size_t i = 0; i < json_count(steps); i++) {
        const struct json *step = json_at(steps, i), *d = json_get(step, "draft"), *accepted = json_get(d, "accepted");
        size_t n = (size_t)json_int(json_get(step, "drafted")) + 1;
        const char *keys[] = { "tokens", "parents", "proposal", "p", "q", "accepted" };
        int64_t n_accepted = -1; // the root counts as accepted, but is no draft token
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
            assert_int_equal(json_count(json_get(d, keys[k])), n);
        for (size_t k = 0; k < n; k++)
            n_accepted += json_bool(json_at(accepted, k));
        assert_int_equal(json_count(json_get(step, "out")), (size_t)n_accepted + 1);
        assert_int_equal(json_int(json_at(json_get(d, "parents"), 0)), -1);
        for (size_t k = 0; k < n; k++) { // null for the root
            const struct json *proposal = json_at(json_get(d, "proposal"), k);
            assert_true(k == 0 ? json_is_null(proposal)
                               : strcmp(json_text(proposal), "sampled_without_replacement") == 0);
            assert_true(k != 0 || json_is_null(json_at(json_get(d, "p"), k)));
        }
    }
    json_free(j);
    free(arguments);
}

static void streamed_text_equals_json_text(void **state)
{
    const char *options =
        "--rule match --temperature 1 --seed 5 --tokens 40 --ignore-end --logit-bias {3:-99}"; // no NUL bytes
    struct child_result s = child_run("generate %s %s Hello", models.gguf, options);
    struct child_result same = child_run_with("Hello\n", "generate %s %s --drafter ngram -", models.hf, options);
    child_expect_success(&s, "generate");
    child_expect_success(&same, "generate -");
    char *arguments = xformat("%s %s Hello", models.gguf, options);
    struct json *j = generated_json(arguments);
    const char *text = json_text(json_get(j, "text"));
    assert_true(strlen(text) > 9);
    char *line = xformat("%s%s", text, text[strlen(text) - 1] == '\n' ? "" : "\n");
    assert_string_equal(s.out, line);
    assert_string_equal(same.out, line);
    assert_non_null(strstr(s.err, "tokens/s"));
    assert_null(strstr(s.out, "\033"));
    free(line);
    free(arguments);
    json_free(j);
    child_result_free(&s);
    child_result_free(&same);
}

// Three consecutive printable characters after the first one of the text; NULL: none.
static const char *a_word_of(const char *text)
{
    for (const char *at = *text != '\0' ? text + 1 : text; *at != '\0'; at++)
        for (int n = 0; at[n] > ' ' && at[n] < 0x7F && at[n] != '\''; n++)
            if (n == 2)
                return at;
    return NULL;
}

static void a_stop_string_ends_the_text_and_is_left_out(void **state)
{
    int tried = 0;
    for (int seed = 0; seed < 20; seed++) {
        char *arguments = xformat(
            "%s --chat none --tokens 60 --ignore-end --rule match --temperature 1 --logit-bias {3:-99} --seed %d abc",
            models.gguf, seed);
        struct json *whole = generated_json(arguments);
        const char *text = json_text(json_get(whole, "text")), *word = a_word_of(text);
        if (word != NULL) {
            char *stopped =
                xformat("%s --drafter small:model=%s --stop zzzzz --stop '%.3s'", arguments, models.draft, word);
            struct json *j = generated_json(stopped);
            char *before = xstrndup(text, (size_t)(word - text)), *first = strstr(before, "zzzzz");
            word = xstrndup(word, 3);
            assert_null(first);
            before[strstr(text, word) - text] = '\0';
            assert_string_equal(json_text(json_get(j, "stop")), "string");
            assert_string_equal(json_text(json_get(j, "text")), before);
            free((char *)(uintptr_t)word);
            free(before);
            free(stopped);
            json_free(j);
            tried++;
        }
        json_free(whole);
        free(arguments);
    }
    assert_true(tried > 0);
}

static void a_replacement_character_is_no_stop_string(void **state)
{
    static const char character[] = "\xEF\xBF\xBD";
    char *arguments = xformat("%s --chat none --tokens 60 --ignore-end --temperature 1 abc", models.gguf),
         *stopped = xformat("%s --stop %s", arguments, character);
    struct json *whole = generated_json(arguments), *same = generated_json(stopped);
    const char *text = json_text(json_get(whole, "text"));
    assert_non_null(strstr(text, character));
    assert_string_equal(json_text(json_get(same, "stop")), "limit");
    assert_string_equal(json_text(json_get(same, "text")), text);
    json_free(whole);
    json_free(same);
    free(arguments);
    free(stopped);
}

static void ids_need_no_tokenizer(void **state)
{
    char *arguments = xformat("%s --ids '[295, 0, 7]' --tokens 5", models.no_tokenizer);
    struct json *j = generated_json(arguments);
    assert_true(json_is_null(json_get(j, "text")));
    struct child_result s = child_run("generate %s", arguments);
    child_expect_success(&s, arguments);
    struct error err;
    struct json *shown = json_parse(s.out, strlen(s.out), "stdout", &err), *both = json_new_object();
    assert_non_null(shown);
    json_set(both, "new_ids", shown);
    assert_same_ids(j, both, "what is shown");
    json_free(both);
    json_free(j);
    child_result_free(&s);
    s = child_run("generate %s --tokens 5 abc", models.no_tokenizer); // but text does
    assert_true(s.status != 0);
    assert_non_null(strstr(s.err, "no text without a tokenizer: "));
    child_result_free(&s);
    free(arguments);
}

static void generate_reports_the_precision(void **state)
{
    char *arguments =
        xformat("%s --ids [5] --tokens 2 --activations bf16 --drafter small:model=%s", models.gguf, models.draft);
    struct json *j = generated_json(arguments);
    const struct json *settings = json_get(j, "settings"), *drafter = json_get(settings, "drafter");
    assert_string_equal(json_text(json_get(settings, "activations")), "bf16");
    assert_string_equal(json_text(json_get(settings, "cache")), "f32");
    assert_string_equal(json_text(json_get(drafter, "activations")), "f32");
    assert_string_equal(json_text(json_get(drafter, "cache")), "f32");
    json_free(j);
    free(arguments);
}

static void a_system_message_precedes_the_prompt(void **state)
{
    char *arguments = xformat("%s --system 'Be brief' --tokens 1 ab", models.gguf);
    struct json *j = generated_json(arguments);
    char *prompt_ids = json_write(json_get(j, "prompt_ids"));
    char *ids =
        ids_of("<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n", "");
    char *list = xformat("[%s]", ids);
    assert_string_equal(prompt_ids, list);
    free(list);
    free(ids);
    free(prompt_ids);
    json_free(j);
    free(arguments);
}

static void generate_reports_its_settings(void **state)
{
    char *arguments =
        xformat("%s --seed 7 --temperature 0.5 --top-k 20 --rule match --drafter ngram:longest=2 --stop zzzz "
                "--ignore-end --chat none abc",
                models.gguf);
    struct json *j = generated_json(arguments);
    assert_int_equal(json_count(json_get(j, "new_ids")), 128); // the default
    static const char *const keys[] = { "drafter",    "rule", "lossless", "sampling",    "seed",  "tokens",
                                        "ignore_end", "stop", "chat",     "activations", "cache", "type" };
    static const char *const values[] = { "{\"kind\":\"ngram\",\"longest\":2,\"shortest\":1,\"tokens\":8}",
                                          "{\"kind\":\"match\"}",
                                          "true",
                                          "{\"temperature\":0.5,\"top_k\":20}",
                                          "7",
                                          "128",
                                          "true",
                                          "[\"zzzz\"]",
                                          "\"none\"",
                                          "\"f32\"",
                                          "\"f32\"",
                                          "\"f32\"" };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const struct json *setting = json_get(json_get(j, "settings"), keys[i]);
        assert_non_null(setting);
        char *value = json_write(setting);
        if (strcmp(value, values[i]) != 0)
            fail_msg("%s: expected %s, found %s", keys[i], values[i], value);
        free(value);
    }
    json_free(j);
    free(arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_drafter_gives_the_text_of_none),
        cmocka_unit_test(a_draft_model_on_the_cpu_gives_the_text_of_a_target_on_a_gpu),
        cmocka_unit_test(both_formats_and_a_padded_draft_model_give_equal_texts),
        cmocka_unit_test(a_trace_contains_each_draft),
        cmocka_unit_test(streamed_text_equals_json_text),
        cmocka_unit_test(a_stop_string_ends_the_text_and_is_left_out),
        cmocka_unit_test(a_replacement_character_is_no_stop_string),
        cmocka_unit_test(ids_need_no_tokenizer),
        cmocka_unit_test(generate_reports_the_precision),
        cmocka_unit_test(a_system_message_precedes_the_prompt),
        cmocka_unit_test(generate_reports_its_settings),
    };
    return run_with_models(tests);
}
