// foreign_drafters.c - makes a struct drafter_type of the flat struct of a foreign drafter (engine/foreign.h), and
// checks all that the plugin hands over.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "drafters/trees/draft_batch.h"
#include "engine/foreign_options.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"

// ---- rows

// Writes the distribution that a plugin has handed over to to (vocab), as all rows are: on the grid, and 0 from
// used_vocab on. Returns the mass below used_vocab; 0: it is no distribution.
static double read_distribution(const float *from, float *to, int vocab, int used_vocab, struct foreign_report *r)
{
    static const struct sampling none;
    double sum = 0, used = 0;
    for (int x = 0; x < vocab; x++) {
        if (!(from[x] >= 0 && from[x] <= 2))
            return foreign_refuse(r, "q: expected probabilities, found %g for token %d", (double)from[x], x);
        sum += (double)from[x];
        used = x < used_vocab ? sum : used;
    }
    if (!(fabs(sum - 1) <= 1e-3))
        return foreign_refuse(r, "q: expected probabilities whose sum is 1, found a sum of %g", sum);
    if (!(used > 0))
        return foreign_refuse(r, "q: expected probabilities of tokens below %d, as others are padding", used_vocab);
    for (int x = 0; x < vocab; x++)
        to[x] = logf(from[x]);
    sampling_row(&none, to, vocab, used_vocab, NULL);
    return used;
}

static bool check_logits(const float *row, int rows, int vocab, const uint8_t *declined, const char *where,
                         struct foreign_report *r)
{
    for (int i = 0; i < rows; i++)
        for (int x = 0; x < vocab && !declined[i]; x++) {
            const float y = row[(size_t)i * (size_t)vocab + (size_t)x];
            if (isnan(y) || y == INFINITY)
                return foreign_refuse(r, "%srow: expected logits, found %s for token %d", where,
                                      isnan(y) ? "NaN" : "infinity", x);
        }
    return true;
}

// ---- drafters

struct foreign_slot {
    struct rows q; // first
    float **row;   // (nodes) what the SAMPLED children of a node were drawn from; NULL: not made yet
    double *mass;  // (nodes) of the plugin's row, by which `row` is divided; 0: no row in the draft at hand
};

struct foreign_request_state { // what foreign_request.draft points to
    struct foreign *owner;
    struct request *request;
};

struct foreign {
    struct drafter drafter; // first
    const struct foreign_drafter *of;
    int64_t handle; // 0: not created
    int vocab, used_vocab, slots;
    struct foreign_slot *slot;           // (slots) of `propose`
    double *work;                        // (vocab) for a draw by speclab_foreign_sample
    struct foreign_request *request;     // (slots)
    struct foreign_request_state *state; // (slots)
    struct draft_batch batch;            // used by `rows`
    struct draft_path *draft_path;       // (rows)
    struct foreign_path *path;           // (rows)
    int32_t *path_token;                 // (rows, levels + 1)
    uint8_t *declined;                   // (rows)
    float *logits;                       // (rows, vocab) of backends without memory of the host
    struct foreign_advance *advance;     // (slots)
    float *features;                     // (capacity) of hidden states of a device
    size_t capacity;
    char why[1100]; // what went wrong in forget
};

// What a call of the plugin took beyond the plugin's own time is not the drafter's.
static bool called(struct foreign *f, int32_t ok, int64_t began, const char *what, struct error *err)
{
    const struct foreign_report *r = f->of->report;
    f->drafter.untimed_ns += clock_ns() - began - r->own_ns;
    return ok != 0 || fail_plugin(err, "%s (drafter %s, %s)", r->why, f->of->name, what);
}

static const char *where(const struct foreign *f)
{
    return f->of->where != NULL ? f->of->where : "";
}

static int64_t begin_call(const struct foreign *f)
{
    f->of->report->own_ns = 0;
    f->of->report->why[0] = '\0';
    return clock_ns();
}

static const float *q_row(struct rows *self, int node)
{
    return ((struct foreign_slot *)self)->row[node];
}

static void foreign_destroy(struct drafter *d)
{
    struct foreign *f = (struct foreign *)d;
    if (f->handle > 0)
        f->of->destroy(f->handle);
    for (int s = 0; f->slot != NULL && s < f->slots; s++) {
        for (int i = 0; i < f->drafter.nodes && f->slot[s].row != NULL; i++)
            free(f->slot[s].row[i]);
        free(f->slot[s].row);
        free(f->slot[s].mass);
    }
    if (f->of->rows != NULL)
        draft_batch_destroy(&f->batch);
    free(f->slot);
    free(f->work);
    free(f->request);
    free(f->state);
    free(f->draft_path);
    free(f->path);
    free(f->path_token);
    free(f->declined);
    free(f->logits);
    free(f->advance);
    free(f->features);
    free(f);
}

