// test_mistakes.c - whatever a person gets wrong is answered by one clear sentence on stderr, nothing on stdout, and
// status
// 2 (called wrongly) or 1 (could not be done).
#include "tests/support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "core/memory.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static void refused(const struct said *s, int status, const char *with, const char *what)
{
    const char *end = strchr(s->err, '\n');
    if (s->status != status || end == NULL || end[1] != '\0' || strncmp(s->err, "speclab", 7) != 0 ||
        strstr(s->err, with) == NULL)
        fail_msg("%s: expected status %d and one sentence with \"%s\", got status %d and: %s", what, status, with,
                 s->status, s->err);
    if (*s->out != '\0')
        fail_msg("%s: expected nothing on stdout, got: %s", what, s->out);
}

static void usage_mistakes_are_one_sentence_and_status_2(void **state)
{
    (void)state;
    const struct {
        const char *words, *with; // %s: the target
    } mistakes[] = {
        { "genrate %s x", "did you mean generate" },
        { "frobnicate %s", "no command" },
        { "generate %s --tokns 3 x", "did you mean --tokens" },
        { "generate %s --tokens 1x x", "\"1x\"" },
        { "generate %s --tokens 0 x", "from 1 to" },
        { "generate %s --tokens 99999999999999999999 x", "whole number" },
        { "generate %s --seed -1 x", "--seed" },
        { "generate %s x --tokens", "needs a value" },
        { "generate %s --json=yes x", "takes no value" },
        { "generate %s -q x", "no option -q" },
        { "generate %s", "no prompt" },
        { "generate", "missing" },
        { "generate %s one two", "unexpected argument \"two\"" },
        { "generate %s --ids [1] x", "one too many" },
        { "generate %s --trace x", "--json" },
        { "generate %s --stop '' x", "--stop" },
        { "generate %s --chat jinja x", "\"jinja\"" },
        { "generate %s --activations f8 x", "--activations: expected one of default|f32|bf16|int8, found \"f8\"" },
        { "generate %s --device gpu x",
          "--device: expected cpu, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"gpu\"" },
        { "score %s --device cuda:99",
          "--device: expected cpu, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"cuda:99\"" },
        { "inspect %s --device cuda:-1",
          "--device: expected cpu, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"cuda:-1\"" },
        { "bench %s --device ''", "--device: expected cpu, cuda, cuda:N, cublas or cublas:N (N up to 15), found \"\"" },
        { "generate %s --cache f3 x", "--cache: expected one of default|f32|bf16|q8_0, found \"f3\"" },
        { "generate %s --drafter small:model=m,cache=f8 x", "default|f32|bf16|q8_0" },
        { "generate %s --temperature warm x", "temperature" },
        { "generate %s --temperature -1 x", "temperature" },
        { "generate %s --top-p 1.5 x", "top_p" },
        { "generate %s --logit-bias '{a: 1}' x", "logit_bias" },
        { "generate %s --drafter ngrm x", "none, ngram, small" },
        { "generate %s --drafter ngram:lenght=3 x", "lenght" },
        { "generate %s --drafter ngram:longest=long x", "longest" },
        { "generate %s --drafter ngram:longest=0 x", "from 1 to" },
        { "generate %s --drafter ngram:longest x", "key=value" },
        { "generate %s --drafter small x", "needs the option \"model\"" },
        { "generate %s --drafter small:model=m,pick=best x", "sampled|greedy|coupled" },
        { "generate %s --rule magic x", "rejection, match" },
        { "generate %s --rule rejection:speed=9 x", "speed" },
        { "tokenize", "missing" },
        { "score %s --tokens 3", "no option --tokens" },
        { "score %s --cache ''", "--cache" },
        { "score %s --chat none", "--answers" },
        { "score %s --answers --chat jinja", "\"jinja\"" },
        { "inspect %s --activations", "needs a value" },
        { "inspect %s --context none", "--context" },
        { "prune %s --out x", "--keep" },
        { "prune %s --keep 0", "--out" },
        { "prune %s --keep 0-7 --out x", "layers 0 to 2" },
        { "prune %s --keep two --out x", "two" },
        { "list %s", "unexpected argument" },
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        char *words = words_with(mistakes[i].words, models.gguf);
        struct said s = child_run("%s", words);
        refused(&s, 2, mistakes[i].with, words);
        said_free(&s);
        free(words);
    }
}

