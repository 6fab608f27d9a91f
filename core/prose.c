// prose.c - lays out words in lines (prose.h).
#include "core/prose.h"

#include <string.h>

#include "core/memory.h"
#include "core/utf8.h"

// Returns the length of the word at s, or n.
static size_t word_length(const char *s, size_t n)
{
    const char *end = memchr(s, ' ', n);
    return end != NULL ? (size_t)(end - s) : n;
}

void prose_paragraph(struct text *to, int indent, int width, const char *label, const char *words)
{
    width = width < indent + 8 ? indent + 8 : width;
    text_printf(to, "%-*s", indent, label);
    int at = indent;
    for (const char *w = words; w[strspn(w, " ")] != '\0';) {
        const char *word = w + strspn(w, " ");
        const int blank = at > indent ? (int)(word - w) : 0;
        // one line takes at most `width` characters of the word
        size_t n = word_length(word, strnlen(word, 4 * ((size_t)width + 1)));
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
