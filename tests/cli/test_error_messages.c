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

static void usage_errors_are_one_sentence_and_status_2(void **state)
{
    static const struct mistake mistakes[] = {
        // %s: the target
        { 2, "frobnicate %s", "unknown command" },
        { 2, "generate %s --tokns 3 x", "did you mean --tokens" },
        { 2, "generate %s --tokens 1x x", "\"1x\"" },
        { 2, "generate %s --tokens 0 x", "from 1 to" },
        { 2, "generate %s x --tokens", "requires a value" },
        { 2, "generate %s --json=yes x", "takes no value" },
        { 2, "generate %s -q x", "unknown option -q" },
        { 2, "generate %s --tokens 3 --tokens 4 x", "--tokens is given twice; expected it once" },
        { 2, "generate %s", "missing prompt" },
        { 2, "generate %s --ids [1] x", "found both" },
        { 2, "generate %s --trace x", "--json" },
        { 2, "generate %s --stop '' x", "--stop" },
        { 2, "generate %s --stop a\xFF x", "--stop is not UTF-8: byte 0xFF at offset 1" },
        { 2, "generate %s --chat jinja x", "\"jinja\"" },
        { 2, "generate %s --activations f8 x", "--activations: expected one of default|f32|bf16|int8, found \"f8\"" },
        { 2, "inspect --score %s --device cuda:99",
          "--device: expected cpu, cpu:ISA, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"cuda:99\"" },
        { 2, "bench --json %s --device cpu:avx3",
          "--device: expected cpu:plain, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, neon or neon_dotprod, found \"cpu:avx3\"" },
        { 2, "generate %s --cache f3 x", "--cache: expected one of default|f32|bf16|q8_0, found \"f3\"" },
        { 2, "generate %s --drafter small:model=m,cache=f8 x", "default|f32|bf16|q8_0" },
        { 2, "generate %s --temperature -1 x", "temperature" },
        { 2, "generate %s --logit-bias '{a: 1}' x", "logit_bias" },
        { 2, "generate %s --logit-bias '{junk,5:3}' x",
          "sampling: logit_bias: expected KEY: VALUE, found \"junk\" in \"{junk,5:3}\"" },
        { 2, "generate %s --logit-bias '{5}' x", "sampling: logit_bias: expected KEY: VALUE, found \"5\"" },
        { 2, "generate %s --logit-bias '{5:1,,}' x", "sampling: logit_bias: expected KEY: VALUE, found \"\"" },
        { 2, "generate %s --logit-bias '{:1}' x", "sampling: logit_bias: expected KEY: VALUE, found \":1\"" },
        { 2, "generate %s --logit-bias '{5: 1, 5 : 2}' x",
          "sampling: logit_bias: \"5\" is given twice in \"{5: 1, 5 : 2}\"" },
        { 2, "generate %s --drafter ngram:longest=0 x",
          "drafter ngram: longest: expected an integer from 1 to 64, found 0" },
        { 2, "generate %s --drafter ngram:longest x", "key=value" },
        { 2, "generate %s --drafter small:model=m,pick=best x", "sampled|greedy|coupled" },
        { 2, "generate %s --drafter small:model=m,widths=[64,64] x",
          "drafter small: expected a draft of at most 512 nodes, found more" },
        { 2, "generate %s --rule rejection:speed=9 x", "speed" },
        { 2, "generate %s --max-new-tokens 3 x", "; transformers' max-new-tokens is --tokens here" },
        { 2, "generate %s --drafter ngram:num_speculative_tokens=3 x",
          "; vLLM's num_speculative_tokens is tokens here" },
        { 2, "generate %s --drafter ngrm x", "; did you mean ngram?" },
        { 2, "generate %s --rule rejektion x", "; did you mean rejection?" },
        { 2, "list --json ngrm", "there is no drafter, rule or sampling stage \"ngrm\"; did you mean ngram?" },
        { 2, "tokenize %s", "tokenize is now speclab inspect MODEL [FILE.jsonl] --tokenize" },
        { 2, "inspect --json %s --answers", "--answers requires --score" },
        { 2, "inspect --json %s --no-special", "--no-special requires --tokenize or --detokenize" },
        { 2, "inspect %s --score --json", "--score and --json exclude each other" },
        { 2, "inspect --json %s texts.jsonl", "a file goes with --tokenize, --detokenize or --score" },
        { 2, "heads x.yaml --tree 512", "--tree: expected an integer from 1 to 511, found \"512\"" },
        { 2, "generate no-such-model --threads 1025 x", "--threads: expected an integer from 1 to 1024" },
        { 2, "report --db /no/such.db --csv",
          "/no/such.db: no such database; `speclab run FILE.yaml --db /no/such.db`" },
        { 2, "run x.yaml --json", "--json requires --dry-run" },
        { 2, "inspect --score %s --chat none", "--answers" },
        { 2, "report --json --csv", "expected one of --csv, --jsonl, --json and --intervals" },
        { 2, "report --against 2",
          "report: is part of the Python package without --csv --jsonl --json --intervals: ./run report" },
        { 2, "generate --trace-html=x", "--trace-html is part of the Python package: ./run generate --trace-html" },
    };
    child_expect_errors(mistakes, sizeof(mistakes) / sizeof(*mistakes), models.gguf);
}

