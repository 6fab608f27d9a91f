// tokenizer_decode.c - decodes ids to text. A token may end inside a character, so up to three bytes are held for the next
// one. Malformed bytes are replaced, one U+FFFD for each maximal subpart (Unicode, 3.9).

#include "core/memory.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/tokenizer_parts.h"
#include "core/utf8.h"

static void replace(struct decoding *state, struct text *to)
{
    if (state->n > 0)
        text_puts(to, "\xEF\xBF\xBD");
    state->n = 0;
}

void tokenizer_decode_bytes(struct decoding *state, const char *s, size_t n, struct text *to)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)s[i];
        if (state->n == 0 && b < 0x80) { // a run of ASCII
            size_t from = i;
            while (i + 1 < n && (unsigned char)s[i + 1] < 0x80)
                i++;
            text_add(to, s + from, i + 1 - from);
            continue;
        }
        if (state->n > 0 && !utf8_continues(state->held, state->n, b)) {
            replace(state, to);
            i--; // b may begin a new character
            continue;
        }
        state->held[state->n++ & 3] = b; // n <= 3 here: four bytes would have completed a character
        if (state->n == 1 && utf8_length(b) == 0) {
            replace(state, to);
        } else if (state->n == utf8_length(state->held[0])) {
            text_add(to, (const char *)state->held, (size_t)state->n);
            state->n = 0;
        }
    }
}

// How many spaces the bytes (n) of the token lose.
static size_t dropped(const struct tokenizer *t, int32_t id, const char *bytes, size_t n, struct decoding *state)
{
    const bool first = !state->begun, space = n > 0 && bytes[0] == ' ';
    const struct token *token = vocabulary_token(&t->vocabulary, id);
    state->begun |= n > 0;
    if (!first || !space)
        return 0;
    size_t spaces = 1;
    switch (t->drops) {
    case DROPS_NOTHING:
        return 0;
    case DROPS_SPACE:
        return 1;
    case DROPS_FIRST_TOKEN:
        while (spaces < n && bytes[spaces] == ' ')
            spaces++;
        return spaces;
    case DROPS_PREFIX:
    case DROPS_LEADING:
        break;
    }
    if (n == 1 && byte_of_token(t->vocabulary.strings.s + token->text, token->text_n) >= 0)
        return 0;
    state->begun = t->drops == DROPS_PREFIX || n > 1;
    return 1;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, bool special, struct decoding *state,
                      struct text *to)
{
    for (size_t i = 0; i < n; i++) {
        size_t length;
        const char *bytes = tokenizer_token(t, id[i], &length);
        if (bytes == NULL || (!special && tokenizer_is_special(t, id[i])))
            continue;
        const size_t spaces = dropped(t, id[i], bytes, length, state);
        tokenizer_decode_bytes(state, bytes + spaces, length - spaces, to);
    }
}

void tokenizer_decode_end(struct decoding *state, struct text *to)
{
    replace(state, to);
}
