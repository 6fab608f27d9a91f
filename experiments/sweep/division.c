#include "experiments/sweep/division.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
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

// ---- the parts of an experiment

static void add_group(struct division *d, size_t *capacity, const struct experiment *e, int group)
{
    const int batch = experiment_batch(e, group_cell(e, group).batch), cells = group_cells(e, group);
    for (int repeat = 0; repeat < e->repeat; repeat++)
        for (int first = 0; first < e->prompts.n; first += paired_run_prompts(batch)) {
            const struct paired_run o = paired_run_at(e, batch, repeat, first);
            struct part p = { .group = group, .repeat = repeat, .first = first, .n = o.n };
            int64_t turns = 0;
            for (int i = 0; i < o.n; i++)
                turns += e->prompts.prompt[first + i].n_turns;
            // The cells multiply a rounded number, so that another drafter multiplies all costs and changes no shard.
            p.cost = cells * llround((double)turns * 1000 / sqrt(batch));
            array_reserve(d->part, *capacity, d->n + 1);
            d->part[d->n++] = p;
        }
}

// Hashes the division with its shards. Another sampling or batch deals all groups anew, and shards of two deals
// together may leave prompts out.
static void hash_work(struct division *d, const struct experiment *e)
{
    bool *has = xcalloc(MAX_SHARDS, sizeof(*has));
    d->work = xcalloc((size_t)groups(e), sizeof(*d->work));
    for (int i = 0; i < d->n;) {
        const int group = d->part[i].group, first = i;
        struct digest *h = digest_begin();
        for (int k = 0; k < e->prompts.n; k++)
            digest_int(h, e->prompts.prompt[k].number);
        for (; i < d->n && d->part[i].group == group; i++) {
            digest_int(h, d->part[i].repeat);
            digest_int(h, d->part[i].first);
            digest_int(h, d->part[i].n);
            digest_int(h, d->part[i].shard);
            d->work[group].shards += !has[d->part[i].shard];
            has[d->part[i].shard] = true;
        }
        for (int k = first; k < i; k++)
            has[d->part[k].shard] = false;
        hash_write(digest_end(h), d->work[group].hash);
    }
    free(has);
}

struct division division_of(const struct experiment *e, int shards)
{
    struct division d = { 0 };
    size_t capacity = 0;
    for (int target = 0; target < e->target.n; target++) {
        const int first = d.n;
        for (int group = target * target_groups(e); group < (target + 1) * target_groups(e); group++)
            if (group_cells(e, group) > 0)
                add_group(&d, &capacity, e, group);
        parts_deal(d.part + first, d.n - first, shards > 1 ? shards : 1);
    }
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

// ---- the shard of a process: by option or, in a job array of Slurm, by its variables

static const char *variable(const char *name) // NULL: not set
{
    const char *s = getenv(name);
    return s != NULL && *s != '\0' ? s : NULL;
}

// The tasks MIN, MIN + STEP, .. of an array are shards 0, 1, ..
static bool read_slurm(struct shard *to, struct error *err)
{
    static const struct {
        const char *name;
        int least;
        long long usual; // negative: it has to be set
    } of[] = { { "SLURM_ARRAY_TASK_ID", 0, -1 },
               { "SLURM_ARRAY_TASK_COUNT", 1, -1 },
               { "SLURM_ARRAY_TASK_MIN", 0, 0 },
               { "SLURM_ARRAY_TASK_STEP", 1, 1 } };
    long long v[4];
    for (int i = 0; i < 4; i++) {
        struct error why;
        const char *text = variable(of[i].name);
        v[i] = of[i].usual;
        if (text == NULL && v[i] < 0)
            return fail(err, "%s is set and %s is not: expected both, or --shard I/N, or --shard none", of[0].name,
                        of[i].name);
        struct settings *s = settings_scalar(text != NULL ? text : "");
        const bool ok = text == NULL || settings_int(s, of[i].name, of[i].least, INT_MAX, &v[i], &why);
        settings_free(s);
        if (!ok)
            return fail(err, "%s (or give --shard)", why.text);
    }
    const long long id = v[0], count = v[1], min = v[2], step = v[3];
    if (count == 1) // this is most probably a task that is submitted again alone
        return fail(
            err, "SLURM_ARRAY_TASK_COUNT is 1: expected several tasks that share the work; --shard I/N says what this "
                 "one runs, --shard none that it is all");
    if (count > MAX_SHARDS || id < min || (id - min) % step != 0 || (id - min) / step >= count)
        return fail(err,
                    "SLURM_ARRAY_TASK_ID is %lld: expected one of at most %d evenly spaced tasks, found %lld from %lld "
                    "with step %lld; --shard I/N says what this one runs",
                    id, MAX_SHARDS, count, min, step);
    *to = (struct shard){ (int)((id - min) / step), (int)count, true };
    return true;
}

bool shard_read(const char *option, struct shard *to, struct error *err)
{
    *to = (struct shard){ 0, 1, false };
    if (option == NULL)
        return variable("SLURM_ARRAY_TASK_ID") == NULL || read_slurm(to, err);
    if (strcmp(option, "none") == 0)
        return true;
    char *slash, *end;
    const long index = strtol(option, &slash, 10), of = *slash == '/' ? strtol(slash + 1, &end, 10) : 0;
    const bool digits = option[0] >= '0' && option[0] <= '9' && *slash == '/' && slash[1] >= '0' && slash[1] <= '9';
    if (!digits || *end != '\0' || of < 1 || of > MAX_SHARDS)
        return fail(err, "--shard: expected I/N, as in 0/4, N up to %d, or none, found \"%s\"", MAX_SHARDS, option);
    if (index >= of)
        return fail(err, "--shard: expected I from 0 to %ld in I/%ld, found \"%s\": the first shard is 0", of - 1, of,
                    option);
    *to = (struct shard){ (int)index, (int)of, false };
    return true;
}
