#include "models/tokenizers/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "core/utf8.h"
#include "core/files/input.h"
#include "models/tokenizers/chat_process.h"

static const char opening[] = "<|im_start|>", closing[] = "<|im_end|>";

// Default system prompts of the templates of SmolLM2, Qwen2.5 and Qwen2.
static const char *const system_prompts[] = {
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
    "You are a helpful assistant.",
};

// Returns whether the template contains exactly this prompt: after a newline (also escaped, \n) or a quote, and before
// another quote or <|im_end|>. Qwen2's prompt is a suffix of Qwen2.5's.
static bool contains_prompt(const char *jinja, const char *text)
{
    size_t n = strlen(text);
    for (const char *at = strstr(jinja, text); at != NULL; at = strstr(at + 1, text)) {
        bool begins =
            at > jinja && (strchr("\n'\"", at[-1]) != NULL || (at[-1] == 'n' && at - jinja >= 2 && at[-2] == '\\'));
        bool ends = at[n] == '\'' || at[n] == '"' || strncmp(at + n, closing, strlen(closing)) == 0;
        if (begins && ends)
            return true;
    }
    return false;
}

// Recognizes Qwen2.5's template, which has a part for tools, by the hash of its text without a newline at its end.
static bool is_qwen25(const char *jinja)
{
    const size_t n = strlen(jinja);
    char *text = xstrndup(jinja, n - (n > 0 && jinja[n - 1] == '\n'));
    struct digest *d = digest_begin();
    digest_text(d, text);
    free(text);
    return strcmp(hash_text(digest_end(d)).s, "e62daf3dbe177b4a950c4f00a061f2a8") == 0;
}

// Returns whether the template is ChatML and nothing else: the one that SmolLM2, Qwen2 and many others have, with one
// of the prompts or none, or Qwen2.5's. Only these exact texts qualify: other templates with <|im_start|> strip blanks
// or thoughts, or write a date.
static bool is_plain_chatml(const char *jinja)
{
    static const char loop[] =
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    bool plain = is_qwen25(jinja);
    struct text real = { 0 }; // the template with real newlines
    text_puts(&real, "");
    for (const char *s = jinja; *s != '\0'; s++)
        if (s[0] == '\\' && s[1] == 'n') {
            text_puts(&real, "\n");
            s++;
        } else
            text_add(&real, s, 1);
    for (int i = -1; i < (int)(sizeof(system_prompts) / sizeof(*system_prompts)) && !plain; i++) {
        char *system =
            i < 0
                ? xstrdup("")
                : xformat(
                      "{%% if loop.first and messages[0]['role'] != 'system' %%}{{ '<|im_start|>system\n%s<|im_end|>\n' }}"
                      "{%% endif %%}",
                      system_prompts[i]);
        char *whole = xformat("{%% for message in messages %%}%s%s", system, loop);
        plain = strcmp(real.s, whole) == 0;
        free(whole);
        free(system);
    }
    free(real.s);
    return plain;
}

// The formats that are rendered here: the token that ends an answer, and the openings of turns.
static const struct {
    const char *label, *end, *assistant, *user;
} native[] = {
    [CHAT_NONE] = { "none", NULL, "", NULL },
    [CHAT_CHATML] = { "chatml", closing, "<|im_start|>assistant\n", "<|im_start|>user\n" },
    [CHAT_VICUNA] = { "vicuna", "</s>", "ASSISTANT:", "USER:" },
    [CHAT_ZEPHYR] = { "zephyr", "</s>", "<|assistant|>\n", "<|user|>\n" },
};

// jinja: the checkpoint's template, which may have a default system prompt; NULL: none.
static bool choose_native(enum chat kind, const char *jinja, struct chat_format *to)
{
    *to = (struct chat_format){ .kind = kind, .end = native[kind].end };
    snprintf(to->label, sizeof(to->label), "%s", native[kind].label);
    if (kind == CHAT_CHATML && jinja != NULL)
        for (size_t i = 0; to->system == NULL && i < sizeof(system_prompts) / sizeof(*system_prompts); i++)
            if (contains_prompt(jinja, system_prompts[i]))
                to->system = system_prompts[i];
    return true;
}

// ---- choosing

// Refuses variables that a conversation sets, or that have a wrong type.
static bool check_variables(const struct json *variables, struct error *err)
{
    static const char *const own[] = { "messages", "add_generation_prompt" };
    const struct json *now = json_get(variables, "now");
    for (int i = 0; i < 2; i++)
        if (json_get(variables, own[i]) != NULL)
            return fail(err, "the variable %s is set by each conversation", own[i]);
    return now == NULL || json_is_text(now) || fail(err, "the variable now: expected a date as text, \"2025-01-31\"");
}

// r: the request with the template itself, and its name for messages.
static bool start_template(struct chat_request r, struct chat_format *to, struct error *err)
{
    if (!check_variables(r.variables, err))
        return false;
    const struct json *parts[] = { r.variables, r.tokens };
    struct digest *d = digest_begin();
    digest_text(d, r.jinja);
    digest_text(d, r.now);
    for (int i = 0; i < 2; i++) {
        char *text = parts[i] != NULL ? json_write(parts[i]) : NULL;
        digest_text(d, text);
        free(text);
    }
    const struct json *given = json_get(r.variables, "now");
    *to = (struct chat_format){ .kind = CHAT_JINJA };
    snprintf(to->label, sizeof(to->label), "jinja %s", hash_text(digest_end(d)).s);
    r.now = *json_text(given) != '\0' ? json_text(given) : r.now;
    to->process = chat_process_start(&r, err);
    return to->process != NULL;
}

