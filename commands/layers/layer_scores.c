#include "commands/layers/layer_scores.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "commands/features/texts.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/top_k.h"
#include "statistics/spread.h"
#include "statistics/statistics.h"

enum { TOP = 64, ROUNDS = 7 };

struct scored_text {
    int32_t *token; // up to the last position
    int n;          // positions
    int *position;  // (n) of roots, ascending
};

struct layer_scores {
    struct target *target;
    struct kv_cache *cache;
    struct tensor logits; // (SCORED_TEXTS, vocab)
    float *copy;          // the same, of a device with memory of its own; NULL: the device's are the host's
    int texts, layers, top;
    struct scored_text text[SCORED_TEXTS];
    int *layer;    // (layers) of one subset
    int32_t *p_id; // (texts, positions, top) the target's
    float *p;      // likewise
    int32_t *q_id; // (texts, top) of one pass
    float *q;      // likewise
    float *q_of;   // (vocab) scratch: q by id
    int *first;    // (texts) its first position among all
    int positions; // of all texts
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
    to->position = xcalloc((size_t)to->n + 1, sizeof(*to->position));
    for (int i = 0; i < to->n; i++)
        to->position[i] = root[(int64_t)i * roots / to->n];
    free(root);
    if (to->n == 0)
        return false;
    const int tokens = to->position[to->n - 1] + 1;
    to->token = xcalloc((size_t)tokens, sizeof(*to->token));
    memcpy(to->token, t->id + from, (size_t)tokens * sizeof(*to->token));
    return true;
}

static void take_texts(struct layer_scores *s, const struct texts *t, int first, int positions)
{
    for (int c = first; c < t->n && s->texts < SCORED_TEXTS; c++) {
        struct scored_text *to = &s->text[s->texts];
        if (take_text(to, t, c, positions))
            s->first[s->texts++] = s->positions;
        else
            free(to->position);
        s->positions += to->n;
    }
}

// ---- passes

// The rows of the last logits on the host.
static float *logits_of(struct layer_scores *s, struct tensor states, struct error *err)
{
    struct backend *b = s->target->backend;
    const struct tensor rows = tensor_rows(s->logits, 0, states.rows);
    model_logits(s->target->model, rows, states);
    float *host = s->copy == NULL ? b->host(b, rows.data) : s->copy;
    if (s->copy != NULL)
        b->download(b, host, rows.data, tensor_bytes(rows));
    return b->sync(b, err) ? host : NULL;
}

// Fills the caches with the texts up to their last positions, in passes of one text each.
static bool fill(struct layer_scores *s, const volatile int *stop, struct error *err)
{
    static const struct taps none;
    int32_t slot[TARGET_ROWS], parent[TARGET_ROWS], keep[TARGET_ROWS];
    struct states states;
    for (int i = 0; i < TARGET_ROWS; i++) {
        parent[i] = i - 1;
        keep[i] = i;
    }
    for (int t = 0; t < s->texts; t++) {
        const int n = s->text[t].position[s->text[t].n - 1];
        for (int i = 0; i < TARGET_ROWS; i++)
            slot[i] = t;
        kv_truncate(s->cache, t, 0);
        for (int at = 0; at < n; at += TARGET_ROWS) {
            const int rows = n - at < TARGET_ROWS ? n - at : TARGET_ROWS;
            const struct pass pass = { .n = rows, .token = s->text[t].token + at, .slot = slot, .parent = parent };
            if (!interrupt_check(stop, err) || !model_forward(s->target->model, s->cache, &pass, &none, &states, err) ||
                !s->target->backend->sync(s->target->backend, err))
                return false;
            kv_keep(s->cache, t, keep, rows);
        }
    }
    return true;
}

// Runs the roots of the texts' position number `at` from the end through n layers. at[t]: the text of row t. Returns the number of rows.
static int run_roots(struct layer_scores *s, int at, const int *layer, int n, int *text, float **logits,
                     struct error *err)
{
    int32_t token[SCORED_TEXTS], slot[SCORED_TEXTS], parent[SCORED_TEXTS];
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
    *logits = NULL;
    if (rows > 0 && model_forward_some(s->target->model, s->cache, &pass, layer, n, &states, err))
        *logits = logits_of(s, states.last, err);
    return rows;
}

