#include "tests/support/lone_drafter.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"

struct drafter *lone_drafter(const char *line, const struct drafter_env *env, struct error *err)
{
    struct settings *s = settings_inline(line, "drafter", err);
    const struct drafter_type *type = s != NULL ? drafter_named(settings_get(s, "kind")->text) : NULL;
    struct drafter *d = NULL;
    if (s != NULL && type == NULL)
        fail(err, "unknown drafter in %s", line);
    void *options = type != NULL ? xcalloc(1, type->options_size + 1) : NULL;
    if (type != NULL && options_read(s, "drafter", type->options, options, err) && drafter_check(type, options, err))
        d = drafter_create(type, env, options, err);
    if (type != NULL && type->options != NULL)
        options_free(type->options, options);
    free(options);
    settings_free(s);
    return d;
}

struct draft *own_draft_begin(struct own_draft *o, int32_t root, int capacity)
{
    o->draft = (struct draft){ .n = 1,
                               .capacity = capacity,
                               .token = o->token,
                               .parent = o->parent,
                               .proposal = o->proposal,
                               .source = o->source };
    o->token[0] = root;
    o->parent[0] = -1;
    o->proposal[0] = DETERMINISTIC;
    return &o->draft;
}