#define FAIL(model, ...) \
    child_expect_errors((const struct mistake[]){ __VA_ARGS__ }, \
                        sizeof((const struct mistake[]){ __VA_ARGS__ }) / sizeof(struct mistake), model)

static void models_that_cannot_be_opened_are_one_sentence(void **state)
{
    char *cut = test_path("cut.gguf"), *empty = test_path("empty"), *noise = test_path("noise.gguf"),
         *config = xformat("%s/config.json", empty);
    FAIL("/no/such/model.gguf", { 1, "generate %s x", "/no/such/model.gguf" });
    FAIL("no-such-model", { 1, "inspect --json %s", "./run model no-such-model" });
    mkdir(empty, 0700);
    FAIL(empty, { 1, "inspect --json %s", "config.json" });
    file_write(config, "{\"architectures\": [\"MambaForCausalLM\"], \"model_type\": \"mamba\"}");
    FAIL(empty, { 1, "inspect --json %s", "mamba" });
    file_write(config, "{\"architectures\": ");
    FAIL(empty, { 1, "inspect --json %s", "config.json" });
    file_write(noise, "this is not a model at all, it is a sentence");
    FAIL(noise, { 1, "inspect --json %s", "noise.gguf" });

    FILE *from = fopen(models.gguf, "rb");
    char bytes[5000];
    assert_int_equal(fread(bytes, 1, sizeof(bytes), from), sizeof(bytes));
    fclose(from);
    file_write_bytes(cut, bytes, sizeof(bytes));
    FAIL(cut, { 1, "generate %s x", "cut.gguf" }, { 1, "inspect --json %s", "cut.gguf" },
         { 1, "inspect --tokenize %s", "cut.gguf" });
    free(config), free(cut), free(empty), free(noise);
}

static void a_folder_without_weights_is_named(void **state)
{
    struct small_model t = small_default;
    char *folder = test_path("no-weights"), *weights = xformat("%s/model.safetensors", folder);
    small_write_hf(folder, &t);
    remove(weights);
    FAIL(folder, { 1, "inspect --json %s --no-probe", "no-weights" });
    free(weights), free(folder);
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
    child_result_is_error(&run, 1, "model.", "generate with a broken model");
    json_free(j);
    child_result_free(&s);
    child_result_free(&run);
    free(weights);
    free(broken);
}

static void what_does_not_fit_the_model_is_one_sentence(void **state)
{
    struct text ids = { 0 };
    text_puts(&ids, "generate %s --ids [7");
    for (int i = 1; i < 512; i++)
        text_puts(&ids, ",7");
    text_puts(&ids, "]");
    char *cache = xformat("generate %%s --drafter small:model=%s,cache=q8_0 x", models.draft),
         *foreign = xformat("generate %%s --drafter small:model=%s x", models.foreign);
    FAIL(models.gguf, { 1, "generate --activations int8 %s x", "int8 is for quantized weights" },
         { 1, "inspect --score --activations int8 %s", "int8 is for quantized weights" },
         { 1, "generate --cache q8_0 %s x", "the heads here have 16" },
         { 1, "inspect --score --cache q8_0 %s", "the heads here have 16" },
         { 1, "inspect --json --no-probe --cache q8_0 %s", "the heads here have 16" },
         { 1, "inspect --json %s --no-probe --device cuda:15", "cuda" }, { 1, cache, "the heads here have 16" },
         { 1, foreign, "vocabular" }, { 1, "generate %s --drafter small:model=/no/such x", "/no/such" },
         { 1, ids.s, "512" }, { 1, "generate %s --context 513 --ids [1]", "--context 513" },
         { 1, "generate %s --logit-bias {5000:1} --ids [1]", "token 5000: the vocabulary has the ids 0 to" },
         { 1, "generate %s --context 4 --ids [1,2,3,4]", "context of 4" }, { 1, "generate %s --ids [1,288]", "--ids" },
         { 1, "generate %s --ids [1,270]", "an integer from 0 to 269" }, // a padding row
         { 1, "generate %s --ids [1,-1]", "--ids" }, { 1, "generate %s --ids [1,2.5]", "--ids" },
         { 1, "generate %s --ids []", "--ids" }, { 1, "generate %s --ids 7", "--ids" },
         { 1, "generate %s --ids [1,", "--ids" },
         { 1, "generate %s ab\xFF\xFE", "the prompt is not UTF-8: byte 0xFF at offset 2" },
         { 1, "generate %s x --system a\xFE", "--system is not UTF-8: byte 0xFE at offset 1" },
         { 1, "generate %s --chat none ''", "empty" }, { 1, "generate %s --chat none --system Hi x", "--system" });
    FAIL(models.no_tokenizer, { 1, "generate %s x", "tokenizer" }, { 1, "generate %s -", "tokenizer" },
         { 1, "generate %s --stop y --ids [1]", "tokenizer" });
    free(ids.s), free(cache), free(foreign);
}

