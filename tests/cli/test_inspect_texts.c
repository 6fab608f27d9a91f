// test_inspect_texts.c - `inspect --tokenize` and `--score` from outside: the ids of texts, and their probabilities.
#include "tests/support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/memory.h"
#include "tests/cli/child_process.h"
#include "tests/cli/printed_json.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

static void decoding_inverts_encoding(void **state)
{
    const char *lines =
        "{\"text\":\"plain words\"}\n{\"text\":\"\"}\n{\"text\":\"caf\xC3\xA9 \xF0\x9F\x98\x80 \\u0000 \\n\"}\n"
        "{\"text\":\"<|im_start|>user\"}\n";
    const char *both[] = { models.hf, models.gguf };
    char *first = NULL;
    for (int m = 0; m < 2; m++) {
        struct child_result ids = child_run_with(lines, "inspect --tokenize %s", both[m]);
        child_expect_success(&ids, "tokenize");
        struct child_result text = child_run_with(ids.out, "inspect --detokenize %s", both[m]);
        child_expect_success(&text, "inspect --detokenize");
        assert_string_equal(text.out, lines);
        if (first != NULL)
            assert_string_equal(first, ids.out);
        free(first);
        first = xstrdup(ids.out);
        child_result_free(&ids);
        child_result_free(&text);
    }
    struct child_result bad =
        child_run_with("{\"text\":\"a\"}\n\n{\"text\": \"a\" 5}\n", "inspect --tokenize %s", models.gguf);
    assert_int_equal(bad.status, 1);
    assert_non_null(strstr(bad.err, "stdin:3:14: not valid JSON")); // its own line and column
    child_result_free(&bad);
    struct child_result plain =
        child_run_with("{\"text\":\"<|im_end|>\"}\n", "inspect --tokenize --no-special %s", models.gguf);
    struct child_result whole = child_run_with("{\"text\":\"<|im_end|>\"}\n", "inspect --tokenize %s", models.gguf);
    assert_true(strlen(plain.out) > strlen(whole.out));
    child_result_free(&plain);
    child_result_free(&whole);
    free(first);
}

static void probabilities_of_all_next_tokens_sum_to_1(void **state)
{
    struct text in = { 0 };
    struct json *line[300];
    for (int x = 0; x < small_default.vocab; x++)
        text_printf(&in, "{\"ids\":[9,8,7,%d]}\n", x);
    struct child_result s = child_run_with(in.s, "inspect --score %s", models.gguf);
    child_expect_success(&s, "score");
    size_t n = printed_lines(&s, line, 300);
    double sum = 0;
    assert_int_equal(n, (size_t)small_default.vocab);
    for (size_t i = 0; i < n; i++) {
        const struct json *list = json_get(line[i], "logprobs");
        double all = 0;
        assert_int_equal(json_count(list), 3);
        sum += exp(json_number(json_at(list, 2)));
        assert_true(json_number(json_at(list, 0)) == json_number(json_at(json_get(line[0], "logprobs"), 0)));
        for (size_t k = 0; k < 3; k++)
            all -= json_number(json_at(list, k));
        assert_true(fabs(json_number(json_get(line[i], "perplexity")) - exp(all / 3)) < 1e-9 * exp(all / 3));
    }
    for (size_t i = 0; i < n; i++)
        json_free(line[i]);
    assert_true(fabs(sum - 1) < 1e-9);
    free(in.s);
    child_result_free(&s);
}

// More tokens than one pass takes: later tokens and the borders of passes change nothing.
static void a_long_text_scores_like_its_beginning(void **state)
{
    struct text in = { 0 };
    struct json *line[3];
    const int lengths[] = { 400, 130, 129 };
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < lengths[l]; i++)
            text_printf(&in, i == 0 ? "{\"ids\":[%d" : i + 1 < lengths[l] ? ",%d" : ",%d]}\n", i * i % 251);
    struct child_result s = child_run_with(in.s, "inspect --score %s", models.gguf);
    child_expect_success(&s, "score");
    assert_int_equal(printed_lines(&s, line, 3), 3);
    for (int l = 0; l < 3; l++) {
        const struct json *list = json_get(line[l], "logprobs");
        assert_int_equal(json_count(list), (size_t)lengths[l] - 1);
        for (size_t i = 0; i < json_count(list); i++)
            assert_true(json_number(json_at(list, i)) == json_number(json_at(json_get(line[0], "logprobs"), i)));
    }
    for (int l = 0; l < 3; l++)
        json_free(line[l]);
    assert_non_null(strstr(s.err, "3 texts, 656 tokens scored, perplexity"));
    free(in.s);
    child_result_free(&s);
}

