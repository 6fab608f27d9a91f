// test_commands.c - the program from outside: help, errors, what is said of models and runs; output, streams and exit status.
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
#include "core/files/input.h"
#include "sampling/sampling.h"
#include "tests/cli/child_process.h"
#include "tests/cli/printed_json.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

static void help_goes_to_stdout_and_usage_errors_do_not(void **state)
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

static void list_contains_everything_registered(void **state)
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

static void inspect_reports_the_cost_of_a_pass(void **state)
{
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
    s = child_run("inspect %s --json --no-probe --tensors", models.gguf);
    child_expect_success(&s, "inspect");
    assert_non_null(strstr(s.out, "model.layers.2.mlp.down_proj.weight"));
    assert_non_null(strstr(s.out, "chatml"));
    child_result_free(&s);
}

// The limit is bytes of a pass over bytes/s, as a time and as a rate.
static void inspect_reports_the_limit_set_by_memory(void **state)
{
    struct child_result s = child_run("inspect %s --json --threads 1 --context 10", models.gguf);
    child_expect_success(&s, "inspect");
    struct json *j = child_result_json(&s);
    const struct json *memory = json_get(j, "memory");
    const double seconds = (517888 + 10 * 768) / json_number(json_get(memory, "bytes_per_second"));
    assert_int_equal(json_int(json_get(memory, "threads")), 1);
    assert_true(json_int(json_get(memory, "passes")) > 0 && json_int(json_get(memory, "bytes")) > 0);
    assert_true(fabs(json_number(json_get(memory, "seconds_per_token")) / seconds - 1) < 1e-9);
    assert_true(fabs(json_number(json_get(memory, "tokens_per_second")) * seconds - 1) < 1e-9);
    json_free(j);
    child_result_free(&s);
}

static void missing_files_and_bad_values_are_one_sentence(void **state)
{
    struct small_model t = small_default;
    char *empty = test_path("no-weights"), *file = xformat("%s/model.safetensors", empty);
    small_write_hf(empty, &t);
    remove(file);
    char *words[] = { xformat("inspect --json %s --no-probe", empty),
                      xformat("inspect --json %s --no-probe --device cuda:15", models.gguf),
                      xformat("generate %s -", models.no_tokenizer),
                      xformat("generate %s --tokens ' 5' x", models.gguf),
                      xformat("generate %s --seed '' x", models.gguf),
                      xstrdup("generate no-such-model --threads 1025 x"),
                      xformat("inspect %s --json=yes", models.gguf),
                      xformat("inspect --json %s --help=yes", models.gguf) };
    child_expect_error(1, "no-weights", words[0]);
    child_expect_error(1, "cuda", words[1]);
    child_expect_error(1, "tokenizer", words[2]);
    child_expect_error(2, "--tokens: expected an integer from 1 to 16777216, found \" 5\"", words[3]);
    child_expect_error(2, "--seed: expected an integer from 0", words[4]);
    child_expect_error(2, "--threads: expected an integer from 1 to 1024, found \"1025\"", words[5]);
    child_expect_error(2, "--json takes no value", words[6]);
    child_expect_error(2, "unknown option --help=yes", words[7]);
    child_expect_error(2, "--tree: expected an integer from 1 to 511, found \"512\"", "heads x.yaml --tree 512");
    child_expect_error(2, "unknown command \"anything\"; speclab --help lists all commands", "anything");
    child_expect_error(2, "unknown command \"ilst\"; did you mean list?", "ilst");
    child_expect_error(2, "/no/such.db: no such database; `speclab run FILE.yaml --db /no/such.db` creates it",
                       "report --db /no/such.db --csv");
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        free(words[i]);
    free(file);
    free(empty);
}

// Commands that write a model report its size: compared with inspect, and computed from its shape.
static void a_vocabulary_alone_is_tokenized(void **state)
{
    static const char *const forms[] = { "model", "gguf", "json" };
    for (int i = 0; i < 3; i++) { // the ids are those of the golden file
        struct child_result s =
            child_run_with("{\"text\": \"  a  b  \"}\n", "inspect --tokenize %s/pieces/unigram.%s", CASES, forms[i]);
        child_expect_success(&s, forms[i]);
        assert_string_equal(s.out, "{\"ids\":[507,262,269]}\n");
        child_result_free(&s);
    }
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
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 130 || strstr(text, expected) == NULL)
        fail_msg("status %d: %s", status, text);
    free(expected), free(text), free(log), free(db), free(prompts), free(yaml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_goes_to_stdout_and_usage_errors_do_not),
        cmocka_unit_test(list_contains_everything_registered),
        cmocka_unit_test(inspect_reports_the_cost_of_a_pass),
        cmocka_unit_test(inspect_reports_the_limit_set_by_memory),
        cmocka_unit_test(missing_files_and_bad_values_are_one_sentence),
        cmocka_unit_test(a_vocabulary_alone_is_tokenized),
        cmocka_unit_test(an_interrupted_run_reports_how_to_resume),
    };
    return run_with_models(tests);
}
