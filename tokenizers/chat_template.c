#include "tokenizers/chat_template.h"

#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"

static const char opening[] = "<|im_start|>", closing[] = "<|im_end|>";

// Default system prompts of the templates of SmolLM2, Qwen2.5 and Qwen2.
static const char *const system_prompts[] = {
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
    "You are a helpful assistant.",
};

// Whether the template contains exactly this prompt: after a newline (also escaped, \n) or a quote, and before another
// quote or <|im_end|>. Qwen2's prompt is a suffix of Qwen2.5's.
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

static void chatml(const char *jinja, struct chat_format *to)
{
    *to = (struct chat_format){ .kind = CHAT_CHATML, .end = closing };
    for (size_t i = 0; jinja != NULL && to->system == NULL && i < sizeof(system_prompts) / sizeof(*system_prompts); i++)
        if (contains_prompt(jinja, system_prompts[i]))
            to->system = system_prompts[i];
}

bool chat_choose(const char *format, const char *jinja, struct chat_format *to, struct error *err)
{
    *to = (struct chat_format){ .kind = CHAT_NONE };
    if (strcmp(format, "none") == 0)
        return true;
    if (strcmp(format, "chatml") == 0) {
        chatml(jinja, to);
        return true;
    }
    if (strcmp(format, "auto") != 0)
        return fail(err, "unknown chat format \"%s\" (auto, none, chatml)", format);
    if (jinja == NULL)
        return fail(err, "the checkpoint has no chat template; `chat: none` passes the prompts unchanged");
    if (strstr(jinja, opening) != NULL) {
        chatml(jinja, to);
        return true;
    }
    const size_t n = strlen(jinja), shown = utf8_cut(jinja, n, 60);
    return fail(
        err,
        "the checkpoint's chat template is not supported (only ChatML is): \"%.*s%s\"; `chat: none` passes the prompts unchanged",
        (int)shown, jinja, n > shown ? "..." : "");
}

static void turn(struct text *to, const char *role, const char *content)
{
    text_printf(to, "%s%s\n%s%s\n", opening, role, content, closing);
}

static void render(const struct chat_format *f, const struct message *m, int n, const char *next, struct text *to)
{
    if (f->system != NULL && (n == 0 || strcmp(m[0].role, "system") != 0))
        turn(to, "system", f->system);
    for (int i = 0; i < n; i++)
        turn(to, m[i].role, m[i].content);
    text_printf(to, "%s%s\n", opening, next);
}

void chat_render(const struct chat_format *f, const struct message *m, int n, struct text *to)
{
    if (f->kind != CHAT_NONE) {
        render(f, m, n, "assistant", to);
        return;
    }
    for (int i = 0; i < n; i++)
        text_puts(to, m[i].content);
}

bool chat_render_user(const struct chat_format *f, struct text *to)
{
    if (f->kind == CHAT_NONE)
        return false;
    render(f, NULL, 0, "user", to);
    return true;
}