// --answers gives an answer the same scores as the end of a text that begins with the prompt.
static void an_answer_is_scored_after_its_prompt(void **state)
{
    static const char *const answer[] = { "wx y<|im_end|>", "z", "hello" };
    char *arguments = xformat("%s --chat chatml --tokens 1 ab", models.gguf), *prompt[3], *own[3];
    struct json *j = generated_json(arguments), *hand[3], *got[4] = { NULL };
    prompt[0] = json_write(json_get(j, "prompt_ids"));
    struct text lines = { 0 };
    text_printf(&lines, "{\"ids\": %s}\n", prompt[0]);
    struct child_result s = child_run_with(lines.s, "inspect --detokenize %s", models.gguf);
    assert_int_equal(printed_lines(&s, got, 1), 1);
    char *second = xformat("%s%s<|im_end|>\n<|im_start|>user\ncd<|im_end|>\n<|im_start|>assistant\n",
                           json_text(json_get(got[0], "text")), answer[0]);
    json_free(got[0]);
    child_result_free(&s);
    free(prompt[0]);
    prompt[0] = xstrndup(second, strstr(second, answer[0]) != NULL ? (size_t)(strstr(second, answer[0]) - second) : 0);
    char *first_text = prompt[0];
    prompt[0] = ids_of(first_text, "");
    prompt[1] = ids_of(second, "");
    prompt[2] = xstrdup("9,8,7");
    lines.n = 0;
    for (int i = 0; i < 3; i++) {
        own[i] = ids_of(answer[i], "--no-special");
        text_printf(&lines, "{\"ids\": [%s,%s]}\n", prompt[i], own[i]);
    }
    s = child_run_with(lines.s, "inspect --score %s", models.gguf);
    child_expect_success(&s, "score");
    assert_int_equal(printed_lines(&s, hand, 3), 3);
    child_result_free(&s);

    s = child_run_with(
        "{\"id\": \"x\", \"turns\": [\"ab\", \"cd\", \"no answer\"], \"answer\": [\"wx y<|im_end|>\", \"z\"]}\n"
        "{\"input_ids\": [9, 8, 7], \"answer\": \"hello\"}\n"
        "{\"prompt\": \"ab\", \"answer\": \"\"}\n",
        "inspect --score --answers --chat chatml %s", models.gguf);
    child_expect_success(&s, "inspect --score --answers");
    assert_int_equal(printed_lines(&s, got, 4), 4);
    double sum = 0;
    size_t tokens = 0;
    for (size_t i = 0; i < 3; i++) {
        const struct json *all = json_get(hand[i], "logprobs"), *list = json_get(got[i], "logprobs");
        size_t n = 1;
        for (const char *c = own[i]; *c != '\0'; c++)
            n += *c == ',';
        assert_int_equal(json_count(list), n);
        for (size_t k = 0; k < n; k++) {
            assert_true(json_number(json_at(list, k)) == json_number(json_at(all, json_count(all) - n + k)));
            sum += json_number(json_at(list, k));
        }
        tokens += n;
    }
    assert_string_equal(json_text(json_get(got[0], "id")), "x");
    assert_int_equal(json_int(json_get(got[1], "turn")), 1);
    assert_string_equal(json_text(json_get(got[2], "id")), "1");
    assert_int_equal(json_count(json_get(got[3], "logprobs")), 0);
    char *total = xformat("4 answers, %zu tokens scored, perplexity %.6g (activations f32, cache f32, ", tokens,
                          exp(-sum / (double)tokens));
    expect_contains(s.err, total);
    for (int i = 0; i < 4; i++)
        json_free(got[i]);
    for (int i = 0; i < 3; i++) {
        json_free(hand[i]);
        free(prompt[i]);
        free(own[i]);
    }
    json_free(j);
    child_result_free(&s);
    free(lines.s);
    free(first_text);
    free(second);
    free(total);
    free(arguments);
}

