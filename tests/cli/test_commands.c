// test_commands.c - the program from outside: output, streams and exit status.
#include "tests/support/check.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "formats/file.h"
#include "sampling/sampling.h"
#include "tests/cli/child_process.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

static void help_goes_to_stdout_and_usage_errors_do_not(void **state)
{
    (void)state;
    const char *commands[] = {
        "", "generate ", "tokenize ", "score ", "inspect ", "prune ", "list ", "run ", "report "
    };
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

static void list_contains_everything_registered(void **state)
{
    (void)state;
    struct child_result text = child_run("list"), json = child_run("list --json");
    child_expect_success(&text, "list");
    struct json *j = child_result_json(&json);
    size_t n = 0;
    for (; drafter_types[n] != NULL; n++) {
        assert_non_null(strstr(text.out, drafter_types[n]->name));
        assert_string_equal(json_text(json_get(json_at(json_get(j, "drafters"), n), "name")), drafter_types[n]->name);
    }
    assert_int_equal(json_count(json_get(j, "drafters")), n);
    for (n = 0; rules[n] != NULL; n++) {
        const struct json *r = json_at(json_get(j, "rules"), n);
        assert_non_null(strstr(text.out, rules[n]->name));
        assert_string_equal(json_text(json_get(r, "name")), rules[n]->name);
        assert_int_equal(json_bool(json_get(r, "exact")), rules[n]->exact);
    }
    for (n = 0; stages[n] != NULL; n++) {
        assert_non_null(strstr(text.out, stages[n]->name));
        assert_string_equal(json_text(json_get(json_at(json_get(j, "stages"), n), "name")), stages[n]->name);
    }
    json_free(j);
    child_result_free(&text);
    child_result_free(&json);
}

// Runs generate --json, checks its steps, and returns the object.
static struct json *generated(const char *arguments)
{
    struct child_result s = child_run("generate --json %s", arguments);
    child_expect_success(&s, arguments);
    struct json *j = child_result_json(&s);
    int64_t kept = 0, accepted = 0;
    const struct json *steps = json_get(j, "steps");
    for (size_t i = 0; i < json_count(steps); i++) {
        const struct json *step = json_at(steps, i);
        kept += json_int(json_get(step, "kept"));
        accepted += json_int(json_get(step, "accepted"));
        assert_true(json_int(json_get(step, "accepted")) <= json_int(json_get(step, "depth")));
        assert_true(json_int(json_get(step, "depth")) <= json_int(json_get(step, "drafted")));
        assert_true(json_int(json_get(step, "verify_ns")) > 0);
    }
    assert_int_equal(kept, json_count(json_get(j, "new_ids")));
    assert_true(accepted <= kept);
    child_result_free(&s);
    return j;
}

static void assert_same_ids(const struct json *a, const struct json *b, const char *what)
{
    a = json_get(a, "new_ids");
    b = json_get(b, "new_ids");
    assert_int_equal(json_count(a), json_count(b));
    for (size_t i = 0; i < json_count(a); i++)
        if (json_int(json_at(a, i)) != json_int(json_at(b, i)))
            fail_msg("%s: token %zu is %lld, expected %lld", what, i, (long long)json_int(json_at(b, i)),
                     (long long)json_int(json_at(a, i)));
}

static void every_drafter_gives_the_text_of_none(void **state)
{
    (void)state;
    const char *drafters[] = { "ngram", "ngram:longest=2,tokens=5", "small:model=%s,tokens=4,pick=greedy",
                               "small:model=%s,widths=[3,2,1]", "small:model=%s,nodes=9,tokens=4,pick=greedy" };
    const char *modes[] = { "", "--rule match --temperature 1 --seed 11" };
    for (size_t w = 0; w < 2; w++) {
        char *arguments =
            xformat("%s --ids '[5, 6, 7, 5, 6, 7, 5, 6]' --tokens 40 --ignore-end %s", models.gguf, modes[w]);
        struct json *plain = generated(arguments);
        assert_int_equal(json_count(json_get(plain, "new_ids")), 40);
        for (size_t i = 0; i < sizeof(drafters) / sizeof(drafters[0]); i++) {
            char *drafter = words_with(drafters[i], models.draft),
                 *line = xformat("%s --drafter %s", arguments, drafter);
            struct json *j = generated(line);
            assert_same_ids(plain, j, line);
            json_free(j);
            free(line);
            free(drafter);
        }
        json_free(plain);
        free(arguments);
    }
}

static void both_formats_and_a_padded_draft_model_give_equal_texts(void **state)
{
    (void)state;
    char *a = xformat("%s --tokens 20 Hello", models.gguf),
         *b = xformat("%s --tokens 20 Hello --drafter small:model=%s", models.hf, models.padded);
    struct json *x = generated(a), *y = generated(b);
    assert_same_ids(x, y, b);
    assert_string_equal(json_text(json_get(x, "text")), json_text(json_get(y, "text")));
    json_free(x);
    json_free(y);
    free(a);
    free(b);
}

static void a_trace_contains_each_draft(void **state)
{
    (void)state;
    char *arguments = xformat(
        "%s --ids '[5, 6, 7]' --tokens 12 --ignore-end --temperature 1 --trace --drafter small:model=%s,widths=[2,2]",
        models.gguf, models.draft);
    struct json *j = generated(arguments);
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
    (void)state;
    const char *options =
        "--rule match --temperature 1 --seed 5 --tokens 40 --ignore-end --logit-bias {3:-99}"; // no NUL bytes
    struct child_result s = child_run("generate %s %s Hello", models.gguf, options);
    struct child_result same = child_run_with("Hello\n", "generate %s %s --drafter ngram -", models.hf, options);
    child_expect_success(&s, "generate");
    child_expect_success(&same, "generate -");
    char *arguments = xformat("%s %s Hello", models.gguf, options);
    struct json *j = generated(arguments);
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
    (void)state;
    int tried = 0;
    for (int seed = 0; seed < 20; seed++) {
        char *arguments = xformat(
            "%s --chat none --tokens 60 --ignore-end --rule match --temperature 1 --logit-bias {3:-99} --seed %d abc",
            models.gguf, seed);
        struct json *whole = generated(arguments);
        const char *text = json_text(json_get(whole, "text")), *word = a_word_of(text);
        if (word != NULL) {
            char *stopped =
                xformat("%s --drafter small:model=%s --stop zzzzz --stop '%.3s'", arguments, models.draft, word);
            struct json *j = generated(stopped);
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

static void ids_need_no_tokenizer(void **state)
{
    (void)state;
    char *arguments = xformat("%s --ids '[295, 0, 7]' --tokens 5", models.no_tokenizer);
    struct json *j = generated(arguments);
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

static void decoding_inverts_encoding(void **state)
{
    (void)state;
    const char *lines =
        "{\"text\":\"plain words\"}\n{\"text\":\"\"}\n{\"text\":\"caf\xC3\xA9 \xF0\x9F\x98\x80 \\u0000 \\n\"}\n"
        "{\"text\":\"<|im_start|>user\"}\n";
    const char *both[] = { models.hf, models.gguf };
    char *first = NULL;
    for (int m = 0; m < 2; m++) {
        struct child_result ids = child_run_with(lines, "tokenize %s", both[m]);
        child_expect_success(&ids, "tokenize");
        struct child_result text = child_run_with(ids.out, "tokenize --decode %s", both[m]);
        child_expect_success(&text, "tokenize --decode");
        assert_string_equal(text.out, lines);
        if (first != NULL)
            assert_string_equal(first, ids.out);
        free(first);
        first = xstrdup(ids.out);
        child_result_free(&ids);
        child_result_free(&text);
    }
    struct child_result bad = child_run_with("{\"text\":\"a\"}\n\n{\"text\": \"a\" 5}\n", "tokenize %s", models.gguf);
    assert_int_equal(bad.status, 1);
    assert_non_null(strstr(bad.err, "stdin:3:14: not valid JSON")); // its own line and column
    child_result_free(&bad);
    struct child_result plain = child_run_with("{\"text\":\"<|im_end|>\"}\n", "tokenize --no-special %s", models.gguf);
    struct child_result whole = child_run_with("{\"text\":\"<|im_end|>\"}\n", "tokenize %s", models.gguf);
    assert_true(strlen(plain.out) > strlen(whole.out));
    child_result_free(&plain);
    child_result_free(&whole);
    free(first);
}

// Lines of stdout, each parsed.
static size_t lines_of(const struct child_result *s, struct json **to, size_t capacity)
{
    size_t n = 0;
    struct error err;
    for (const char *at = s->out; *at != '\0' && n < capacity; n++) {
        size_t length = strcspn(at, "\n");
        to[n] = json_parse(at, length, "line", &err);
        assert_non_null(to[n]);
        at += length + (at[length] == '\n');
    }
    return n;
}

static void probabilities_of_all_next_tokens_sum_to_1(void **state)
{
    (void)state;
    struct text in = { 0 };
    struct json *line[300];
    for (int x = 0; x < small_default.vocab; x++)
        text_printf(&in, "{\"ids\":[9,8,7,%d]}\n", x);
    struct child_result s = child_run_with(in.s, "score %s", models.gguf);
    child_expect_success(&s, "score");
    size_t n = lines_of(&s, line, 300);
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
    (void)state;
    struct text in = { 0 };
    struct json *line[3];
    const int lengths[] = { 400, 130, 129 };
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < lengths[l]; i++)
            text_printf(&in, i == 0 ? "{\"ids\":[%d" : i + 1 < lengths[l] ? ",%d" : ",%d]}\n", i * i % 251);
    struct child_result s = child_run_with(in.s, "score %s", models.gguf);
    child_expect_success(&s, "score");
    assert_int_equal(lines_of(&s, line, 3), 3);
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

// The ids of a text by `tokenize`, as "9,8,7".
static char *ids_of(const char *text, const char *flags)
{
    struct json *line[1], *in = json_new_object();
    json_set(in, "text", json_new_text(text));
    char *written = json_write(in);
    struct child_result s = child_run_with(written, "tokenize %s %s", flags, models.gguf);
    child_expect_success(&s, "tokenize");
    assert_int_equal(lines_of(&s, line, 1), 1);
    char *ids = json_write(json_get(line[0], "ids"));
    ids[strlen(ids) - 1] = '\0';
    memmove(ids, ids + 1, strlen(ids));
    json_free(line[0]);
    json_free(in);
    free(written);
    child_result_free(&s);
    return ids;
}

// --answers gives an answer the same scores as the end of a text that begins with the prompt.
static void an_answer_is_scored_after_its_prompt(void **state)
{
    (void)state;
    static const char *const answer[] = { "wx y<|im_end|>", "z", "hello" };
    char *arguments = xformat("%s --chat chatml --tokens 1 ab", models.gguf), *prompt[3], *own[3];
    struct json *j = generated(arguments), *hand[3], *got[4] = { NULL };
    prompt[0] = json_write(json_get(j, "prompt_ids"));
    struct text lines = { 0 };
    text_printf(&lines, "{\"ids\": %s}\n", prompt[0]);
    struct child_result s = child_run_with(lines.s, "tokenize --decode %s", models.gguf);
    assert_int_equal(lines_of(&s, got, 1), 1);
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
    s = child_run_with(lines.s, "score %s", models.gguf);
    child_expect_success(&s, "score");
    assert_int_equal(lines_of(&s, hand, 3), 3);
    child_result_free(&s);

    s = child_run_with(
        "{\"id\": \"x\", \"turns\": [\"ab\", \"cd\", \"no answer\"], \"answer\": [\"wx y<|im_end|>\", \"z\"]}\n"
        "{\"input_ids\": [9, 8, 7], \"answer\": \"hello\"}\n"
        "{\"prompt\": \"ab\", \"answer\": \"\"}\n",
        "score --answers --chat chatml %s", models.gguf);
    child_expect_success(&s, "score --answers");
    assert_int_equal(lines_of(&s, got, 4), 4);
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
    if (strstr(s.err, total) == NULL)
        fail_msg("expected \"%s\": %s", total, s.err);
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

static void generate_reports_the_precision(void **state)
{
    (void)state;
    char *arguments =
        xformat("%s --ids [5] --tokens 2 --activations bf16 --drafter small:model=%s", models.gguf, models.draft);
    struct json *j = generated(arguments);
    const struct json *settings = json_get(j, "settings"), *drafter = json_get(settings, "drafter");
    assert_string_equal(json_text(json_get(settings, "activations")), "bf16");
    assert_string_equal(json_text(json_get(settings, "cache")), "f32");
    assert_string_equal(json_text(json_get(drafter, "activations")), "f32");
    assert_string_equal(json_text(json_get(drafter, "cache")), "f32");
    json_free(j);
    free(arguments);
}

static void inspect_reports_the_cost_of_a_pass(void **state)
{
    (void)state;
    struct child_result s = child_run("inspect %s --json --context 10", models.hf);
    child_expect_success(&s, "inspect");
    struct json *j = child_result_json(&s);
    const struct json *pass = json_get(j, "pass");
    // The shape of small_default: 3 layers of q, o 64x64, k, v 32x64, three of 128x64, two norms; a last norm; a head and a
    // table of 288x64, of which a pass reads the head.
    double matrices = 3 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64) + 288 * 64, vectors = 7 * 64;
    assert_int_equal(json_int(json_get(j, "layers")), 3);
    assert_true((double)json_int(json_get(j, "parameters")) == matrices + vectors + 288 * 64);
    assert_int_equal(json_int(json_get(j, "cache_bytes_per_token")), 3 * 2 * 32 * 4);
    assert_true(json_number(json_get(pass, "flops")) == 2 * matrices + 3 * 4 * 64 * 10);
    assert_true(json_number(json_get(pass, "bytes")) == 4 * (matrices + vectors) + 10 * 768);
    assert_true(json_number(json_get(json_get(j, "memory"), "bytes_per_second")) > 1e6);
    assert_int_equal(json_count(json_get(j, "ignored")), 0);
    json_free(j);
    child_result_free(&s);
    s = child_run("inspect %s --json --context 10 --no-probe --cache bf16 --activations bf16", models.hf);
    child_expect_success(&s, "inspect --cache bf16");
    j = child_result_json(&s);
    assert_string_equal(json_text(json_get(j, "cache")), "bf16");
    assert_string_equal(json_text(json_get(j, "activations")), "bf16");
    assert_int_equal(json_int(json_get(j, "cache_bytes_per_token")), 3 * 2 * 32 * 2);
    assert_true(json_number(json_get(json_get(j, "pass"), "bytes")) == 4 * (matrices + vectors) + 10 * 384);
    json_free(j);
    child_result_free(&s);
    s = child_run("inspect %s --no-probe --tensors", models.gguf);
    child_expect_success(&s, "inspect");
    assert_non_null(strstr(s.out, "model.layers.2.mlp.down_proj.weight"));
    assert_non_null(strstr(s.out, "chatml"));
    child_result_free(&s);
}

static void a_pruned_model_works_as_a_draft_model(void **state)
{
    (void)state;
    const char *both[] = { models.hf, models.gguf }, *names[] = { "pruned", "pruned.gguf" };
    for (int m = 0; m < 2; m++) {
        char *to = test_path(names[m]);
        struct child_result s = child_run("prune %s --keep 0,2 --out %s", both[m], to);
        child_expect_success(&s, "prune");
        assert_non_null(strstr(s.out, "2 of 3 layers"));
        char *plain = xformat("%s --ids '[5, 6]' --tokens 20", both[m]),
             *drafted = xformat("%s --drafter small:model=%s", plain, to);
        struct json *a = generated(plain), *b = generated(drafted);
        assert_same_ids(a, b, drafted);
        json_free(a);
        json_free(b);
        free(plain);
        free(drafted);
        child_result_free(&s);
        free(to);
    }
}

static void a_system_message_precedes_the_prompt(void **state)
{
    (void)state;
    char *arguments = xformat("%s --system 'Be brief' --tokens 1 ab", models.gguf);
    struct json *j = generated(arguments);
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
    (void)state;
    char *arguments =
        xformat("%s --seed 7 --temperature 0.5 --top-k 20 --rule match --drafter ngram:longest=2 --stop zzzz "
                "--ignore-end --chat none abc",
                models.gguf);
    struct json *j = generated(arguments);
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

// A cache created for a short text is too short for the next one.
static void a_text_scores_the_same_after_shorter_ones(void **state)
{
    (void)state;
    struct text alone = { 0 }, both = { 0 };
    struct json *x[1], *y[3];
    for (int i = 0; i < 400; i++)
        text_printf(&alone, i == 0 ? "{\"ids\":[%d" : i + 1 < 400 ? ",%d" : ",%d]}\n", i * i % 251);
    text_printf(&both, "{\"ids\":[3,4]}\n%s{\"ids\":[3,4]}\n", alone.s);
    struct child_result a = child_run_with(alone.s, "score %s", models.gguf),
                        b = child_run_with(both.s, "score %s", models.gguf);
    child_expect_success(&a, "score of one text");
    child_expect_success(&b, "score of three texts");
    assert_int_equal(lines_of(&a, x, 1), 1);
    assert_int_equal(lines_of(&b, y, 3), 3);
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
    (void)state;
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
    struct child_result s = child_run_with("{\"ids\":[9,0,8,0,7,0,6,0,5,0,4,0,3,0,2,0,11,0,12,0]}\n", "score %s", path);
    child_expect_success(&s, "score");
    struct json *line[1];
    assert_int_equal(lines_of(&s, line, 1), 1);
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
    (void)state;
    struct small_model t = small_default;
    char *odd = test_path("unknown-chat"), *file = xformat("%s/tokenizer_config.json", odd);
    small_write_hf(odd, &t);
    FILE *f = fopen(file, "w");
    assert_true(f != NULL && fputs("{\"chat_template\": \"{{ odd }}\"}", f) >= 0 && fclose(f) == 0);
    struct child_result s =
        child_run_with("{\"input_ids\": [9, 8, 7], \"answer\": \"hello\"}\n", "score --answers %s", odd);
    child_expect_success(&s, "score --answers of ids");
    child_result_free(&s);
    s = child_run_with("{\"prompt\": \"ab\", \"answer\": \"hello\"}\n", "score --answers %s", odd);
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

// The limit is bytes of a pass over bytes/s, printed as a time and as a rate.
static void inspect_reports_the_limit_set_by_memory(void **state)
{
    (void)state;
    struct child_result s = child_run("inspect %s --threads 1 --context 10", models.gguf);
    child_expect_success(&s, "inspect");
    const char *memory = strstr(s.out, "\nmemory      "), *limit = strstr(s.out, "\nlimit       ");
    assert_true(memory != NULL && limit != NULL);
    double speed, milliseconds, tokens;
    char unit;
    int threads;
    assert_int_equal(sscanf(memory, " memory %lf %cB/s read by %d threads", &speed, &unit, &threads), 3);
    assert_int_equal(sscanf(limit, " limit %lf ms per token, %lf tokens/s", &milliseconds, &tokens), 2);
    assert_int_equal(threads, 1);
    assert_true(unit == 'G' || unit == 'M' || unit == 'k');
    const double seconds = (517888 + 10 * 768) / (speed * (unit == 'G' ? 1e9 : unit == 'M' ? 1e6 : 1e3));
    assert_true(fabs(milliseconds / 1e3 / seconds - 1) < 0.02); // of three digits each
    assert_true(fabs(tokens * seconds - 1) < 0.02);
    child_result_free(&s);
}

static void missing_files_and_bad_values_are_one_sentence(void **state)
{
    (void)state;
    struct small_model t = small_default;
    char *empty = test_path("no-weights"), *file = xformat("%s/model.safetensors", empty);
    small_write_hf(empty, &t);
    remove(file);
    char *words[] = {
        xformat("inspect %s --no-probe", empty),         xformat("inspect %s --no-probe --device cuda:15", models.gguf),
        xformat("generate %s -", models.no_tokenizer),   xformat("generate %s --tokens ' 5' x", models.gguf),
        xformat("generate %s --seed '' x", models.gguf), xstrdup("generate no-such-model --threads 1025 x"),
        xformat("inspect %s --json=yes", models.gguf),   xformat("inspect %s --help=yes", models.gguf)
    };
    child_expect_error(1, "no-weights", words[0]);
    child_expect_error(1, "cuda", words[1]);
    child_expect_error(1, "tokenizer", words[2]);
    child_expect_error(2, "--tokens: expected an integer from 1 to 16777216, found \" 5\"", words[3]);
    child_expect_error(2, "--seed: expected an integer from 0", words[4]);
    child_expect_error(2, "--threads: expected an integer from 1 to 1024, found \"1025\"", words[5]);
    child_expect_error(2, "--json takes no value", words[6]);
    child_expect_error(2, "unknown option --help=yes", words[7]);
    child_expect_error(2, "--tree: expected an integer from 1 to 511, found \"512\"", "heads x.yaml --tree 512");
    child_expect_error(2, "draft_vocab: expected an integer from 1 to 16777216",
                       "make eagle3:of=x,draft_vocab=16777217 --out x");
    child_expect_error(2, "unknown command \"anything\"; speclab --help lists all commands", "anything");
    child_expect_error(2, "unknown command \"ilst\"; did you mean list?", "ilst");
    child_expect_error(2, "/no/such.db: no such database; `speclab run FILE.yaml --db /no/such.db` creates it",
                       "report --db /no/such.db");
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        free(words[i]);
    free(file);
    free(empty);
}

// Commands that write a model report its size: compared with inspect, and computed from its shape.
static void written_models_have_the_requested_shape(void **state)
{
    (void)state;
    char *made = test_path("made.gguf"), *large = test_path("large"), *q8 = test_path("q8.gguf"),
         *again = test_path("again.gguf");
    struct child_result s =
        child_run("make smollm2-135m:layers=2,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,vocab=320,"
                  "context=77,type=f32 --out %s",
                  made);
    child_expect_success(&s, "make");
    child_result_free(&s);
    s = child_run("inspect %s --no-probe --json", made);
    struct json *j = child_result_json(&s);
    const char *keys[] = { "layers", "width", "heads", "kv_heads", "head_dim", "hidden", "vocab", "context" };
    const int values[] = { 2, 64, 4, 2, 16, 96, 320, 77 };
    for (int i = 0; i < 8; i++)
        assert_int_equal(json_int(json_get(j, keys[i])), values[i]);
    json_free(j);
    child_result_free(&s);
    // 147,904 numbers of small_default; twice the width, its matrices have twice the rows or columns, or both: 4 layers
    // of q, o 128x64, k, v 32x128, three of 128x128 and two norms of 128; head and table of 288x128, a last norm.
    s = child_run("inflate %s --width 128 --layers 4 --out %s", models.hf, large);
    child_expect_success(&s, "inflate");
    const double numbers = 4 * (2 * 128 * 64 + 2 * 32 * 128 + 3 * 128 * 128 + 2 * 128) + 2 * 288 * 128 + 128;
    char *line = xformat("%s: %.1f million parameters, %.1f MB, in ", large, numbers / 1e6, 4 * numbers / 1e6);
    assert_int_equal(strncmp(s.out, line, strlen(line)), 0);
    assert_non_null(strstr(s.out, "\nwidth 128 (64), hidden 128 (128), 4 heads on 2 (4 on 2), 4 layers (3)\n"));
    free(line);
    child_result_free(&s);
    // 3 layers of 7 matrices, head and table.
    s = child_run("quantize %s --type q8_0 --out %s", models.gguf, q8);
    child_expect_success(&s, "quantize");
    assert_non_null(strstr(s.out, "\n23 matrices are q8_0 now\n"));
    child_result_free(&s);
    s = child_run("quantize %s --type q8_0 --out %s", q8, again);
    child_expect_success(&s, "quantize of what is quantized");
    assert_non_null(strstr(s.out, "\n0 matrices are q8_0 now, 23 were before\n"));
    child_result_free(&s);
    free(made), free(large), free(q8), free(again);
}

static void make_fails_if_stdout_fails(void **state)
{
    (void)state;
    char *made = test_path("unreported.gguf");
    struct child_result s = child_run_to("/dev/full",
                                         "make smollm2-135m:layers=1,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,"
                                         "vocab=320,type=f32 --out %s",
                                         made);
    assert_int_equal(s.status, 1);
    assert_non_null(strstr(s.err, "cannot write to stdout"));
    child_result_free(&s);
    free(made);
}

// Whether the process has installed a handler for the signal, according to the kernel.
static bool catches(pid_t pid, int number)
{
    unsigned long long caught = 0;
    char *path = xformat("/proc/%d/status", (int)pid), line[256];
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "SigCgt: %llx", &caught) == 1)
            break;
    if (f != NULL)
        fclose(f);
    free(path);
    return (caught >> (number - 1) & 1) != 0;
}

static void an_interrupted_run_reports_how_to_resume(void **state)
{
    (void)state;
    char *yaml = test_path("long.yaml"), *prompts = test_path("many.jsonl"), *db = test_path("long.db"),
         *log = test_path("log");
    FILE *f = fopen(yaml, "w");
    assert_non_null(f);
    fprintf(f,
            "name: long\ntarget: {model: %s}\nthreads: 1\nprompts: {file: %s, chat: none}\n"
            "limits: {new_tokens: 400, context: 500, ignore_end: true}\ncells:\n  sampling: [{temperature: 1}]\n"
            "  drafter: [none]\n",
            models.gguf, prompts);
    fclose(f);
    f = fopen(prompts, "w");
    assert_non_null(f);
    for (int i = 0; i < 400; i++) // minutes of work: it cannot finish before the signal
        fprintf(f, "{\"id\": \"%d\", \"prompt\": \"abc %d\"}\n", i, i);
    fclose(f);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int to = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(to, 1);
        dup2(to, 2);
        execl(SPECLAB, SPECLAB, "run", yaml, "--db", db, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    pid_t gone = 0;
    while (!catches(pid, SIGINT) && (gone = waitpid(pid, &status, WNOHANG)) == 0)
        usleep(2000);
    if (gone == 0) {
        kill(pid, SIGINT);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    struct error err;
    char *text = file_text(log, NULL, &err);
    char *expected =
        xformat("speclab run: interrupted; finished texts are in %s; the same command resumes from there\n", db);
    assert_non_null(text);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || strstr(text, expected) == NULL)
        fail_msg("status %d: %s", status, text);
    free(expected), free(text), free(log), free(db), free(prompts), free(yaml);
}

int main(void)
{
    if (!child_is_present()) {
        fprintf(stderr, "the program was not built: skipped\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_goes_to_stdout_and_usage_errors_do_not),
        cmocka_unit_test(list_contains_everything_registered),
        cmocka_unit_test(every_drafter_gives_the_text_of_none),
        cmocka_unit_test(both_formats_and_a_padded_draft_model_give_equal_texts),
        cmocka_unit_test(a_trace_contains_each_draft),
        cmocka_unit_test(streamed_text_equals_json_text),
        cmocka_unit_test(a_stop_string_ends_the_text_and_is_left_out),
        cmocka_unit_test(ids_need_no_tokenizer),
        cmocka_unit_test(decoding_inverts_encoding),
        cmocka_unit_test(probabilities_of_all_next_tokens_sum_to_1),
        cmocka_unit_test(a_long_text_scores_like_its_beginning),
        cmocka_unit_test(an_answer_is_scored_after_its_prompt),
        cmocka_unit_test(generate_reports_the_precision),
        cmocka_unit_test(inspect_reports_the_cost_of_a_pass),
        cmocka_unit_test(a_pruned_model_works_as_a_draft_model),
        cmocka_unit_test(a_system_message_precedes_the_prompt),
        cmocka_unit_test(generate_reports_its_settings),
        cmocka_unit_test(a_text_scores_the_same_after_shorter_ones),
        cmocka_unit_test(one_logit_far_from_the_others_is_scored),
        cmocka_unit_test(answers_to_ids_need_no_chat_template),
        cmocka_unit_test(inspect_reports_the_limit_set_by_memory),
        cmocka_unit_test(missing_files_and_bad_values_are_one_sentence),
        cmocka_unit_test(written_models_have_the_requested_shape),
        cmocka_unit_test(make_fails_if_stdout_fails),
        cmocka_unit_test(an_interrupted_run_reports_how_to_resume),
    };
    return cmocka_run_group_tests(tests, models_make, models_remove);
}
