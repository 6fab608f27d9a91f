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
