#include "commands/tune/layer_search.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

// Scores sets (n, layers) and makes the best of them the set, if it is better than `than`. Returns its number, -1 if none is, -2 on failure.
static int take_best(struct layer_search *s, const bool *sets, int n, double than, struct error *err)
{
    double *score = xcalloc((size_t)n + 1, sizeof(*score));
    int best = -1;
    if (n > 0 && !s->scores(s->self, sets, n, score, err))
        best = -2;
    for (int i = 0; i < n && best > -2; i++)
        if (score[i] > than || (best >= 0 && score[i] == than)) {
            than = score[i];
            best = i;
        }
    if (best >= 0) {
        memcpy(s->kept, sets + (size_t)best * (size_t)s->layers, (size_t)s->layers * sizeof(*s->kept));
        s->score = than;
    }
    free(score);
    return best;
}

static bool *set_at(const struct layer_search *s, bool *sets, int n)
{
    bool *to = sets + (size_t)n * (size_t)s->layers;
    memcpy(to, s->kept, (size_t)s->layers * sizeof(*to));
    return to;
}

bool layer_search_remove(struct layer_search *s, int *removed, struct error *err)
{
    bool *sets = xcalloc((size_t)s->layers * (size_t)s->layers, sizeof(*sets));
    int *layer = xcalloc((size_t)s->layers, sizeof(*layer)), n = 0;
    for (int i = 0; i < s->layers; i++)
        if (s->kept[i]) {
            set_at(s, sets, n)[i] = false;
            layer[n++] = i;
        }
    assert(n > 1);
    const int best = take_best(s, sets, n, -1, err);
    *removed = best >= 0 ? layer[best] : -1;
    free(layer);
    free(sets);
    return best >= 0;
}

bool layer_search_exchange(struct layer_search *s, bool *better, struct error *err)
{
    int n = 0, kept = 0;
    for (int i = 0; i < s->layers; i++)
        kept += s->kept[i];
    bool *sets = xcalloc((size_t)kept * (size_t)(s->layers - kept) * (size_t)s->layers + 1, sizeof(*sets));
    for (int i = 0; i < s->layers; i++)
        for (int k = 0; k < s->layers; k++)
            if (s->kept[i] && !s->kept[k]) {
                bool *to = set_at(s, sets, n++);
                to[i] = false;
                to[k] = true;
            }
    const int best = take_best(s, sets, n, s->score, err);
    *better = best >= 0;
    free(sets);
    return best > -2;
}
