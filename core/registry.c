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
