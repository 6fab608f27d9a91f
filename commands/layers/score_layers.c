#include "commands/layers/score_layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/features/texts.h"
#include "commands/layers/layer_scores.h"
#include "core/error.h"
#include "core/files/input.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/layer_list.h"

struct scorer {
    int layers;
    struct layer_scores *chosen, *held_out;
    bool *kept; // (n, layers) of a line
    int n;
};

static struct json *score_json(const struct layer_score *s)
{
    struct json *j = json_new_array();
    json_push(j, json_new_number(s->match));
    json_push(j, json_new_number(s->overlap));
    return j;
}

static void say(struct json *j)
{
    json_print(j, stdout);
    fflush(stdout);
}

static bool read_sets(struct scorer *s, char *at, struct error *err)
{
    s->n = 0;
    for (char *word; (word = strtok_r(NULL, " ", &at)) != NULL;) { // behind the first word
        int n, *layer = layer_list_parse(word, s->layers, &n, err);
        if (layer == NULL)
            return false;
        s->kept = xrealloc(s->kept, (size_t)(s->n + 1) * (size_t)s->layers * sizeof(bool));
        bool *kept = s->kept + (size_t)s->n++ * (size_t)s->layers;
        memset(kept, 0, (size_t)s->layers * sizeof(bool));
        for (int i = 0; i < n; i++)
            kept[layer[i]] = true;
        free(layer);
    }
    return s->n > 0 || fail(err, "stdin: expected lists of layers, found none");
}

static bool choose(struct scorer *s, const volatile int *stop, struct error *err)
{
    struct layer_score *score = xcalloc((size_t)s->n, sizeof(*score));
    const bool ok = layer_scores_of(s->chosen, s->kept, s->n, score, stop, err);
    struct json *list = json_new_array();
    for (int i = 0; i < s->n; i++)
        json_push(list, score_json(&score[i]));
    free(score);
    if (ok)
        say(json_object_of(JSON("scores", list)));
    else
        json_free(list);
    return ok;
}

static bool evaluate(struct scorer *s, const volatile int *stop, struct error *err)
{
    struct layer_score chosen, held_out;
    struct layer_cost cost;
    double draft;
    if (!layer_scores_of(s->chosen, s->kept, 1, &chosen, stop, err) ||
        !layer_scores_of(s->held_out, s->kept, 1, &held_out, stop, err) ||
        !layer_scores_time(s->chosen, s->kept, &cost, &draft, err))
        return false;
    struct json *pass = json_new_array();
    for (int n = 1; n <= MAX_DRAFT + 1; n++)
        json_push(pass, json_new_number(cost.pass[n]));
    say(json_object_of(JSON("chosen", score_json(&chosen)), JSON("held_out", score_json(&held_out)),
                       JSON("draft_ns", draft), JSON("pass_ns", pass)));
    return true;
}

static bool answer_all(struct scorer *s, const volatile int *stop, struct error *err)
{
    struct lines lines;
    char *line;
    size_t n;
    bool ok = true;
    lines_begin(&lines, STDIN_FILENO, "stdin");
    while (ok && lines_next(&lines, &line, &n, err)) {
        char *rest, *word = strtok_r(line, " ", &rest);
        const bool one = word != NULL && strcmp(word, "evaluate") == 0;
        ok = one || (word != NULL && strcmp(word, "choose") == 0) ||
             fail(err, "stdin: expected choose or evaluate, found \"%s\"", word != NULL ? word : "");
        ok = ok && read_sets(s, rest, err) && (one ? evaluate(s, stop, err) : choose(s, stop, err));
    }
    ok = ok && !lines.failed;
    lines_end(&lines);
    return ok;
}

static bool open_scores(struct scorer *s, struct target *t, const struct score_layers *p, struct error *err)
{
    const struct model_shape *shape = model_shape(t->model);
    const int context = p->context < shape->context ? p->context : shape->context;
    struct text_reader reader = { 0 };
    struct texts all = { 0 };
    s->layers = shape->layers;
    bool ok = text_reader_open(&reader, p->texts, shape->vocab, context, 2 * SCORED_TEXTS, err) &&
              text_reader_next(&reader, 2 * SCORED_TEXTS * (int64_t)context, &all, err);
    if (ok && all.n < 2)
        ok = fail(err, "%s: expected at least 2 conversations, to choose by one and evaluate with the other; found %d",
                  p->texts, all.n);
    const int half = (all.n + 1) / 2;
    struct texts first = all;
    first.n = half;
    if (ok)
        s->chosen = layer_scores_open(t, &first, 0, p->positions, err);
    if (s->chosen != NULL)
        s->held_out = layer_scores_open(t, &all, half, p->positions, err);
    texts_free(&all);
    text_reader_close(&reader);
    return s->held_out != NULL;
}

bool score_layers(struct target *t, const struct score_layers *p, struct error *err)
{
    struct scorer s = { 0 };
    bool ok = open_scores(&s, t, p, err);
    if (ok) {
        say(json_object_of(JSON("layers", s.layers), JSON("device", t->backend->describe(t->backend)),
                           JSON("chosen", layer_scores_positions(s.chosen)),
                           JSON("held_out", layer_scores_positions(s.held_out))));
        ok = answer_all(&s, interrupt_catch(), err);
    }
    layer_scores_close(s.chosen);
    layer_scores_close(s.held_out);
    free(s.kept);
    return ok;
}
