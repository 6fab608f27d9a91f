// inspect_scores.c - `speclab inspect --score`: log-probabilities of given texts, token by token.
//
// Only the forward pass: the softmax covers the model's whole vocabulary, and no sampling stage is applied. A text is
// scored from its second token on, an answer (--answers) from its first; its prompt is not scored.
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/files/part.h"
#include "core/json.h"
#include "core/memory.h"
#include "commands/command_line.h"
#include "commands/inspect_texts.h"
#include "commands/inspect_layers.h"
#include "engine/engine.h"
#include "core/files/json_lines.h"
#include "engine/prompts.h"
#include "models/model.h"

struct score {
    const struct inspect_texts *o;
    struct speclab_target *target;
    int64_t texts, scored;
    double sum; // all logprobs together
};

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
    double *logprob = xcalloc(ids->n + 1, sizeof(*logprob)), sum = 0;
    struct json *logprobs = json_new_array();
    const bool ok =
        speclab_score(s->target, ids->id, ids->n < INT_MAX ? (int)ids->n : INT_MAX, (int)from, logprob, err);
    const int64_t n = ok && ids->n > from ? (int64_t)(ids->n - from) : 0;
    for (int64_t i = 0; i < n; i++) {
        json_push(logprobs, json_new_number(logprob[i]));
        sum += logprob[i];
    }
    free(logprob);
    json_add(line, JSON("logprobs", logprobs), JSON("perplexity", perplexity(sum, n)));
    s->texts++;
    s->scored += n;
    s->sum += sum;
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
    const double from = clock_seconds();
    const bool ok = o->answers ? score_answers(s, o->path != NULL ? o->path : "/dev/stdin", err)
                               : json_lines_each(o->path, score_line, s, err);
    if (ok)
        print_sum(s, clock_seconds() - from);
    return ok;
}

bool inspect_scores(const struct inspect_texts *o, struct error *err)
{
    struct score s = { .o = o };
    struct speclab_target_options options = o->options;
    options.chat = "none"; // until it is known that prompts are rendered as one
    options.threads = (int)o->threads;
    options.rows = o->layers ? TARGET_ROWS : SCORE_ROWS;
    options.packed_cache = o->packed;
    options.log = command_log;
    s.target = speclab_target_open(o->model, &options, err);
    const bool ok = s.target != NULL && score_all(&s, err);
    speclab_target_close(s.target);
    return ok;
}
