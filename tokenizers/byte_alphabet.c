#include "tokenizers/byte_alphabet.h"

#include "core/memory.h"
#include "core/utf8.h"

enum { SHIFTED = 0x100, LETTERS = 0x144 }; // the first code point of a shifted byte, and one past the last

static bool maps_to_itself(unsigned c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

// The 68 shifted bytes are three ranges: 00..20, 7F..A0 and AD.
static unsigned shifted(unsigned byte)
{
    return SHIFTED + (byte <= 0x20 ? byte : byte <= 0xA0 ? 0x21 + byte - 0x7F : 0x43);
}

static int byte_of_code(unsigned code)
{
    if (code < SHIFTED)
        return maps_to_itself(code) ? (int)code : -1;
    if (code >= LETTERS)
        return -1;
    unsigned i = code - SHIFTED;
    return (int)(i <= 0x20 ? i : i <= 0x42 ? 0x7F + i - 0x21 : 0xAD);
}

int byte_to_letter(unsigned char byte, char to[2])
{
    return utf8_put(maps_to_itself(byte) ? byte : shifted(byte), to);
}

void bytes_to_letters(const char *bytes, size_t n, struct text *to)
{
    for (size_t i = 0; i < n; i++) {
        char letter[2];
        int length = byte_to_letter((unsigned char)bytes[i], letter);
        text_add(to, letter, (size_t)length);
    }
}

bool letters_to_bytes(const char *s, size_t n, struct text *to)
{
    size_t before = to->n;
    for (size_t i = 0; i < n;) {
        size_t length = utf8_character(s + i, n - i);
        int byte = length == 1 || length == 2 ? byte_of_code(utf8_code(s + i)) : -1;
        if (byte < 0) {
            to->n = before;
            return false;
        }
        text_add(to, &(char){ (char)byte }, 1);
        i += length;
    }
    return true;
}
