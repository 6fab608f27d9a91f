// fuzz_chat.c - arbitrary text as a chat template, and conversations of arbitrary text rendered with it.
//
// Input: the requested format, the template (empty: none), a first message and a second one.
// reader: models/tokenizers/chat_template.c
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "tests/fuzz/fuzz.h"
#include "models/tokenizers/chat_template.h"

static const struct fuzz_file files[] = {
    { "format", FUZZ_WORDS }, { "template", FUZZ_WORDS }, { "first", FUZZ_TEXT },
    { "second", FUZZ_TEXT },  { NULL, FUZZ_TEXT },
};
static const char words[] =
    "auto  none  chatml  <|im_start|>  <|im_end|>  You are a helpful assistant.  "
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.  'You are a helpful assistant.'  "
    "\\nYou are a helpful assistant.<|im_end|>";

static size_t times(const char *s, const char *of)
{
    size_t n = 0;
    for (const char *at = strstr(s, of); at != NULL; at = strstr(at + 1, of))
        n++;
    return n;
}

static void use(const struct chat_format *f, const char *first, const char *second)
{
    for (int system = 0; system < 2; system++) {
        const struct message m[] = { { system ? "system" : "user", first }, { "user", second } };
        for (int n = 0; n <= 2; n++) {
            struct text to = { 0 };
            struct error err;
            insist(chat_render(f, m, n, &to, &err));
            const char *s = to.n > 0 ? to.s : "";
            insist(strlen(s) == to.n);
            insist(n < 1 || strstr(s, first) != NULL);
            insist(n < 2 || strstr(s, second) != NULL);
            if (f->kind == CHAT_CHATML) { // every turn is opened once, the answer's last
                const size_t turns = (size_t)n + 1 + (f->system != NULL && (n == 0 || !system));
                const bool plain = strchr(first, '<') == NULL && strchr(second, '<') == NULL;
                insist(plain ? times(s, "<|im_start|>") == turns : times(s, "<|im_start|>") >= turns);
                insist(to.n >= 22 && strcmp(s + to.n - 22, "<|im_start|>assistant\n") == 0);
            }
            free(to.s);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    struct fuzz_slice part[4];
    char *text[4];
    struct chat_format f;
    struct error err = { "" };
    fuzz_split(input, n, part, 4);
    for (int i = 0; i < 4; i++)
        text[i] = xstrndup(part[i].n > 0 ? (const char *)part[i].at : "", part[i].n);
    const struct chat_request r = { .name = text[0], .jinja = *text[1] != '\0' ? text[1] : NULL };
    const int known = choice_index("chatml|none|vicuna|zephyr", text[0]); // others start Python
    if (known >= 0 && chat_choose(&r, &f, &err))
        use(&f, text[2], text[3]);
    else
        insist(known < 0 || *err.text != '\0');
    for (int i = 0; i < 4; i++)
        free(text[i]);
    return 0;
}

FUZZ_MUTATOR(files, words)
