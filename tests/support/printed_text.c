#include "tests/support/printed_text.h"

#include <string.h>

#include "tests/support/check.h"

void expect_contains(const char *text, const char *what)
{
    if (strstr(text, what) == NULL)
        fail_msg("expected \"%s\" in: %s", what, text);
}

int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

void expect_pattern(const char *text, const char *pattern, const char *of)
{
    const char *at = text;
    for (const char *part = pattern, *end; part != NULL; part = end != NULL ? end + strlen(" .. ") : NULL) {
        end = strstr(part, " .. ");
        const size_t n = end != NULL ? (size_t)(end - part) : strlen(part);
        while (at != NULL && strncmp(at, part, n) != 0)
            at = part == pattern || *at == '\0' ? NULL : at + 1;
        if (at == NULL)
            fail_msg("%s\nfound    \"%s\"\nexpected \"%s\"", of, text, pattern);
        at += n;
    }
}
