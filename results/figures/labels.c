#include "results/figures/labels.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/utf8.h"
#include "results/drafter_name.h"
#include "results/figures/figures.h"

enum { MAX_OPTION = 26 };

char *drafter_without(const char *drafter, const char *const *names)
{
    const struct drafter_name d = drafter_name_of(drafter);
    struct text t = { 0 };
    int kept = 0;
    text_add(&t, d.kind, d.kind_bytes);
    for (int i = 0; i < d.n; i++) {
        bool named = false;
        for (const char *const *name = names; *name != NULL; name++)
            named = named || (strncmp(d.option[i], *name, strlen(*name)) == 0 && d.option[i][strlen(*name)] == '=');
        if (named)
            continue;
        text_puts(&t, kept++ == 0 ? "(" : ", ");
        text_add(&t, d.option[i], d.option_bytes[i]);
    }
    text_puts(&t, kept > 0 ? ")" : "");
    return t.s;
}

char *drafter_label(const char *drafter, const char *const *others, int n)
{
    const struct drafter_name d = drafter_name_of(drafter);
    struct drafter_name *all = xmalloc(((size_t)n + 1) * sizeof(*all));
    struct text t = { 0 };
    for (int i = 0; i < n; i++)
        all[i] = drafter_name_of(others[i]);
    text_add(&t, d.kind, d.kind_bytes);
    for (int i = 0; i < d.n; i++) {
        if (drafter_option_common(all, n, &d, i))
            continue;
        char *option = xstrndup(d.option[i], d.option_bytes[i]);
        char *value = strchr(option, '='), *folder = strchr(option, '[') == NULL ? strrchr(option, '/') : NULL;
        if (value != NULL && folder != NULL)
            memmove(value + 1, folder + 1, strlen(folder + 1) + 1);
        char *plain = plain_text(option, MAX_OPTION);
        text_printf(&t, " %s", plain);
        free(plain);
        free(option);
    }
    free(all);
    return t.s;
}

// The length of a character at s that is shown as it is; 0: malformed, or a control character.
static size_t shown(const char *s, size_t n)
{
    const size_t bytes = utf8_character(s, n);
    const unsigned code = bytes > 0 ? utf8_code(s) : 0;
    return code < 32 || (code >= 127 && code < 160) || (code >= 0x2028 && code <= 0x202E) ||
                   (code >= 0x2066 && code <= 0x2069) || code >= 0xFFFE
               ? (code >= 0x10000 ? bytes : 0)
               : bytes;
}

char *plain_text(const char *s, int most)
{
    struct text t = { 0 };
    size_t n = strlen(s), cut = 0; // cut: bytes that leave room for an ellipsis
    int characters = 0;
    text_puts(&t, "");
    while (n > 0) {
        if (most > 0 && characters == most - 1)
            cut = t.n;
        if (most > 0 && characters++ == most) {
            t.n = cut;
            text_puts(&t, "\u2026");
            break;
        }
        const size_t bytes = shown(s, n);
        if (bytes > 0)
            text_add(&t, s, bytes);
        else
            text_puts(&t, (unsigned char)*s < 128 ? " " : "\uFFFD");
        s += bytes > 0 ? bytes : 1;
        n -= bytes > 0 ? bytes : 1;
    }
    return t.s;
}

void html_put(struct text *out, const char *s)
{
    size_t n = strlen(s);
    while (n > 0) {
        const size_t bytes = *s == '\n' ? 1 : shown(s, n);
        if (bytes == 0)
            text_puts(out, (unsigned char)*s < 128 ? " " : "\uFFFD");
        else if (*s == '&' || *s == '<' || *s == '>' || *s == '"' || *s == '\'')
            text_printf(out, "&#%d;", *s);
        else
            text_add(out, s, bytes);
        s += bytes > 0 ? bytes : 1;
        n -= bytes > 0 ? bytes : 1;
    }
}

void quoted_put(struct text *out, const char *s)
{
    text_puts(out, "'");
    for (; *s != '\0'; s++)
        text_add(out, *s == '\'' ? "''" : s, *s == '\'' ? 2 : 1);
    text_puts(out, "'");
}

int place_of_name(const char *const *names, int n, const char *name)
{
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i;
}
