// prose.c - prose.h.
#include "core/prose.h"

#include <stdbool.h>
#include <string.h>

#include "core/memory.h"
#include "core/utf8.h"

void prose_paragraph(struct text *to, int indent, int width, const char *label, const char *words)
{
    width = width < indent + 8 ? indent + 8 : width;
    text_printf(to, "%-*s", indent, label);
    int at = indent;
    for (const char *w = words; w[strspn(w, " ")] != '\0';) {
        const char *word = w + strspn(w, " ");
        size_t n = strcspn(word, " ");
        const int blank = at > indent ? (int)(word - w) : 0;
        int wide = (int)utf8_count(word, n);
        w = word;
        if (at > indent && at + blank + wide > width) {
            text_printf(to, "\n%*s", indent, "");
            at = indent;
            continue;
        }
        if (at + wide > width) {
            n = utf8_first(word, n, (size_t)(width - at));
            wide = width - at;
        }
        text_printf(to, "%*s", blank, "");
        text_add(to, word, n);
        at += blank + wide;
        w += n;
    }
    text_puts(to, "\n");
}

#define SIGNS "\\`*_<|#~$[" // that may mean something

static void put_escaped(struct text *to, const char *s, const char *signs)
{
    const char *const end = s + strlen(s);
    for (size_t n; s < end; s += n) {
        n = utf8_character(s, (size_t)(end - s));
        text_puts(to, strchr(signs, *s) != NULL ? "\\" : "");
        if (n == 0)
            text_puts(to, "\xEF\xBF\xBD");
        else
            text_add(to, (unsigned char)*s < ' ' ? " " : s, n);
        n = n > 0 ? n : 1;
    }
}

void prose_markdown(struct text *to, const char *s)
{
    put_escaped(to, s, SIGNS);
}

void prose_markdown_code(struct text *to, const char *s)
{
    const bool plain = strchr(s, '`') != NULL || strstr(s, "\\|") != NULL || s[0] == '\0';
    text_puts(to, plain ? "" : "`");
    put_escaped(to, s, plain ? SIGNS : "|");
    text_puts(to, plain ? "" : "`");
}
