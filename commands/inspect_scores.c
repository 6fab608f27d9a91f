// inspect_scores.c - `speclab inspect --score`: log-probabilities of given texts, token by token.
//
// Only the forward pass: the softmax covers the model's whole vocabulary, and no sampling stage is applied. A text is
// scored from its second token on, an answer (--answers) from its first; its prompt is not scored.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/files/part.h"
#include "core/json.h"
#include "core/memory.h"
#include "commands/command_line.h"
#include "commands/features/texts.h"
#include "commands/inspect_texts.h"
#include "commands/inspect_layers.h"
#include "commands/text_passes.h"
#include "engine/engine.h"
#include "core/files/json_lines.h"
#include "engine/prompts.h"
#include "kernels/backend.h"
#include "models/model.h"

enum { LOGITS_CHUNK = 128 }; // rows of a pass: enough to amortize reading the weights

struct score {
    const struct inspect_texts *o;
    struct speclab_target *target;
    struct text_passes pass;
    const int32_t *id;     // the current text's
    struct json *logprobs; // its tokens'
    double text_sum;       // their sum
    int64_t texts, scored;
    double sum; // all logprobs together
};

static double log_softmax(const float *logit, int n, int of)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        if (logit[i] > max)
            max = logit[i];
    for (int i = 0; i < n; i++)
        sum += exp((double)logit[i] - max);
    return (double)logit[of] - max - log(sum);
}

static bool take_logits(void *self, int64_t first, int64_t n, float *x, struct error *err)
{
    (void)err;
    struct score *s = self;
    const int vocab = model_shape(s->target->model)->vocab;
    for (int64_t i = 0; i < n; i++) {
        const double logprob = log_softmax(x + i * vocab, vocab, s->id[first + i + 1]);
        json_push(s->logprobs, json_new_number(logprob));
        s->text_sum += logprob;
    }
    return true;
}

static bool ids_of_line(const struct score *s, const struct json *line, struct ids *to, struct error *err)
{
    const struct json *text = json_get(line, "text"), *ids = json_get(line, "ids");
    if ((text == NULL) == (ids == NULL))
        return fail(err, "expected either \"text\" or \"ids\", found %s", text == NULL ? "neither" : "both");
    if (ids != NULL)
        return json_read_ids(ids, "\"ids\"", model_shape(s->target->model)->vocab, to, err);
    return json_is_text(text)
               ? target_encode(s->target, ENCODE_BOS | ENCODE_SPECIAL, json_text(text), json_text_length(text), to, err)
               : fail(err, "\"text\": expected a text");
}

static double perplexity(double sum, int64_t n)
{
    return n > 0 ? exp(-sum / (double)n) : NAN;
}

// Scores id[from ..], from >= 1, and prints the line with the results, which it takes over.
static bool score_from(struct score *s, const struct ids *ids, size_t from, struct json *line, struct error *err)
{
    const int context = model_shape(s->target->model)->context;
    int64_t offset[] = { 0, ids->n > 0 ? (int64_t)ids->n - 1 : 0 }; // nothing is predicted behind the last token
    const struct texts text = { .n = 1, .offset = offset, .id = ids->id };
    s->id = ids->id;
    s->logprobs = json_new_array();
    s->text_sum = 0;
    const bool ok = (ids->n <= (size_t)context ||
                     fail(err, "the text has %zu tokens, the context of %s is %d", ids->n, s->target->path, context)) &&
                    text_passes_run(&s->pass, &text, (int64_t)from - 1, NULL, err);
    const int64_t n = (int64_t)json_count(s->logprobs);
    json_add(line, JSON("logprobs", s->logprobs), JSON("perplexity", perplexity(s->text_sum, n)));
    s->texts++;
    s->scored += n;
    s->sum += s->text_sum;
    if (ok)
        json_print(line, stdout);
    else
        json_free(line);
    return ok;
}

// ---- texts

