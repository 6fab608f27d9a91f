// score.c - `speclab score`: what a model makes of given texts, token by token.
//
// The plain forward pass and nothing else: all of the model's vocabulary in the softmax, no sampling stages. Long texts
// go through in stretches, whose rows are kept in the cache; the logits of one stretch are all that there is at a time.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/json.h"
#include "core/memory.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/engine.h"
#include "experiments/json_lines.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/model.h"

enum { STRETCH = 128 }; // rows of a pass: enough for the weights to be read for many at once

struct score {
    struct target target;
    struct kv_cache *cache; // made anew when a text is longer than all before it
    int length;             // of the cache
    struct tensor logits;   // (STRETCH, vocab)
    float *row;             // (vocab)
    int64_t texts, scored;
    double sum; // of all logprobs
};

static bool make_room(struct score *s, int length, struct error *err)
{
    if (s->cache != NULL && length <= s->length) {
        kv_cut(s->cache, 0, 0);
        return true;
    }
    int context = model_shape(s->target.model)->context, generous = length + length / 2 + STRETCH;
    kv_destroy(s->cache);
    s->length = length > context ? length : generous < context ? generous : context;
    struct kv_shape shape = model_kv_shape(s->target.model, 1, s->length, STRETCH);
    s->cache = kv_create(s->target.backend, &shape, err);
    return s->cache != NULL;
}

static bool make_logits(struct score *s, struct error *err)
{
    struct backend *b = s->target.backend;
    int64_t vocab = model_shape(s->target.model)->vocab;
    s->row = xmalloc((size_t)vocab * sizeof(*s->row));
    s->logits = tensor_of(b->alloc(b, (size_t)(STRETCH * vocab) * sizeof(float)), F32, STRETCH, vocab);
    return s->logits.data != NULL ||
           fail(err, "%s: no room for %d rows of %lld logits", b->name, STRETCH, (long long)vocab);
}

static double log_softmax(const float *logit, int n, int of)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        if (logit[i] > most)
            most = logit[i];
    for (int i = 0; i < n; i++)
        sum += exp((double)logit[i] - most);
    return (double)logit[of] - most - log(sum);
}

// One pass over id[0 .. n): logprob[i] is of the token that follows id[i].
static bool score_stretch(struct score *s, const int32_t *id, int n, double *logprob, struct error *err)
{
    struct backend *b = s->target.backend;
    int32_t slot[STRETCH] = { 0 }, parent[STRETCH], kept[STRETCH];
    for (int i = 0; i < n; i++) {
        parent[i] = i - 1;
        kept[i] = i;
    }
    struct states states;
    struct pass pass = { n, id, slot, parent };
    if (!model_forward(s->target.model, s->cache, &pass, NULL, &states, err))
        return false;
    struct tensor logits = tensor_rows(s->logits, 0, n);
    model_logits(s->target.model, logits, states.last);
    if (!b->sync(b, err))
        return false;
    kv_keep(s->cache, 0, kept, n);
    for (int i = 0; i < n; i++) {
        b->download(b, s->row, tensor_rows(logits, i, 1).data, (size_t)logits.width * sizeof(float));
        if (!b->sync(b, err))
            return false;
        logprob[i] = log_softmax(s->row, (int)logits.width, id[i + 1]);
    }
    return true;
}

static bool score_ids(struct score *s, const struct ids *ids, double *logprob, struct error *err)
{
    int n = (int)ids->n - 1;
    if (n > 0 && !make_room(s, n, err))
        return false;
    for (int from = 0; from < n; from += STRETCH)
        if (!score_stretch(s, ids->id + from, n - from < STRETCH ? n - from : STRETCH, logprob + from, err))
            return false;
    return true;
}