static bool start_file(struct chat_request r, struct chat_format *to, struct error *err)
{
    size_t n;
    char *jinja = file_text(r.name, &n, err);
    r.jinja = jinja;
    const bool ok = jinja != NULL && require_utf8(jinja, n, r.name, err) &&
                    (strlen(jinja) == n ||
                     fail(err, "%s: expected a template, found a NUL character at byte %zu", r.name, strlen(jinja))) &&
                    start_template(r, to, err);
    free(jinja);
    return ok;
}

bool chat_name_known(const char *name, struct error *err)
{
    return choice_index(CHAT_NAMES, name) >= 0 || file_exists(name) ||
           fail(err, "unknown chat format \"%s\": expected %s, or a file with a template", name, CHAT_NAMES);
}

bool chat_variables_read(const char *text, struct json **to, struct error *err)
{
    *to = text != NULL ? json_parse(text, strlen(text), "JSON", err) : NULL;
    if (text == NULL || json_is_object(*to))
        return true;
    if (*to != NULL)
        fail(err, "expected a JSON object, as in {\"enable_thinking\": false}");
    json_free(*to);
    *to = NULL;
    return false;
}

bool chat_choose(const struct chat_request *r, struct chat_format *to, struct error *err)
{
    const int choice = choice_index(CHAT_NAMES, r->name); // 0: auto; the others are those of enum chat, in its order
    choose_native(CHAT_NONE, NULL, to);
    if (!chat_name_known(r->name, err))
        return false;
    if (choice > 0)
        return r->variables == NULL
                   ? choose_native((enum chat)(choice - 1), r->jinja, to)
                   : fail(err, "variables are those of a Jinja template; the format %s is none", r->name);
    if (choice < 0)
        return start_file(*r, to, err);
    if (r->jinja == NULL)
        return fail(err, "the checkpoint has no chat template; `chat: none` passes the prompts unchanged");
    if (r->variables == NULL && is_plain_chatml(r->jinja))
        return choose_native(CHAT_CHATML, r->jinja, to);
    struct chat_request own = *r;
    struct error why;
    own.name = "chat template";
    return start_template(own, to, &why) || fail(err, "%s; `chat: none` passes the prompts unchanged", why.text);
}

void chat_close(struct chat_format *f)
{
    chat_process_end(f->process);
    *f = (struct chat_format){ .kind = CHAT_NONE };
}

bool chat_opens_with_space(const struct chat_format *f)
{
    return f->kind == CHAT_VICUNA;
}

bool chat_lacks_bos(const struct chat_format *f)
{
    return f->kind != CHAT_JINJA;
}

// ---- rendering

static void turn(struct text *to, const char *role, const char *content)
{
    text_printf(to, "%s%s\n%s%s\n", opening, role, content, closing);
}

// Appends the conversation in a native format, and `next`, which opens a turn.
static void render(const struct chat_format *f, const struct message *m, int n, const char *next, struct text *to)
{
    const bool has_system = n > 0 && strcmp(m[0].role, "system") == 0, vicuna = f->kind == CHAT_VICUNA;
    if (f->system != NULL && !has_system)
        turn(to, "system", f->system);
    if (vicuna) // FastChat's vicuna_v1.1
        text_printf(to, "%s ",
                    has_system
                        ? m[0].content
                        : "A chat between a curious user and an artificial intelligence assistant. The assistant "
                          "gives helpful, detailed, and polite answers to the user's questions.");
    for (int i = vicuna && has_system; i < n; i++)
        if (f->kind == CHAT_CHATML)
            turn(to, m[i].role, m[i].content);
        else if (f->kind == CHAT_ZEPHYR)
            text_printf(to, "<|%s|>\n%s</s>\n", m[i].role, m[i].content);
        else if (vicuna)
            text_printf(to, strcmp(m[i].role, "assistant") == 0 ? "ASSISTANT: %s</s>" : "USER: %s ", m[i].content);
        else
            text_puts(to, m[i].content);
    text_puts(to, next);
}

static bool render_jinja(const struct chat_format *f, const struct message *m, int n, bool prompt, struct text *to,
                         struct error *err)
{
    struct json *list = json_new_array();
    for (int i = 0; i < n; i++)
        json_push(list, json_object_of(JSON("role", m[i].role), JSON("content", m[i].content)));
    const bool ok = chat_process_render(f->process, list, prompt, to, err);
    json_free(list);
    return ok;
}

bool chat_render(const struct chat_format *f, const struct message *m, int n, struct text *to, struct error *err)
{
    if (f->kind == CHAT_JINJA)
        return render_jinja(f, m, n, true, to, err);
    render(f, m, n, native[f->kind].assistant, to);
    return true;
}

// Finds what a template writes before the user's text by rendering a text that occurs nowhere else.
static bool render_jinja_user(const struct chat_format *f, struct text *to, struct error *err)
{
    static const char mark[] = "9f0b7c52e1d84";
    const struct message one = { "user", mark };
    struct text all = { 0 };
    bool ok = render_jinja(f, &one, 1, false, &all, err);
    const char *at = ok ? strstr(all.s, mark) : NULL;
    if (ok && at == NULL)
        ok = fail(err, "the chat template does not write the user's text");
    if (ok)
        text_add(to, all.s, (size_t)(at - all.s));
    free(all.s);
    return ok;
}

bool chat_render_user(const struct chat_format *f, struct text *to, struct error *err)
{
    if (f->kind == CHAT_JINJA)
        return render_jinja_user(f, to, err);
    if (f->kind == CHAT_NONE)
        return fail(err, "without a chat template there is no user's turn");
    render(f, NULL, 0, native[f->kind].user, to);
    return true;
}
