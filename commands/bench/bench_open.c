// bench_open.c - opens the models of a bench, and limits the plan to what the model supports.
#include <stdlib.h>
#include <time.h>

#include "core/memory.h"
#include "commands/bench/bench.h"
#include "commands/command_line.h"
#include "core/files/input.h"
#include "models/formats/shape.h"
#include "kernels/backend.h"
#include "kernels/cpu/threads.h"
#include "models/model.h"

// Features that a device switches off are printed, and stored with the machine; messages about a packed-weight cache
// come earlier.
static void note(void *self, const char *sentence)
{
    struct bench *b = self;
    char *before = b->machine;
    command_log(NULL, sentence);
    if (before != NULL)
        b->machine = xformat("%s; %s", before, sentence);
    free(before);
}

static struct speclab_target *open_model(struct bench *b, const struct bench_plan *p, const char *name, int rows,
                                         struct error *err)
{
    struct speclab_target_options options = p->options;
    options.threads = p->threads;
    options.rows = rows;
    options.packed_cache = p->packed;
    options.ids_only = true;
    options.log = note;
    options.log_self = b;
    return speclab_target_open(name, &options, err);
}

// Drops default contexts that are too long for the model; if none remains, uses the longest that fits.
static bool fit_contexts(struct bench_plan *p, const struct speclab_target *t, struct error *err)
{
    int capacity = model_shape(t->model)->context - p->rows[p->n_rows - 1], n = 0;
    if (capacity < 0)
        return fail(err, "--rows %d: the context of %s is %d tokens", p->rows[p->n_rows - 1], t->path,
                    model_shape(t->model)->context);
    for (int i = 0; i < p->n_contexts; i++) {
        if (p->context[i] > capacity && p->contexts_given)
            return fail(err, "--contexts %d: the context of %s is %d tokens, and passes have up to %d rows",
                        p->context[i], t->path, model_shape(t->model)->context, p->rows[p->n_rows - 1]);
        if (p->context[i] <= capacity)
            p->context[n++] = p->context[i];
    }
    if (n == 0)
        p->context[n++] = capacity;
    p->n_contexts = n;
    if (p->prompt > model_shape(t->model)->context)
        p->prompt = model_shape(t->model)->context;
    return true;
}

static bool read_text(struct bench *b, struct ids *to, struct error *err)
{
    const char *path = b->plan.text;
    size_t n;
    if (path == NULL)
        return true;
    struct tokenizer *t = tokenizer_open(b->target->path, err);
    char *text = t != NULL ? file_text(path, &n, err) : NULL;
    struct error reason;
    bool ok =
        text != NULL && (tokenizer_encode(t, text, n, false, to, &reason) || fail(err, "%s: %s", path, reason.text));
    if (ok && to->n == 0)
        ok = fail(err, "%s: expected a text, found none", path);
    free(text);
    tokenizer_close(t);
    return ok;
}

static bool open_bench_model(struct bench_model *s, const struct bench_plan *p, const struct speclab_target *t,
                             struct bench_model_plan plan, struct error *err)
{
    plan.n_contexts = p->n_contexts;
    plan.context = p->context;
    plan.cache = t->cache;
    return bench_model_open(s, t->model, &plan, err);
}

static bool open_draft(struct bench *b, struct error *err)
{
    if (b->plan.draft == NULL)
        return true;
    struct error reason;
    struct bench_plan p = b->plan;
    p.options.activations = NULL; // its weights may have another type
    int rows = bench_model_rows(&(struct bench_model_plan){ .rows = 1 });
    b->draft = open_model(b, &p, p.draft, rows, &reason);
    if (b->draft == NULL)
        return fail(err, "--draft: %s", reason.text);
    int capacity = model_shape(b->draft->model)->context - 1;
    for (int i = 0; i < p.n_contexts; i++)
        if (p.context[i] > capacity)
            return fail(err, "--contexts %d: the context of the draft model %s is %d tokens", p.context[i],
                        b->draft->path, capacity + 1);
    return open_bench_model(&b->draft_model, &p, b->draft, (struct bench_model_plan){ .rows = 1 }, err);
}

static char *time_of_day(void)
{
    char text[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return xstrdup(text);
}

// Other engines open a shape as a file.
static bool give_others(const struct bench_plan *p, struct error *err)
{
    if (p->turns == 0 || !is_shape(p->model))
        return true;
    char *path = shape_whole_path(p->model, err);
    free(path);
    return path != NULL;
}

bool bench_open(struct bench *b, const struct bench_plan *plan, struct error *err)
{
    *b = (struct bench){ .plan = *plan, .started = time_of_day() };
    struct bench_plan *p = &b->plan;
    if (p->threads == 0)
        p->threads = threads_available();
    if (p->n_slots == 0)
        p->slots[p->n_slots++] = 1;
    struct bench_model_plan passes = { .rows = p->rows[p->n_rows - 1],
                                       .slots = p->slots[p->n_slots - 1],
                                       .prompt = p->prompt };
    if (!give_others(p, err))
        return false;
    b->target = open_model(b, p, p->model, bench_model_rows(&passes), err);
    if (b->target == NULL || !fit_contexts(p, b->target, err))
        return false;
    size_t unused, own;
    if (b->target->backend->memory(b->target->backend, &unused, &own)) // the probe measures the host's memory
        p->probe = false;
    if (p->probe) {
        b->prober = prober_create(p->threads);
        p->probe = b->prober != NULL;
    }
    passes.prompt = p->prompt; // the prompt is as long as the context
    struct ids text = { 0 };
    bool ok = turns_open(b, err) && open_draft(b, err) && read_text(b, &text, err);
    passes.text = text.id;
    passes.n_text = (int)text.n;
    ok = ok && open_bench_model(&b->model, p, b->target, passes, err);
    free(text.id);
    if (!ok)
        return false;
    char *name = machine_processor();
    b->machine = xformat("%s, %s", name, b->target->backend->describe(b->target->backend));
    free(name);
    return true;
}

void bench_close(struct bench *b)
{
    if (b->turns != NULL)
        fclose(b->turns);
    bench_model_close(&b->model);
    bench_model_close(&b->draft_model);
    speclab_target_close(b->target);
    speclab_target_close(b->draft);
    prober_destroy(b->prober);
    for (int i = 0; i < b->n_measurements; i++)
        free(b->measurement[i].ns);
    for (int i = 0; i < PLACEMENTS; i++)
        cost_free(&b->cost[i]);
    free(b->measurement);
    free(b->round);
    free(b->machine);
    free(b->started);
    *b = (struct bench){ 0 };
}