static void refuse(const char *with, const char *words)
{
    struct said s = child_run("%s", words);
    refused(&s, 1, with, words);
    said_free(&s);
}

static void refuse_about(const char *model, const char *with, const char *before, const char *after)
{
    char *words = xformat("%s %s %s", before, model, after);
    refuse(with, words);
    free(words);
}

static void models_that_cannot_be_opened_are_one_sentence(void **state)
{
    (void)state;
    char *cut = tiny_path("cut.gguf"), *empty = tiny_path("empty"), *noise = tiny_path("noise.gguf"), *copy;
    refuse_about("/no/such/model.gguf", "/no/such/model.gguf", "generate", "x");
    refuse_about("no-such-model", "./run model no-such-model", "inspect", "");
    mkdir(empty, 0700);
    refuse_about(empty, "config.json", "inspect", "");
    file_write(noise, "this is not a model at all, it is a sentence");
    refuse_about(noise, "noise.gguf", "inspect", "");

    FILE *from = fopen(models.gguf, "rb"), *to = fopen(cut, "wb");
    char bytes[5000];
    assert_int_equal(fread(bytes, 1, sizeof(bytes), from), sizeof(bytes));
    fwrite(bytes, 1, sizeof(bytes), to);
    fclose(from);
    fclose(to);
    refuse_about(cut, "cut.gguf", "generate", "x");
    refuse_about(cut, "cut.gguf", "inspect", "");
    refuse_about(cut, "cut.gguf", "tokenize", "");

    copy = xformat("%s/config.json", empty);
    file_write(copy, "{\"architectures\": [\"MambaForCausalLM\"], \"model_type\": \"mamba\"}");
    refuse_about(empty, "mamba", "inspect", "");
    file_write(copy, "{\"architectures\": ");
    refuse_about(empty, "config.json", "inspect", "");
    free(copy);
    free(cut);
    free(empty);
    free(noise);
}

static void inspect_shows_what_it_can_of_a_broken_model(void **state)
{
    (void)state;
    struct tiny t = tiny_usual;
    char *broken = tiny_path("broken"), *weights = xformat("%s/model.safetensors", broken);
    const float nan_value = NAN;
    tiny_write_hf(broken, &t);
    FILE *f = fopen(weights, "r+b");
    assert_non_null(f);
    fseek(f, -(long)sizeof(nan_value), SEEK_END);
    fwrite(&nan_value, sizeof(nan_value), 1, f);
    fclose(f);
    struct said s = child_run("inspect --json %s", broken), run = child_run("generate %s x", broken);
    assert_int_equal(s.status, 1);
    struct json *j = said_json(&s);
    assert_int_equal(json_int(json_get(j, "layers")), 3);
    assert_non_null(strstr(s.err, json_text(json_get(j, "problem"))));
    assert_non_null(strstr(s.err, "model."));
    refused(&run, 1, "model.", "generate with a broken model");
    json_free(j);
    said_free(&s);
    said_free(&run);
    free(weights);
    free(broken);
}

static void precisions_that_do_not_fit_are_one_sentence(void **state)
{
    (void)state;
    refuse_about(models.gguf, "int8 is for quantised weights", "generate --activations int8", "x");
    refuse_about(models.gguf, "the heads here have 16", "generate --cache q8_0", "x");
    refuse_about(models.gguf, "int8 is for quantised weights", "score --activations int8", "");
    refuse_about(models.gguf, "the heads here have 16", "score --cache q8_0", "");
    refuse_about(models.gguf, "the heads here have 16", "inspect --no-probe --cache q8_0", "");
    char *words = xformat("generate %s --drafter small:model=%s,cache=q8_0 x", models.gguf, models.draft);
    refuse("the heads here have 16", words);
    free(words);
}

static void drafters_that_do_not_fit_are_one_sentence(void **state)
{
    (void)state;
    char *words = xformat("generate %s --drafter small:model=%s x", models.gguf, models.foreign);
    refuse("vocabular", words);
    free(words);
    refuse_about(models.gguf, "/no/such", "generate", "--drafter small:model=/no/such x");
}

