// spec_bench.c - answer files in Spec-Bench's form, for its evaluation/speed.py and equal.py: a line per prompt.
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "core/json.h"
#include "results/exports/export_parts.h"
#include "results/query.h"
#include "results/tally.h"

// A choice is one repeat of a conversation: its lists have one entry per turn, accept_lengths one per step.
struct choice {
    struct json *whole, *turns, *steps, *tokens, *seconds, *lengths;
};

static struct choice new_choice(int64_t repeat)
{
    struct choice c = { json_new_object(), json_new_array(), json_new_array(),
                        json_new_array(),  json_new_array(), json_new_array() };
    json_set(c.whole, "index", json_new_int(repeat));
    json_set(c.whole, "turns", c.turns);
    json_set(c.whole, "decoding_steps", c.steps);
    json_set(c.whole, "new_tokens", c.tokens);
    json_set(c.whole, "wall_time", c.seconds);
    json_set(c.whole, "accept_lengths", c.lengths);
    return c;
}

static struct json *id_of(const char *s)
{
    char *end;
    errno = 0;
    long long n = strtoll(s, &end, 10);
    bool integer = errno == 0 && end != s && *end == '\0' && (isdigit((unsigned char)s[0]) || s[0] == '-');
    return integer ? json_new_int(n) : json_new_text(s);
}

static bool put_lengths(struct store *s, int64_t sequence, struct json *to, struct error *err)
{
    struct query *q = query_again(s, "SELECT tokens FROM step WHERE sequence = ? ORDER BY step");
    query_put_int(q, sequence);
    while (query_next(q))
        json_push(to, json_new_int(query_int(q, 0)));
    return query_close(q, err);
}

// One line per prompt of a run. Rows are ordered by prompt, repeat and turn.
bool export_spec_bench(const struct exported *e, struct text *out, struct error *err)
{
    struct store *s = e->s;
    const char *model = e->name;
    struct json *line = NULL, *choices = NULL;
    struct choice choice = { 0 };
    int64_t prompt = 0, repeat = 0;
    bool ok = true;
    struct query *q =
        query_again(s, "SELECT a.prompt, a.repeat, a.prompt_id, a.category, coalesce(a.text, q.tokens), a.steps,"
                       " a.new_tokens, a.wall_ns, a.sequence, CAST(strftime('%s', r.started) AS INTEGER)"
                       " FROM answer AS a JOIN run AS r ON r.id = a.run JOIN sequence AS q ON q.id = a.sequence"
                       " WHERE a.run = ? ORDER BY a.prompt, a.repeat, a.turn");
    query_put_int(q, e->run->run);
    while (ok && query_next(q)) {
        bool next =
            line == NULL || query_int(q, 0) != prompt; // no sentinel value: a damaged database may hold any number
        if (next) {
            if (line != NULL)
                export_line(out, line);
            prompt = query_int(q, 0);
            line = json_new_object();
            choices = json_new_array();
            char *answer = xformat("%s-%s", model, query_text(q, 2));
            json_set(line, "question_id", id_of(query_text(q, 2)));
            json_set(line, "category", query_is_null(q, 3) ? json_new_null() : json_new_text(query_text(q, 3)));
            json_set(line, "answer_id", json_new_text(answer));
            json_set(line, "model_id", json_new_text(model));
            json_set(line, "choices", choices);
            json_set(line, "tstamp", json_new_int(query_int(q, 9)));
            free(answer);
        }
        if (next || query_int(q, 1) != repeat) {
            repeat = query_int(q, 1);
            choice = new_choice(repeat);
            json_push(choices, choice.whole);
        }
        json_push(choice.turns, json_new_text(query_text(q, 4)));
        json_push(choice.steps, json_new_int(query_int(q, 5)));
        json_push(choice.tokens, json_new_int(query_int(q, 6)));
        json_push(choice.seconds, json_new_number((double)query_int(q, 7) / 1e9));
        ok = put_lengths(s, query_int(q, 8), choice.lengths, err);
    }
    if (line != NULL)
        export_line(out, line);
    return query_close(q, err) && ok;
}
