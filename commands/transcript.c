// transcript.c - sums over steps, and steps as JSON.
#include "commands/transcript.h"

#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/memory.h"
#include "engine/engine.h"

// The verified draft: each node's kind of proposal, the p and q of its acceptance test (null: not tested), and whether
// it was accepted.
static struct json *draft_json(const struct speclab_step *s)
{
    static const char *const names[] = { "deterministic", "sampled", "sampled_without_replacement" };
    struct json *proposal = json_new_array(), *p = json_new_array(), *q = json_new_array();
    struct json *accepted = json_new_array();
    for (int i = 0; i <= s->drafted; i++) {
        bool root = i == 0;
        bool is_accepted = root;
        for (int k = 1; k < s->decided; k++)
            is_accepted = is_accepted || s->node[k] == i;
        json_push(proposal, root ? json_new_null() : json_new_text(names[s->proposal[i]]));
        json_push(p, root ? json_new_null() : json_new_number(s->p[i]));
        json_push(q, root ? json_new_null() : json_new_number(s->q[i]));
        json_push(accepted, json_new_bool(is_accepted));
    }
    return json_object_of(JSON("tokens", json_new_ids(s->draft, (size_t)s->drafted + 1)),
                          JSON("parents", json_new_ids(s->parent, (size_t)s->drafted + 1)), JSON("proposal", proposal),
                          JSON("p", p), JSON("q", q), JSON("accepted", accepted));
}

static struct json *step_json(const struct transcript *t, const struct speclab_step *s)
{
    struct json *j =
        json_object_of(JSON("position", s->position), JSON("drafted", s->drafted), JSON("depth", s->depth),
                       JSON("accepted", s->accepted), JSON("kept", s->n), JSON("propose_ns", s->propose_ns),
                       JSON("verify_ns", s->verify_ns), JSON("advance_ns", s->advance_ns));
    if (t->trace)
        json_add(j, JSON("draft", draft_json(s)), JSON("out", json_new_ids(s->token, (size_t)s->decided)));
    return j;
}

void transcript_step(struct transcript *t, const struct speclab_step *s)
{
    t->steps++;
    t->drafts += s->drafted > 0;
    t->drafted += s->drafted;
    t->accepted += s->accepted;
    for (int i = 0; i < s->accepted; i++)
        t->accepted_at[i]++;
    if (s->depth > t->max_depth)
        t->max_depth = s->depth;
    t->propose_ns += s->propose_ns;
    t->verify_ns += s->verify_ns;
    t->advance_ns += s->advance_ns;
    if (!t->keep)
        return;
    if (t->step == NULL)
        t->step = json_new_array();
    json_push(t->step, step_json(t, s));
}

void transcript_done(struct transcript *t, const struct speclab_end *e)
{
    t->token = xmalloc((size_t)e->n * sizeof(*t->token) + 1);
    memcpy(t->token, e->token, (size_t)e->n * sizeof(*t->token));
    t->n = e->n;
    t->stop = e->reason;
    t->prefill_ns = e->prefill_ns;
    t->decode_ns = e->decode_ns;
}

void transcript_free(struct transcript *t)
{
    free(t->token);
    json_free(t->step);
    *t = (struct transcript){ 0 };
}

static double per_second(int64_t n, int64_t ns)
{
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

void transcript_print(const struct transcript *t, FILE *to)
{
    fprintf(to, "%d tokens in %lld steps: %.2f per step, %.1f tokens/s; ended by: %s\n", t->n, (long long)t->steps,
            t->steps > 0 ? (double)t->n / (double)t->steps : 0, per_second(t->n, t->decode_ns), t->stop);
    if (t->drafts > 0) {
        fprintf(to, "accepted %lld of %lld draft tokens in %lld drafts; by position", (long long)t->accepted,
                (long long)t->drafted, (long long)t->drafts);
        for (int i = 0; i < t->max_depth && i < 16; i++)
            fprintf(to, " %.2f", (double)t->accepted_at[i] / (double)t->drafts);
        fprintf(to, "%s\n", t->max_depth > 16 ? " ..." : "");
    }
    fprintf(to, "prefill %.3f s (%d tokens, %.1f/s); propose %.3f s, verify %.3f s, advance %.3f s\n",
            (double)t->prefill_ns / 1e9, t->prompt, per_second(t->prompt, t->prefill_ns), (double)t->propose_ns / 1e9,
            (double)t->verify_ns / 1e9, (double)t->advance_ns / 1e9);
}

void transcript_json(struct transcript *t, struct json *object)
{
    json_add(object, JSON("new_ids", json_new_ids(t->token, (size_t)t->n)), JSON("stop", t->stop),
             JSON("steps", t->step != NULL ? t->step : json_new_array()),
             JSON("times", json_object_of(JSON("prefill_ns", t->prefill_ns), JSON("propose_ns", t->propose_ns),
                                          JSON("verify_ns", t->verify_ns), JSON("advance_ns", t->advance_ns),
                                          JSON("decode_ns", t->decode_ns))));
    t->step = NULL;
}