static void prompts_that_do_not_fit_are_one_sentence(void **state)
{
    (void)state;
    struct text ids = { 0 };
    for (int i = 0; i < 512; i++)
        text_printf(&ids, "%s7", i == 0 ? "--ids [" : ",");
    text_puts(&ids, "]");
    refuse_about(models.gguf, "512", "generate", ids.s);
    refuse_about(models.gguf, "--context 513", "generate", "--context 513 --ids [1]");
    refuse_about(models.gguf, "token 5000: the vocabulary has the ids 0 to", "generate",
                 "--logit-bias {5000:1} --ids [1]");
    refuse_about(models.gguf, "context of 4", "generate", "--context 4 --ids [1,2,3,4]");
    refuse_about(models.gguf, "--ids", "generate", "--ids [1,288]");
    refuse_about(models.gguf, "--ids", "generate", "--ids [1,-1]");
    refuse_about(models.gguf, "--ids", "generate", "--ids [1,2.5]");
    refuse_about(models.gguf, "--ids", "generate", "--ids []");
    refuse_about(models.gguf, "--ids", "generate", "--ids 7");
    refuse_about(models.gguf, "--ids", "generate", "--ids [1,");
    refuse_about(models.gguf, "the prompt is not UTF-8: byte 0xFF at offset 2", "generate", "ab\xFF\xFE");
    refuse_about(models.gguf, "--system is not UTF-8: byte 0xFE at offset 1", "generate", "x --system a\xFE");
    refuse_about(models.gguf, "empty", "generate", "--chat none ''");
    refuse_about(models.gguf, "--system", "generate", "--chat none --system Hi x");
    refuse_about(models.mute, "tokenizer", "generate", "x");
    refuse_about(models.mute, "tokenizer", "generate", "--stop y --ids [1]");
    free(ids.s);
}

static void an_unknown_chat_template_names_chat_none(void **state)
{
    (void)state;
    struct tiny t = tiny_usual;
    char *odd = tiny_path("odd"), *file = xformat("%s/tokenizer_config.json", odd);
    tiny_write_hf(odd, &t);
    file_write(file, "{\"chat_template\": \"{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}\"}");
    refuse_about(odd, "chat: none", "generate", "x");
    struct said s = child_run("generate %s --chat none --tokens 3 x", odd);
    said_insist(&s, "--chat none");
    said_free(&s);
    free(file);
    free(odd);
}

