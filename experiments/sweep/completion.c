#include "experiments/sweep/completion.h"

#include "experiments/cells.h"
#include "experiments/pairs/paired_run.h"
#include "results/query.h"
#include "results/store.h"

static bool is_divided(const struct runner *r)
{
    return r->e->shard.of > 1;
}

bool completion_begin(struct runner *r, const struct group *g, struct error *err)
{
    bool ok = true;
    if (!is_divided(r))
        return true;
    const int group = g->sampling * r->e->batch.n + g->batch;
    r->part = (struct shard_row){ r->e->shard.index, r->e->shard.of, r->division.work[group],
                                  division_shards(&r->division, group) };
    for (int i = 0; i < g->n && ok; i++)
        ok = store_shard(r->store, g->cell_runner[i].run, &r->part, err);
    return ok;
}

bool completion_lacks(const struct runner *r, int64_t run, struct error *err)
{
    return is_divided(r) ? store_shard_unfinished(r->store, run, &r->part, err)
                         : store_run_unfinished(r->store, run, err) && store_shards_forget(r->store, run, err);
}

static bool is_finished(struct store *s, int64_t run, bool *finished, struct error *err)
{
    struct query *q = query_again(s, "SELECT finished IS NOT NULL FROM run WHERE id = ?");
    query_put_int(q, run);
    *finished = query_next(q) && query_int(q, 0) != 0;
    return query_close(q, err);
}

bool completion_end(const struct runner *r, const struct group *g, bool ran, struct error *err)
{
    bool ok = true, finished;
    for (int i = 0; i < g->n && ok; i++) {
        const int64_t run = g->cell_runner[i].run;
        ok = is_divided(r) ? store_shard_is_finished(r->store, run, &r->part, &finished, err)
                           : is_finished(r->store, run, &finished, err);
        if (ok && (ran || !finished))
            ok = is_divided(r) ? store_shard_finished(r->store, run, &r->part, err)
                               : store_run_finished(r->store, run, err);
    }
    return ok;
}
