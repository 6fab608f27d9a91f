#include "sampling/logits.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "sampling/loops.h"

// One piece of work on every stretch.
struct work {
    const struct loops *loops;
    struct logits *l;
    int used_vocab;
    float max;
    double by;
    struct exact_sum sum[LOGITS_CHUNKS];
    void (*one)(struct work *w, float *x, int n, int chunk);
};

static int chunks(int n)
{
    return (n + LOGITS_CHUNK - 1) / LOGITS_CHUNK;
}

static int length(const struct logits *l, int chunk)
{
    int left = l->n - chunk * LOGITS_CHUNK;
    return left < LOGITS_CHUNK ? left : LOGITS_CHUNK;
}

static void work_on(void *of, int chunk)
{
    struct work *w = of;
    w->one(w, w->l->x + chunk * LOGITS_CHUNK, length(w->l, chunk), chunk);
}

static void share(struct work *w)
{
    w->loops = loops();
    workers_run(w->l->workers, chunks(w->l->n), work_on, w);
}

static void fill(float *x, int n, float value)
{
    for (int i = 0; i < n; i++)
        x[i] = value;
}

static bool is_dead(const struct logits *l, int chunk)
{
    return l->most[chunk] == -INFINITY;
}

static void tidy(struct work *w, float *x, int n, int chunk)
{
    int used_vocab = w->used_vocab - chunk * LOGITS_CHUNK;
    if (used_vocab < n)
        fill(x + (used_vocab > 0 ? used_vocab : 0), n - (used_vocab > 0 ? used_vocab : 0), -INFINITY);
    w->l->most[chunk] = used_vocab > 0 ? w->loops->tidy(x, n) : -INFINITY;
}

struct logits logits_of(float *x, int n, int used_vocab, struct workers workers)
{
    assert(n > 0 && n <= MAX_VOCAB && used_vocab > 0 && used_vocab <= n);
    struct logits l = { .n = n, .x = x, .workers = workers };
    struct work w = { .l = &l, .used_vocab = used_vocab, .one = tidy };
    share(&w);
    return l;
}

float logits_largest(const struct logits *l)
{
    float most = -INFINITY;
    for (int s = 0; s < chunks(l->n); s++)
        most = l->most[s] > most ? l->most[s] : most;
    return most;
}

float logits_at(const struct logits *l, int i)
{
    return is_dead(l, i / LOGITS_CHUNK) ? -INFINITY : l->x[i];
}

void logits_set(struct logits *l, int i, float value)
{
    int s = i / LOGITS_CHUNK, n = length(l, s);
    float *x = l->x + s * LOGITS_CHUNK, before = logits_at(l, i);
    if (is_dead(l, s))
        fill(x, n, -INFINITY);
    l->x[i] = value > FLT_MAX ? FLT_MAX : value;
    if (l->x[i] >= l->most[s])
        l->most[s] = l->x[i];
    else if (before == l->most[s])
        l->most[s] = loops()->largest(x, n);
}

static void temperature(struct work *w, float *x, int n, int chunk)
{
    float *most = &w->l->most[chunk];
    if (*most == -INFINITY)
        return;
    w->loops->temperature(x, n, w->max, w->by);
    w->loops->temperature(most, 1, w->max, w->by); // the same function of the same number
}

void logits_scale(struct logits *l, double by)
{
    struct work w = { .l = l, .max = logits_largest(l), .by = by, .one = temperature };
    share(&w);
}

static void drop_below(struct work *w, float *x, int n, int chunk)
{
    if (w->l->most[chunk] < w->by)
        w->l->most[chunk] = -INFINITY;
    else if (!is_dead(w->l, chunk))
        w->loops->drop_below(x, n, w->by);
}

void logits_drop_below(struct logits *l, double least)
{
    struct work w = { .l = l, .by = least, .one = drop_below };
    share(&w);
}

void logits_drop_ties(struct logits *l, float value, int stay)
{
    for (int s = 0; s < chunks(l->n); s++) {
        int32_t place[LOGITS_CHUNK];
        float *x = l->x + s * LOGITS_CHUNK;
        if (is_dead(l, s) || l->most[s] < value)
            continue;
        int n = length(l, s), found = loops()->places_from(x, n, value, place, n);
        for (int k = 0; k < found; k++)
            if (x[place[k]] == value && stay-- <= 0)
                x[place[k]] = -INFINITY;
        if (l->most[s] == value && stay < 0)
            l->most[s] = loops()->largest(x, n);
    }
}

void logits_keep_argmax(struct logits *l)
{
    float most = logits_largest(l);
    for (int s = 0, found = 0; s < chunks(l->n) && most > -INFINITY; s++) {
        if (l->most[s] != most || found++ > 0) {
            l->most[s] = -INFINITY;
            continue;
        }
        int32_t first = 0;
        float *x = l->x + s * LOGITS_CHUNK;
        loops()->places_from(x, length(l, s), most, &first, 1);
        fill(x, length(l, s), -INFINITY);
        x[first] = most;
    }
}

int logits_from(const struct logits *l, float least, int32_t *place, int capacity)
{
    int found = 0;
    for (int s = 0; s < chunks(l->n); s++) {
        if (is_dead(l, s) || l->most[s] < least)
            continue;
        int some = loops()->places_from(l->x + s * LOGITS_CHUNK, length(l, s), least, place + found, capacity - found);
        if (some > capacity - found)
            return -1;
        for (int k = 0; k < some; k++)
            place[found + k] += s * LOGITS_CHUNK;
        found += some;
    }
    return found;
}

static double total(const struct work *w)
{
    struct exact_sum sum = { 0, 0 };
    for (int s = 0; s < chunks(w->l->n); s++)
        sum = grid_sum(sum, w->sum[s]);
    return grid_total(sum);
}

static void weigh(struct work *w, float *x, int n, int chunk)
{
    double weight[LOGITS_CHUNK];
    const struct exact_sum none = { 0, 0 };
    w->sum[chunk] = is_dead(w->l, chunk) ? none : w->loops->weights(weight, x, n, w->max);
}

double logits_weight(const struct logits *l)
{
    struct work w = { .l = (struct logits *)l, .max = logits_largest(l), .one = weigh }; // reads only
    share(&w);
    return total(&w);
}

static void exponentials(struct work *w, float *x, int n, int chunk)
{
    if (is_dead(w->l, chunk))
        memset(x, 0, (size_t)n * sizeof(*x));
    const struct exact_sum none = { 0, 0 };
    w->sum[chunk] = is_dead(w->l, chunk) ? none : w->loops->exponentials(x, n, w->max);
}

static void scale(struct work *w, float *x, int n, int chunk)
{
    if (!is_dead(w->l, chunk))
        w->loops->scale(x, n, w->by);
}

void logits_softmax(struct logits *l)
{
    struct work w = { .l = l, .max = logits_largest(l), .one = exponentials };
    if (w.max == -INFINITY) {
        memset(l->x, 0, (size_t)l->n * sizeof(*l->x));
        l->x[0] = 1;
        return;
    }
    share(&w);
    w.by = 1 / total(&w);
    w.one = scale;
    share(&w);
}
