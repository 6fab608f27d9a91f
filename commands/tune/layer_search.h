// layer_search.h - which of a target's layers draft best: layers are removed one at a time, each time the one without which the score is
// best; then kept and removed layers are exchanged as long as that is better.
//
// SWIFT (Xia et al. 2024, arXiv 2410.06916, section 4.2) searches sets of a given size at random and by Bayesian optimization, with the
// share of matching tokens as the score. Here the search is greedy, needs no random numbers, and finds a set of every size on its way.
#pragma once
#include <stdbool.h>

struct error;

struct layer_search {
    int layers;
    bool *kept; // (layers) the set; begins with all
    double score;
    // Scores n sets, kept (n, layers): the larger the better. Returns false and sets err on failure.
    bool (*scores)(void *self, const bool *kept, int n, double *to, struct error *err);
    void *self;
};

// Removes the layer without which the score is best (ties: the last one), of more than one; *removed: that layer.
bool layer_search_remove(struct layer_search *s, int *removed, struct error *err);
// Exchanges the pair of a kept and a removed layer whose exchange scores best, if that is better than s->score; *better: whether it was.
bool layer_search_exchange(struct layer_search *s, bool *better, struct error *err);
