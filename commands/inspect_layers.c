#include "commands/inspect_layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/texts.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/files/input.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/layer_list.h"
#include "models/model.h"
#include "sampling/logits.h"
#include "results/statistics/statistics.h"

enum { TOP = 64, ROUNDS = 7, MAX_DRAFT = 8 };

struct scored_text {
    int32_t *token; // tokens up to the last position
    int n;          // positions
    int *position;  // (n) of roots, ascending
    int first;      // its first position among those of all texts
};

struct top_rows { // (rows, top)
    int32_t *id;
    float *p;
};

struct layer_scores {
    struct speclab_target *target;
    struct kv_cache *cache;
    struct tensor logits; // (SCORED_TEXTS, vocab)
    float *copy;          // its rows, if the device has memory of its own
    int texts, top;
    int positions, most; // number in all texts, maximum in one
    struct scored_text text[SCORED_TEXTS];
    struct layer_choice all;
    struct top_rows p; // (positions) the target's
    struct top_rows q; // (texts) of one pass
    float *q_of;       // (vocab) scratch: q by id
};

// ---- texts

// Roots before answer tokens, evenly spaced.
static bool take_text(struct scored_text *to, const struct texts *t, int c, int positions)
{
    const int64_t from = t->offset[c];
    const int n = (int)(t->offset[c + 1] - from);
    int *root = xcalloc((size_t)n, sizeof(*root)), roots = 0;
    for (int i = 0; i + 1 < n; i++)
        if (t->mask[from + i + 1])
            root[roots++] = i;
    to->n = roots < positions ? roots : positions;
    if (to->n > 0) {
        to->position = xcalloc((size_t)to->n, sizeof(*to->position));
        for (int i = 0; i < to->n; i++)
            to->position[i] = root[(int64_t)i * roots / to->n];
        const size_t tokens = (size_t)to->position[to->n - 1] + 1;
        to->token = xcalloc(tokens, sizeof(*to->token));
        memcpy(to->token, t->id + from, tokens * sizeof(*to->token));
    }
    free(root);
    return to->n > 0;
}

static int last_position(const struct scored_text *t)
{
    return t->position[t->n - 1];
}

static void take_texts(struct layer_scores *s, const struct texts *t, int first, int positions)
{
    for (int c = first; c < t->n && s->texts < SCORED_TEXTS; c++) {
        struct scored_text *to = &s->text[s->texts];
        to->first = s->positions;
        s->texts += take_text(to, t, c, positions);
        s->positions += to->n;
        s->most = to->n > s->most ? to->n : s->most;
    }
}

// ---- passes

// The rows of the last logits on the host.
static float *logits_after(struct layer_scores *s, struct tensor states, struct error *err)
{
    const struct tensor rows = tensor_rows(s->logits, 0, states.rows);
    model_logits(s->target->model, rows, states);
    return rows_read(s->target->backend, rows, &s->copy, err);
}

// Fills the caches with the texts up to their last positions, in passes of one text each.
static bool fill(struct layer_scores *s, const volatile int *stop, struct error *err)
{
    struct states states;
    for (int t = 0; t < s->texts; t++) {
        const int n = last_position(&s->text[t]);
        kv_truncate(s->cache, t, 0);
        for (int at = 0; at < n; at += TARGET_ROWS)
            if (!interrupt_check(stop, err) ||
                !model_append(s->target->model, s->cache, t, s->text[t].token + at,
                              n - at < TARGET_ROWS ? n - at : TARGET_ROWS, NULL, &states, err))
                return false;
    }
    return true;
}