static void top_of(struct layer_scores *s, float *logits, int rows, int32_t *id, float *p)
{
    struct backend *b = s->target->backend;
    top_k_rows(b->workers(b), logits, rows, (int)s->logits.width, s->target->used_vocab, s->top, id, p);
}

static int64_t place(const struct layer_scores *s, int text, int at)
{
    return (int64_t)(s->first[text] + at) * s->top;
}

static double overlap(struct layer_scores *s, const int32_t *p_id, const float *p, const int32_t *q_id, const float *q)
{
    double sum = 0;
    for (int i = 0; i < s->top; i++)
        s->q_of[q_id[i]] = q[i];
    for (int i = 0; i < s->top; i++)
        sum += p[i] < s->q_of[p_id[i]] ? p[i] : s->q_of[p_id[i]];
    for (int i = 0; i < s->top; i++)
        s->q_of[q_id[i]] = 0;
    return sum;
}

static int layers_of(const struct layer_scores *s, const bool *kept, int *layer)
{
    int n = 0;
    for (int i = 0; i < s->layers; i++)
        if (kept[i])
            layer[n++] = i;
    return n;
}

// ---- scores

static bool score_at(struct layer_scores *s, int at, const bool *kept, struct layer_score *to, struct error *err)
{
    int text[SCORED_TEXTS];
    float *logits;
    const int n = layers_of(s, kept, s->layer), rows = run_roots(s, at, s->layer, n, text, &logits, err);
    if (logits == NULL)
        return false;
    top_of(s, logits, rows, s->q_id, s->q);
    for (int i = 0; i < rows; i++) {
        const int32_t *q_id = s->q_id + (int64_t)i * s->top, *p_id = s->p_id + place(s, text[i], at);
        to->match += q_id[0] == p_id[0];
        to->overlap += overlap(s, p_id, s->p + place(s, text[i], at), q_id, s->q + (int64_t)i * s->top);
    }
    return true;
}

static int most_positions(const struct layer_scores *s)
{
    int most = 0;
    for (int t = 0; t < s->texts; t++)
        most = s->text[t].n > most ? s->text[t].n : most;
    return most;
}

bool layer_scores_of(struct layer_scores *s, const bool *kept, int n, struct layer_score *to, const volatile int *stop,
                     struct error *err)
{
    if (!fill(s, stop, err))
        return false;
    memset(to, 0, (size_t)n * sizeof(*to));
    for (int at = 0; at < most_positions(s); at++)
        for (int k = 0; k < n; k++)
            if (!interrupt_check(stop, err) || !score_at(s, at, kept + (size_t)k * (size_t)s->layers, &to[k], err))
                return false;
    for (int k = 0; k < n; k++) {
        to[k].match /= s->positions;
        to[k].overlap /= s->positions;
    }
    return true;
}

// The target's own rows: those of all layers.
static bool reference(struct layer_scores *s, struct error *err)
{
    if (!fill(s, NULL, err))
        return false;
    for (int i = 0; i < s->layers; i++)
        s->layer[i] = i;
    for (int at = 0; at < most_positions(s); at++) {
        int text[SCORED_TEXTS];
        float *logits;
        const int rows = run_roots(s, at, s->layer, s->layers, text, &logits, err);
        if (logits == NULL)
            return false;
        top_of(s, logits, rows, s->q_id, s->q);
        for (int i = 0; i < rows; i++) {
            memcpy(s->p_id + place(s, text[i], at), s->q_id + (int64_t)i * s->top, (size_t)s->top * sizeof(*s->p_id));
            memcpy(s->p + place(s, text[i], at), s->q + (int64_t)i * s->top, (size_t)s->top * sizeof(*s->p));
        }
    }
    return true;
}

// ---- times

