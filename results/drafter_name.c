#include "results/drafter_name.h"

#include <string.h>

// Bytes up to the comma or parenthesis that ends an option; commas in brackets and quotes belong to it.
static size_t option_bytes(const char *s)
{
    int depth = 0;
    bool quoted = false;
    size_t n = 0;
    for (; s[n] != '\0'; n++) {
        if (depth == 0 && !quoted && (s[n] == ',' || s[n] == ')'))
            break;
        quoted ^= s[n] == '"';
        depth += quoted ? 0 : (strchr("([{", s[n]) != NULL) - (strchr(")]}", s[n]) != NULL);
    }
    return n;
}

struct drafter_name drafter_name_of(const char *name)
{
    struct drafter_name d = { .kind = name, .kind_bytes = strcspn(name, "(") };
    const char *at = name + d.kind_bytes;
    while (*at == '(' || *at == ',') {
        at += 1 + strspn(at + 1, " ");
        if (d.n == MAX_OPTIONS)
            break;
        d.option[d.n] = at;
        d.option_bytes[d.n] = option_bytes(at);
        at += d.option_bytes[d.n++];
    }
    if (strcmp(at, ")") != 0)
        d = (struct drafter_name){ .kind = name, .kind_bytes = strlen(name) };
    return d;
}

static bool same_bytes(const char *a, size_t n, const char *b, size_t m)
{
    return n == m && memcmp(a, b, n) == 0;
}

bool drafter_same_kind(const struct drafter_name *a, const struct drafter_name *b)
{
    return same_bytes(a->kind, a->kind_bytes, b->kind, b->kind_bytes);
}

static bool has_option(const struct drafter_name *d, const char *option, size_t bytes)
{
    bool any = false;
    for (int i = 0; i < d->n && !any; i++)
        any = same_bytes(d->option[i], d->option_bytes[i], option, bytes);
    return any;
}

bool drafter_option_common(const struct drafter_name *all, int n, const struct drafter_name *d, int option)
{
    bool common = true;
    for (int i = 0; i < n && common; i++)
        common = !drafter_same_kind(d, &all[i]) || has_option(&all[i], d->option[option], d->option_bytes[option]);
    return common;
}