static bool score_line(void *self, const struct json *line, struct error *err)
{
    struct score *s = self;
    struct ids ids = { 0 };
    const bool ok = ids_of_line(s, line, &ids, err) && score_from(s, &ids, 1, json_new_object(), err);
    free(ids.id);
    return ok;
}

// ---- answers

static bool score_answer(struct score *s, const struct prompt *p, int turn, struct error *err)
{
    struct ids ids = { 0 };
    struct error reason;
    bool ok = prompt_token_ids(s->target, p, p->answer, turn, &ids, err);
    size_t from = ids.n;
    if (ok && from == 0)
        ok = fail(err, "%s:%d: prompt %s has no tokens", p->path, p->line, p->id);
    if (ok && !(target_encode(s->target, 0, p->answer[turn], strlen(p->answer[turn]), &ids, &reason) &&
                score_from(s, &ids, from, json_object_of(JSON("id", p->id), JSON("turn", turn)), &reason)))
        ok = fail(err, "%s:%d: prompt %s, turn %d: %s", p->path, p->line, p->id, turn, reason.text);
    free(ids.id);
    return ok;
}

static bool score_answers(struct score *s, const char *path, struct error *err)
{
    struct prompts p;
    if (!prompts_read_answered(path, &p, err))
        return false;
    bool ok = target_needs_text(s->target, err);
    const struct chat_request chat = { .name = s->o->chat != NULL ? s->o->chat : "auto", .variables = s->o->variables };
    for (int i = 0; i < p.n && ok && s->target->chat.kind == CHAT_NONE; i++)
        if (p.prompt[i].turn != NULL && !p.prompt[i].raw)
            ok = target_set_chat(s->target, chat, err);
    for (int i = 0; i < p.n; i++)
        for (int turn = 0; turn < p.prompt[i].n_answers && ok && !stdout_failed(); turn++)
            ok = score_answer(s, &p.prompt[i], turn, err);
    prompts_free(&p);
    return ok;
}

// ---- all lines

static void print_sum(const struct score *s, double seconds)
{
    const char *scored = s->o->answers ? "answers" : "texts";
    if (s->scored == 0)
        fprintf(stderr, "%lld %s, nothing scored: %s\n", (long long)s->texts, scored,
                s->o->answers ? "they are empty" : "the first token of a text is not scored");
    else
        fprintf(stderr, "%lld %s, %lld tokens scored, perplexity %.6g (activations %s, cache %s, %.1f tokens/s)\n",
                (long long)s->texts, scored, (long long)s->scored, perplexity(s->sum, s->scored),
                activations_names[model_activations(s->target->model)], type_facts[s->target->cache].name,
                (double)s->scored / seconds);
}

static bool score_all(struct score *s, struct error *err)
{
    const struct inspect_texts *o = s->o;
    if (o->layers)
        return score_layers(s->target, o->path, (int)o->positions, (int)o->context, err);
    s->pass = (struct text_passes){ .target = s->target,
                                    .slots = 1,
                                    .rows = LOGITS_CHUNK,
                                    .logit_rows = LOGITS_CHUNK,
                                    .logits = take_logits,
                                    .self = s };
    const double from = clock_seconds();
    const bool ok =
        text_passes_open(&s->pass, err) && (o->answers ? score_answers(s, o->path != NULL ? o->path : "/dev/stdin", err)
                                                       : json_lines_each(o->path, score_line, s, err));
    if (ok)
        print_sum(s, clock_seconds() - from);
    text_passes_close(&s->pass);
    return ok;
}

bool inspect_scores(const struct inspect_texts *o, struct error *err)
{
    struct score s = { .o = o };
    struct speclab_target_options options = o->options;
    options.chat = "none"; // until it is known that prompts are rendered as one
    options.threads = (int)o->threads;
    options.rows = o->layers ? TARGET_ROWS : LOGITS_CHUNK;
    options.packed_cache = o->packed;
    options.log = command_log;
    s.target = speclab_target_open(o->model, &options, err);
    const bool ok = s.target != NULL && score_all(&s, err);
    speclab_target_close(s.target);
    return ok;
}
