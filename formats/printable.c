#include "formats/printable.h"

struct shown shown(const void *s, size_t n)
{
    struct shown to;
    const unsigned char *from = s;
    size_t max = sizeof(to.s) - 1;
    n = n < max ? n : max;
    for (size_t i = 0; i < n; i++)
        to.s[i] = (char)(from[i] < 0x20 || from[i] > 0x7e ? '?' : from[i]);
    to.s[n] = '\0';
    return to;
}