// One pass of n rows of text 0, a chain behind half of its tokens.
static bool time_pass(struct layer_scores *s, int n, const int *layer, int layers, double *ns, struct error *err)
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
    if (!model_forward_some(s->target->model, s->cache, &pass, layer, layers, &states, err) ||
        logits_of(s, states.last, err) == NULL)
        return false;
    *ns = (double)(clock_ns() - from);
    return true;
}

bool layer_scores_time(struct layer_scores *s, const bool *kept, struct layer_cost *to, double *draft,
                       struct error *err)
{
    double took[MAX_DRAFT + 2][ROUNDS]; // [0]: the draft token
    int *some = xcalloc((size_t)s->layers, sizeof(*some));
    const int n = layers_of(s, kept, some);
    for (int i = 0; i < s->layers; i++)
        s->layer[i] = i;
    bool ok = fill(s, NULL, err);
    kv_truncate(s->cache, 0, kv_length(s->cache, 0) / 2);
    for (int round = -1; round < ROUNDS && ok; round++) // the first warms up
        for (int rows = 0; rows <= MAX_DRAFT + 1 && ok; rows++)
            ok = time_pass(s, rows > 0 ? rows : 1, rows > 0 ? s->layer : some, rows > 0 ? s->layers : n,
                           &took[rows][round < 0 ? 0 : round], err);
    free(some);
    for (int rows = 0; rows <= MAX_DRAFT + 1 && ok; rows++)
        *(rows > 0 ? &to->pass[rows] : draft) = spread_of(took[rows], ROUNDS).median;
    return ok;
}

// ---- opening

static bool allocate(struct layer_scores *s, struct error *err)
{
    struct target *t = s->target;
    const size_t rows = (size_t)s->positions * (size_t)s->top, vocab = (size_t)model_shape(t->model)->vocab;
    int length = 0;
    for (int i = 0; i < s->texts; i++)
        if (s->text[i].position[s->text[i].n - 1] + 1 > length)
            length = s->text[i].position[s->text[i].n - 1] + 1;
    s->p_id = xcalloc(rows, sizeof(*s->p_id));
    s->p = xcalloc(rows, sizeof(*s->p));
    s->q_id = xcalloc((size_t)SCORED_TEXTS * (size_t)s->top, sizeof(*s->q_id));
    s->q = xcalloc((size_t)SCORED_TEXTS * (size_t)s->top, sizeof(*s->q));
    s->q_of = xcalloc(vocab, sizeof(*s->q_of));
    s->logits = rows_on(t->backend, SCORED_TEXTS, (int64_t)vocab);
    if (s->logits.data == NULL)
        return fail(err, "%s: not enough memory for the logits of %d rows", t->backend->name, SCORED_TEXTS);
    if (t->backend->host(t->backend, s->logits.data) == NULL)
        s->copy = xcalloc(SCORED_TEXTS * vocab, sizeof(*s->copy));
    struct kv_shape shape = model_kv_shape(t->model, s->texts, length + TARGET_ROWS, TARGET_ROWS);
    shape.window = 0; // positions are read again
    shape.type = t->cache;
    s->cache = kv_create(t->backend, &shape, err);
    return s->cache != NULL;
}

struct layer_scores *layer_scores_open(struct target *target, const struct texts *t, int first, int positions,
                                       struct error *err)
{
    struct layer_scores *s = xcalloc(1, sizeof(*s));
    s->target = target;
    s->layers = model_shape(target->model)->layers;
    s->top = TOP < target->used_vocab ? TOP : target->used_vocab;
    s->layer = xcalloc((size_t)s->layers, sizeof(*s->layer));
    s->first = xcalloc(SCORED_TEXTS, sizeof(*s->first));
    take_texts(s, t, first, positions);
    bool ok = s->texts > 0 || fail(err, "there are no answers to choose by: expected conversations with loss_mask 1");
    if (ok && allocate(s, err) && reference(s, err))
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
    free(s->layer);
    free(s->first);
    free(s->p_id);
    free(s->p);
    free(s->q_id);
    free(s->q);
    free(s->q_of);
    free(s);
}

int layer_scores_positions(const struct layer_scores *s)
{
    return s->positions;
}
