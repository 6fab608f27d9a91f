// csv.c - fields of CSV files (RFC 4180): a field with a comma, a quote or an end of line is in quotes, which are doubled in it.
#include "core/csv.h"

#include <string.h>

#include "core/memory.h"

void csv_put(struct text *to, const char *field, bool first)
{
    text_puts(to, first ? "" : ",");
    if (strpbrk(field, ",\"\r\n") == NULL) {
        text_puts(to, field);
        return;
    }
    text_puts(to, "\"");
    for (; *field != '\0'; field++)
        text_add(to, *field == '"' ? "\"\"" : field, *field == '"' ? 2 : 1);
    text_puts(to, "\"");
}

static void read_quoted(struct csv *from, struct text *field)
{
    for (from->at++; from->at < from->end; from->at++) {
        if (*from->at == '"' && (++from->at == from->end || *from->at != '"'))
            return;
        from->line += *from->at == '\n';
        text_add(field, from->at, 1);
    }
}

bool csv_read(struct csv *from, struct text *field, bool *last)
{
    if (from->at == from->end)
        return false;
    field->n = 0;
    text_puts(field, "");
    if (*from->at == '"')
        read_quoted(from, field);
    for (; from->at < from->end && *from->at != ',' && *from->at != '\n'; from->at++)
        if (*from->at != '\r')
            text_add(field, from->at, 1);
    *last = from->at == from->end || *from->at == '\n';
    from->line += from->at < from->end && *last;
    from->at += from->at < from->end;
    return true;
}
