#include "core/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

// Pointers of the typed arrays and structs are copied as bytes, since their types are not known here.
static const void *pointer_at(const void *from, size_t place)
{
    const void *p;
    memcpy(&p, (const char *)from + place, sizeof(p));
    return p;
}

static const void *entry_at(const struct registry *r, int i)
{
    return pointer_at(r->list, (size_t)i * sizeof(void *));
}

static const char *name_of(const struct registry *r, const void *entry)
{
    return pointer_at(entry, r->name);
}

bool registry_check(const struct registry *r, struct error *err)
{
    for (int i = 0; r->listed[i] != NULL; i++) {
        const char *name = name_of(r, entry_at(r, i)), *listed = r->listed[i];
        if (name == NULL || strcmp(name, listed) != 0)
            return fail(err, "%s_%s: name: expected \"%s\", as in the list of %ss, found \"%s\"", listed, r->kind,
                        listed, r->kind, name != NULL ? name : "");
        for (int k = 0; k < i; k++)
            if (strcmp(r->listed[k], listed) == 0)
                return fail(err, "the list of %ss has %s twice", r->kind, listed);
    }
    return true;
}

void registry_require(const struct registry *r)
{
    struct error err;
    if (registry_check(r, &err))
        return;
    fprintf(stderr, "speclab: %s\n", err.text);
    exit(EXIT_FAILURE);
}

int registry_names(const struct registry *r, const char **to)
{
    const void *entry;
    int n = 0;
    for (; (entry = entry_at(r, n)) != NULL; n++)
        to[n] = name_of(r, entry);
    to[n] = NULL;
    return n;
}

const void *registry_named(const struct registry *r, const char *name)
{
    const void *entry;
    for (int i = 0; (entry = entry_at(r, i)) != NULL; i++)
        if (strcmp(name_of(r, entry), name) == 0)
            return entry;
    return NULL;
}

bool registry_is_name(const char *name)
{
    return name != NULL && name[0] >= 'a' && name[0] <= 'z' &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

bool registry_add(const struct registry *r, const void *entry, struct error *err)
{
    const char *name = name_of(r, entry), *summary = pointer_at(entry, r->summary);
    int n = 0;
    while (entry_at(r, n) != NULL)
        n++;
    if (!registry_is_name(name))
        return fail(err, "%s: name: expected lower-case letters, digits and _, found \"%s\"", r->kind,
                    name != NULL ? name : "");
    if (registry_named(r, name) != NULL)
        return fail(err, "%s %s: expected a name that no %s has, but there is one of this name", r->kind, name,
                    r->kind);
    const char *lacks = summary == NULL || summary[0] == '\0' ? "summary" : r->lacks(entry);
    if (lacks != NULL)
        return fail(err, "%s %s: %s: expected a value, found none", r->kind, name, lacks);
    if (n == r->most)
        return fail(err, "%s %s: there are %d %ss already, and a list has no more", r->kind, name, n, r->kind);
    char *own = xmalloc(r->size); // it stays for the rest of the process, as the list does
    memcpy(own, entry, r->size);
    const struct hash source = registry_source();
    memcpy(own + r->source, &source, sizeof(source));
    memcpy((char *)r->list + (size_t)n * sizeof(void *), &own, sizeof(own));
    return true;
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
