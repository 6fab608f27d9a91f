#include "experiments/sweep/division.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "experiments/cells.h"
#include "experiments/pairs/paired_run.h"

// ---- dealing

static int least(const int64_t *load, int shards)
{
    int at = 0;
    for (int i = 1; i < shards; i++)
        at = load[i] < load[at] ? i : at;
    return at;
}

static int by_cost(const void *a, const void *b)
{
    const struct part *x = *(struct part *const *)a, *y = *(struct part *const *)b;
    return x->cost != y->cost ? (x->cost < y->cost ? 1 : -1) : x < y ? -1 : x > y;
}

void parts_deal(struct part *part, int n, int shards)
{
    int64_t *load = xcalloc((size_t)shards, sizeof(*load));
    struct part **order = xcalloc((size_t)n + 1, sizeof(*order));
    for (int i = 0; i < n; i++)
        order[i] = &part[i];
    qsort(order, (size_t)n, sizeof(*order), by_cost);
    for (int i = 0; i < n; i++) {
        order[i]->shard = least(load, shards);
        load[order[i]->shard] += order[i]->cost;
    }
    free(order);
    free(load);
}

// ---- an experiment's parts

static void add_group(struct division *d, size_t *capacity, const struct experiment *e, int group)
{
    const int batch = experiment_batch(e, group % e->batch.n), cells = group_cells(e, group);
    for (int repeat = 0; repeat < e->repeat; repeat++)
        for (int first = 0; first < e->prompts.n; first += paired_run_prompts(batch)) {
            const struct paired_run o = paired_run_at(e, batch, repeat, first);
            struct part p = { .group = group, .repeat = repeat, .first = first, .n = o.n };
            int64_t turns = 0;
            for (int i = 0; i < o.n; i++)
                turns += e->prompts.prompt[first + i].n_turns;
            // Whole times the cells, so that another drafter multiplies all costs and changes no shard.
            p.cost = cells * llround((double)turns * 1000 / sqrt(batch));
            array_reserve(d->part, *capacity, d->n + 1);
            d->part[d->n++] = p;
        }
}

// With the shards, as another sampling or batch deals all groups anew: what shards did of two deals may leave prompts out.
static void hash_work(struct division *d, const struct experiment *e)
{
    d->work = xcalloc((size_t)groups(e), sizeof(*d->work));
    for (int i = 0; i < d->n;) {
        const int group = d->part[i].group;
        struct digest *h = digest_begin();
        for (int k = 0; k < e->prompts.n; k++)
            digest_int(h, e->prompts.prompt[k].number);
        for (; i < d->n && d->part[i].group == group; i++) {
            digest_int(h, d->part[i].repeat);
            digest_int(h, d->part[i].first);
            digest_int(h, d->part[i].n);
            digest_int(h, d->part[i].shard);
        }
        hash_write(digest_end(h), d->work[group]);
    }
}

struct division division_of(const struct experiment *e, int shards)
{
    struct division d = { 0 };
    size_t capacity = 0;
    for (int group = 0; group < groups(e); group++)
        if (group_cells(e, group) > 0)
            add_group(&d, &capacity, e, group);
    parts_deal(d.part, d.n, shards > 1 ? shards : 1);
    hash_work(&d, e);
    return d;
}

void division_free(struct division *d)
{
    free(d->part);
    free(d->work);
    *d = (struct division){ 0 };
}

int division_count(const struct division *d, int group, int shard)
{
    int n = 0;
    for (int i = 0; i < d->n; i++)
        n += d->part[i].group == group && d->part[i].shard == shard;
    return n;
}

int64_t division_conversations(const struct division *d, const struct experiment *e, int shard)
{
    int64_t n = 0;
    for (int i = 0; i < d->n; i++)
        if (d->part[i].shard == shard)
            n += (int64_t)d->part[i].n * group_cells(e, d->part[i].group);
    return n;
}

int division_shards(const struct division *d, int group)
{
    bool *has = xcalloc(MAX_SHARDS, sizeof(*has));
    int n = 0;
    for (int i = 0; i < d->n; i++)
        if (d->part[i].group == group && !has[d->part[i].shard]) {
            has[d->part[i].shard] = true;
            n++;
        }
    free(has);
    return n;
}
