#include "commands/distill/exclude.h"

#include <string.h>

#include "commands/distill/words.h"
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
    static const char *const names[] = { "id", "question_id", "task_id", "category", "role", "entry_point" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(key, names[i]) == 0)
            return false;
    return true;
}

// Adds the texts within a value. Returns the number of runs of words.
static size_t add_texts(struct exclusions *e, const struct json *j, struct words *w)
{
    size_t n = 0;
    if (json_is_text(j)) {
        words_read(w, json_text(j));
        n = runs_of(w);
        for (size_t i = 0; i < n; i++)
            hash_map_add(&e->run, run_of(w, i), 0);
    }
    for (size_t i = 0; json_is_array(j) && i < json_count(j); i++)
        n += add_texts(e, json_at(j, i), w);
    for (void *at = json_is_object(j) ? json_first(j) : NULL; at != NULL; at = json_next(j, at))
        if (is_text_key(json_key(at)))
            n += add_texts(e, json_value(at), w);
    return n;
}

bool exclusions_read(struct exclusions *e, const char *path, int *without, struct error *err)
{
    struct json_lines l;
    struct words w = { 0 };
    size_t n = 0;
    if (!json_lines_open(&l, path, err))
        return false;
    while (json_lines_next(&l, err)) {
        const size_t added = add_texts(e, l.object, &w);
        *without += added == 0;
        n += added;
    }
    const bool ok = !l.failed && (n > 0 || fail(err, "%s: expected texts to exclude, found none", path));
    json_lines_close(&l);
    words_free(&w);
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
