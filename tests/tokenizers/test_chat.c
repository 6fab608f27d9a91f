// test_chat.c - conversations are rendered as by the model's own template.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "engine/speclab.h"
#include "models/tokenizers/chat_template.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

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
// Without a system prompt of its own.
static const char bare[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static struct chat_format choose(const char *format, const char *jinja)
{
    struct chat_format f;
    assert_ok(chat_choose(&(struct chat_request){ .name = format, .jinja = jinja, .now = "2025-01-31" }, &f, &err),
              err);
    return f;
}

TEST(the_system_prompt_is_the_one_that_the_template_contains)
{
    static const struct {
        const char *jinja, *system;
    } cases[] = {
        { smollm2, SMOLLM2 },
        { qwen2, QWEN2 },
        { "{{- '" QWEN25 "' }}{{- '<|im_start|>system\\n" QWEN25 "<|im_end|>\\n' }}", QWEN25 },
        { bare, NULL },
        { "<|im_start|>system\n" QWEN2 " Be kind.<|im_end|>", NULL }, // another prompt with the same beginning
        { "<|im_start|>system\nBe kind. " QWEN2 "<|im_end|>", NULL },
        { "<|im_start|>system\nYou are Qwen. " QWEN2 "<|im_end|>{{ \"" QWEN2 "\" }}", QWEN2 },
        { QWEN2, NULL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct chat_format f = choose("chatml", cases[i].jinja);
        assert_int_equal(f.kind, CHAT_CHATML);
        assert_string_equal(f.end, "<|im_end|>");
        if (cases[i].system == NULL)
            assert_null(f.system);
        else
            assert_string_equal(f.system, cases[i].system);
    }
}

// "auto" renders whole ChatML templates without Jinja, with the same texts; one that differs by a character is Jinja's.
TEST(plain_chatml_is_rendered_as_jinja_renders_it)
{
    static const struct message conversation[] = {
        { "system", "Be brief. " }, { "user", "\n Hi! {{ 1 }}" }, { "assistant", "Hello." }, { "user", "" }
    };
    static const char *const templates[] = { smollm2, qwen2, bare };
    char *path = test_path("template.jinja");
    for (size_t i = 0; i < sizeof(templates) / sizeof(*templates); i++) {
        struct chat_format plain = choose("auto", templates[i]), jinja, other;
        assert_int_equal(plain.kind, CHAT_CHATML);
        file_write(path, templates[i]);
        jinja = choose(path, NULL);
        for (int from = 0; from < 2; from++)
            for (int n = 1; from + n <= 4; n++) {
                struct text out = { 0 }, want = { 0 };
                assert_ok(chat_render(&plain, conversation + from, n, &out, &err), err);
                assert_ok(chat_render(&jinja, conversation + from, n, &want, &err), err);
                assert_string_equal(out.s, want.s);
                free(out.s);
                free(want.s);
            }
        chat_close(&jinja);
        char *changed = xformat("%s\n ", templates[i]);
        other = choose("auto", changed);
        assert_int_equal(other.kind, CHAT_JINJA);
        chat_close(&other);
        free(changed);
    }
    free(path);
}

// What a text depends on is in the label, which is in a cell's hash.
TEST(the_label_changes_with_the_template_and_its_variables)
{
    struct json *one = json_parse("{\"date_string\": \"1 May\"}", 24, "one", &err);
    struct json *other = json_parse("{\"date_string\": \"2 May\"}", 24, "other", &err);
    const struct chat_request all[] = {
        { .name = "auto", .jinja = "{{ 1 }}", .now = "2025-01-31" },
        { .name = "auto", .jinja = "{{ 2 }}", .now = "2025-01-31" },
        { .name = "auto", .jinja = "{{ 1 }}", .now = "2025-02-01" },
        { .name = "auto", .jinja = "{{ 1 }}", .now = "2025-01-31", .variables = one },
        { .name = "auto", .jinja = "{{ 1 }}", .now = "2025-01-31", .variables = other },
        { .name = "auto", .jinja = "{{ 1 }}", .now = "2025-01-31", .tokens = one },
    };
    enum { N = sizeof(all) / sizeof(*all) };
    struct chat_format f[N], again;
    for (int i = 0; i < N; i++) {
        assert_ok(chat_choose(&all[i], &f[i], &err), err);
        assert_ok(chat_choose(&all[i], &again, &err), err);
        assert_string_equal(f[i].label, again.label);
        chat_close(&again);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(f[i].label, f[k].label);
    }
    for (int i = 0; i < N; i++)
        chat_close(&f[i]);
    for (int i = 0; i < 4; i++) { // formats without a template have no variables
        static const char *const names[] = { "none", "chatml", "vicuna", "zephyr" };
        assert_false(chat_choose(&(struct chat_request){ .name = names[i], .variables = one }, &again, &err));
        assert_non_null(strstr(err.text, "variables are those of a Jinja template"));
    }
    json_free(one);
    json_free(other);
}

TEST(a_format_is_chosen_by_name_or_not_at_all)
{
    static const struct {
        const char *name, *jinja;
        enum chat kind;
        const char *refused; // NULL: it is chosen
    } cases[] = {
        { "none", smollm2, CHAT_NONE, NULL },
        { "none", NULL, CHAT_NONE, NULL },
        { "chatml", NULL, CHAT_CHATML, NULL },
        { "chatml", "[INST] {{ message }} [/INST]", CHAT_CHATML, NULL },
        { "auto", NULL, 0, "the checkpoint has no chat template; `chat: none` passes the prompts unchanged" },
        { "llama", smollm2, 0, "unknown chat format \"llama\": expected auto|none|chatml|vicuna|zephyr, or a file" },
        { "auto", "a\n{% if %}", 0, "chat template, line 2: Expected an expression" },
        { "auto", "{% for m in messages %}", 0, "chat template, line 1: " },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct chat_format f;
        const bool ok = chat_choose(&(struct chat_request){ .name = cases[i].name, .jinja = cases[i].jinja }, &f, &err);
        assert_int_equal(ok, cases[i].refused == NULL);
        if (ok)
            assert_true(f.kind == cases[i].kind && f.system == NULL && (f.end == NULL) == (f.kind == CHAT_NONE));
        else
            assert_non_null(strstr(err.text, cases[i].refused));
    }
}

static void expect_rendered(const struct chat_format *f, const struct message *m, int n, const char *text)
{
    struct text out = { 0 };
    text_puts(&out, "before ");
    assert_ok(chat_render(f, m, n, &out, &err), err);
    char *want = xformat("before %s", text);
    assert_string_equal(out.s, want);
    free(want);
    free(out.s);
}

TEST(a_conversation_is_rendered_as_its_model_was_trained)
{
    static const struct message conversation[] = {
        { "system", "Be brief." }, { "user", "Hi!" }, { "assistant", "Hello." }, { "user", "2+2?\n" }
    };
    struct chat_format f = choose("auto", smollm2); // conversations: plain_chatml_is_rendered_as_jinja_renders_it()
    expect_rendered(&f, NULL, 0, "<|im_start|>system\n" SMOLLM2 "<|im_end|>\n<|im_start|>assistant\n");
    f = choose("vicuna", NULL); // FastChat's vicuna_v1.1
    expect_rendered(&f, conversation, 4, "Be brief. USER: Hi! ASSISTANT: Hello.</s>USER: 2+2?\n ASSISTANT:");
    f = choose("zephyr", NULL);
    expect_rendered(
        &f, conversation, 4,
        "<|system|>\nBe brief.</s>\n<|user|>\nHi!</s>\n<|assistant|>\nHello.</s>\n<|user|>\n2+2?\n</s>\n<|assistant|>\n");
    f = choose("none", NULL);
    expect_rendered(&f, conversation, 2, "Be brief.Hi!");
    expect_rendered(&f, NULL, 0, "");
}

// ---- Jinja

// What chat_templates.json has: templates, what they are given, and transformers' renderings (tests/tokenizers/make_templates.py).
TEST(templates_are_rendered_as_by_transformers)
{
    struct json *all = json_read(CASES "/chat_templates.json", &err);
    assert_ok(all != NULL, err);
    for (size_t i = 0; i < json_count(all); i++) {
        const struct json *c = json_at(all, i), *runs = json_get(c, "runs");
        const struct chat_request r = { .name = "auto",
                                        .jinja = json_text(json_get(c, "template")),
                                        .variables = json_get(c, "variables"),
                                        .tokens = json_get(c, "tokens"),
                                        .now = "2025-01-31" };
        struct chat_format f;
        assert_ok(chat_choose(&r, &f, &err), err);
        assert_int_equal(f.kind, CHAT_JINJA);
        assert_false(chat_lacks_bos(&f));
        for (size_t k = 0; k < json_count(runs); k++) {
            const struct json *list = json_get(json_at(runs, k), "messages"),
                              *text = json_get(json_at(runs, k), "text");
            struct message m[16];
            struct text out = { 0 };
            const int n = (int)json_count(list);
            for (int j = 0; j < n; j++)
                m[j] = (struct message){ json_text(json_get(json_at(list, (size_t)j), "role")),
                                         json_text(json_get(json_at(list, (size_t)j), "content")) };
            if (json_is_text(text)) {
                assert_ok(chat_render(&f, m, n, &out, &err), err);
                assert_string_equal(out.s, json_text(text));
            } else
                assert_false(chat_render(&f, m, n, &out, &err));
            free(out.s);
        }
        chat_close(&f);
    }
    json_free(all);
}

// Of every template the beginning of a conversation, up to the user's text.
TEST(the_beginning_of_the_users_turn_is_found)
{
    struct text out = { 0 };
    struct chat_format f = choose("auto", "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}");
    assert_true(chat_render_user(&f, &out, &err));
    assert_string_equal(out.s, "<user>");
    chat_close(&f);
    f = choose("auto", "{{ messages | length }}");
    assert_false(chat_render_user(&f, &out, &err));
    assert_non_null(strstr(err.text, "does not write the user's text"));
    chat_close(&f);
    f = choose("none", NULL);
    assert_false(chat_render_user(&f, &out, &err));
    free(out.s);
}

TEST(a_malicious_template_ends_with_a_sentence)
{
    static const struct {
        const char *jinja, *message;
    } cases[] = {
        { "{{ 'a' * 2000000000 }}", "line 1: it needs more than 1024 MiB" },
        { "{% for i in range(99999) %}{{ 'a' * 10000 }}{% endfor %}", "its text is longer than 16777216 characters" },
        { "{{ ''.__class__.__mro__[1].__subclasses__() }}", "'__class__' of 'str' object is unsafe" },
        { "a\n{{ cycler.__init__.__globals__.os.popen('id').read() }}", "line 2: access to attribute '__init__'" },
        { "{% include '/etc/passwd' %}", "no loader" },
        { "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "it calls itself without end" },
        { "{{ raise_exception('no system') }}", "line 1: no system" },
        { "{{ messages[0].content.a.b }}", "has no attribute 'a'" },
        { "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
          "chat template: it did not end within 10 seconds" },
    };
    const struct message m = { "user", "Hi" };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct chat_format f = choose("auto", cases[i].jinja);
        struct text out = { 0 };
        for (int again = 0; again < 2; again++) { // the process goes on
            assert_false(chat_render(&f, &m, 1, &out, &err));
            if (strstr(err.text, cases[i].message) == NULL)
                fail_msg("%s: \"%s\" does not contain \"%s\"", cases[i].jinja, err.text, cases[i].message);
            assert_null(strchr(err.text, '\n'));
        }
        chat_close(&f);
        free(out.s);
    }
}

TEST(a_long_conversation_passes_both_ways)
{
    const size_t n = 3000000; // more than a socket holds
    char *content = xmalloc(n + 1);
    memset(content, 'x', n);
    content[n] = '\0';
    struct chat_format f = choose("auto", "{{ messages[0].content }}{{ messages[0].content }}");
    struct text out = { 0 };
    assert_ok(chat_render(&f, &(struct message){ "user", content }, 1, &out, &err), err);
    assert_int_equal(out.n, 2 * n);
    chat_close(&f);
    free(out.s);
    free(content);
}

TEST(a_file_that_is_no_template_is_refused)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *message;
    } cases[] = {
        { "a\0b", 3, "expected a template, found a NUL character at byte 1" },
        { "\xFF{{ 1 }}", 8, "not UTF-8: byte 0xFF at offset 0" },
        { "{{ 1 }", 6, "template.jinja, line 1: " },
    };
    char *path = test_path("template.jinja");
    struct chat_format f;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        file_write_bytes(path, cases[i].bytes, cases[i].n);
        assert_false(chat_choose(&(struct chat_request){ .name = path }, &f, &err));
        if (strstr(err.text, cases[i].message) == NULL || strncmp(err.text, path, strlen(path)) != 0)
            fail_msg("\"%s\" does not contain \"%s\"", err.text, cases[i].message);
    }
    static const char *const variables[] = { "{\"messages\": 3}", "{\"add_generation_prompt\": false}",
                                             "{\"now\": 20250131}" };
    for (int i = 0; i < 3; i++) {
        struct json *j = json_parse(variables[i], strlen(variables[i]), "variables", &err);
        assert_false(
            chat_choose(&(struct chat_request){ .name = "auto", .jinja = "{{ 1 }}", .variables = j }, &f, &err));
        assert_non_null(strstr(err.text, i < 2 ? "is set by each conversation" : "the variable now: expected a date"));
        json_free(j);
    }
    free(path);
}

