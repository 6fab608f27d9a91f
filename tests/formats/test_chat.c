// test_chat.c - conversations are rendered as by the model's own template.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tokenizers/chat_template.h"
#include "tests/support/check.h"

static struct error err;

#define SMOLLM2 "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
#define QWEN2 "You are a helpful assistant."
#define QWEN25 "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

// As in SmolLM2's GGUF file: with real newlines.
static const char smollm2[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n" SMOLLM2
    "<|im_end|>\n"
    "' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
// As in Qwen's JSON files: with escaped newlines.
static const char qwen2[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" QWEN2
    "<|im_end|>\\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
static const char qwen25[] =
    "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n    {%- if messages[0]['role'] == 'system' %}\n        {{- messages[0]['content'] }}\n    {%- else %}\n"
    "        {{- '" QWEN25
    "' }}\n    {%- endif %}\n    {{- \"\\n\\n# Tools\" }}\n{%- else %}\n        {{- '<|im_start|>system\\n" QWEN25
    "<|im_end|>\\n' }}\n{%- endif %}";
static const char qwen3[] =
    "{%- if messages[0].role == 'system' %}\n        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n    {%- endif %}";

static struct chat_format choose(const char *format, const char *jinja)
{
    struct chat_format f;
    assert_ok(chat_choose(format, jinja, &f, &err), err);
    return f;
}

static void the_system_prompt_is_the_one_that_the_template_contains(void **state)
{
    static const struct {
        const char *jinja, *system;
    } cases[] = {
        { smollm2, SMOLLM2 },
        { qwen2, QWEN2 },
        { qwen25, QWEN25 },
        { qwen3, NULL },
        { "'<|im_start|>' + role + content", NULL },
        { "<|im_start|>system\n" QWEN2 " Be kind.<|im_end|>", NULL }, // another prompt with the same beginning
        { "<|im_start|>system\nBe kind. " QWEN2 "<|im_end|>", NULL },
        { "<|im_start|>system\nYou are Qwen. " QWEN2 "<|im_end|>{{ \"" QWEN2 "\" }}", QWEN2 },
        { QWEN2 "<|im_start|>", NULL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct chat_format f = choose("auto", cases[i].jinja);
        assert_int_equal(f.kind, CHAT_CHATML);
        assert_string_equal(f.end, "<|im_end|>");
        if (cases[i].system == NULL)
            assert_null(f.system);
        else
            assert_string_equal(f.system, cases[i].system);
    }
}

static void the_requested_format_is_chosen(void **state)
{
    struct chat_format f = choose("none", smollm2);
    assert_true(f.kind == CHAT_NONE && f.system == NULL && f.end == NULL);
    f = choose("none", NULL);
    assert_int_equal(f.kind, CHAT_NONE);
    f = choose("chatml", NULL);
    assert_true(f.kind == CHAT_CHATML && f.system == NULL);
    f = choose("chatml", "[INST] {{ message }} [/INST]");
    assert_true(f.kind == CHAT_CHATML && f.system == NULL);
    f = choose("chatml", smollm2);
    assert_string_equal(f.system, SMOLLM2);
}

static void an_unknown_format_is_an_error(void **state)
{
    struct chat_format f;
    assert_false(chat_choose("auto", NULL, &f, &err));
    assert_non_null(strstr(err.text, "no chat template"));
    assert_non_null(strstr(err.text, "`chat: none`"));
    assert_false(chat_choose("llama", smollm2, &f, &err));
    assert_string_equal(err.text, "unknown chat format \"llama\" (auto, none, chatml)");
    assert_false(chat_choose("auto", "{{ bos_token }}[INST] {{ content }} [/INST]", &f, &err));
    assert_non_null(strstr(err.text, "\"{{ bos_token }}[INST] {{ content }} [/INST]\""));
    assert_non_null(strstr(err.text, "`chat: none`"));
    // At most sixty bytes, not cut inside a character.
    assert_false(
        chat_choose("auto", "0123456789012345678901234567890123456789012345678901234567é890123456789", &f, &err));
    assert_non_null(strstr(err.text, "\"0123456789012345678901234567890123456789012345678901234567é...\""));
    assert_false(
        chat_choose("auto", "01234567890123456789012345678901234567890123456789012345678é90123456789", &f, &err));
    assert_non_null(strstr(err.text, "\"01234567890123456789012345678901234567890123456789012345678...\""));
    assert_false(chat_choose("auto", "", &f, &err));
    assert_non_null(strstr(err.text, "\"\""));
}

static void expect_rendered(const struct chat_format *f, const struct message *m, int n, const char *text)
{
    struct text out = { 0 };
    text_puts(&out, "before ");
    chat_render(f, m, n, &out);
    char *want = xformat("before %s", text);
    assert_string_equal(out.s, want);
    free(want);
    free(out.s);
}

// The expected texts are jinja2's, from SmolLM2's template with add_generation_prompt.
static void a_conversation_is_rendered_as_the_template_would(void **state)
{
    static const struct message conversation[] = {
        { "system", "Be brief." }, { "user", "Hi!" }, { "assistant", "Hello." }, { "user", "2+2?\n" }
    };
    struct chat_format f = choose("auto", smollm2);
    expect_rendered(
        &f, conversation, 4,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
        "<|im_start|>user\n2+2?\n<|im_end|>\n<|im_start|>assistant\n");
    expect_rendered(&f, conversation + 1, 1,
                    "<|im_start|>system\n" SMOLLM2
                    "<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n");
    expect_rendered(&f, NULL, 0, "<|im_start|>system\n" SMOLLM2 "<|im_end|>\n<|im_start|>assistant\n");
    f = choose("auto", qwen3);
    expect_rendered(&f, conversation + 1, 1, "<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n");
    f = choose("none", NULL);
    expect_rendered(&f, conversation, 2, "Be brief.Hi!");
    expect_rendered(&f, NULL, 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_system_prompt_is_the_one_that_the_template_contains),
        cmocka_unit_test(the_requested_format_is_chosen),
        cmocka_unit_test(an_unknown_format_is_an_error),
        cmocka_unit_test(a_conversation_is_rendered_as_the_template_would),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
