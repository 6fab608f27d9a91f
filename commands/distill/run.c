// run.c - the conversations of the plan, in slots that are refilled as texts end.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/distill/conversation.h"
#include "commands/distill/distill.h"
#include "commands/distill/words.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "experiments/progress.h"

struct under_way {
    struct conversation *c;
    int64_t sequence; // that decodes it; -1: none
    bool ended;
    int32_t *token; // (n) what it decoded, once ended
    int n;
    enum stop_reason why;
};

struct run {
    struct distill *d;
    struct decoder *decoder;
    struct text_ends ends;
    struct under_way *one; // (n)
    int n, capacity;
    int64_t at;      // next position in the plan
    int64_t pending; // answer tokens of conversations under way
    int64_t began_ns, shown_ns, ended_before;
    bool terminal;
};

// ---- what was there before

static struct hash user_key(const char *user)
{
    struct words w = { 0 };
    words_read(&w, user);
    const struct hash key = w.n > 0 ? words_hash(&w, 0, w.n) : hash_of("", 0);
    words_free(&w);
    return key;
}

static void note_lowest(struct hash_map *m, const char *user, int64_t index)
{
    int64_t *lowest = hash_map_add(m, user_key(user), index);
    if (index < *lowest)
        *lowest = index;
}

void distill_note(void *self, const char *id, const char *user)
{
    struct distill *d = self;
    const int64_t index = plan_invented_number(id);
    if (index >= 0 && *user != '\0')
        note_lowest(&d->invented, user, index);
}

void distill_note_prompts(struct distill *d)
{
    for (int f = 0; f < d->plan.files; f++)
        for (int i = 0; i < d->plan.file[f].n; i++)
            note_lowest(&d->invented, d->plan.file[f].prompt[i].turn[0], -1);
}

static bool repeats_invented(const struct run *r, const struct conversation *c)
{
    const int64_t *lowest = hash_map_find(&r->d->invented, user_key(conversation_user(c)));
    return lowest != NULL && *lowest < c->planned.index;
}

// Whether an earlier conversation answers the same messages at temperature 0: the same answers.
static bool repeats_greedy(struct run *r, const struct planned *p)
{
    if (!sampling_is_greedy(&r->d->sampling[p->temperature]))
        return false;
    const struct prompt *q = p->prompt;
    struct digest *digest = digest_begin();
    digest_text(digest, q->system);
    for (int i = 0; i < q->n_history; i++) {
        digest_text(digest, q->history_role[i]);
        digest_text(digest, q->history_content[i]);
    }
    for (int i = 0; i < q->n_turns; i++)
        digest_text(digest, q->turn[i]);
    return *hash_map_add(&r->d->greedy, digest_end(digest), p->index) < p->index;
}

static bool is_excluded(const struct run *r, const struct prompt *p)
{
    bool found = false;
    for (int i = 0; i < p->n_history && !found; i++)
        found = strcmp(p->history_role[i], "user") == 0 && exclusions_match(&r->d->exclusions, p->history_content[i]);
    for (int i = 0; i < p->n_turns && !found; i++)
        found = exclusions_match(&r->d->exclusions, p->turn[i]);
    return found;
}

// ---- starting

static int free_place(struct run *r)
{
    for (int i = 0; i < r->n; i++)
        if (r->one[i].c == NULL)
            return i;
    if (r->n == r->capacity) {
        r->capacity = (int)next_capacity((size_t)r->capacity, (size_t)r->n + 1);
        r->one = xrealloc(r->one, (size_t)r->capacity * sizeof(*r->one));
    }
    r->one[r->n] = (struct under_way){ .sequence = -1 };
    return r->n++;
}

static void leave(struct under_way *u)
{
    conversation_free(u->c);
    free(u->token);
    *u = (struct under_way){ .sequence = -1 };
}

static bool drop(struct run *r, struct under_way *u, enum drop why, struct error *err)
{
    const struct conversation *c = u->c;
    r->pending -= c->answer_tokens;
    const bool ok =
        output_drop(&r->d->output, c->planned.id, why, c->planned.prompt == NULL ? conversation_user(c) : "", err);
    leave(u);
    return ok;
}