static void lines_that_are_wrong_are_named_by_number(void **state)
{
    (void)state;
    const struct {
        const char *command, *lines, *with;
    } wrong[] = {
        { "tokenize", "\n{\"txt\": \"a\"}\n", "stdin:2: " },
        { "tokenize", "{\"text\": 3}\n", "stdin:1: " },
        { "tokenize", "{\"text\": \"a\"\n", "stdin:1:" },
        { "tokenize", "[]\n", "stdin:1: " },
        { "tokenize", "{\"text\": \"\xFF\"}\n", "stdin:1:" },
        { "tokenize --decode", "{\"ids\": [1, 100000]}\n", "number 2" },
        { "tokenize --decode", "{\"ids\": 1}\n", "stdin:1: " },
        { "score", "{\"ids\": [1, 288]}\n", "stdin:1: " },
        { "score", "{\"ids\": [1], \"text\": \"a\"}\n", "both" },
        { "score", "{}\n", "neither" },
        { "score --answers", "{\"prompt\": \"a\"}\n", "stdin:1: expected an answer" },
        { "score --answers", "", "expected prompts, found none" },
        { "score --answers", "{\"prompt\": \"a\", \"answer\": \"\xFF\"}\n", "stdin:1:" },
        { "score --answers", "{\"input_ids\": [1, 288], \"answer\": \"a\"}\n", "stdin:1: input_ids[1]" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct said s = child_run_with(wrong[i].lines, "%s %s", wrong[i].command, models.gguf);
        refused(&s, 1, wrong[i].with, wrong[i].lines);
        said_free(&s);
    }
    struct text long_line = { 0 };
    for (int i = 0; i < 513; i++)
        text_printf(&long_line, "%s7", i == 0 ? "{\"ids\":[" : ",");
    text_puts(&long_line, "]}\n");
    struct said s = child_run_with(long_line.s, "score %s", models.gguf);
    refused(&s, 1, "513 tokens", "a text longer than the context");
    said_free(&s);
    free(long_line.s);
    s = child_run("score %s /no/such/file.jsonl", models.gguf);
    refused(&s, 1, "/no/such/file.jsonl", "a missing file");
    said_free(&s);
}

static void pruning_does_not_overwrite(void **state)
{
    (void)state;
    struct said s = child_run("prune %s --keep 0 --out %s/pruned.gguf/", models.gguf, tiny_directory());
    said_insist(&s, "a slash at the end of a file's name");
    said_free(&s);
    char *words = xformat("prune %s --keep 0 --out %s", models.gguf, models.draft);
    refuse("overwritten", words);
    free(words);
    words = xformat("prune %s --keep 0 --out /no/such/place/x.gguf", models.gguf);
    refuse("/no/such/place", words);
    free(words);
}

// The shell's `| head`: the program ends early, and has nothing to say about it.
static void a_reader_that_goes_away_is_no_news(void **state)
{
    (void)state;
    const char *commands[] = { "list --json", "tokenize '%s' lines.jsonl",
                               "generate '%s' --temperature 1 --tokens 400 --ignore-end Hello" };
    char *lines = tiny_path("lines.jsonl");
    struct text t = { 0 };
    for (int i = 0; i < 20000; i++)
        text_printf(&t, "{\"text\":\"line %d\"}\n", i);
    file_write(lines, t.s);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        char *words = words_with(commands[i], models.gguf);
        char *line = xformat("cd '%s' && (%s %s 2>err; echo $? >status) | head -c 1 >/dev/null; cat err status",
                             tiny_directory(), SPECLAB, words);
        FILE *f = popen(line, "r");
        char said[256] = { 0 };
        assert_non_null(f);
        size_t n = fread(said, 1, sizeof(said) - 1, f);
        pclose(f);
        if (n != 2 || (said[0] != '1' && said[0] != '0')) // 0: all of it went into the pipe before the reader left
            fail_msg("%s: %s", words, said);
        free(words);
        free(line);
    }
    free(t.s);
    free(lines);
}

static void a_full_disk_is_noticed(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0)
        skip();
    const char *commands[] = {
        "list", "list --json", "--help", "generate --help", "inspect --no-probe %s", "generate %s --tokens 2 x"
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        char *words = words_with(commands[i], models.gguf);
        struct said s = child_run_to("/dev/full", "%s", words);
        refused(&s, 1, "stdout", words);
        said_free(&s);
        free(words);
    }
}

// `ulimit -f`: the signal that would end the program with half a file written is not for it.
static void a_file_that_may_not_grow_is_noticed(void **state)
{
    (void)state;
    struct rlimit before, tight;
    char *out = tiny_path("grown.gguf"), *part = tiny_path("grown.gguf.part");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = before;
    tight.rlim_cur = 50000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    struct said s = child_run("prune %s --keep 0 --out %s", models.gguf, out);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    refused(&s, 1, "File too large", "a file that may not grow");
    assert_int_not_equal(access(out, F_OK), 0);
    assert_int_not_equal(access(part, F_OK), 0);
    said_free(&s);
    free(part);
    free(out);
}

int main(void)
{
    if (!child_is_present()) {
        fprintf(stderr, "the program was not built: skipped\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_mistakes_are_one_sentence_and_status_2),
        cmocka_unit_test(models_that_cannot_be_opened_are_one_sentence),
        cmocka_unit_test(inspect_shows_what_it_can_of_a_broken_model),
        cmocka_unit_test(precisions_that_do_not_fit_are_one_sentence),
        cmocka_unit_test(drafters_that_do_not_fit_are_one_sentence),
        cmocka_unit_test(prompts_that_do_not_fit_are_one_sentence),
        cmocka_unit_test(an_unknown_chat_template_names_chat_none),
        cmocka_unit_test(lines_that_are_wrong_are_named_by_number),
        cmocka_unit_test(pruning_does_not_overwrite),
        cmocka_unit_test(a_reader_that_goes_away_is_no_news),
        cmocka_unit_test(a_full_disk_is_noticed),
        cmocka_unit_test(a_file_that_may_not_grow_is_noticed),
    };
    return cmocka_run_group_tests(tests, models_make, models_remove);
}