// A cache created for a short text is too short for the next one.
static void a_text_scores_the_same_after_shorter_ones(void **state)
{
    struct text alone = { 0 }, both = { 0 };
    struct json *x[1], *y[3];
    for (int i = 0; i < 400; i++)
        text_printf(&alone, i == 0 ? "{\"ids\":[%d" : i + 1 < 400 ? ",%d" : ",%d]}\n", i * i % 251);
    text_printf(&both, "{\"ids\":[3,4]}\n%s{\"ids\":[3,4]}\n", alone.s);
    struct child_result a = child_run_with(alone.s, "inspect --score %s", models.gguf),
                        b = child_run_with(both.s, "inspect --score %s", models.gguf);
    child_expect_success(&a, "inspect --score of one text");
    child_expect_success(&b, "inspect --score of three texts");
    assert_int_equal(printed_lines(&a, x, 1), 1);
    assert_int_equal(printed_lines(&b, y, 3), 3);
    char *one = json_write(x[0]), *same = json_write(y[1]), *first = json_write(y[0]), *last = json_write(y[2]);
    assert_string_equal(one, same);
    assert_string_equal(first, last);
    free(one), free(same), free(first), free(last);
    json_free(x[0]);
    for (int i = 0; i < 3; i++)
        json_free(y[i]);
    child_result_free(&a);
    child_result_free(&b);
    free(alone.s);
    free(both.s);
}

// The first token's logit is thousands above or below all others: the sum stays finite.
static void one_logit_far_from_the_others_is_scored(void **state)
{
    struct small_model t = small_default;
    char *path = test_path("outlier"), *file = xformat("%s/model.safetensors", path);
    uint64_t header;
    float row[64];
    small_write_hf(path, &t);
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fread(&header, sizeof(header), 1, f), 1);
    char *names = xcalloc(header + 1, 1);
    assert_int_equal(fread(names, 1, header, f), header);
    const char *head = strstr(names, "\"lm_head.weight\"");
    assert_non_null(head);
    assert_int_equal(strncmp(strstr(head, "\"data_offsets\":["), "\"data_offsets\":[0,", 18), 0);
    assert_int_equal(fread(row, sizeof(float), 64, f), 64);
    for (int i = 0; i < 64; i++)
        row[i] *= 1e4f;
    assert_int_equal(fseek(f, (long)(sizeof(header) + header), SEEK_SET), 0);
    assert_int_equal(fwrite(row, sizeof(float), 64, f), 64);
    fclose(f);
    struct child_result s =
        child_run_with("{\"ids\":[9,0,8,0,7,0,6,0,5,0,4,0,3,0,2,0,11,0,12,0]}\n", "inspect --score %s", path);
    child_expect_success(&s, "score");
    struct json *line[1];
    assert_int_equal(printed_lines(&s, line, 1), 1);
    const struct json *list = json_get(line[0], "logprobs");
    int certain = 0, never = 0;
    for (size_t i = 0; i < json_count(list); i += 2) { // of token 0
        assert_true(json_is_number(json_at(list, i)));
        certain += json_number(json_at(list, i)) == 0;
        never += json_number(json_at(list, i)) < -1000;
    }
    assert_true(certain > 0 && never > 0 && certain + never == 10);
    json_free(line[0]);
    child_result_free(&s);
    free(names);
    free(file);
    free(path);
}

static void answers_to_ids_need_no_chat_template(void **state)
{
    struct small_model t = small_default;
    char *odd = test_path("unknown-chat"), *file = xformat("%s/tokenizer_config.json", odd);
    small_write_hf(odd, &t);
    FILE *f = fopen(file, "w");
    assert_true(f != NULL && fputs("{\"chat_template\": \"{{ odd\"}", f) >= 0 && fclose(f) == 0);
    struct child_result s =
        child_run_with("{\"input_ids\": [9, 8, 7], \"answer\": \"hello\"}\n", "inspect --score --answers %s", odd);
    child_expect_success(&s, "inspect --score --answers of ids");
    child_result_free(&s);
    s = child_run_with("{\"prompt\": \"ab\", \"answer\": \"hello\"}\n", "inspect --score --answers %s", odd);
    assert_int_equal(s.status, 1);
    assert_non_null(strstr(s.err, "chat: none"));
    child_result_free(&s);
    s = child_run_with("ab", "generate %s --tokens 1 -", odd); // nor is a prompt from stdin accepted without one
    assert_int_equal(s.status, 1);
    assert_string_equal(s.out, "");
    assert_non_null(strstr(s.err, "chat: none"));
    child_result_free(&s);
    free(file);
    free(odd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_inverts_encoding),
        cmocka_unit_test(probabilities_of_all_next_tokens_sum_to_1),
        cmocka_unit_test(a_long_text_scores_like_its_beginning),
        cmocka_unit_test(an_answer_is_scored_after_its_prompt),
        cmocka_unit_test(a_text_scores_the_same_after_shorter_ones),
        cmocka_unit_test(one_logit_far_from_the_others_is_scored),
        cmocka_unit_test(answers_to_ids_need_no_chat_template),
    };
    return run_with_models(tests);
}
