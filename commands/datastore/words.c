#include "commands/datastore/words.h"

#include <stdlib.h>
#include <string.h>

// Bytes of the separator at s; 0: a letter or digit is there.
static size_t separator(const char *s)
{
    const unsigned char c = (unsigned char)*s;
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
    if (!word)
        return 1;
    const bool general = c == 0xE2 && ((unsigned char)s[1] == 0x80 || (unsigned char)s[1] == 0x81) && s[2] != '\0';
    return general                                    ? 3
           : c == 0xC2 && (unsigned char)s[1] == 0xA0 ? 2
                                                      : 0; // U+2000 to U+207F; a space that does not break
}

static void add_word(struct words *w)
{
    array_reserve(w->at, w->capacity, w->n + 1);
    if (w->n > 0)
        text_puts(&w->text, " ");
    w->at[w->n++] = w->text.n;
}

void words_read(struct words *w, const char *text)
{
    bool within = false;
    w->n = w->text.n = 0;
    for (const char *s = text; *s != '\0';) {
        const size_t skipped = separator(s);
        if (skipped > 0) {
            within = false;
            s += skipped;
            continue;
        }
        if (!within)
            add_word(w);
        within = true;
        const char letter = *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;
        text_add(&w->text, &letter, 1);
        s++;
    }
}

struct hash words_hash(const struct words *w, size_t first, size_t length)
{
    const size_t from = w->at[first], to = first + length < w->n ? w->at[first + length] - 1 : w->text.n;
    return hash_of(w->text.s + from, to - from);
}

void words_free(struct words *w)
{
    free(w->text.s);
    free(w->at);
    *w = (struct words){ 0 };
}
