// csv.c - fields of CSV files (RFC 4180). A field with a comma, a quote or an end of line is quoted, and quotes in it
// are doubled.
//
// Spreadsheets evaluate a cell that begins with =, +, - or @, and a name may come from anywhere. Such a text gets an
// apostrophe before it (OWASP, CSV Injection).
#include "core/files/csv.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

static bool is_formula(const char *field)
{
    char *end;
    if (field[0] == '\0' || strchr("=+-@\t\r", field[0]) == NULL || field[1] == '\0')
        return false;
    (void)strtod(field, &end);
    return *end != '\0'; // a number is no formula
}

void csv_put(struct text *to, const char *field, bool first)
{
    const char *before = is_formula(field) ? "'" : "";
    text_puts(to, first ? "" : ",");
    if (strpbrk(field, ",\"\r\n") == NULL) {
        text_puts(to, before);
        text_puts(to, field);
        return;
    }
    text_puts(to, "\"");
    text_puts(to, before);
    for (; *field != '\0'; field++)
        text_add(to, *field == '"' ? "\"\"" : field, *field == '"' ? 2 : 1);
    text_puts(to, "\"");
}