// Decodes what comes next in a conversation.
static bool decode(struct run *r, struct under_way *u, struct error *err)
{
    struct distill *d = r->d;
    struct conversation *c = u->c;
    struct ids prompt = { 0 };
    const bool inventing = c->phase == INVENTING;
    if (!conversation_prompt(c, &d->target, &d->chat, &prompt, err)) {
        free(prompt.id);
        return false;
    }
    bool ok;
    if (prompt.n == 0 && inventing) {
        ok =
            fail(err, "the chat template writes nothing before the user's text, so that the model cannot begin a turn");
    } else if (prompt.n == 0 || prompt.n >= (size_t)d->context) {
        ok = drop(r, u, prompt.n == 0 ? DROP_EMPTY : DROP_LONG, err);
    } else {
        u->sequence = (c->planned.number * MAX_TURNS + c->turn) * 2 + inventing;
        ok = decoder_start(
            r->decoder,
            &(struct assignment){ .sequence = u->sequence,
                                  .prompt = prompt.id,
                                  .n = (int)prompt.n,
                                  .limit = (int)d->new_tokens,
                                  .stops = &r->ends.stops,
                                  .sampling = inventing ? &d->invention : &d->sampling[c->planned.temperature] },
            err);
    }
    free(prompt.id);
    return ok;
}

static bool enough(const struct run *r)
{
    return r->d->tokens > 0 && r->d->output.answer_tokens + r->pending >= r->d->tokens;
}

// Starts the next conversation of the plan that is missing in the output. *more: there may be another.
static bool start_next(struct run *r, bool *more, struct error *err)
{
    struct distill *d = r->d;
    const int64_t size = plan_size(&d->plan);
    for (; r->at < size; r->at++) {
        const struct planned p = plan_at(&d->plan, r->at);
        const bool repeats = p.prompt != NULL && repeats_greedy(r, &p);
        if (output_has(&d->output, p.id))
            continue;
        const enum drop why = repeats                                        ? DROP_REPEATED
                              : p.prompt != NULL && is_excluded(r, p.prompt) ? DROP_EXCLUDED
                                                                             : DROP_NOT;
        if (why == DROP_NOT)
            break;
        if (!output_drop(&d->output, p.id, why, "", err))
            return false;
    }
    *more = r->at < size;
    if (!*more)
        return true;
    const struct planned p = plan_at(&d->plan, r->at++);
    const int i = free_place(r); // moves r->one
    r->one[i].c = conversation_begin(&p);
    return decode(r, &r->one[i], err);
}

// ---- ending

static void on_step(void *self, const struct step *s)
{
    struct run *r = self;
    r->d->decoded += s->kept;
    if (s->sequence % 2 == 0)
        r->pending += s->kept;
}

static void on_done(void *self, const struct ending *e)
{
    struct run *r = self;
    for (int i = 0; i < r->n; i++) {
        struct under_way *u = &r->one[i];
        if (u->c == NULL || u->sequence != e->sequence)
            continue;
        u->sequence = -1;
        u->ended = true;
        u->token = xmalloc((size_t)e->n * sizeof(*u->token) + 1);
        memcpy(u->token, e->token, (size_t)e->n * sizeof(*u->token));
        u->n = e->n;
        u->why = e->why;
    }
}

static enum drop check_invented(struct run *r, struct conversation *c)
{
    note_lowest(&r->d->invented, conversation_user(c), c->planned.index);
    return repeats_invented(r, c)                                      ? DROP_REPEATED
           : exclusions_match(&r->d->exclusions, conversation_user(c)) ? DROP_EXCLUDED
                                                                       : DROP_NOT;
}

// Takes what a sequence decoded, and decodes what comes next.
static bool go_on(struct run *r, struct under_way *u, struct error *err)
{
    struct conversation *c = u->c;
    const bool invented = c->phase == INVENTING;
    u->ended = false;
    enum drop why = conversation_take(c, &r->d->target, &r->d->chat, u->token, u->n, u->why);
    free(u->token);
    u->token = NULL;
    if (why == DROP_NOT && invented)
        why = check_invented(r, c);
    if (why != DROP_NOT)
        return drop(r, u, why, err);
    return c->phase == WAITING || decode(r, u, err);
}

