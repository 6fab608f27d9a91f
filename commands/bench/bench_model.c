// bench_model.c - a model prepared for timing: runs and times passes after a given number of cached tokens.
#include "commands/bench/bench.h"

#include <assert.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "verifier/target_cache.h"

enum { BEFORE = 2 }; // passes that are queued before one that is timed: the second time, a device captures their graph
enum { PENDING = 64 }; // rows of a pass that fills a cache, and minimum of pending rows, as for drafts

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

int bench_model_rows(const struct bench_model_plan *p)
{
    return larger(larger(p->rows * larger(p->slots, 1), PENDING), p->prompt > 0 ? TARGET_CHUNK : 0);
}

// Runs a pass of n rows after the prefix of each of the first slots. Its tokens follow as many tokens as the prefix
// has, and those of a slot follow those of the slot before it.
static bool forward(struct bench_model *s, struct kv_cache *c, int slots, int n, struct states *out, struct error *err)
{
    int32_t slot[MAX_PASS_ROWS], parent[MAX_PASS_ROWS];
    assert(slots * n <= MAX_PASS_ROWS);
    for (int i = 0; i < slots * n; i++) {
        slot[i] = i / n;
        parent[i] = i % n - 1;
    }
    const struct pass pass = { .n = slots * n, .token = s->token + kv_length(c, 0), .slot = slot, .parent = parent };
    return model_forward(s->model, c, &pass, NULL, out, err);
}

// Feeds `tokens` tokens to an empty slot, in chunks; *out: the states of the last chunk.
static bool fill(struct bench_model *s, struct kv_cache *c, int slot, int tokens, int chunk, struct states *out,
                 struct error *err)
{
    out->last.rows = 0;
    for (int from = 0; from < tokens; from += chunk)
        if (!model_append(s->model, c, slot, s->token + from, smaller(chunk, tokens - from), NULL, out, err))
            return false;
    return true;
}

static struct kv_cache *cache_of(struct bench_model *s, int slots, int length, int pending, enum type type,
                                 struct error *err)
{
    struct kv_shape shape = model_kv_shape(s->model, slots, length, pending);
    shape.type = type;
    return kv_create(s->backend, &shape, err);
}

// Enough tokens for all passes, and for a prompt of one chunk even if none is measured: bench_overhead() decodes after
// one.
static void make_tokens(struct bench_model *s, const struct bench_model_plan *p)
{
    int n = larger(bench_model_rows(p), TARGET_CHUNK) + PENDING;
    for (int i = 0; i < p->n_contexts; i++)
        n = larger(n, p->context[i] + s->slots * s->rows);
    n = larger(n, p->prompt);
    uint32_t x = 1, vocab = (uint32_t)model_shape(s->model)->vocab;
    s->token = xcalloc((size_t)n, sizeof(int32_t));
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        s->token[i] = p->n_text > 0 ? p->text[i % p->n_text] : (int32_t)((x >> 8) % vocab);
    }
}

bool bench_model_open(struct bench_model *s, struct model *m, const struct bench_model_plan *p, struct error *err)
{
    struct states unused;
    int64_t vocab = model_shape(m)->vocab;
    *s = (struct bench_model){
        .backend = model_backend(m), .model = m, .rows = p->rows, .slots = larger(p->slots, 1), .prompt = p->prompt
    };
    const int rows = s->slots * s->rows;
    make_tokens(s, p);
    s->logits = rows_on(s->backend, rows, vocab);
    bool ok =
        s->logits.data != NULL || fail(err, "%s: out of memory for the logits of %d rows", s->backend->name, rows);
    if (ok && p->prompt > 0) {
        s->prompt_cache = cache_of(s, 1, p->prompt, smaller(p->prompt, TARGET_CHUNK), p->cache, err);
        ok = s->prompt_cache != NULL;
    }
    for (int i = 0; ok && i < p->n_contexts; i++) {
        int c = p->context[i], pending = larger(p->rows, smaller(PENDING, c));
        s->n_contexts++;
        s->cache[i] = cache_of(s, s->slots, c + p->rows, pending, p->cache, err);
        ok = s->cache[i] != NULL;
        for (int slot = 0; ok && slot < s->slots; slot++)
            ok = (s->backend->queues && kv_append_zeros(s->cache[i], slot, c)) ||
                 fill(s, s->cache[i], slot, c, smaller(pending, PENDING), &unused, err);
    }
    if (!ok)
        bench_model_close(s);
    return ok;
}

void bench_model_close(struct bench_model *s)
{
    for (int i = 0; i < s->n_contexts; i++)
        kv_destroy(s->cache[i]);
    kv_destroy(s->prompt_cache);
    if (s->logits.data != NULL)
        s->backend->release(s->backend, s->logits.data);
    free(s->token);
    *s = (struct bench_model){ 0 };
}

// Queues the work of a kind; *logits: its last rows.
static bool queue(struct bench_model *s, enum bench_kind kind, int slots, int n, struct kv_cache *c,
                  struct tensor *logits, struct error *err)
{
    struct states states;
    if (kind == BENCH_PROMPT)
        kv_truncate(c, 0, 0);
    if (kind == BENCH_PROMPT ? !fill(s, c, 0, s->prompt, TARGET_CHUNK, &states, err)
                             : !forward(s, c, slots, n, &states, err))
        return false;
    const int rows = kind == BENCH_PROMPT ? 1 : slots * n;
    *logits = tensor_rows(s->logits, 0, rows);
    model_logits(s->model, *logits, tensor_rows(states.last, states.last.rows - rows, rows));
    for (int slot = 0; slot < slots && kind != BENCH_PROMPT; slot++)
        kv_keep(c, slot, NULL, 0);
    return true;
}

bool bench_model_run(struct bench_model *s, enum bench_kind kind, int slots, int n, int context_index, int64_t *ns,
                     struct error *err)
{
    struct backend *b = s->backend;
    struct kv_cache *c = kind == BENCH_PROMPT ? s->prompt_cache : s->cache[context_index];
    struct tensor logits;
    int32_t token;
    float log_p;
    for (int i = 0; b->queues && i < BEFORE; i++)
        if (!queue(s, kind, slots, n, c, &logits, err))
            return false;
    const int64_t before = model_experts_touched(s->model), from = clock_ns();
    if (b->queues)
        b->stamp(b, 0);
    if (!queue(s, kind, slots, n, c, &logits, err))
        return false;
    if (kind == BENCH_DRAFT_STEP)
        b->best(b, logits, 1, &token, &log_p);
    if (b->queues)
        b->stamp(b, 1);
    if (!b->sync(b, err))
        return false;
    *ns = b->queues ? b->between(b, 0, 1) : clock_ns() - from;
    s->experts = kind == BENCH_PASS ? model_experts_touched(s->model) - before : 0;
    return true;
}
