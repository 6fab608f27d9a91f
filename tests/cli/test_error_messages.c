// test_error_messages.c - every error is one clear sentence on stderr, nothing on stdout, and exit status 2 (wrong usage)
// or 1 (failure).
#include "tests/support/check.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "core/memory.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static void expect_error(const struct child_result *s, int status, const char *with, const char *what)
{
    const char *end = strchr(s->err, '\n');
    if (s->status != status || end == NULL || end[1] != '\0' || strncmp(s->err, "speclab", 7) != 0 ||
        strstr(s->err, with) == NULL)
        fail_msg("%s: expected status %d and one sentence with \"%s\", got status %d and: %s", what, status, with,
                 s->status, s->err);
    if (*s->out != '\0')
        fail_msg("%s: expected nothing on stdout, got: %s", what, s->out);
}

static void usage_errors_are_one_sentence_and_status_2(void **state)
{
    const struct {
        const char *words, *with; // %s: the target
    } mistakes[] = {
        { "genrate %s x", "did you mean generate" },
        { "frobnicate %s", "unknown command" },
        { "generate %s --tokns 3 x", "did you mean --tokens" },
        { "generate %s --tokens 1x x", "\"1x\"" },
        { "generate %s --tokens 0 x", "from 1 to" },
        { "generate %s --tokens 99999999999999999999 x", "expected an integer" },
        { "generate %s --seed -1 x", "--seed" },
        { "generate %s x --tokens", "requires a value" },
        { "generate %s --json=yes x", "takes no value" },
        { "generate %s -q x", "unknown option -q" },
        { "generate %s --tokens 3 --tokens 4 x", "--tokens is given twice; expected it once" },
        { "inspect %s --json --json", "--json is given twice; expected it once" },
        { "generate %s", "missing prompt" },
        { "generate", "missing" },
        { "generate %s one two", "unexpected argument \"two\"" },
        { "generate %s --ids [1] x", "found both" },
        { "generate %s --trace x", "--json" },
        { "generate %s --stop '' x", "--stop" },
        { "generate %s --stop a\xFF x", "--stop is not UTF-8: byte 0xFF at offset 1" },
        { "generate %s --chat jinja x", "\"jinja\"" },
        { "generate %s --activations f8 x", "--activations: expected one of default|f32|bf16|int8, found \"f8\"" },
        { "generate %s --device gpu x",
          "--device: expected cpu, cpu:ISA, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"gpu\"" },
        { "inspect --score %s --device cuda:99",
          "--device: expected cpu, cpu:ISA, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"cuda:99\"" },
        { "inspect --json %s --device cuda:-1",
          "--device: expected cpu, cpu:ISA, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"cuda:-1\"" },
        { "bench --json %s --device cpu:avx3",
          "--device: expected cpu:plain, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, neon or neon_dotprod, found \"cpu:avx3\"" },
        { "bench --json %s --device ''",
          "--device: expected cpu, cpu:ISA, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"\"" },
        { "generate %s --cache f3 x", "--cache: expected one of default|f32|bf16|q8_0, found \"f3\"" },
        { "generate %s --drafter small:model=m,cache=f8 x", "default|f32|bf16|q8_0" },
        { "generate %s --temperature warm x", "temperature" },
        { "generate %s --temperature -1 x", "temperature" },
        { "generate %s --top-p 1.5 x", "sampling: top_p: expected a number from 0 to 1, found 1.5" },
        { "generate %s --logit-bias '{a: 1}' x", "logit_bias" },
        { "generate %s --drafter ngrm x", "unknown drafter \"ngrm\" (known: none, " },
        { "generate %s --logit-bias '{junk,5:3}' x",
          "sampling: logit_bias: expected KEY: VALUE, found \"junk\" in \"{junk,5:3}\"" },
        { "generate %s --logit-bias '{5}' x", "sampling: logit_bias: expected KEY: VALUE, found \"5\"" },
        { "generate %s --logit-bias '{5:1,,}' x", "sampling: logit_bias: expected KEY: VALUE, found \"\"" },
        { "generate %s --logit-bias '{:1}' x", "sampling: logit_bias: expected KEY: VALUE, found \":1\"" },
        { "generate %s --logit-bias '{5: 1, 5 : 2}' x",
          "sampling: logit_bias: \"5\" is given twice in \"{5: 1, 5 : 2}\"" },
        { "generate %s --drafter ngram:lenght=3 x", "lenght" },
        { "generate %s --drafter ngram:longest=long x", "drafter ngram: longest: expected an integer, found \"long\"" },
        { "generate %s --drafter ngram:longest=0 x",
          "drafter ngram: longest: expected an integer from 1 to 64, found 0" },
        { "generate %s --drafter ngram:longest x", "key=value" },
        { "generate %s --drafter small x", "needs \"model\"" },
        { "generate %s --drafter small:model=m,pick=best x", "sampled|greedy|coupled" },
        { "generate %s --drafter small:model=m,widths=[64,64] x",
          "drafter small: expected a draft of at most 512 nodes, found more" },
        { "generate %s --rule magic x", "known: rejection, " },
        { "generate %s --rule rejection:speed=9 x", "speed" },
        { "inspect --tokenize", "missing" },
        { "generate %s --max-new-tokens 3 x", "; transformers' max-new-tokens is --tokens here" },
        { "generate %s --drafter ngram:num_speculative_tokens=3 x", "; vLLM's num_speculative_tokens is tokens here" },
        { "generate %s --drafter ngrm x", "; did you mean ngram?" },
        { "generate %s --rule rejektion x", "; did you mean rejection?" },
        { "list --json ngrm", "there is no drafter, rule or sampling stage \"ngrm\"; did you mean ngram?" },
        { "list --json x y", "unexpected argument \"y\"" },
        { "tokenize %s", "tokenize is now speclab inspect MODEL [FILE.jsonl] --tokenize" },
        { "score %s", "score is now speclab inspect MODEL [FILE.jsonl] --score" },
        { "repro 3", "repro is now speclab run --again RUN" },
        { "datastore %s x", "datastore is now speclab features MODEL FILE... --datastore OUT" },
        { "inspect --json %s --answers", "--answers requires --score" },
        { "inspect --json %s --no-special", "--no-special requires --tokenize or --detokenize" },
        { "inspect %s --score --json", "--score and --json exclude each other" },
        { "inspect %s --score --context 7", "with --score, --context requires --layers" },
        { "inspect --json %s texts.jsonl", "a file goes with --tokenize, --detokenize or --score" },
        { "run x.yaml --json", "--json requires --dry-run" },
        { "run", "missing argument" },
        { "inspect --score %s --tokens 3", "unknown option --tokens" },
        { "inspect --score %s --cache ''", "--cache" },
        { "inspect --score %s --chat none", "--answers" },
        { "inspect --score %s --answers --chat jinja", "\"jinja\"" },
        { "inspect --json %s --activations", "requires a value" },
        { "inspect --json %s --context none", "--context" },
        { "report --json --csv", "expected one of --csv, --jsonl, --json and --intervals" },
        { "report --against 2",
          "report: is part of the Python package without --csv --jsonl --json --intervals: ./run report" },
        { "generate --trace-html=x", "--trace-html is part of the Python package: ./run generate --trace-html" },
        { "report --json --against 2", "--against goes with --csv and --jsonl" },
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        char *words = words_with(mistakes[i].words, models.gguf);
        struct child_result s = child_run("%s", words);
        expect_error(&s, 2, mistakes[i].with, words);
        child_result_free(&s);
        free(words);
    }
}

