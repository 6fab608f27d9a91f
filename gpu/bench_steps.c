// bench_steps.c - times the passes of a decoding step alone, of a given model and head.
//
//     bench_gpu steps DEVICE MODEL CONTEXT SLOTS ROWS [HEAD DRAFT_TOKENS CERTAIN]
//
// SLOTS, ROWS, DRAFT_TOKENS and CERTAIN are integers separated by commas. For each number of slots, after CONTEXT tokens in
// each slot:
//
//     pass      ROWS rows a slot, a chain, with the logits of each: of a target, or of a draft model
//     logits    the head's logits, of one state a slot
//     draft     DRAFT_TOKENS rows a slot of the head over its own states, with their logits
//     certain   CERTAIN rows a slot of the head over the target's states
//
// A line of JSON for each, times as in bench_gpu.c; activations and caches are bf16. gpu/loop.py subtracts them from the
// time of a step; the remainder is the overhead of the loop.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "gpu/bench_gpu.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/heads/eagle.h"
#include "models/kv_cache.h"

enum { MAX_NUMBERS = 16, LOGITS_CHUNK = 256, ARGUMENTS = 5, WITH_HEAD = 8 };
enum part { PASS, LOGITS, DRAFT, CERTAIN };
static const char *const part_names[] = { "pass", "logits", "draft", "certain" };

struct numbers {
    int n, max, at[MAX_NUMBERS];
};

struct bench {
    struct engine e;
    const char *name; // of the model's file
    int context;
    struct model *model;
    struct eagle *head; // NULL: none
    struct kv_cache *cache, *head_cache;
    struct tensor logits, draft_tokens; // (rows, vocab), (rows, the head's vocab)
    struct tensor own, target;          // (rows, width) states that the head reads, (rows, taps * the target's width)
    struct taps taps;
    int32_t *token, *slot, *parent, *row; // (rows)
};

// ---- arguments

static bool read_numbers(const char *text, struct numbers *to)
{
    *to = (struct numbers){ 0 };
    for (const char *at = text;; at++) {
        char *end;
        const long v = strtol(at, &end, 10);
        if (end == at || v < 1 || v > INT_MAX / 1000 || to->n == MAX_NUMBERS)
            return false;
        to->at[to->n++] = (int)v;
        to->max = v > to->max ? (int)v : to->max;
        at = end;
        if (*at != ',')
            return *at == '\0';
    }
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

// ---- set-up

static struct tensor small_numbers(struct backend *b, int64_t rows, int64_t width)
{
    const struct tensor t = rows_on(b, rows, width);
    float *numbers = xcalloc((size_t)(rows * width), sizeof(*numbers));
    for (int64_t i = 0; i < rows * width; i++)
        numbers[i] = (float)((i * 2654435761u) % 1000) / 500.0f - 1;
    if (t.data != NULL)
        b->upload(b, t.data, numbers, tensor_bytes(t));
    free(numbers);
    return t;
}

static bool open_model(struct bench *s, const char *path, int slots, int rows, struct error *err)
{
    const int max_rows = larger(slots * rows, LOGITS_CHUNK);
    s->model = model_open(path, s->e.b, ACTIVATIONS_BF16, max_rows, err);
    if (s->model == NULL)
        return false;
    struct kv_shape shape =
        model_kv_shape(s->model, slots, s->context + larger(rows, LOGITS_CHUNK), larger(rows, LOGITS_CHUNK));
    shape.type = BF16;
    s->cache = kv_create(s->e.b, &shape, err);
    s->logits = rows_on(s->e.b, slots * rows, model_shape(s->model)->vocab);
    return s->cache != NULL &&
           (s->logits.data != NULL || fail(err, "out of memory for the logits of %d rows", slots * rows));
}

static bool open_head(struct bench *s, const char *path, int slots, int rows, struct error *err)
{
    const int max_rows = larger(slots * rows, LOGITS_CHUNK);
    const struct eagle_setup setup = { .kind = HEAD_EAGLE3, .activations = ACTIVATIONS_BF16, .rows = max_rows };
    s->head = eagle_open(path, s->model, s->e.b, &setup, err);
    if (s->head == NULL)
        return false;
    struct kv_shape shape =
        eagle_kv_shape(s->head, slots, s->context + larger(rows, LOGITS_CHUNK), larger(rows, LOGITS_CHUNK));
    shape.type = BF16;
    s->head_cache = kv_create(s->e.b, &shape, err);
    s->taps = eagle_facts(s->head)->taps;
    s->draft_tokens = rows_on(s->e.b, slots * rows, eagle_facts(s->head)->vocab);
    s->own = small_numbers(s->e.b, max_rows, eagle_facts(s->head)->width);
    s->target = small_numbers(s->e.b, max_rows, (int64_t)s->taps.n * model_shape(s->model)->width);
    return s->head_cache != NULL && ((s->draft_tokens.data != NULL && s->own.data != NULL && s->target.data != NULL) ||
                                     fail(err, "out of memory for the states of %d rows", max_rows));
}

static void close_all(struct bench *s)
{
    const struct tensor all[] = { s->logits, s->draft_tokens, s->own, s->target };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        s->e.b->release(s->e.b, all[i].data);
    kv_destroy(s->cache);
    kv_destroy(s->head_cache);
    eagle_close(s->head);
    model_close(s->model);
    free(s->token);
    free(s->slot);
    free(s->parent);
    free(s->row);
}

// ---- passes

// A chain of `rows` rows in each of the slots from `first` on.
static struct pass chains(struct bench *s, int first, int slots, int rows)
{
    const int vocab = model_shape(s->model)->vocab;
    for (int i = 0; i < slots * rows; i++) {
        s->token[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)vocab);
        s->slot[i] = first + i / rows;
        s->parent[i] = i % rows - 1;
        s->row[i] = i % rows;
    }
    return (struct pass){ .n = slots * rows, .token = s->token, .slot = s->slot, .parent = s->parent };
}