// Runs the roots of the texts' position number `at` from the end through the layers, and sets s->q. text[i]: that of
// row i. Returns the number of rows, 0 on failure.
static int run_roots(struct layer_scores *s, int at, const struct layer_choice *set, int *text, struct error *err)
{
    int32_t token[SCORED_TEXTS], slot[SCORED_TEXTS], parent[SCORED_TEXTS];
    struct backend *b = s->target->backend;
    struct states states;
    int rows = 0;
    for (int t = 0; t < s->texts; t++) {
        if (at >= s->text[t].n)
            continue;
        const int position = s->text[t].position[s->text[t].n - 1 - at];
        kv_truncate(s->cache, t, position);
        token[rows] = s->text[t].token[position];
        slot[rows] = t;
        parent[rows] = -1;
        text[rows++] = t;
    }
    const struct pass pass = { .n = rows, .token = token, .slot = slot, .parent = parent };
    if (!model_forward_some(s->target->model, s->cache, &pass, set->layer, set->n, &states, err))
        return 0;
    float *logits = logits_after(s, states.last, err);
    if (logits == NULL)
        return 0;
    top_k_rows(b->workers(b), logits, rows, (int)s->logits.width, s->target->used_vocab, s->top, s->q.id, s->q.p);
    return rows;
}

// ---- scores

static struct top_rows row_of(const struct layer_scores *s, struct top_rows rows, int row)
{
    return (struct top_rows){ rows.id + (int64_t)row * s->top, rows.p + (int64_t)row * s->top };
}

static double overlap(struct layer_scores *s, struct top_rows p, struct top_rows q)
{
    double sum = 0;
    for (int i = 0; i < s->top; i++)
        s->q_of[q.id[i]] = q.p[i];
    for (int i = 0; i < s->top; i++)
        sum += p.p[i] < s->q_of[p.id[i]] ? p.p[i] : s->q_of[p.id[i]];
    for (int i = 0; i < s->top; i++)
        s->q_of[q.id[i]] = 0;
    return sum;
}

// If `to` is NULL, the rows are those of the target, with which others are compared.
static bool score_at(struct layer_scores *s, int at, const struct layer_choice *set, struct layer_score *to,
                     struct error *err)
{
    int text[SCORED_TEXTS];
    const int rows = run_roots(s, at, set, text, err);
    for (int i = 0; i < rows; i++) {
        const struct top_rows q = row_of(s, s->q, i), p = row_of(s, s->p, s->text[text[i]].first + at);
        if (to == NULL) {
            memcpy(p.id, q.id, (size_t)s->top * sizeof(*p.id));
            memcpy(p.p, q.p, (size_t)s->top * sizeof(*p.p));
        } else {
            to->match += q.id[0] == p.id[0];
            to->overlap += overlap(s, p, q);
        }
    }
    return rows > 0;
}

bool layer_scores_of(struct layer_scores *s, const struct layer_choice *set, int n, struct layer_score *to,
                     const volatile int *stop, struct error *err)
{
    if (!fill(s, stop, err))
        return false;
    for (int k = 0; k < n && to != NULL; k++)
        to[k] = (struct layer_score){ 0 };
    for (int at = 0; at < s->most; at++)
        for (int k = 0; k < n; k++)
            if (!interrupt_check(stop, err) || !score_at(s, at, &set[k], to != NULL ? &to[k] : NULL, err))
                return false;
    for (int k = 0; k < n && to != NULL; k++) {
        to[k].match /= s->positions;
        to[k].overlap /= s->positions;
    }
    return true;
}

// ---- times

// One pass of n rows of text 0, a chain behind half of its tokens.
static bool time_pass(struct layer_scores *s, int n, const struct layer_choice *set, double *ns, struct error *err)
{
    int32_t token[MAX_DRAFT + 1], slot[MAX_DRAFT + 1] = { 0 }, parent[MAX_DRAFT + 1];
    struct states states;
    for (int i = 0; i < n; i++) {
        token[i] = s->text[0].token[0];
        parent[i] = i - 1;
    }
    kv_truncate(s->cache, 0, kv_length(s->cache, 0));
    const struct pass pass = { .n = n, .token = token, .slot = slot, .parent = parent };
    const int64_t from = clock_ns();
    if (!model_forward_some(s->target->model, s->cache, &pass, set->layer, set->n, &states, err) ||
        logits_after(s, states.last, err) == NULL)
        return false;
    *ns = (double)(clock_ns() - from);
    return true;
}

