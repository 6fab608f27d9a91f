// made_prompt.c - an entry's turns, id, category and answers become a line.
#include "commands/import/made_prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/import/datasets.h"
#include "commands/import/entries.h"
#include "commands/import/made_parts.h"
#include "core/error.h"
#include "core/json.h"
#include "core/utf8.h"
#include "engine/prompts.h"

// NVIDIA's specdec_bench: what a SPEED-Bench entry has instead of a text that may not be passed on.
#define PLACEHOLDER "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"

_Static_assert(MAX_TURNS == 64, "DROP_TURNS names the number");
const char *const drop_reasons[DROPS] = {
    [DROP_OTHER_CATEGORY] = "of another category",
    [DROP_OTHER_SPLIT] = "of another split",
    [DROP_SHORT] = "shorter than --min-characters",
    [DROP_LONG] = "longer than --max-characters",
    [DROP_EMPTY] = "without a prompt",
    [DROP_SYSTEM] = "with a system message",
    [DROP_ROLE] = "with a message of another role than the user and the model",
    [DROP_ORDER] = "whose user and model do not alternate, the user first",
    [DROP_TURNS] = "with more than 64 turns (--turns N keeps the first N)",
    [DROP_NO_ANSWER] = "without an answer",
    [DROP_REPEATED] = "with the id or the text of an earlier one",
};

bool making_is_blank(const char *s)
{
    return s[strspn(s, " \t\r\n\f\v")] == '\0';
}

bool making_check_text(const struct making *m, const char *what, int n, const struct json *j)
{
    if (!json_is_text(j))
        return entries_fail(m->e, m->err, "%.*s: expected a text, found %s", n, what, json_described(j));
    if (strlen(json_text(j)) != json_text_length(j))
        return entries_fail(m->e, m->err, "%.*s: expected a text, found a NUL character in it", n, what);
    return true;
}

bool making_leave_out(struct making *m, enum drop why, const char *what, int n, const char *expected)
{
    m->drop = why;
    return m->c->dataset->collected || entries_fail(m->e, m->err, "%.*s: %s", n, what, expected);
}

// ---- turns as they are

static bool make_turns(struct making *m)
{
    const char *key;
    int n;
    const struct json *turns = entry_field(m->entry, m->c->dataset->turns, &key, &n);
    const int most = m->c->turns;
    if (!json_is_array(turns) || json_count(turns) == 0)
        return entries_fail(m->e, m->err, "%.*s: expected a list of texts, found %s", n, key,
                            json_is_array(turns) ? "an empty one" : json_described(turns));
    for (size_t i = 0; i < json_count(turns) && (most == 0 || i < (size_t)most); i++) {
        char what[48];
        const struct json *turn = json_at(turns, i);
        snprintf(what, sizeof(what), "%.*s[%zu]", n, key, i);
        if (!making_check_text(m, what, (int)strlen(what), turn))
            return false;
        if (strncmp(json_text(turn), PLACEHOLDER, strlen(PLACEHOLDER)) == 0)
            return entries_fail(
                m->e, m->err,
                "%s: expected a prompt, found NVIDIA's placeholder for a text of %s; `python3 prepare_data.py "
                "--dataset speed --config CONFIG` of Model-Optimizer/examples/specdec_bench writes a file with it",
                what,
                json_is_text(json_get(m->entry, "source")) ? json_text(json_get(m->entry, "source")) : "its source");
        if (making_is_blank(json_text(turn)) &&
            !making_leave_out(m, DROP_EMPTY, what, (int)strlen(what), "expected a text, found an empty one"))
            return false;
        json_push(m->turns, json_clone(turn));
    }
    return json_count(m->turns) <= MAX_TURNS ||
           entries_fail(m->e, m->err, "%.*s: expected at most %d, found %zu (--turns N keeps the first N)", n, key,
                        MAX_TURNS, json_count(m->turns));
}

// ---- the rest of a line

// A conversation's answers have been taken with its turns.
static bool take_answers(struct making *m)
{
    const struct dataset *d = m->c->dataset;
    const struct json *answer = d->answer != NULL ? json_get(m->entry, d->answer) : NULL;
    const size_t turns = json_count(m->turns);
    const char *what = d->answer != NULL ? d->answer : "answer";
    if (json_is_text(answer))
        json_push(m->answers, json_clone(answer));
    for (size_t i = 0; json_is_array(answer) && i < json_count(answer) && i < turns; i++)
        json_push(m->answers, json_clone(json_at(answer, i)));
    if (json_count(m->answers) == 0)
        return making_leave_out(m, DROP_NO_ANSWER, what, (int)strlen(what),
                                "expected an answer (--answers), found none");
    for (size_t i = 0; i < json_count(m->answers); i++)
        if (!making_check_text(m, what, (int)strlen(what), json_at(m->answers, i)))
            return false;
    return true;
}

// The id: the dataset's own, or the entry's number after the dataset's name.
static struct json *id_of(const struct making *m, int64_t number)
{
    const struct dataset *d = m->c->dataset;
    const char *key = "";
    int n = 0;
    const struct json *id = d->id != NULL ? entry_field(m->entry, d->id, &key, &n) : NULL;
    char *text = NULL;
    if (json_is_null(id))
        text = xformat("%s/%lld", d->name, (long long)number);
    else if (json_is_int(id) && d->numbered)
        text = xformat("%s/%lld", d->name, (long long)json_int(id));
    struct json *made = text != NULL ? json_new_text(text) : NULL;
    free(text);
    if (made != NULL || json_is_int(id))
        return made != NULL ? made : json_clone(id);
    if (!json_is_text(id))
        entries_fail(m->e, m->err, "%.*s: expected a text or an integer, found %s", n, key, json_described(id));
    else if (json_text_length(id) == 0)
        entries_fail(m->e, m->err, "%.*s: expected a text or an integer, found an empty text", n, key);
    else if (making_check_text(m, key, n, id))
        made = json_clone(id);
    return made;
}

