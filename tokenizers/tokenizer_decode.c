// tokenizer_decode.c - ids back to text. A token may end in the middle of a character, so up to three bytes wait for
// the next one. Bytes that cannot become a character are replaced, one U+FFFD for each maximal subpart (Unicode, 3.9).
#include <string.h>

#include "core/memory.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/tokenizer_parts.h"
#include "formats/utf8.h"

static void replace(struct decoding *hold, struct text *to)
{
    if (hold->n > 0)
        text_puts(to, "\xEF\xBF\xBD");
    hold->n = 0;
}

static void put(struct decoding *hold, const char *s, size_t n, struct text *to)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)s[i];
        if (hold->n == 0 && b < 0x80) { // as many as there are
            size_t from = i;
            while (i + 1 < n && (unsigned char)s[i + 1] < 0x80)
                i++;
            text_add(to, s + from, i + 1 - from);
            continue;
        }
        if (hold->n > 0 && !utf8_continues(hold->held, hold->n, b)) {
            replace(hold, to);
            i--; // b may begin a character of its own
            continue;
        }
        hold->held[hold->n++ & 3] = b; // n was at most 3: four would have been a character
        if (hold->n == 1 && utf8_length(b) == 0) {
            replace(hold, to);
        } else if (hold->n == utf8_length(hold->held[0])) {
            text_add(to, (const char *)hold->held, (size_t)hold->n);
            hold->n = 0;
        }
    }
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, bool special, struct decoding *hold,
                      struct text *to)
{
    for (size_t i = 0; i < n; i++) {
        size_t length;
        const char *bytes = tokenizer_token(t, id[i], &length);
        if (bytes != NULL && (special || !tokenizer_is_special(t, id[i])))
            put(hold, bytes, length, to);
    }
}

void tokenizer_decode_end(struct decoding *hold, struct text *to)
{
    replace(hold, to);
}
