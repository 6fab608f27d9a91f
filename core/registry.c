#include "core/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

bool registry_check(const struct registered *list, size_t n, const char *kind, struct error *err)
{
    for (const struct registered *r = list; r < list + n; r++) {
        if (*r->name == NULL || strcmp(*r->name, r->listed) != 0)
            return fail(err, "%s_%s: name: expected \"%s\", as in the list of %ss, found \"%s\"", r->listed, kind,
                        r->listed, kind, *r->name != NULL ? *r->name : "");
        for (const struct registered *s = list; s < r; s++)
            if (strcmp(s->listed, r->listed) == 0)
                return fail(err, "the list of %ss has %s twice", kind, r->listed);
    }
    return true;
}

void registry_require(const struct registered *list, size_t n, const char *kind)
{
    struct error err;
    if (registry_check(list, n, kind, &err))
        return;
    fprintf(stderr, "speclab: %s\n", err.text);
    exit(EXIT_FAILURE);
}

static struct hash adding;

struct hash registry_source(void)
{
    return adding;
}

void registry_set_source(struct hash source)
{
    adding = source;
}

static bool is_name(const char *name)
{
    return name != NULL && name[0] >= 'a' && name[0] <= 'z' &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

bool registry_admits(const char *kind, const char *name, const char *summary, bool known, const char *lacks, int n,
                     int most, struct error *err)
{
    if (!is_name(name))
        return fail(err, "%s: name: expected lower-case letters, digits and _, found \"%s\"", kind,
                    name != NULL ? name : "");
    if (known)
        return fail(err, "%s %s: expected a name that no %s has, but there is one of this name", kind, name, kind);
    if (summary == NULL || summary[0] == '\0')
        lacks = "summary";
    if (lacks != NULL)
        return fail(err, "%s %s: %s: expected a value, found none", kind, name, lacks);
    return n < most || fail(err, "%s %s: there are %d %ss already, and a list has no more", kind, name, n, kind);
}