static bool queue(struct bench *s, enum part part, const struct pass *p, struct error *err)
{
    struct states states;
    if (part == PASS) {
        if (!model_forward(s->model, s->cache, p, &s->taps, &states, err))
            return false;
        if (p->n <= s->logits.rows)
            model_logits(s->model, tensor_rows(s->logits, 0, p->n), states.last);
        return true;
    }
    const bool draft_token = part == DRAFT;
    struct tensor out = tensor_rows(s->own, 0, p->n);
    if (part != LOGITS)
        out = eagle_forward(s->head, s->head_cache, p, tensor_rows(draft_token ? s->own : s->target, 0, p->n),
                            draft_token);
    if (part != CERTAIN)
        eagle_logits(s->head, tensor_rows(s->draft_tokens, 0, p->n), out);
    return true;
}

static bool fill(struct bench *s, enum part part, struct kv_cache *c, int slots, struct error *err)
{
    for (int slot = 0; slot < slots; slot++)
        for (int left = s->context; left > 0; left -= LOGITS_CHUNK) {
            const struct pass p = chains(s, slot, 1, left < LOGITS_CHUNK ? left : LOGITS_CHUNK);
            if (!queue(s, part, &p, err) || !s->e.b->sync(s->e.b, err))
                return false;
            kv_keep(c, slot, s->row, p.n);
        }
    return true;
}

static bool time_part(struct bench *s, enum part part, int slots, int rows, struct error *err)
{
    struct backend *b = s->e.b;
    int64_t ns[TIMES];
    const struct pass p = chains(s, 0, slots, rows);
    for (int t = -2; t < TIMES; t++) {
        b->stamp(b, 0);
        if (!queue(s, part, &p, err))
            return false;
        b->stamp(b, 1);
        if (!b->sync(b, err))
            return false;
        if (t >= 0)
            ns[t] = b->between(b, 0, 1);
        for (int i = 0; i < slots; i++)
            kv_keep(part == PASS ? s->cache : s->head_cache, i, NULL, 0);
    }
    printf("{\"engine\": \"%s\", \"what\": \"%s %s, %d slots\", \"part\": \"%s\", \"slots\": %d, \"rows\": %d, "
           "\"context\": %d, \"seconds\": %.9g}\n",
           s->e.name, s->name, part_names[part], slots, part_names[part], slots, rows, s->context,
           median_seconds(ns, TIMES));
    fflush(stdout);
    return true;
}

static bool time_parts(struct bench *s, enum part part, const struct numbers *slots, const struct numbers *rows,
                       struct error *err)
{
    for (int i = 0; i < slots->n; i++)
        for (int k = 0; k < rows->n; k++)
            if (!time_part(s, part, slots->at[i], rows->at[k], err))
                return false;
    return true;
}

// word: MODEL CONTEXT SLOTS ROWS [HEAD DRAFT_TOKENS CERTAIN]
static bool run(struct bench *s, char **word, const struct numbers given[], bool head, struct error *err)
{
    const struct numbers *slots = &given[1], *draft_tokens = &given[3], *certain = &given[4], one = { 1, 1, { 1 } };
    const int rows = larger(given[2].max, head ? larger(draft_tokens->max, certain->max) : 1);
    const size_t max_rows = (size_t)larger(slots->max * rows, LOGITS_CHUNK);
    int32_t **arrays[] = { &s->token, &s->slot, &s->parent, &s->row };
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        *arrays[i] = xcalloc(max_rows, sizeof(int32_t));
    const char *slash = strrchr(word[0], '/');
    s->name = slash != NULL ? slash + 1 : word[0];
    s->context = given[0].at[0];
    return open_model(s, word[0], slots->max, given[2].max, err) &&
           (!head || open_head(s, word[4], slots->max, larger(draft_tokens->max, certain->max), err)) &&
           fill(s, PASS, s->cache, slots->max, err) && time_parts(s, PASS, slots, &given[2], err) &&
           (!head || (fill(s, CERTAIN, s->head_cache, slots->max, err) && time_parts(s, LOGITS, slots, &one, err) &&
                      time_parts(s, DRAFT, slots, draft_tokens, err) && time_parts(s, CERTAIN, slots, certain, err)));
}

int bench_steps(int argc, char **argv)
{
    static const int at[] = { 2, 3, 4, 6, 7 }; // of the numbers in argv
    struct numbers given[sizeof(at) / sizeof(at[0])];
    struct error err;
    bool valid = argc == ARGUMENTS || argc == WITH_HEAD;
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]) && valid; i++)
        valid = at[i] >= argc || read_numbers(argv[at[i]], &given[i]);
    if (!valid) {
        fprintf(stderr,
                "bench_gpu: expected steps DEVICE MODEL CONTEXT SLOTS ROWS [HEAD DRAFT_TOKENS CERTAIN], with lists "
                "of integers as in 1,4,16\n");
        return 2;
    }
    struct devices *d = devices_create(0);
    struct bench s = { .e = { .name = "speclab", .b = devices_get(d, argv[0], &err) } };
    const bool ok = s.e.b != NULL && run(&s, argv + 1, given, argc == WITH_HEAD, &err);
    if (!ok)
        fprintf(stderr, "bench_gpu: %s\n", err.text);
    if (s.e.b != NULL)
        close_all(&s);
    devices_destroy(d);
    return ok ? 0 : 1;
}
