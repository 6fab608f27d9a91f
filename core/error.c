#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/printable.h"
#include "core/utf8.h"

enum { LAST = sizeof(((struct error *)NULL)->text) - 1 };
enum { OF_USAGE = 1, OF_PLUGIN }; // the last byte

// The names in the sentence may come from anybody, so control characters are made printable.
static void put(struct error *err, const char *format, va_list args)
{
    char sentence[sizeof(err->text)];
    vsnprintf(sentence, LAST, format, args);
    struct text shown = { 0 };
    printable_put(&shown, sentence, strlen(sentence), "\n\t");
    snprintf(err->text, LAST, "%s", shown.s);
    free(shown.s);
    err->text[LAST] = 0;
}

bool fail(struct error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(err, format, args);
    va_end(args);
    return false;
}

bool fail_usage(struct error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(err, format, args);
    va_end(args);
    err->text[LAST] = OF_USAGE;
    return false;
}

bool error_is_usage(const struct error *err)
{
    return err->text[LAST] == OF_USAGE;
}

bool fail_plugin(struct error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(err, format, args);
    va_end(args);
    err->text[LAST] = OF_PLUGIN;
    return false;
}

bool error_is_plugin(const struct error *err)
{
    return err->text[LAST] == OF_PLUGIN;
}

bool fail_in(struct error *err, struct in_file at, const char *format, ...)
{
    char line[16] = "", column[16] = "", sentence[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    if (at.line > 0)
        snprintf(line, sizeof(line), ":%d", at.line);
    if (at.line > 0 && at.column > 0)
        snprintf(column, sizeof(column), ":%d", at.column);
    return at.file != NULL ? fail(err, "%s%s%s: %s", at.file, line, column, sentence) : fail(err, "%s", sentence);
}

bool require_utf8(const char *s, size_t n, const char *what, struct error *err)
{
    const size_t valid = utf8_valid(s, n);
    return valid == n || fail(err, "%s is not UTF-8: byte 0x%02X at offset %zu", what, (unsigned char)s[valid], valid);
}