// Times in nanoseconds, medians, side by side. ns[0]: one draft token through the set's layers; ns[n]: the target's
// pass over a root and n - 1 draft tokens. Both with their logits.
static bool time_passes(struct layer_scores *s, const struct layer_choice *set, double ns[MAX_DRAFT + 2],
                        struct error *err)
{
    double took[MAX_DRAFT + 2][ROUNDS];
    bool ok = fill(s, NULL, err);
    kv_truncate(s->cache, 0, kv_length(s->cache, 0) / 2);
    for (int round = -1; round < ROUNDS && ok; round++) // the first warms up
        for (int rows = 0; rows <= MAX_DRAFT + 1 && ok; rows++)
            ok = time_pass(s, rows > 0 ? rows : 1, rows > 0 ? &s->all : set, &took[rows][round < 0 ? 0 : round], err);
    for (int rows = 0; rows <= MAX_DRAFT + 1 && ok; rows++)
        ns[rows] = spread_of(took[rows], ROUNDS).median;
    return ok;
}

// ---- opening

static struct top_rows top_rows(const struct layer_scores *s, int rows)
{
    const size_t n = (size_t)rows * (size_t)s->top;
    return (struct top_rows){ xcalloc(n, sizeof(int32_t)), xcalloc(n, sizeof(float)) };
}

static bool allocate(struct layer_scores *s, struct error *err)
{
    struct speclab_target *t = s->target;
    const int vocab = model_shape(t->model)->vocab;
    int length = 0;
    for (int i = 0; i < s->texts; i++)
        length = last_position(&s->text[i]) + 1 > length ? last_position(&s->text[i]) + 1 : length;
    s->p = top_rows(s, s->positions);
    s->q = top_rows(s, SCORED_TEXTS);
    s->q_of = xcalloc((size_t)vocab, sizeof(*s->q_of));
    s->logits = rows_on(t->backend, SCORED_TEXTS, vocab);
    if (s->logits.data == NULL)
        return fail(err, "%s: not enough memory for the logits of %d rows", t->backend->name, SCORED_TEXTS);
    struct kv_shape shape = model_kv_shape(t->model, s->texts, length + TARGET_ROWS, TARGET_ROWS);
    shape.window = 0; // positions are read again
    shape.type = t->cache;
    s->cache = kv_create(t->backend, &shape, err);
    return s->cache != NULL;
}

struct layer_scores *layer_scores_open(struct speclab_target *target, const struct texts *t, int first, int positions,
                                       struct error *err)
{
    struct layer_scores *s = xcalloc(1, sizeof(*s));
    s->target = target;
    s->top = TOP < target->used_vocab ? TOP : target->used_vocab;
    s->all.n = model_shape(target->model)->layers;
    s->all.layer = xcalloc((size_t)s->all.n, sizeof(*s->all.layer));
    for (int i = 0; i < s->all.n; i++)
        s->all.layer[i] = i;
    take_texts(s, t, first, positions);
    bool ok = s->texts > 0 || fail(err, "there are no answers to choose by: expected conversations with loss_mask 1");
    if (ok && allocate(s, err) && layer_scores_of(s, &s->all, 1, NULL, NULL, err))
        return s;
    layer_scores_close(s);
    return NULL;
}

void layer_scores_close(struct layer_scores *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->texts; i++) {
        free(s->text[i].token);
        free(s->text[i].position);
    }
    kv_destroy(s->cache);
    s->target->backend->release(s->target->backend, s->logits.data);
    free(s->copy);
    free(s->all.layer);
    free(s->p.id);
    free(s->p.p);
    free(s->q.id);
    free(s->q.p);
    free(s->q_of);
    free(s);
}

int layer_scores_positions(const struct layer_scores *s)
{
    return s->positions;
}

// ---- requests

struct scorer {
    int layers;
    struct layer_scores *chosen, *held_out;
    struct layer_choice *set; // (n) of a line
    int n;
    const volatile int *stop;
};