// The lowest index of a conversation whose invented turn is not known yet.
static int64_t lowest_unknown(const struct run *r)
{
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < r->n; i++) {
        const struct conversation *c = r->one[i].c;
        if (c != NULL && c->phase == INVENTING && c->planned.index < lowest)
            lowest = c->planned.index;
    }
    return lowest;
}

static bool write_conversation(struct run *r, struct under_way *u, struct error *err)
{
    struct distill *d = r->d;
    const struct conversation *c = u->c;
    if (c->planned.prompt == NULL && repeats_invented(r, c))
        return drop(r, u, DROP_REPEATED, err);
    struct json *line = conversation_line(c, d->temperature[c->planned.temperature], d->seed);
    const bool ok = output_write(&d->output, line, c->answer_tokens, err);
    json_free(line);
    r->pending -= c->answer_tokens;
    d->written += ok;
    d->cut += ok && c->cut;
    d->shortened += ok && c->shortened;
    d->answer_tokens += ok ? c->answer_tokens : 0;
    leave(u);
    return ok;
}

static bool take_ended(struct run *r, struct error *err)
{
    for (int i = 0; i < r->n; i++)
        if (r->one[i].c != NULL && r->one[i].ended && !go_on(r, &r->one[i], err))
            return false;
    const int64_t unknown = lowest_unknown(r);
    for (int i = 0; i < r->n; i++) {
        struct under_way *u = &r->one[i];
        const bool complete = u->c != NULL && u->c->phase == WAITING && u->sequence < 0;
        if (complete && (u->c->planned.prompt != NULL || u->c->planned.index < unknown) &&
            !write_conversation(r, u, err))
            return false;
    }
    return true;
}

// ---- progress

static void show(struct run *r)
{
    const struct distill *d = r->d;
    const int64_t now = clock_ns(), due = (r->terminal ? 1 : 30) * INT64_C(1000000000);
    if (now - r->shown_ns < due)
        return;
    r->shown_ns = now;
    const double seconds = (double)(now - r->began_ns) / 1e9;
    const double done = (double)(d->answer_tokens + r->pending), rate = done / seconds;
    const int64_t known = d->output.answer_tokens + r->pending, size = plan_size(&d->plan);
    const int64_t ended = (int64_t)d->output.done.n, by_this = ended - r->ended_before;
    double left = by_this > 0 ? (double)(size - ended) * seconds / (double)by_this : INFINITY;
    if (d->tokens > 0 && rate > 0 && (double)(d->tokens - known) / rate < left)
        left = (double)(d->tokens - known) / rate;
    char time[32] = "unknown time";
    if (left < INFINITY)
        progress_time((int64_t)((left > 0 ? left : 0) * 1e9), time, sizeof(time));
    fprintf(stderr, "%s%lld conversations, %lld answer tokens, %.1f tokens/s (%.1f with invented turns), %s left%s",
            r->terminal ? "\r" : "", (long long)d->output.conversations, (long long)known, rate,
            (double)d->decoded / seconds, time, r->terminal ? "\033[K" : "\n");
    fflush(stderr);
}

bool distill_run(struct distill *d, const volatile int *stop, struct error *err)
{
    struct run r = { .d = d, .terminal = isatty(STDERR_FILENO), .began_ns = clock_ns() };
    r.shown_ns = r.began_ns;
    r.ended_before = (int64_t)d->output.done.n;
    text_ends_set(&r.ends, &d->target, &d->chat, false, 0, NULL);
    r.decoder = decoder_create(d->pairing.verifier, d->pairing.drafter, (int)d->slots, (uint64_t)d->seed,
                               (struct listener){ on_step, on_done, &r }, err);
    bool ok = r.decoder != NULL, more = true;
    while (ok) {
        while (ok && more && !enough(&r) && decoder_has_free_slot(r.decoder))
            ok = start_next(&r, &more, err);
        if (!ok || decoder_active(r.decoder) == 0)
            break;
        ok = interrupt_check(stop, err) && decoder_step(r.decoder, err) && take_ended(&r, err);
        show(&r);
    }
    if (r.terminal)
        fprintf(stderr, "\r\033[K");
    d->seconds = (double)(clock_ns() - r.began_ns) / 1e9;
    decoder_destroy(r.decoder);
    for (int i = 0; i < r.n; i++)
        leave(&r.one[i]);
    free(r.one);
    return ok;
}
