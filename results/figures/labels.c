#include "results/figures/labels.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/utf8.h"
#include "results/figures/figures.h"

enum { MAX_OPTIONS = 64, MAX_OPTION = 26 };

struct words {
    size_t kind; // its length
    int n;
    struct {
        const char *s;
        size_t n;
    } option[MAX_OPTIONS]; // "tokens=3"
};

// Options are divided by commas outside of brackets and quotes.
static struct words words_of(const char *drafter)
{
    struct words w = { .kind = strcspn(drafter, "(") };
    const char *at = drafter + w.kind + (drafter[w.kind] != '\0');
    while (*at != '\0' && w.n < MAX_OPTIONS) {
        const char *from = at += strspn(at, " ");
        int depth = 0;
        for (bool quoted = false; *at != '\0' && (quoted || depth > 0 || (*at != ',' && *at != ')')); at++) {
            quoted = quoted != (*at == '"');
            depth += quoted ? 0 : (strchr("[{(", *at) != NULL) - (strchr("]})", *at) != NULL);
        }
        if (at > from) {
            w.option[w.n].s = from;
            w.option[w.n++].n = (size_t)(at - from);
        }
        at += *at != '\0';
    }
    return w;
}

static bool has_option(const struct words *w, const char *s, size_t n)
{
    for (int i = 0; i < w->n; i++)
        if (w->option[i].n == n && memcmp(w->option[i].s, s, n) == 0)
            return true;
    return false;
}

char *drafter_without(const char *drafter, const char *const *names)
{
    const struct words w = words_of(drafter);
    struct text t = { 0 };
    int kept = 0;
    text_add(&t, drafter, w.kind);
    for (int i = 0; i < w.n; i++) {
        bool named = false;
        for (const char *const *name = names; *name != NULL; name++)
            named = named || (strncmp(w.option[i].s, *name, strlen(*name)) == 0 && w.option[i].s[strlen(*name)] == '=');
        if (named)
            continue;
        text_puts(&t, kept++ == 0 ? "(" : ", ");
        text_add(&t, w.option[i].s, w.option[i].n);
    }
    text_puts(&t, kept > 0 ? ")" : "");
    return t.s;
}

static bool in_common(const struct words *w, int option, const char *drafter, const char *const *others, int n)
{
    for (int i = 0; i < n; i++) {
        const struct words o = words_of(others[i]);
        if (o.kind == w->kind && memcmp(others[i], drafter, o.kind) == 0 &&
            !has_option(&o, w->option[option].s, w->option[option].n))
            return false;
    }
    return true;
}

char *drafter_label(const char *drafter, const char *const *others, int n)
{
    const struct words w = words_of(drafter);
    struct text t = { 0 };
    text_add(&t, drafter, w.kind);
    for (int i = 0; i < w.n; i++) {
        if (in_common(&w, i, drafter, others, n))
            continue;
        char *option = xstrndup(w.option[i].s, w.option[i].n);
        char *value = strchr(option, '='), *folder = strchr(option, '[') == NULL ? strrchr(option, '/') : NULL;
        if (value != NULL && folder != NULL)
            memmove(value + 1, folder + 1, strlen(folder + 1) + 1);
        char *plain = plain_text(option, MAX_OPTION);
        text_printf(&t, " %s", plain);
        free(plain);
        free(option);
    }
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
