#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>

enum { LAST = sizeof(((struct error *)NULL)->text) - 1 };

bool fail(struct error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, LAST, format, args);
    va_end(args);
    err->text[LAST] = false;
    return false;
}

bool fail_usage(struct error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, LAST, format, args);
    va_end(args);
    return error_of_usage(err);
}

bool error_of_usage(struct error *err)
{
    err->text[LAST] = true;
    return false;
}

bool error_is_usage(const struct error *err)
{
    return err->text[LAST];
}