static bool take_category(const struct making *m, char **to)
{
    const struct dataset *d = m->c->dataset;
    const char *key;
    int n;
    const struct json *category = d->category != NULL ? entry_field(m->entry, d->category, &key, &n) : NULL;
    if (category != NULL && !making_check_text(m, key, n, category))
        return false;
    const char *text = json_text_length(category) > 0 ? json_text(category) : d->name;
    *to = xstrdup(text);
    if (d->categories == NULL)
        return true;
    for (int i = 0; d->categories[i] != NULL; i++)
        if (strcmp(d->categories[i], text) == 0)
            return true;
    return entries_fail(m->e, m->err,
                        "category: expected one of %s's, such as %s, found \"%s\"; Spec-Bench has more of them",
                        d->name, d->categories[0], text);
}

static bool is_chosen(const struct making *m, const char *category, enum drop *drop)
{
    const struct prompt_choice *c = m->c;
    *drop = c->categories > 0 ? DROP_OTHER_CATEGORY : DROP_NOT;
    for (int i = 0; i < c->categories; i++)
        if (strcmp(c->category[i], category) == 0)
            *drop = DROP_NOT;
    if (*drop == DROP_NOT && c->split != NULL) {
        const char *split = mbpp_split(json_int(json_get(m->entry, "task_id")));
        *drop = split == NULL || strcmp(split, c->split) != 0 ? DROP_OTHER_SPLIT : DROP_NOT;
    }
    return *drop == DROP_NOT;
}

static int64_t characters(const struct json *turns)
{
    int64_t n = 0;
    for (size_t i = 0; i < json_count(turns); i++)
        n += (int64_t)utf8_count(json_text(json_at(turns, i)), json_text_length(json_at(turns, i)));
    return n;
}

static struct hash hash_of_json(const struct json *j)
{
    struct digest *d = digest_begin();
    json_digest(j, d);
    return digest_end(d);
}

// Ids are the same if they read the same: 81 and "81".
static struct hash hash_of_id(const struct json *id)
{
    char *text = json_is_int(id) ? xformat("%lld", (long long)json_int(id)) : xstrdup(json_text(id));
    const struct hash h = hash_of(text, strlen(text));
    free(text);
    return h;
}

static char *line_of(const struct making *m, struct json *id, const char *category)
{
    struct json *line = json_new_object();
    const bool completion = m->c->template != NULL && m->c->template->completion;
    json_set(line, completion ? "task_id" : "id", id);
    json_set(line, "category", json_new_text(category));
    if (completion) {
        json_set(line, "entry_point", json_clone(json_get(m->entry, "entry_point")));
        json_set(line, "prompt", json_clone(json_at(m->turns, 0)));
    } else {
        json_set(line, "turns", json_clone(m->turns));
    }
    if (m->c->answers)
        json_set(line, "answer", json_clone(m->answers));
    char *text = json_write(line);
    json_free(line);
    return text;
}

static bool make(struct making *m, int64_t number, struct made_prompt *to)
{
    static bool (*const makers[])(
        struct making *) = { [SHAPE_TEXT] = make_text, [SHAPE_TURNS] = make_turns, [SHAPE_MESSAGES] = make_messages };
    struct error reason;
    if (!dataset_fits(m->c->dataset, m->entry, &reason))
        return entries_fail(m->e, m->err, "%s", reason.text);
    if (!take_category(m, &to->category))
        return false;
    if (!is_chosen(m, to->category, &m->drop))
        return true;
    if (!makers[m->c->dataset->shape](m))
        return false;
    const int64_t n = characters(m->turns);
    if (m->drop == DROP_NOT)
        m->drop = n < m->c->least ? DROP_SHORT : m->c->most > 0 && n > m->c->most ? DROP_LONG : DROP_NOT;
    if (m->drop != DROP_NOT)
        return true;
    if (m->c->answers && !take_answers(m))
        return false;
    if (m->drop != DROP_NOT)
        return true;
    struct json *id = id_of(m, number);
    if (id == NULL)
        return false;
    to->id = hash_of_id(id);
    to->text = hash_of_json(m->turns);
    to->line = line_of(m, id, to->category);
    return true;
}

bool made_prompt_of(const struct prompt_choice *c, const struct entries *e, int64_t number, struct made_prompt *to,
                    struct error *err)
{
    struct making m = { c, e, e->entry, DROP_NOT, json_new_array(), json_new_array(), err };
    *to = (struct made_prompt){ 0 };
    const bool ok = make(&m, number, to);
    to->drop = m.drop;
    json_free(m.turns);
    json_free(m.answers);
    if (!ok || m.drop != DROP_NOT) {
        free(to->category);
        to->category = NULL;
    }
    return ok;
}

void made_prompt_free(struct made_prompt *p)
{
    free(p->line);
    free(p->category);
    *p = (struct made_prompt){ 0 };
}