static void expect_failure(const char *with, const char *words)
{
    struct child_result s = child_run("%s", words);
    expect_error(&s, 1, with, words);
    child_result_free(&s);
}

static void expect_failure_with(const char *model, const char *with, const char *before, const char *after)
{
    char *words = xformat("%s %s %s", before, model, after);
    expect_failure(with, words);
    free(words);
}

static void models_that_cannot_be_opened_are_one_sentence(void **state)
{
    char *cut = test_path("cut.gguf"), *empty = test_path("empty"), *noise = test_path("noise.gguf"), *copy;
    expect_failure_with("/no/such/model.gguf", "/no/such/model.gguf", "generate", "x");
    expect_failure_with("no-such-model", "./run model no-such-model", "inspect --json", "");
    mkdir(empty, 0700);
    expect_failure_with(empty, "config.json", "inspect --json", "");
    file_write(noise, "this is not a model at all, it is a sentence");
    expect_failure_with(noise, "noise.gguf", "inspect --json", "");

    FILE *from = fopen(models.gguf, "rb"), *to = fopen(cut, "wb");
    char bytes[5000];
    assert_int_equal(fread(bytes, 1, sizeof(bytes), from), sizeof(bytes));
    fwrite(bytes, 1, sizeof(bytes), to);
    fclose(from);
    fclose(to);
    expect_failure_with(cut, "cut.gguf", "generate", "x");
    expect_failure_with(cut, "cut.gguf", "inspect --json", "");
    expect_failure_with(cut, "cut.gguf", "inspect --tokenize", "");

    copy = xformat("%s/config.json", empty);
    file_write(copy, "{\"architectures\": [\"MambaForCausalLM\"], \"model_type\": \"mamba\"}");
    expect_failure_with(empty, "mamba", "inspect --json", "");
    file_write(copy, "{\"architectures\": ");
    expect_failure_with(empty, "config.json", "inspect --json", "");
    free(copy);
    free(cut);
    free(empty);
    free(noise);
}