static bool create_rows(struct foreign *f, const struct drafter_env *env, const struct tree_options *o,
                        struct error *err)
{
    struct tree_shape shape;
    struct drafter_env on_host = *env;
    char *what = xformat("drafter %s", f->of->name);
    bool ok = tree_shape(&shape, o, what, env->beside, err);
    free(what);
    on_host.drafts_on_host = true;
    if (ok && env->devices != NULL)
        ok = (on_host.backend = devices_get(env->devices, "cpu", err)) != NULL;
    if (!ok || !draft_batch_create(&f->batch, &shape, &on_host, f->vocab, NULL, f->used_vocab, err))
        return false;
    const size_t rows = (size_t)(shape.frontier * env->slots);
    f->drafter.nodes = shape.nodes;
    f->drafter.host_bytes = f->batch.host_bytes + f->batch.bytes;
    if (f->batch.tree != NULL)
        f->drafter.resolved[0] = (struct resolved){ "tree", f->batch.tree };
    f->draft_path = xcalloc(rows, sizeof(*f->draft_path));
    f->path = xcalloc(rows, sizeof(*f->path));
    f->path_token = xcalloc(rows * (size_t)(shape.levels + 1), sizeof(int32_t));
    f->batch.declined = f->declined = xcalloc(rows, sizeof(*f->declined));
    f->logits = xcalloc(rows * (size_t)f->vocab, sizeof(float));
    return true;
}

static bool create_slots(struct foreign *f, int nodes, struct error *err)
{
    if (nodes < 1 || nodes > MAX_NODES)
        return fail_plugin(err, "%stokens: expected 0 to %d, found %d (drafter %s)", where(f), MAX_NODES - 1, nodes - 1,
                           f->of->name);
    f->drafter.nodes = nodes;
    f->work = xcalloc((size_t)f->vocab, sizeof(*f->work));
    f->slot = xcalloc((size_t)f->slots, sizeof(*f->slot));
    for (int s = 0; s < f->slots; s++)
        f->slot[s] = (struct foreign_slot){ .q = { f->vocab, q_row },
                                            .row = xcalloc((size_t)nodes, sizeof(float *)),
                                            .mass = xcalloc((size_t)nodes, sizeof(double)) };
    return true;
}

static bool set_taps(struct foreign *f, const struct drafter_env *env, struct error *err)
{
    const int layers = env->target != NULL ? model_shape(env->target)->layers : 0;
    f->drafter.taps.n = f->of->layers;
    for (int i = 0; i < f->of->layers; i++) {
        f->drafter.taps.layer[i] = f->of->layer[i];
        if (f->of->layer[i] != FINAL_STATE && (f->of->layer[i] < 0 || f->of->layer[i] > layers))
            return fail_plugin(
                err, "%slayers: expected -1 (the state that the LM head reads) or 0 to %d, found %d (drafter %s)",
                where(f), layers, (int)f->of->layer[i], f->of->name);
    }
    return true;
}

static struct drafter *foreign_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct foreign_type *type = env->type->self;
    const struct foreign_drafter *of = type->of;
    struct foreign *f = xcalloc(1, sizeof(*f));
    f->of = of;
    f->slots = env->slots;
    f->vocab = env->target != NULL ? model_shape(env->target)->vocab : env->used_vocab;
    f->used_vocab = env->used_vocab;
    f->request = xcalloc((size_t)env->slots, sizeof(*f->request));
    f->state = xcalloc((size_t)env->slots, sizeof(*f->state));
    f->advance = xcalloc((size_t)env->slots, sizeof(*f->advance));
    const struct foreign_setting setting = { f->vocab, f->used_vocab,
                                             env->target != NULL ? model_shape(env->target)->width : 0, env->slots,
                                             env->length };
    struct foreign_value value[FOREIGN_OPTIONS];
    int32_t nodes = 0;
    foreign_values(type->option, of->options, options, value);
    bool ok = set_taps(f, env, err);
    if (ok) {
        const int64_t began = begin_call(f);
        f->handle = of->create(&setting, value, &nodes);
        ok = called(f, f->handle > 0, began, "created", err);
    }
    ok = ok && (of->rows != NULL ? create_rows(f, env, (const void *)((const char *)options + type->size), err)
                                 : create_slots(f, nodes, err));
    if (ok)
        return &f->drafter;
    foreign_destroy(&f->drafter);
    return NULL;
}

// ---- drafts by `propose`

// Reads the row of q of a node, unless the draft at hand has it. NULL: it is no distribution, and report.why says in
// what.
static const float *take_row(struct foreign *f, const struct request *r, int node, const float *q)
{
    struct foreign_slot *slot = &f->slot[r->slot];
    if (slot->row[node] == NULL)
        slot->row[node] = xcalloc((size_t)f->vocab, sizeof(float));
    if (slot->mass[node] == 0)
        slot->mass[node] = read_distribution(q, slot->row[node], f->vocab, f->used_vocab, f->of->report);
    if (slot->mass[node] <= 0)
        return NULL;
    r->draft->q = &slot->q;
    return slot->row[node];
}

