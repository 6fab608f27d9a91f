#include "core/printable.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/utf8.h"

static bool is_control(unsigned c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x61C || c == 0x200E || c == 0x200F ||
           (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

void printable_put(struct text *to, const char *s, size_t n, const char *keep)
{
    text_add(to, "", 0);
    for (size_t i = 0, length; i < n; i += length) {
        size_t plain = i;
        while (plain < n && s[plain] >= 0x20 && s[plain] < 0x7F)
            plain++;
        text_add(to, s + i, plain - i);
        i = plain;
        if (i == n)
            break;
        length = utf8_character(s + i, n - i);
        const unsigned code = length > 0 ? utf8_code(s + i) : 0;
        const bool kept = (s[i] != '\0' && strchr(keep, s[i]) != NULL) ||
                          (s[i] == '\r' && i + 1 < n && s[i + 1] == '\n' && strchr(keep, '\n') != NULL);
        if (length == 0)
            text_printf(to, "\\x%02X", (unsigned char)s[i]);
        else if (is_control(code) && !kept)
            text_printf(to, "\\u%04X", code);
        else
            text_add(to, s + i, length);
        length = length > 0 ? length : 1;
    }
}

void printable_line(FILE *to, const char *format, va_list args)
{
    struct text t = { 0 };
    char *s = NULL;
    const int n = vasprintf(&s, format, args);
    printable_put(&t, n >= 0 ? s : "", n >= 0 ? (size_t)n : 0, "\n\t");
    (void)fprintf(to, "%s\n", t.s);
    free(s);
    free(t.s);
}

// ---- a stream

struct printable {
    int descriptor;
    struct text held; // the beginning of a character, or of "\r\n", whose end has not been written yet
};

// Returns the length of s (n) without a last character that the next write may complete.
static size_t complete(const char *s, size_t n)
{
    if (n > 0 && s[n - 1] == '\r')
        return n - 1;
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        const unsigned char *const at = (const unsigned char *)s + n - k;
        if (utf8_length(at[0]) < 2)
            continue;
        size_t i = 1;
        while (i < k && utf8_continues(at, (int)i, at[i]))
            i++;
        return i == k && (size_t)utf8_length(at[0]) > k ? n - k : n;
    }
    return n;
}

// Writes the first `whole` bytes of the held text.
static bool write_held(struct printable *p, size_t whole)
{
    struct text out = { 0 };
    printable_put(&out, p->held.s, whole, "\n\t");
    p->held.n -= whole;
    memmove(p->held.s, p->held.s + whole, p->held.n);
    ssize_t done = 0;
    for (size_t at = 0; at < out.n && done >= 0; at += (size_t)done)
        do
            done = write(p->descriptor, out.s + at, out.n - at);
        while (done < 0 && errno == EINTR);
    free(out.s);
    return done >= 0;
}

static ssize_t write_printable(void *of, const char *s, size_t n)
{
    struct printable *p = of;
    text_add(&p->held, s, n);
    return write_held(p, complete(p->held.s, p->held.n)) ? (ssize_t)n : 0;
}

static int close_printable(void *of)
{
    struct printable *p = of;
    const bool ok = p->held.n == 0 || write_held(p, p->held.n);
    free(p->held.s);
    free(p);
    return ok ? 0 : EOF;
}

FILE *printable_stream(int descriptor)
{
    struct printable *p = xcalloc(1, sizeof(*p));
    p->descriptor = descriptor;
    FILE *f = fopencookie(p, "w", (cookie_io_functions_t){ .write = write_printable, .close = close_printable });
    if (f == NULL)
        close_printable(p);
    else
        setvbuf(f, NULL, isatty(descriptor) ? _IOLBF : _IOFBF, BUFSIZ);
    return f;
}