static bool ids_of_line(const struct score *s, const struct json_lines *l, struct ids *to, struct error *err)
{
    const struct json *text = json_get(l->object, "text"), *ids = json_get(l->object, "ids");
    const struct model_shape *shape = model_shape(s->target.model);
    struct error why;
    if ((text == NULL) == (ids == NULL))
        return json_lines_fail(l, err, "expected either \"text\" or \"ids\", found %s",
                               text == NULL ? "neither" : "both");
    if (ids != NULL && !json_lines_ids(l, "ids", shape->vocab, to, err))
        return false;
    if (text != NULL && !json_is_text(text))
        return json_lines_fail(l, err, "\"text\": expected a text");
    if (text != NULL && !target_encode(&s->target, json_text(text), json_text_length(text), true, to, &why))
        return json_lines_fail(l, err, "%s", why.text);
    if (to->n > (size_t)shape->context)
        return json_lines_fail(l, err, "the text is %zu tokens long, the context of %s is %d", to->n, s->target.path,
                               shape->context);
    return true;
}

static double perplexity(double sum, int64_t n)
{
    return n > 0 ? exp(-sum / (double)n) : NAN;
}

static bool score_line(struct score *s, const struct json_lines *l, struct error *err)
{
    struct ids ids = { 0 };
    double *logprob = NULL, sum = 0;
    struct error why;
    bool ok = ids_of_line(s, l, &ids, err);
    if (ok) {
        logprob = xcalloc(ids.n + 1, sizeof(*logprob));
        ok = score_ids(s, &ids, logprob, &why) || json_lines_fail(l, err, "%s", why.text);
    }
    if (ok) {
        int n = ids.n > 0 ? (int)ids.n - 1 : 0;
        struct json *j = json_new_object(), *list = json_new_array();
        for (int i = 0; i < n; i++) {
            json_push(list, json_new_number(logprob[i]));
            sum += logprob[i];
        }
        json_set(j, "logprobs", list);
        json_set(j, "perplexity", json_new_number(perplexity(sum, n)));
        char *line = json_write(j);
        printf("%s\n", line);
        free(line);
        json_free(j);
        s->texts++;
        s->scored += n;
        s->sum += sum;
    }
    free(ids.id);
    free(logprob);
    return ok;
}

static void close_all(struct score *s)
{
    kv_destroy(s->cache);
    if (s->logits.data != NULL)
        s->target.backend->release(s->target.backend, s->logits.data);
    target_close(&s->target);
    free(s->row);
}

static const char about[] =
    "Reads {\"ids\": [...]} or {\"text\": \"...\"} lines and prints a {\"logprobs\": [...], \"perplexity\": x} line for each:\n"
    "the natural logarithm of the probability of each token given those before it, one fewer than there are ids, and\n"
    "the exponential of their negated mean. A text is tokenized as `speclab tokenize` does it. The perplexity of all tokens\n"
    "together goes to stderr. Without FILE.jsonl it reads stdin. The first line that is wrong ends it.\n";

static const char examples[] =
    "  echo '{\"text\": \"The cat sat on the mat.\"}' | speclab score smollm2-135m-instruct\n";

int command_score(int argc, char **argv)
{
    struct score s = { 0 };
    long long threads = 0;
    const struct flag flags[] = {
        { "threads", FLAG_INT, &threads, "N", "preset: one for each processor", 1, 1024 },
        { 0 },
    };
    const struct usage u = { "score", "MODEL [FILE.jsonl]", about, flags, examples, 1, 2 };
    struct error err;
    struct json_lines l = { 0 };
    struct timespec from, to;
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != GO_ON)
        return status;

    bool ok = target_open(&s.target, operand[0], NULL, (int)threads, ACTIVATIONS_F32, STRETCH, &err) &&
              make_logits(&s, &err) && json_lines_open(&l, n > 1 ? operand[1] : NULL, &err);
    clock_gettime(CLOCK_MONOTONIC, &from);
    while (ok && !stdout_is_gone() && json_lines_next(&l, &err))
        ok = score_line(&s, &l, &err);
    clock_gettime(CLOCK_MONOTONIC, &to);
    status = ok && !l.failed ? 0 : command_fail(&u, &err);
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    if (status == 0 && s.scored == 0)
        fprintf(stderr, "%lld texts, nothing scored: a text of one token has none before it\n", (long long)s.texts);
    else if (status == 0)
        fprintf(stderr, "%lld texts, %lld tokens scored, perplexity %.6g (%.1f tokens/s)\n", (long long)s.texts,
                (long long)s.scored, perplexity(s.sum, s.scored), (double)s.scored / seconds);
    json_lines_close(&l);
    close_all(&s);
    return status != 0 ? status : command_done(&u);
}