int32_t speclab_foreign_add(void *draft, int32_t parent, int32_t token, const float *q)
{
    struct foreign_request_state *s = draft;
    struct foreign *f = s->owner;
    struct foreign_report *r = f->of->report;
    struct draft *d = s->request->draft;
    struct foreign_slot *slot = &f->slot[s->request->slot];
    enum { WRONG = -2 };
    if (parent < 0 || parent >= d->n)
        return foreign_refuse(r, "expected a parent from 0 (the root) to %d, found %d", d->n - 1, (int)parent), WRONG;
    if (token < 0 || token >= f->used_vocab)
        return foreign_refuse(r, "expected a token from 0 to %d, found %d", f->used_vocab - 1, (int)token), WRONG;
    if (q != NULL && (f->of->kinds & TAKES_SAMPLED) == 0)
        return foreign_refuse(r, "a token with a q needs \"sampled\" in the drafter's `makes`"), WRONG;
    if (q == NULL && (f->of->kinds & TAKES_DETERMINISTIC) == 0)
        return foreign_refuse(r, "a token without a q needs \"deterministic\" in the drafter's `makes`"), WRONG;
    if ((f->of->kinds & TAKES_TREES) == 0 && parent != d->n - 1)
        return foreign_refuse(r, "a draft that is no chain needs \"trees\" in the drafter's `makes`"), WRONG;
    if (draft_depth(d, parent) >= s->request->depth || d->n == d->capacity)
        return -1;
    if (q != NULL) {
        const float *row = take_row(f, s->request, parent, q);
        if (row == NULL)
            return WRONG;
        const double given = (double)q[token], first = (double)row[token] * slot->mass[parent];
        if (fabs(first - given) > 0.01 * given + 1e-9)
            return foreign_refuse(r, "q: expected one row for all tokens behind node %d, found %g and %g for token %d",
                                  (int)parent, first, given, (int)token),
                   WRONG;
        if (!(row[token] > 0))
            return foreign_refuse(r, "token %d was drawn from q, as the drafter says, where its probability is 0",
                                  (int)token),
                   WRONG;
    }
    const int32_t node = draft_add(d, parent, token, q != NULL ? SAMPLED : DETERMINISTIC);
    if (node > 0)
        slot->mass[node] = 0;
    return node;
}

int32_t speclab_foreign_sample(void *draft, int32_t parent, const float *q)
{
    struct foreign_request_state *s = draft;
    struct foreign *f = s->owner;
    struct draft *d = s->request->draft;
    if (parent < 0 || parent >= d->n || draft_depth(d, parent) >= s->request->depth || d->n == d->capacity)
        return speclab_foreign_add(draft, parent, 0, q); // it says what is wrong
    const float *row = take_row(f, s->request, parent, q);
    if (row == NULL)
        return -2;
    const struct address at = { FOR_DRAFT, s->request->rng->root, d->n };
    return speclab_foreign_add(draft, parent, rng_pick_row(s->request->rng, row, f->vocab, at, f->work), q);
}

int32_t speclab_foreign_token(void *draft, int32_t node)
{
    const struct draft *d = ((struct foreign_request_state *)draft)->request->draft;
    return node >= 0 && node < d->n ? d->token[node] : -1;
}

static bool foreign_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct foreign *f = (struct foreign *)d;
    d->untimed_ns = 0;
    int used = 0;
    const int64_t began = begin_call(f);
    for (int i = 0; i < n; i++) {
        if (r[i].depth == 0)
            continue;
        f->state[i] = (struct foreign_request_state){ f, &r[i] };
        f->request[used++] =
            (struct foreign_request){ r[i].slot, r[i].n, r[i].prompt, r[i].token, r[i].depth, &f->state[i] };
        f->slot[r[i].slot].mass[0] = 0;
    }
    return used == 0 || called(f, f->of->propose(f->handle, f->request, used), began, "propose", err);
}

// ---- drafts by `rows`