static struct json *score_json(const struct layer_score *s)
{
    return json_pack("[ff]", s->match, s->overlap);
}

static void say(struct json *j)
{
    json_print(j, stdout);
    fflush(stdout);
}

static void forget_sets(struct scorer *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->set[i].layer);
    s->n = 0;
}

static bool read_sets(struct scorer *s, char *at, struct error *err)
{
    forget_sets(s);
    for (char *word; (word = strtok_r(NULL, " ", &at)) != NULL;) { // the words after the first one
        struct layer_choice set;
        set.layer = layer_list_parse(word, s->layers, &set.n, err);
        if (set.layer == NULL)
            return false;
        s->set = xrealloc(s->set, (size_t)(s->n + 1) * sizeof(*s->set));
        s->set[s->n++] = set;
    }
    return s->n > 0 || fail(err, "stdin: expected lists of layers, found none");
}

static bool choose(struct scorer *s, struct error *err)
{
    struct layer_score *score = xcalloc((size_t)s->n, sizeof(*score));
    const bool ok = layer_scores_of(s->chosen, s->set, s->n, score, s->stop, err);
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

static bool evaluate(struct scorer *s, struct error *err)
{
    struct layer_score chosen, held_out;
    double ns[MAX_DRAFT + 2];
    if (!layer_scores_of(s->chosen, s->set, 1, &chosen, s->stop, err) ||
        !layer_scores_of(s->held_out, s->set, 1, &held_out, s->stop, err) || !time_passes(s->chosen, s->set, ns, err))
        return false;
    struct json *pass = json_new_array();
    for (int n = 1; n <= MAX_DRAFT + 1; n++)
        json_push(pass, json_new_number(ns[n]));
    say(json_object_of(JSON("chosen", score_json(&chosen)), JSON("held_out", score_json(&held_out)),
                       JSON("draft_ns", ns[0]), JSON("pass_ns", pass)));
    return true;
}

static bool answer_all(struct scorer *s, struct error *err)
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
        ok = ok && read_sets(s, rest, err) && (one ? evaluate : choose)(s, err);
    }
    ok = ok && !lines.failed;
    lines_end(&lines);
    return ok;
}

static bool open_scores(struct scorer *s, struct speclab_target *t, const char *texts, int positions, int context,
                        struct error *err)
{
    const struct model_shape *shape = model_shape(t->model);
    context = context < shape->context ? context : shape->context;
    struct text_reader reader = { 0 };
    struct texts all = { 0 };
    bool ok = text_reader_open(&reader, texts, shape->vocab, context, 2 * SCORED_TEXTS, err) &&
              text_reader_next(&reader, 2 * SCORED_TEXTS * (int64_t)context, &all, err);
    if (ok && all.n < 2)
        ok = fail(err, "%s: expected at least 2 conversations, to choose by one and evaluate with the other; found %d",
                  texts, all.n);
    const int half = (all.n + 1) / 2;
    struct texts first = all;
    first.n = half;
    s->chosen = ok ? layer_scores_open(t, &first, 0, positions, err) : NULL;
    s->held_out = s->chosen != NULL ? layer_scores_open(t, &all, half, positions, err) : NULL;
    texts_free(&all);
    text_reader_close(&reader);
    return s->held_out != NULL;
}

bool score_layers(struct speclab_target *t, const char *texts, int positions, int context, struct error *err)
{
    struct scorer s = { .layers = model_shape(t->model)->layers };
    bool ok = open_scores(&s, t, texts, positions, context, err);
    if (ok) {
        say(json_object_of(JSON("layers", s.layers), JSON("device", t->backend->describe(t->backend)),
                           JSON("chosen", layer_scores_positions(s.chosen)),
                           JSON("held_out", layer_scores_positions(s.held_out))));
        s.stop = interrupt_catch();
        ok = answer_all(&s, err);
    }
    forget_sets(&s);
    free(s.set);
    layer_scores_close(s.chosen);
    layer_scores_close(s.held_out);
    return ok;
}