TEST(a_missing_python_is_named)
{
    struct chat_format f;
    setenv("SPECLAB_PYTHON", "/nowhere/python3", 1);
    assert_false(chat_choose(&(struct chat_request){ .name = "auto", .jinja = "{{ 1 }}" }, &f, &err));
    assert_string_equal(err.text,
                        "chat template: SPECLAB_PYTHON cannot be started; `chat: none` passes the prompts unchanged");
    unsetenv("SPECLAB_PYTHON");
}

// The child processes of this one; -1: none.
static int a_child(void)
{
    int child = -1;
    char *path = xformat("/proc/%d/task/%d/children", (int)getpid(), (int)getpid());
    FILE *f = fopen(path, "re");
    if (f != NULL && fscanf(f, "%d", &child) != 1)
        child = -1;
    if (f != NULL)
        fclose(f);
    free(path);
    return child;
}

TEST(a_process_that_was_killed_is_reported_and_none_is_left)
{
    const struct message m = { "user", "x" };
    struct chat_format f;
    struct text text = { 0 };
    assert_ok(chat_choose(&(struct chat_request){ .name = "auto", .jinja = "{{ messages[0].content }}" }, &f, &err),
              err);
    const int child = a_child();
    if (child < 0) {
        print_message("skipped: this kernel does not list child processes\n");
        chat_close(&f);
        skip();
    }
    assert_true(chat_render(&f, &m, 1, &text, &err));
    assert_int_equal(kill(child, SIGKILL), 0);
    for (int i = 0; i < 2; i++) { // again, too
        assert_false(chat_render(&f, &m, 1, &text, &err));
        assert_non_null(strstr(err.text, "was ended by signal 9"));
    }
    assert_int_equal(a_child(), -1);
    chat_close(&f);
    free(text.s);
}