static void inspect_shows_what_it_can_of_a_broken_model(void **state)
{
    struct small_model t = small_default;
    char *broken = test_path("broken"), *weights = xformat("%s/model.safetensors", broken);
    const float nan_value = NAN;
    small_write_hf(broken, &t);
    FILE *f = fopen(weights, "r+b");
    assert_non_null(f);
    fseek(f, -(long)sizeof(nan_value), SEEK_END);
    fwrite(&nan_value, sizeof(nan_value), 1, f);
    fclose(f);
    struct child_result s = child_run("inspect --json %s", broken), run = child_run("generate %s x", broken);
    assert_int_equal(s.status, 1);
    struct json *j = child_result_json(&s);
    assert_int_equal(json_int(json_get(j, "layers")), 3);
    assert_non_null(strstr(s.err, json_text(json_get(j, "problem"))));
    assert_non_null(strstr(s.err, "model."));
    expect_error(&run, 1, "model.", "generate with a broken model");
    json_free(j);
    child_result_free(&s);
    child_result_free(&run);
    free(weights);
    free(broken);
}

static void precisions_that_do_not_fit_are_one_sentence(void **state)
{
    expect_failure_with(models.gguf, "int8 is for quantized weights", "generate --activations int8", "x");
    expect_failure_with(models.gguf, "the heads here have 16", "generate --cache q8_0", "x");
    expect_failure_with(models.gguf, "int8 is for quantized weights", "inspect --score --activations int8", "");
    expect_failure_with(models.gguf, "the heads here have 16", "inspect --score --cache q8_0", "");
    expect_failure_with(models.gguf, "the heads here have 16", "inspect --json --no-probe --cache q8_0", "");
    char *words = xformat("generate %s --drafter small:model=%s,cache=q8_0 x", models.gguf, models.draft);
    expect_failure("the heads here have 16", words);
    free(words);
}

static void drafters_that_do_not_fit_are_one_sentence(void **state)
{
    char *words = xformat("generate %s --drafter small:model=%s x", models.gguf, models.foreign);
    expect_failure("vocabular", words);
    free(words);
    expect_failure_with(models.gguf, "/no/such", "generate", "--drafter small:model=/no/such x");
}

static void prompts_that_do_not_fit_are_one_sentence(void **state)
{
    struct text ids = { 0 };
    for (int i = 0; i < 512; i++)
        text_printf(&ids, "%s7", i == 0 ? "--ids [" : ",");
    text_puts(&ids, "]");
    expect_failure_with(models.gguf, "512", "generate", ids.s);
    expect_failure_with(models.gguf, "--context 513", "generate", "--context 513 --ids [1]");
    expect_failure_with(models.gguf, "token 5000: the vocabulary has the ids 0 to", "generate",
                        "--logit-bias {5000:1} --ids [1]");
    expect_failure_with(models.gguf, "context of 4", "generate", "--context 4 --ids [1,2,3,4]");
    expect_failure_with(models.gguf, "--ids", "generate", "--ids [1,288]");
    expect_failure_with(models.gguf, "an integer from 0 to 269", "generate", "--ids [1,270]"); // a padding row
    expect_failure_with(models.gguf, "--ids", "generate", "--ids [1,-1]");
    expect_failure_with(models.gguf, "--ids", "generate", "--ids [1,2.5]");
    expect_failure_with(models.gguf, "--ids", "generate", "--ids []");
    expect_failure_with(models.gguf, "--ids", "generate", "--ids 7");
    expect_failure_with(models.gguf, "--ids", "generate", "--ids [1,");
    expect_failure_with(models.gguf, "the prompt is not UTF-8: byte 0xFF at offset 2", "generate", "ab\xFF\xFE");
    expect_failure_with(models.gguf, "--system is not UTF-8: byte 0xFE at offset 1", "generate", "x --system a\xFE");
    expect_failure_with(models.gguf, "empty", "generate", "--chat none ''");
    expect_failure_with(models.gguf, "--system", "generate", "--chat none --system Hi x");
    expect_failure_with(models.no_tokenizer, "tokenizer", "generate", "x");
    expect_failure_with(models.no_tokenizer, "tokenizer", "generate", "--stop y --ids [1]");
    free(ids.s);
}

