#include "tests/results/printed_tables.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "tests/support/check.h"

static struct printed_row *new_row(struct printed_rows *t)
{
    t->row = xrealloc(t->row, ((size_t)t->n + 1) * sizeof(*t->row));
    t->row[t->n] = (struct printed_row){ 0 };
    return &t->row[t->n++];
}

void printed_rows_free(struct printed_rows *t)
{
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->row[i].n; k++)
            free(t->row[i].field[k]);
    free(t->row);
}

// Without blanks and what sets a field in bold.
static void add_field(struct printed_row *r, const char *s, size_t n)
{
    static const char *const around[] = { " ", "**", "\\textbf{", "}" };
    assert_true(r->n < FIELDS);
    for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
        const size_t m = strlen(around[i]);
        while (n >= m && memcmp(s, around[i], m) == 0) {
            s += m;
            n -= m;
        }
        while (n >= m && memcmp(s + n - m, around[i], m) == 0)
            n -= m;
    }
    r->field[r->n++] = xstrndup(s, n);
}

const char *line_end(const char *s)
{
    return s + strcspn(s, "\n");
}

struct printed_rows printed_rows_of_summary(const char *text)
{
    static const int from[] = { 0, 5, 13, 32, 38, 42, 52, 57 };
    struct printed_rows t = { 0 };
    const char *end = strstr(text, "\n\n\n"); // of the summary; without more tables, notes follow
    end = end != NULL ? end : text + strlen(text);
    for (const char *line = strstr(text, "Summary "); line < end; line = line_end(line) + 1) {
        if (!isdigit((unsigned char)line[3]) || line[4] == ':')
            continue;
        struct printed_row *r = new_row(&t);
        for (int k = 0; k < 7; k++)
            add_field(r, line + from[k], (size_t)(from[k + 1] - from[k]));
    }
    return t;
}