// ---- through speclab.h

TEST(what_a_template_lacks_is_an_error_of_the_chat_only)
{
    static const char odd[] = "[INST] {{ content", varied[] = "{{ color }}{{ messages[0].content }}";
    static const struct {
        const char *jinja, *chat, *variables, *message; // NULL: good
        size_t tokens;
    } cases[] = {
        { odd, NULL, NULL, "chat template, line 1", 0 },
        { odd, "chatml", NULL, NULL, 0 },
        { varied, NULL, NULL, NULL, 1 },
        { varied, NULL, "{\"color\": \"red\"}", NULL, 3 },
        { varied, NULL, "[1]", "chat_variables: expected a JSON object", 0 },
        { varied, NULL, "{", "chat_variables: JSON:1:1: not valid JSON", 0 },
    };
    struct speclab_error error = { "" };
    char *path = test_path("odd"), *settings = test_path("odd/tokenizer_config.json");
    small_write_hf(path, &small_default);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *text = xformat("{\"chat_template\": \"%s\"}", cases[i].jinja);
        file_write(settings, text);
        const struct speclab_target_options o = { .chat = cases[i].chat, .chat_variables = cases[i].variables };
        struct speclab_tokens tokens = { NULL, 0 };
        struct speclab_target *t = speclab_target_open(path, &o, &error);
        assert_ok(t != NULL, error);
        const bool ok = speclab_encode_chat(t, &(struct speclab_message){ "user", "a" }, 1, &tokens, &error);
        assert_int_equal(ok, cases[i].message == NULL);
        assert_true(ok || strncmp(error.text, cases[i].message, strlen(cases[i].message)) == 0 ||
                    strstr(error.text, "chat template, line 1") != NULL);
        assert_int_equal(speclab_target_has_chat(t, &error), ok);
        assert_true(cases[i].tokens == 0 || tokens.n >= cases[i].tokens);
        assert_true(speclab_encode(t, "red", &tokens, &error));
        free(tokens.id);
        speclab_target_close(t);
        free(text);
    }
    free(path);
    free(settings);
}

RUN_TESTS(NULL, test_directory_tear_down)