static void an_unknown_chat_template_names_chat_none(void **state)
{
    struct small_model t = small_default;
    char *odd = test_path("odd"), *file = xformat("%s/tokenizer_config.json", odd);
    small_write_hf(odd, &t);
    file_write(file, "{\"chat_template\": \"{% for m in messages %}[INST]{{ m.content }}[/INST]\"}");
    expect_failure_with(odd, "chat: none", "generate", "x");
    struct child_result s = child_run("generate %s --chat none --tokens 3 x", odd);
    child_expect_success(&s, "--chat none");
    child_result_free(&s);
    free(file);
    free(odd);
}

static void invalid_lines_are_named_by_number(void **state)
{
    const struct {
        const char *command, *lines, *with;
    } wrong[] = {
        { "inspect --tokenize", "\n{\"txt\": \"a\"}\n", "stdin:2: " },
        { "inspect --tokenize", "{\"text\": 3}\n", "stdin:1: " },
        { "inspect --tokenize", "{\"text\": \"a\"\n", "stdin:1:" },
        { "inspect --tokenize", "[]\n", "stdin:1: " },
        { "inspect --tokenize", "{\"text\": \"\xFF\"}\n", "stdin:1:" },
        { "inspect --detokenize", "{\"ids\": [1, 100000]}\n", "entry 2" },
        { "inspect --detokenize", "{\"ids\": 1}\n", "stdin:1: " },
        { "inspect --score", "{\"ids\": [1, 288]}\n", "stdin:1: " },
        { "inspect --score", "{\"ids\": [1], \"text\": \"a\"}\n", "both" },
        { "inspect --score", "{}\n", "neither" },
        { "inspect --score --answers", "{\"prompt\": \"a\"}\n", "stdin:1: expected an answer" },
        { "inspect --score --answers", "", "expected prompts, found none" },
        { "inspect --score --answers", "{\"prompt\": \"a\", \"answer\": \"\xFF\"}\n", "stdin:1:" },
        { "inspect --score --answers", "{\"input_ids\": [1, 288], \"answer\": \"a\"}\n", "stdin:1: input_ids[1]" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct child_result s = child_run_with(wrong[i].lines, "%s %s", wrong[i].command, models.gguf);
        expect_error(&s, 1, wrong[i].with, wrong[i].lines);
        child_result_free(&s);
    }
    struct text long_line = { 0 };
    for (int i = 0; i < 513; i++)
        text_printf(&long_line, "%s7", i == 0 ? "{\"ids\":[" : ",");
    text_puts(&long_line, "]}\n");
    struct child_result s = child_run_with(long_line.s, "inspect --score %s", models.gguf);
    expect_error(&s, 1, "513 tokens", "a text longer than the context");
    child_result_free(&s);
    free(long_line.s);
    s = child_run("inspect --score %s /no/such/file.jsonl", models.gguf);
    expect_error(&s, 1, "/no/such/file.jsonl", "a missing file");
    child_result_free(&s);
}

// 2: the call or the experiment's file is wrong as it is written (docs/commands.md); 1: all else.
static void exit_statuses_of_databases_and_experiments(void **state)
{
    char *yaml = test_path("x.yaml"), *prompts = test_path("p.jsonl"), *db = test_path("x.db"),
         *damaged = test_path("damaged.db");
    file_write(prompts, "{\"input_ids\": [4, 5, 6, 4, 5, 6, 7]}\n");
    static const char form[] = "name: x\ntarget: {model: %s}\nthreads: 1\nprompts: {file: %s, chat: none}\n"
                               "limits: {new_tokens: 4, context: %d}\ncells: {drafter: %s}\n";
    const struct {
        const char *with, *drafter;
        int status, context;
    } files[] = {
        { "", "ngram", 0, 64 },
        { "unknown drafter", "ngrm", 2, 64 },
        { "x.yaml:6:19: drafter small: expected a draft of at most 512 nodes, found more",
          "[{kind: small, model: absent, widths: [64, 64]}]", 2, 64 },
        { "drafter eagle3: widths, nodes and tree are different trees; give one of them",
          "[{kind: eagle3, weights: absent, widths: [2], nodes: 4}]", 2, 64 },
        { "drafter medusa: expected a draft of at most 512 nodes, found more",
          "[{kind: medusa, weights: absent, widths: [64, 64]}]", 2, 64 },
        { "drafter early_exit: a best-first tree (nodes: 4) keeps",
          "[{kind: early_exit, exit_layer: 1, nodes: 4, pick: sampled}]", 2, 64 },
        { "drafter layer_skip: tree: none is not a published tree", "[{kind: layer_skip, keep: 0, tree: none}]", 2,
          64 },
        { "p.jsonl:1: prompt 0 has 7 tokens, and the context is 7: no new token fits", "ngram", 1, 7 },
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char *text = xformat(form, models.gguf, prompts, files[i].context, files[i].drafter);
        file_write(yaml, text);
        struct child_result s = child_run("run %s --db %s --no-probe", yaml, db);
        if (s.status != files[i].status || strstr(s.err, files[i].with) == NULL)
            fail_msg("run: expected status %d, found %d: %s", files[i].status, s.status, s.err);
        child_result_free(&s);
        free(text);
    }
    file_write(damaged, "SQLite format 3");
    const struct {
        const char *words, *database, *with;
        int status;
    } cases[] = {
        { "report --csv --db %s --against 99", db, "no run has this number", 2 },
        { "report --jsonl --db %s --against x", db, "no run has this number", 2 },
        { "report --json --db %s --experiment y", db, "no experiment \"y\" in it (x)", 2 },
        { "replay %s --run 99", db, "there is no run 99 in it", 2 },
        { "replay %s --run 2", db, "has no recorded rows", 1 },
        { "report --csv --db %s", damaged, "damaged.db", 1 },
        { "replay %s", damaged, "damaged.db", 1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *words = words_with(cases[i].words, cases[i].database);
        struct child_result s = child_run("%s", words);
        expect_error(&s, cases[i].status, cases[i].with, words);
        child_result_free(&s);
        free(words);
    }
    char *line =
        xformat("cd '%s' && (sleep 0.3; %s report --csv --db %s 2>err; echo $? >status) | true; cat err status",
                test_directory(), SPECLAB, db);
    FILE *f = popen(line, "r");
    char shown[256] = { 0 };
    assert_non_null(f);
    (void)!fread(shown, 1, sizeof(shown) - 1, f);
    pclose(f);
    assert_string_equal(shown, "1\n"); // a closed pipe: no message
    free(line);
    free(yaml);
    free(prompts);
    free(db);
    free(damaged);
}

// The shell's `| head`: the program ends early, without a message.
static void a_closed_pipe_is_silent(void **state)
{
    const char *commands[] = { "list --json", "inspect --tokenize '%s' lines.jsonl",
                               "generate '%s' --temperature 1 --tokens 400 --ignore-end Hello" };
    char *lines = test_path("lines.jsonl");
    struct text t = { 0 };
    for (int i = 0; i < 20000; i++)
        text_printf(&t, "{\"text\":\"line %d\"}\n", i);
    file_write(lines, t.s);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        char *words = words_with(commands[i], models.gguf);
        char *line = xformat("cd '%s' && (%s %s 2>err; echo $? >status) | head -c 1 >/dev/null; cat err status",
                             test_directory(), SPECLAB, words);
        FILE *f = popen(line, "r");
        char status[256] = { 0 };
        assert_non_null(f);
        size_t n = fread(status, 1, sizeof(status) - 1, f);
        pclose(f);
        if (n != 2 || (status[0] != '1' && status[0] != '0')) // 0: the pipe took all output before it was closed
            fail_msg("%s: %s", words, status);
        free(words);
        free(line);
    }
    free(t.s);
    free(lines);
}

static void a_full_disk_is_reported(void **state)
{
    if (access("/dev/full", W_OK) != 0)
        skip();
    const char *commands[] = { "list --json", "--help", "generate --help", "inspect --json --no-probe %s",
                               "generate %s --tokens 2 x" };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        char *words = words_with(commands[i], models.gguf);
        struct child_result s = child_run_to("/dev/full", "%s", words);
        expect_error(&s, 1, "stdout", words);
        child_result_free(&s);
        free(words);
    }
}

// `ulimit -f`: the program ignores SIGXFSZ, which would end it with half a file written.
int main(void)
{
    setenv("SPECLAB_TOOL", "1", 1); // words of the Python package are named, not run
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors_are_one_sentence_and_status_2),
        cmocka_unit_test(models_that_cannot_be_opened_are_one_sentence),
        cmocka_unit_test(inspect_shows_what_it_can_of_a_broken_model),
        cmocka_unit_test(precisions_that_do_not_fit_are_one_sentence),
        cmocka_unit_test(drafters_that_do_not_fit_are_one_sentence),
        cmocka_unit_test(prompts_that_do_not_fit_are_one_sentence),
        cmocka_unit_test(an_unknown_chat_template_names_chat_none),
        cmocka_unit_test(invalid_lines_are_named_by_number),
        cmocka_unit_test(exit_statuses_of_databases_and_experiments),
        cmocka_unit_test(a_closed_pipe_is_silent),
        cmocka_unit_test(a_full_disk_is_reported),
    };
    return run_with_models(tests);
}