static void an_unknown_chat_template_names_chat_none(void **state)
{
    struct small_model t = small_default;
    char *odd = test_path("odd"), *file = xformat("%s/tokenizer_config.json", odd);
    small_write_hf(odd, &t);
    file_write(file, "{\"chat_template\": \"{% for m in messages %}[INST]{{ m.content }}[/INST]\"}");
    FAIL(odd, { 1, "generate %s x", "chat: none" });
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
        child_result_is_error(&s, 1, wrong[i].with, wrong[i].lines);
        child_result_free(&s);
    }
    struct text long_line = { 0 };
    for (int i = 0; i < 513; i++)
        text_printf(&long_line, "%s7", i == 0 ? "{\"ids\":[" : ",");
    text_puts(&long_line, "]}\n");
    struct child_result s = child_run_with(long_line.s, "inspect --score %s", models.gguf);
    child_result_is_error(&s, 1, "513 tokens", "a text longer than the context");
    child_result_free(&s);
    free(long_line.s);
    s = child_run("inspect --score %s /no/such/file.jsonl", models.gguf);
    child_result_is_error(&s, 1, "/no/such/file.jsonl", "a missing file");
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
        child_result_is_error(&s, cases[i].status, cases[i].with, words);
        child_result_free(&s);
        free(words);
    }
    free(yaml);
    free(prompts);
    free(db);
    free(damaged);
}

// As in the shell's `| head`: the program ends early, without a message.
static void a_closed_pipe_is_silent(void **state)
{
    static const char *const commands[] = { "list --json", "inspect --tokenize '%s' lines.jsonl",
                                            "generate '%s' --tokens 40 --ignore-end Hello" };
    char *lines = test_path("lines.jsonl");
    file_write(lines, "{\"text\":\"line 1\"}\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        char *words = words_with(commands[i], models.gguf), status[256] = { 0 };
        char *line = xformat("cd '%s' && (sleep 0.2; %s %s 2>err; echo $? >status) | true; cat err status",
                             test_directory(), SPECLAB, words);
        FILE *f = popen(line, "r");
        assert_non_null(f);
        (void)!fread(status, 1, sizeof(status) - 1, f);
        pclose(f);
        assert_string_equal(status, "1\n");
        free(words), free(line);
    }
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
        child_result_is_error(&s, 1, "stdout", words);
        child_result_free(&s);
        free(words);
    }
}

int main(void)
{
    setenv("SPECLAB_TOOL", "1", 1); // words of the Python package are named, not run
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors_are_one_sentence_and_status_2),
        cmocka_unit_test(models_that_cannot_be_opened_are_one_sentence),
        cmocka_unit_test(a_folder_without_weights_is_named),
        cmocka_unit_test(inspect_shows_what_it_can_of_a_broken_model),
        cmocka_unit_test(what_does_not_fit_the_model_is_one_sentence),
        cmocka_unit_test(an_unknown_chat_template_names_chat_none),
        cmocka_unit_test(invalid_lines_are_named_by_number),
        cmocka_unit_test(exit_statuses_of_databases_and_experiments),
        cmocka_unit_test(a_closed_pipe_is_silent),
        cmocka_unit_test(a_full_disk_is_reported),
    };
    return run_with_models(tests);
}
