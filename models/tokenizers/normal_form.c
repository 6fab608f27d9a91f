#include "models/tokenizers/normal_form.h"

#include <stdbool.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "core/memory.h"
#include "core/utf8.h"

// Characters for which utf8proc and Hugging Face tokenizers differ. The normalizer of the latter implements Unicode 9:
// it treats newer characters as bases that neither reorder nor compose nor decompose. Moreover, utf8proc 2.8 drops
// U+11A7, one before the first final consonant of Hangul, after a syllable. Text is therefore normalized between such
// characters, which are copied unchanged. They were found by comparing both in all four forms on every code point,
// alone and next to marks, and on random text; full blocks are from Unicode 16.
static const struct {
    unsigned first, last;
} inert[] = {
    { 0x7FD, 0x7FD },     { 0x897, 0x89F },     { 0x8CA, 0x8D3 },     { 0x9FE, 0x9FE },     { 0xC3C, 0xC3C },
    { 0xD3B, 0xD3C },     { 0xEBA, 0xEBA },     { 0x11A7, 0x11A7 },   { 0x1715, 0x1715 },   { 0x1ABF, 0x1AEB },
    { 0x1DF6, 0x1DFA },   { 0x32FF, 0x32FF },   { 0xA7F1, 0xA7F4 },   { 0xA82C, 0xA82C },   { 0xAB69, 0xAB69 },
    { 0x105C0, 0x105F3 }, { 0x10781, 0x10785 }, { 0x10787, 0x107B0 }, { 0x107B2, 0x107BA }, { 0x10D24, 0x10D27 },
    { 0x10D69, 0x10D6D }, { 0x10EAB, 0x10EAC }, { 0x10EFA, 0x10EFF }, { 0x10F46, 0x10F50 }, { 0x10F82, 0x10F85 },
    { 0x11070, 0x11070 }, { 0x1133B, 0x1133B }, { 0x11380, 0x113E2 }, { 0x1145E, 0x1145E }, { 0x11839, 0x1183A },
    { 0x11930, 0x11943 }, { 0x119E0, 0x119E0 }, { 0x11A34, 0x11A34 }, { 0x11A47, 0x11A47 }, { 0x11A99, 0x11A99 },
    { 0x11D42, 0x11D45 }, { 0x11D97, 0x11D97 }, { 0x11F41, 0x11F42 }, { 0x16100, 0x1613F }, { 0x16D40, 0x16D7F },
    { 0x16FF0, 0x16FF1 }, { 0x1CCD6, 0x1CCF9 }, { 0x1E030, 0x1E06D }, { 0x1E08F, 0x1E08F }, { 0x1E130, 0x1E136 },
    { 0x1E2AE, 0x1E2AE }, { 0x1E2EC, 0x1E2EF }, { 0x1E4EC, 0x1E4EF }, { 0x1E5EE, 0x1E5EF }, { 0x1E6E3, 0x1E6F5 },
    { 0x1F16C, 0x1F16C }, { 0x1FBF0, 0x1FBF9 },
};

static bool is_inert(unsigned c)
{
    size_t low = 0, high = sizeof(inert) / sizeof(*inert);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > inert[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof(inert) / sizeof(*inert) && c >= inert[low].first;
}

// Appends the normal form of well-formed text by utf8proc.
static void put(struct text *to, const char *s, size_t n, enum normal_form form)
{
    static const int options[] = { [NFC] = UTF8PROC_COMPOSE,
                                   [NFD] = UTF8PROC_DECOMPOSE,
                                   [NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                   [NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT };
    utf8proc_uint8_t *normal = NULL;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &normal,
                                           (utf8proc_option_t)(UTF8PROC_STABLE | options[form]));
    if (length < 0) // valid text fails only without memory
        memory_out(0);
    text_add(to, (const char *)normal, (size_t)length);
    free(normal);
}

void normal_form_add(struct text *to, const char *s, size_t n, enum normal_form form)
{
    size_t from = 0; // everything before is done
    // Whether the form can change the text since `from`: NFC only changes code points from U+0300 on, no form changes
    // ASCII.
    bool changes = false;
    for (size_t i = 0; i < n;) {
        size_t length = utf8_character(s + i, n - i);
        if (length >= 2) {
            unsigned code = utf8_code(s + i);
            changes |= code >= 0x300 || form != NFC;
            if (is_inert(code)) {
                put(to, s + from, i - from, form);
                text_add(to, s + i, length);
                from = i + length;
                changes = false;
            }
        }
        i += length;
    }
    if (changes)
        put(to, s + from, n - from, form);
    else
        text_add(to, s + from, n - from);
}

size_t grapheme_cluster(const char *s, size_t n, size_t at)
{
    utf8proc_int32_t state = 0;
    unsigned last = utf8_code(s + at);
    for (at += utf8_character(s + at, n - at); at < n; at += utf8_character(s + at, n - at)) {
        const unsigned next = utf8_code(s + at);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)last, (utf8proc_int32_t)next, &state))
            break;
        last = next;
    }
    return at;
}
