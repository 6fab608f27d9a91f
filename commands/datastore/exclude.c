#include "commands/datastore/exclude.h"

#include <string.h>

#include "commands/datastore/words.h"
#include "commands/json_lines.h"
#include "core/error.h"
#include "core/json.h"

static size_t runs_of(const struct words *w)
{
    return w->n == 0 ? 0 : w->n <= EXCLUDED_WORDS ? 1 : w->n - EXCLUDED_WORDS + 1;
}

static struct hash run_of(const struct words *w, size_t i)
{
    return words_hash(w, i, w->n < EXCLUDED_WORDS ? w->n : EXCLUDED_WORDS);
}

static bool is_text_key(const char *key)
{
    static const char *const names[] = { "id", "question_id", "task_id", "category", "role", "entry_point", "import" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(key, names[i]) == 0)
            return false;
    return true;
}

static bool each_below(const struct json *j, const char *key, visit_text *visit, void *self)
{
    bool ok = !json_is_text(j) || visit(self, key, j);
    for (size_t i = 0; ok && json_is_array(j) && i < json_count(j); i++)
        ok = each_below(json_at(j, i), key, visit, self);
    for (void *at = json_is_object(j) ? json_first(j) : NULL; ok && at != NULL; at = json_next(j, at))
        ok = !is_text_key(json_key(at)) || each_below(json_value(at), json_key(at), visit, self);
    return ok;
}

bool each_text(const struct json *j, visit_text *visit, void *self)
{
    return each_below(j, NULL, visit, self);
}

struct addition {
    struct exclusions *e;
    struct words w;
    size_t n; // runs of words
};

static bool add_text(void *self, const char *key, const struct json *text)
{
    (void)key;
    struct addition *a = self;
    words_read(&a->w, json_text(text));
    const size_t n = runs_of(&a->w);
    for (size_t i = 0; i < n; i++)
        hash_map_add(&a->e->run, run_of(&a->w, i), 0);
    a->n += n;
    return true;
}

bool exclusions_read(struct exclusions *e, const char *path, int *without, struct error *err)
{
    struct json_lines l;
    struct addition a = { .e = e };
    if (!json_lines_open(&l, path, err))
        return false;
    while (json_lines_next(&l, err)) {
        const size_t before = a.n;
        each_text(l.object, add_text, &a);
        *without += a.n == before;
    }
    const bool ok = !l.failed && (a.n > 0 || fail(err, "%s: expected texts to exclude, found none", path));
    json_lines_close(&l);
    words_free(&a.w);
    return ok;
}

bool exclusions_match(const struct exclusions *e, const char *text)
{
    struct words w = { 0 };
    bool found = false;
    words_read(&w, text);
    for (size_t i = 0; i < runs_of(&w) && !found; i++)
        found = hash_map_find(&e->run, run_of(&w, i)) != NULL;
    words_free(&w);
    return found;
}

void exclusions_free(struct exclusions *e)
{
    hash_map_free(&e->run);
}