static bool logits_of_frontiers(void *self, const struct request *r, int n, struct error *err)
{
    struct foreign *f = self;
    struct backend *b = f->batch.env.backend;
    int first[MAX_SLOTS];
    const int64_t began = begin_call(f);
    const int rows = draft_batch_paths(&f->batch, r, n, first, f->draft_path, f->path_token);
    for (int i = 0; i < rows; i++) {
        f->path[i] = (struct foreign_path){ f->draft_path[i].slot, f->draft_path[i].n, f->draft_path[i].token };
        f->declined[i] = 0;
    }
    const struct tensor to = draft_batch_logits(&f->batch, rows);
    float *mapped = b->host(b, to.data), *logits = mapped != NULL ? mapped : f->logits;
    const int32_t ok = f->of->rows(f->handle, f->path, rows, logits, f->declined) != 0 &&
                       check_logits(logits, rows, f->vocab, f->declined, where(f), f->of->report);
    if (ok != 0 && mapped == NULL)
        b->upload(b, to.data, logits, (size_t)rows * (size_t)f->vocab * sizeof(float));
    return called(f, ok, began, "row", err);
}

static bool foreign_propose_rows(struct drafter *d, struct request *r, int n, struct error *err)
{
    static const struct draft_logits by = { logits_of_frontiers, logits_of_frontiers, 1 };
    struct foreign *f = (struct foreign *)d;
    int first[MAX_SLOTS];
    d->untimed_ns = 0;
    return draft_batch_build(&f->batch, r, n, first, &by, f, err);
}

// ---- texts

// Returns hidden states in the host's memory.
static const float *features_of(struct foreign *f, const struct advance *a, size_t *used, struct error *err)
{
    struct backend *b = f->drafter.env->target_backend;
    const size_t n = (size_t)a->features.rows * (size_t)a->features.width;
    float *mapped = b->host(b, a->features.data), *to = f->features + *used;
    if (mapped != NULL)
        return mapped;
    b->download(b, to, a->features.data, n * sizeof(float));
    *used += n;
    return b->sync(b, err) ? to : NULL;
}

static bool foreign_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    struct foreign *f = (struct foreign *)d;
    struct backend *b = d->env->target_backend;
    const bool lends = f->of->layers > 0 && f->of->on_device != 0 && b->sync_all != NULL;
    const int device = lends ? b->sync_all(b, err) : -1;
    if (lends && device < 0)
        return false;
    size_t need = 0, used = 0;
    for (int i = 0; i < n && f->of->layers > 0 && !lends; i++)
        need += (size_t)a[i].features.rows * (size_t)a[i].features.width;
    array_reserve(f->features, f->capacity, need);
    for (int i = 0; i < n; i++) {
        const float *features = lends               ? a[i].features.data
                                : f->of->layers > 0 ? features_of(f, &a[i], &used, err)
                                                    : NULL;
        if (features == NULL && f->of->layers > 0)
            return false;
        f->advance[i] = (struct foreign_advance){ a[i].slot, a[i].n, a[i].token,    a[i].node,
                                                  features,  device, a[i].sequence, a[i].length };
    }
    const int64_t untimed = d->untimed_ns, began = begin_call(f);
    const bool ok = called(f, f->of->advance(f->handle, f->advance, n), began, "advance", err);
    d->untimed_ns = untimed; // that of propose
    return ok && (!lends || b->sync_all(b, err) >= 0);
}

static void foreign_forget(struct drafter *d, int slot)
{
    struct foreign *f = (struct foreign *)d;
    begin_call(f);
    if (f->of->forget(f->handle, slot) != 0 || d->failed != NULL)
        return;
    snprintf(f->why, sizeof(f->why), "%s (drafter %s, forget)", f->of->report->why, f->of->name);
    d->failed = f->why;
}

struct trees { // the options that a drafter of rows has besides its own
    struct tree_options tree;
};
static const struct option trees[] = { TREE_OPTIONS(struct trees, tree) };

static bool add_drafter(const struct foreign_type *type, struct error *err)
{
    const struct foreign_drafter *of = type->of;
    const bool rows = of->rows != NULL;
    const struct drafter_type t = {
        .name = of->name,
        .summary = of->summary,
        .options = type->option,
        .options_size = type->size + (rows ? sizeof(struct trees) : 0),
        .tree = rows ? type->size : 0,
        .create = foreign_create,
        .propose = rows                  ? foreign_propose_rows
                   : of->propose != NULL ? foreign_propose
                                         : NULL,
        .advance = of->advance != NULL ? foreign_advance : NULL,
        .forget = of->forget != NULL ? foreign_forget : NULL,
        .destroy = foreign_destroy,
        .kinds = rows ? 0 : of->kinds,
        .memory = (enum draft_memory)of->memory,
        .self = type,
    };
    return speclab_register_drafter(&t, err);
}

int32_t speclab_register_foreign_drafter(const struct foreign_drafter *of)
{
    if (of->version == FOREIGN_VERSION && (of->layers < 0 || of->layers > MAX_TAPS))
        return foreign_refuse(of->report, "expected at most %d layers, found %d", MAX_TAPS, (int)of->layers);
    return foreign_register(of, of->version, of->option, of->options, trees,
                            of->rows != NULL ? sizeof(trees) / sizeof(*trees) : 0, add_drafter, of->report);
}
