// test_command_texts.c - complete output of commands that is always the same (golden file cases/commands.txt).
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/cli/child_process.h"
#include "tests/formats/head_edit.h"
#include "tests/support/file_write.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"

static bool write_golden;

// HERE stands for the test's directory.
static const char *const commands[] = {
    "list temperature --json",
    "inspect HERE/target --no-probe --json",
    "inspect HERE/target.gguf --no-probe --json --context 10",
    "inspect HERE/padded --no-probe --json --tensors",
    "inspect HERE/foreign.gguf --no-probe --json",
    "inspect HERE/more --no-probe --json",
    "inspect HERE/head.medusa --target HERE/target --json",
    "inspect HERE/head.eagle --target HERE/target --json",
    "inspect HERE/head.eagle3 --target HERE/target --json",
};

// The text with every `a` in it as `b`; frees the text.
static char *exchanged(char *text, const char *a, const char *b)
{
    struct text t = { 0 };
    text_puts(&t, "");
    const char *at = text;
    for (const char *next; (next = strstr(at, a)) != NULL; at = next + strlen(a)) {
        text_add(&t, at, (size_t)(next - at));
        text_puts(&t, b);
    }
    text_puts(&t, at);
    free(text);
    return t.s;
}

// A model with unusual features: tied embedding, biases, scaled rope, two types, a beginning-of-text token, Medusa heads
// of its own, and an unknown chat template.
static void make_more(void)
{
    struct small_model t = small_default;
    char *path = test_path("more"), *odd = xformat("%s/tokenizer_config.json", path);
    t.tied = t.bias = true;
    t.type = BF16;
    t.rope = ROPE_LINEAR;
    t.factor = 2.5;
    t.eps = 1e-6;
    t.context = 2048;
    small_write_hf(path, &t);
    struct head_edit *e = head_edit_open(path);
    head_edit_floats(e, t.width, t.width, 0, "medusa_head.0.0.linear.weight");
    head_edit_floats(e, t.vocab, t.width, 0, "medusa_head.0.1.weight");
    head_edit_close(e);
    FILE *f = fopen(odd, "w");
    assert_true(f != NULL && fputs("{\"chat_template\": \"{{ odd }}\", \"add_bos_token\": true}", f) >= 0 &&
                fclose(f) == 0);
    free(odd);
    free(path);
}

static void make_heads(void)
{
    struct head_shape s = head_shape_of(models.hf);
    char *medusa = test_path("head.medusa"), *eagle = test_path("head.eagle"), *eagle3 = test_path("head.eagle3");
    heads_write_medusa(medusa, &s);
    heads_write_eagle(eagle, &s);
    heads_write_eagle3(eagle3, &s);
    free(medusa);
    free(eagle);
    free(eagle3);
}

static char *current_output(void)
{
    struct text all = { 0 };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        char *words = exchanged(xstrdup(commands[i]), "HERE", test_directory());
        struct child_result s = child_run("%s", words);
        child_expect_success(&s, words);
        assert_string_equal(s.err, "");
        char *out = exchanged(xstrdup(s.out), test_directory(), "HERE");
        text_printf(&all, "$ speclab %s\n%s\n", commands[i], out);
        free(out);
        child_result_free(&s);
        free(words);
    }
    return all.s;
}

static void command_output_equals_the_golden_file(void **state)
{
    make_more();
    make_heads();
    char *now = current_output();
    assert_golden_file("commands.txt", now, write_golden);
    free(now);
}

// With the argument `write` it rewrites commands.txt; read the diff.
int main(int argc, char **argv)
{
    write_golden = argc == 2 && strcmp(argv[1], "write") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_output_equals_the_golden_file),
    };
    return run_with_models(tests);
}
