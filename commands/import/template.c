// template.c - the turn that a template makes of an entry's fields, and where templates come from.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/import/datasets.h"
#include "commands/import/entries.h"
#include "commands/import/made_parts.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "formats/file.h"

// LongBench v2's marks, whose texts it strips.
static const struct {
    const char *mark, *key;
} marks[] = { { "$DOC$", "context" },  { "$Q$", "question" },   { "$C_A$", "choice_A" },
              { "$C_B$", "choice_B" }, { "$C_C$", "choice_C" }, { "$C_D$", "choice_D" } };

struct place { // where a field's text goes in a template
    const char *keys;
    size_t n, length; // of the keys; of what stands there
    bool strip;       // without the blanks around it
    bool list;        // texts, each on a line
};

static bool place_at(const char *s, struct place *to)
{
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++)
        if (strncmp(s, marks[i].mark, strlen(marks[i].mark)) == 0) {
            *to = (struct place){ marks[i].key, strlen(marks[i].key), strlen(marks[i].mark), .strip = true };
            return true;
        }
    const size_t n = strspn(*s == '{' ? s + 1 : "", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_|");
    const bool list = n > 0 && strncmp(s + 1 + n, "[]}", 3) == 0;
    *to = (struct place){ s + 1, n, n + (list ? 4 : 2), .list = list };
    return list || (n > 0 && s[1 + n] == '}');
}

static void add_stripped(struct text *to, const char *s, size_t n, bool strip)
{
    while (strip && n > 0 && utf8_is_space(utf8_code(s))) {
        const size_t first = utf8_character(s, n);
        s += first;
        n -= first;
    }
    for (size_t last; strip && n > 0 && utf8_is_space(utf8_code(s + (last = utf8_before(s, n))));)
        n = last;
    text_add(to, s, n);
}

static bool add_field(const struct making *m, const struct place *at, const char *key, int n, const struct json *j,
                      struct text *to)
{
    if (!at->list && !making_check_text(m, key, n, j))
        return false;
    if (!at->list)
        add_stripped(to, json_text(j), json_text_length(j), at->strip);
    if (at->list && !json_is_array(j))
        return entries_fail(m->e, m->err, "%.*s: expected a list of texts, found %s", n, key, json_described(j));
    for (size_t i = 0; at->list && i < json_count(j); i++) {
        if (!making_check_text(m, key, n, json_at(j, i)))
            return false;
        text_puts(to, i > 0 ? "\n" : "");
        text_puts(to, json_text(json_at(j, i)));
    }
    return true;
}

// The turn of a template. What its first field says is the prompt: if that is blank, there is none.
static bool expand(struct making *m, const char *template, struct text *to)
{
    bool first = true;
    struct place at;
    text_puts(to, "");
    for (const char *s = template; *s != '\0';) {
        if (!place_at(s, &at)) {
            text_add(to, s++, 1);
            continue;
        }
        char *keys = xstrndup(at.keys, at.n);
        const char *key;
        int n;
        const size_t before = to->n;
        const struct json *j = entry_field(m->entry, keys, &key, &n);
        bool ok = add_field(m, &at, key, n, j, to);
        if (ok && first && making_is_blank(to->s + before))
            ok = making_leave_out(m, DROP_EMPTY, key, n, "expected a text, found an empty one");
        free(keys);
        if (!ok)
            return false;
        first = false;
        s += at.length;
    }
    return true;
}

// LongBench-E's tasks, "hotpotqa_e", have the templates of LongBench's.
static const struct json *template_of_category(const struct prompt_choice *c, const char *category)
{
    const size_t n = strlen(category);
    char *base = xstrndup(category, ends_with(category, "_e") ? n - 2 : n);
    const struct json *text = json_get(c->template_by_category, category);
    if (text == NULL)
        text = json_get(c->template_by_category, base);
    free(base);
    return text;
}

static const char *template_text(const struct making *m)
{
    const struct prompt_choice *c = m->c;
    if (c->template_by_category != NULL) {
        const char *category = json_text(json_get(m->entry, c->dataset->category));
        const struct json *text = template_of_category(c, category);
        if (!json_is_text(text))
            entries_fail(m->e, m->err, "%s: expected one that %s has a template for, found \"%s\"",
                         c->dataset->category, c->template_name, category);
        return json_is_text(text) ? json_text(text) : NULL;
    }
    if (c->template == NULL)
        return c->template_text.s;
    const struct json *input = json_get(m->entry, "input");
    const bool without = c->template->without != NULL &&
                         (json_is_null(input) || (json_is_text(input) && making_is_blank(json_text(input))));
    return without ? c->template->without : c->template->text;
}

bool make_text(struct making *m)
{
    struct text turn = { 0 };
    const char *template = template_text(m);
    const bool completion = m->c->template != NULL && m->c->template->completion;
    bool ok = template != NULL &&
              (!completion || making_check_text(m, "entry_point", 11, json_get(m->entry, "entry_point"))) &&
              expand(m, template, &turn);
    if (ok && turn.n == 0)
        ok = entries_fail(m->e, m->err, "expected a template of %s that writes a prompt, found an empty one",
                          m->c->template_name);
    if (ok)
        json_push(m->turns, json_new_text_n(turn.s, turn.n));
    free(turn.s);
    return ok;
}

// ---- the choice

bool prompt_choice_template(struct prompt_choice *c, const char *name, struct error *err)
{
    const struct dataset *d = c->dataset;
    if (name == NULL && d->template_file != NULL)
        return fail(err, "missing --template: expected %s's own file of templates (%s), or --template %s", d->name,
                    d->template_file, d->template[0].name);
    c->template = name == NULL ? &d->template[0] : template_find(d, name);
    c->template_name = c->template != NULL          ? c->template->name
                       : strrchr(name, '/') != NULL ? strrchr(name, '/') + 1
                                                    : name;
    if (c->template != NULL)
        return true;
    if (d->template_file == NULL || !file_exists(name)) {
        struct text names = { 0 };
        for (int i = 0; i < MAX_TEMPLATES && d->template[i].name != NULL; i++)
            text_printf(&names, "%s%s", i > 0 ? ", " : "", d->template[i].name);
        fail(err, "--template: expected one of %s's (%s)%s, found \"%s\"", d->name, names.s,
             d->template_file != NULL ? " or a file of templates" : "", name);
        free(names.s);
        return false;
    }
    size_t n;
    if ((c->template_text.s = file_text(name, &n, err)) == NULL)
        return false;
    const size_t valid = utf8_valid(c->template_text.s, n);
    if (valid < n || strlen(c->template_text.s) < n)
        return fail(err, "%s: expected a text in UTF-8", name);
    if (!ends_with(name, ".json"))
        return true;
    c->template_by_category = json_parse(c->template_text.s, n, name, err);
    return c->template_by_category != NULL &&
           (json_is_object(c->template_by_category) ||
            fail(err, "%s: expected an object with a template for each task, found %s", name,
                 json_described(c->template_by_category)));
}

void prompt_choice_free(struct prompt_choice *c)
{
    json_free(c->template_by_category);
    free(c->template_text.s);
    *c = (struct prompt_choice){ 0 };
}
