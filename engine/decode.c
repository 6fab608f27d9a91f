// decode.c - the loop: propose, verify, advance.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/draft.h"
#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "engine/request.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

struct sequence {      // the sequence of a slot
    bool active, over; // over: the text has ended, but its end is not reported yet
    int64_t number;
    struct philox rng;
    int32_t *token; // (length + nodes) prompt and text; the cache of the slot holds all tokens but the last
    int n, prompt, limit;
    struct request_copy copy;
    int shared;                              // tokens of the prompt whose rows were there
    int64_t prefill_ns, decode_ns, began_ns; // began_ns: by the decoder's clock
    enum speclab_stop why;
};

// Time stamps of a step on the target's device. Earlier steps are reported between SCORED and DECIDE: time spent there
// beyond the pass is not counted.
enum { PROPOSE, VERIFY, SCORED, DECIDE, ADVANCE, END, STAMPS };

// A GPU runs behind the host: the times of a step are known only after the host should have queued the next one. A step
// is therefore recorded and reported when its times are known. A record holds data in host memory only: rows of
// probabilities and hidden states belong to another step by then. There are the current step, the step that the device
// may still be running, and the one that it has finished.
enum { MAX_PENDING_STEPS = 3 };

struct step_record {
    int number; // unique among pending steps, below MAX_PENDING_STEPS: selects the time stamps
    int n;      // sequences
    struct sequence_record {
        struct speclab_step step; // what is reported: it points into the next two
        struct draft draft;       // (nodes) the drafter builds it here
        // (nodes) exchanged with the verifier's, which writes into this one's arrays in the next step
        struct verification verification;
    } * of;                          // (slots)
    int64_t observer_ns, untimed_ns; // not counted: of the verifier's observer, of the drafter
    int64_t experts;                 // that the target's pass read
};

const char *stop_name(enum speclab_stop why)
{
    static const char *const names[] = { "end", "string", "limit", "context" };
    return names[why];
}

// ---- records

static void create_record(struct sequence_record *to, int nodes)
{
    const size_t n = (size_t)nodes;
    to->draft.token = xcalloc(n, sizeof(int32_t));
    to->draft.parent = xcalloc(n, sizeof(int32_t));
    to->draft.proposal = xcalloc(n, sizeof(uint8_t));
    to->draft.source = xcalloc(n, sizeof(uint8_t));
    to->verification = verification_create(nodes, 0);
}

static void destroy_record(struct sequence_record *r)
{
    free(r->draft.token);
    free(r->draft.parent);
    free(r->draft.proposal);
    free(r->draft.source);
    verification_destroy(&r->verification);
}

// Points the step at the draft and its decision.
static void describe(struct speclab_step *to, const struct draft *d, const struct verification *v)
{
    to->drafted = d->n - 1;
    to->depth = draft_max_depth(d);
    to->draft = d->token;
    to->parent = d->parent;
    to->proposal = d->proposal;
    to->source = d->source;
    to->decided = v->n;
    to->token = v->token;
    to->node = v->node;
    to->p = v->trial_p;
    to->q = v->trial_q;
    to->empty = v->empty;
}

// Takes the decision out of the verifier, which keeps its work rows.
static void take_verification(struct verification *to, struct verification *from)
{
    const struct verification taken = *from;
    *from = *to;
    *to = taken;
    to->work = from->work;
    from->work = taken.work;
}

static struct step_record *current(const struct speclab_decoder *d)
{
    return &d->record[(d->first + d->pending) % MAX_PENDING_STEPS];
}

static struct backend *device(const struct speclab_decoder *d)
{
    return model_backend(verifier_setup(d->verifier)->target);
}

// ---- the listener's `scored` and `decided`, which the verifier calls

static struct speclab_step described(const struct speclab_decoder *d, const struct request *r,
                                     const struct verification *v)
{
    struct speclab_step s = current(d)->of[r - d->request].step;
    describe(&s, r->draft, v);
    s.n = s.accepted = 0;
    return s;
}

static void on_scored(void *self, const struct request *r, struct tensor logits)
{
    static const struct verification none;
    const struct speclab_decoder *d = self;
    const struct speclab_step s = described(d, r, &none);
    struct speclab_rows rows = { .logits = logits, .backend = device(d) };
    d->listener.scored(d->listener.self, &s, &rows);
    free(rows.copy);
}

static void on_verified(void *self, const struct verified *v)
{
    const struct speclab_decoder *d = self;
    const struct speclab_step s = described(d, v->request, v->verification);
    d->listener.decided(d->listener.self, &s, &(struct speclab_rows){ .of = v });
}

// ---- the decoder

bool loop_create(struct speclab_decoder *d, int slots, struct error *err)
{
    const struct verifier_setup *s = verifier_setup(d->verifier);
    if (slots > s->slots || d->drafter->nodes > s->nodes)
        return fail(err, "decoder: %d slots and drafts of %d nodes requested, the verifier has %d and %d", slots,
                    d->drafter->nodes, s->slots, s->nodes);
    const size_t n = (size_t)slots;
    if (d->listener.scored != NULL || d->listener.decided != NULL)
        verifier_observe(d->verifier, (struct step_observer){ d->listener.scored != NULL ? on_scored : NULL,
                                                              d->listener.decided != NULL ? on_verified : NULL, d });
    d->slots = slots;
    d->length = s->length;
    d->nodes = d->drafter->nodes;
    d->sequence = xcalloc(n, sizeof(*d->sequence));
    d->request = xcalloc(n, sizeof(*d->request));
    d->advance = xcalloc(n, sizeof(*d->advance));
    d->continued = xcalloc(n, sizeof(*d->continued));
    d->record = xcalloc(MAX_PENDING_STEPS, sizeof(*d->record));
    for (int i = 0; i < slots; i++)
        d->sequence[i].token = xcalloc((size_t)(d->length + d->nodes) + 1, sizeof(int32_t));
    for (int i = 0; i < MAX_PENDING_STEPS; i++) {
        d->record[i].number = i;
        d->record[i].of = xcalloc(n, sizeof(struct sequence_record));
        for (int k = 0; k < slots; k++)
            create_record(&d->record[i].of[k], s->nodes);
    }
    return true;
}

struct speclab_decoder *decoder_create(struct verifier *v, struct drafter *drafter, int slots, uint64_t seed,
                                       struct speclab_listener listener, struct error *err)
{
    struct speclab_decoder *d = xcalloc(1, sizeof(*d));
    d->verifier = v;
    d->drafter = drafter;
    d->seed = seed;
    d->listener = listener;
    if (loop_create(d, slots, err))
        return d;
    free(d);
    return NULL;
}

static void forget(struct speclab_decoder *d, int slot)
{
    struct sequence *q = &d->sequence[slot];
    verifier_forget(d->verifier, slot);
    if (d->drafter->type->forget != NULL)
        d->drafter->type->forget(d->drafter, slot);
    request_free(&q->copy);
    q->active = false;
}

void speclab_decoder_drop(struct speclab_decoder *d)
{
    for (int i = 0; i < d->slots; i++)
        if (d->sequence[i].active)
            forget(d, i);
}

void loop_destroy(struct speclab_decoder *d)
{
    if (d->record == NULL)
        return;
    speclab_decoder_drop(d);
    for (int i = 0; i < d->slots; i++)
        free(d->sequence[i].token);
    for (int i = 0; i < MAX_PENDING_STEPS; i++) {
        for (int k = 0; k < d->slots; k++)
            destroy_record(&d->record[i].of[k]);
        free(d->record[i].of);
    }
    free(d->sequence);
    free(d->request);
    free(d->advance);
    free(d->continued);
    free(d->record);
    d->record = NULL;
}

int speclab_decoder_active(const struct speclab_decoder *d)
{
    int n = 0;
    for (int i = 0; i < d->slots; i++)
        n += d->sequence[i].active;
    return n;
}

int speclab_decoder_slot(const struct speclab_decoder *d, int64_t sequence)
{
    for (int i = 0; i < d->slots; i++)
        if (d->sequence[i].active && d->sequence[i].number == sequence)
            return i;
    return -1;
}

bool speclab_decoder_has_free_slot(const struct speclab_decoder *d)
{
    return speclab_decoder_active(d) < d->slots;
}

// ---- the decoder's clock

static int64_t now(const struct speclab_decoder *d)
{
    return clock_ns() - d->still_ns;
}

static void enter(struct speclab_decoder *d)
{
    d->still_ns += clock_ns() - d->left_ns;
}

static bool leave(struct speclab_decoder *d, bool ok)
{
    d->left_ns = clock_ns();
    return ok;
}

// Waits for queued work of the target's device.
static bool finished(const struct speclab_decoder *d, struct error *err)
{
    return device(d)->sync(device(d), err);
}

// ---- a sequence

// Processes the prompt in chunks, for the caches of both the target and the drafter.
static bool prefill(struct speclab_decoder *d, int slot, struct error *err)
{
    struct sequence *q = &d->sequence[slot];
    for (;;) {
        struct advance a;
        if (!verifier_prefill(d->verifier, slot, q->token, q->n, &a, err))
            return false;
        if (a.n == 0)
            return true;
        a.sequence = q->token;
        a.length = (int)(a.token - q->token) + a.n;
        if (d->drafter->type->advance != NULL && !d->drafter->type->advance(d->drafter, &a, 1, err))
            return false;
    }
}

static bool start(struct speclab_decoder *d, const struct speclab_request *r, const struct stops *stops,
                  const struct sampling *sampling, struct error *err)
{
    int slot = 0;
    while (slot < d->slots && d->sequence[slot].active)
        slot++;
    assert(slot < d->slots && r->n >= 1 && r->max_tokens >= 1);
    if (r->n >= d->length)
        return fail(err, "the prompt has %d tokens, and the context is %d: no new token fits", r->n, d->length);
    const struct verifier_setup *setup = verifier_setup(d->verifier);
    struct sequence *q = &d->sequence[slot];
    if (!request_copy(&q->copy, d, r, err)) {
        request_free(&q->copy);
        return false;
    }
    if (stops != NULL)
        q->copy.stops = *stops;
    if (sampling != NULL)
        q->copy.sampling = sampling;
    q->number = r->sequence;
    q->rng = philox_source(d->seed, (uint64_t)r->sequence);
    q->rng.workers = setup->sampling->workers;
    q->n = q->prompt = r->n;
    memcpy(q->token, r->prompt, (size_t)r->n * sizeof(int32_t));
    q->limit = r->max_tokens;
    q->decode_ns = 0;
    q->active = true;
    q->over = false;
    if (!finished(d, err)) { // queued work must not count as time of this prompt
        forget(d, slot);
        return false;
    }
    const int64_t began = now(d);
    if (!prefill(d, slot, err) || !finished(d, err)) {
        forget(d, slot);
        return false;
    }
    q->began_ns = now(d);
    q->shared = verifier_counts(d->verifier)->shared_tokens;
    q->prefill_ns = q->began_ns - began + verifier_counts(d->verifier)->shared_ns;
    return true;
}

bool decoder_start(struct speclab_decoder *d, const struct speclab_request *r, const struct stops *stops,
                   const struct sampling *sampling, struct error *err)
{
    enter(d);
    return leave(d, start(d, r, stops, sampling, err));
}

bool speclab_decoder_start(struct speclab_decoder *d, const struct speclab_request *r, struct speclab_error *error)
{
    struct error ignored, *err = error != NULL ? error : &ignored;
    if (!request_check(d, r, err))
        return false;
    if (speclab_decoder_slot(d, r->sequence) >= 0)
        return fail(err, "sequence: %lld has not ended, expected another number", (long long)r->sequence);
    if (!speclab_decoder_has_free_slot(d))
        return fail(err, "no slot is free: step until a sequence ends");
    return decoder_start(d, r, NULL, NULL, err);
}

// Makes a request and a draft of the root alone for each active slot. Returns their number.
static int requests_of_active(struct speclab_decoder *d, struct step_record *s)
{
    s->n = 0;
    for (int i = 0; i < d->slots; i++) {
        struct sequence *q = &d->sequence[i];
        struct sequence_record *to = &s->of[s->n];
        struct draft *draft = &to->draft;
        if (!q->active)
            continue;
        int left = q->limit - (q->n - q->prompt),
            space = d->length - q->n; // new tokens up to the limit; in the context
        int cache = space + 1;        // cache rows for the root and draft tokens
        to->step.sequence = q->number;
        to->step.slot = i;
        to->step.position = q->rng.rng.root = q->n - 1;
        draft->n = 1;
        draft->capacity = d->nodes < cache ? d->nodes : cache;
        draft->token[0] = q->token[q->n - 1];
        draft->parent[0] = -1;
        draft->proposal[0] = DETERMINISTIC;
        draft->q = NULL;
        draft->on_device = NULL;
        d->request[s->n++] = (struct request){ .slot = i,
                                               .n = q->n,
                                               .prompt = q->prompt,
                                               .token = q->token,
                                               .rng = &q->rng.rng,
                                               .draft = draft,
                                               .sampling = q->copy.sampling,
                                               .depth = (left < space ? left : space) - 1 };
    }
    return s->n;
}

static bool ends_text(const struct stops *s, int32_t token)
{
    for (int i = 0; i < s->n; i++)
        if (s->token[i] == token)
            return true;
    return false;
}

// Appends the tokens of an advance to the text, up to its end. Returns the number of tokens added.
static int append(struct speclab_decoder *d, struct sequence *q, const struct advance *a)
{
    int before = q->n;
    for (int i = 0; i < a->n && !q->over; i++) {
        q->token[q->n++] = a->token[i];
        int new = q->n - q->prompt;
        if (ends_text(&q->copy.stops, a->token[i])) {
            q->why = SPECLAB_STOP_TOKEN;
            q->over = true;
        } else if (new >= q->limit || q->n >= d->length) {
            q->why = new >= q->limit ? SPECLAB_STOP_LIMIT : SPECLAB_STOP_CONTEXT;
            q->over = true;
        }
    }
    if (q->copy.stops.string != NULL) {
        int kept = q->copy.stops.string(q->copy.stops.self, q->token + q->prompt, q->n - q->prompt, q->n - before);
        if (kept > 0) {
            q->n = q->prompt + kept;
            q->why = SPECLAB_STOP_STRING;
            q->over = true;
        }
    }
    return q->n > before ? q->n - before : 0; // a stop string may have begun in an earlier step
}

// Appends all advances, and collects those of sequences that have not ended for the drafter. Returns how many these
// are.
static int append_all(struct speclab_decoder *d, struct step_record *s)
{
    int n_continued = 0;
    const int64_t known = now(d);
    for (int i = 0; i < s->n; i++) {
        struct speclab_step *to = &s->of[i].step;
        struct sequence *q = &d->sequence[to->slot];
        to->at_ns = known - q->began_ns;
        to->n = append(d, q, &d->advance[i]);
        if (q->over)
            continue;
        d->continued[n_continued] = d->advance[i];
        d->continued[n_continued].sequence = q->token;
        d->continued[n_continued++].length = q->n;
    }
    return n_continued;
}

// ---- time stamps and the listener

static void stamp(struct speclab_decoder *d, const struct step_record *s, int which)
{
    device(d)->stamp(device(d), s->number * STAMPS + which);
}

static int64_t lasted(struct speclab_decoder *d, const struct step_record *s, int from, int to)
{
    return device(d)->between(device(d), s->number * STAMPS + from, s->number * STAMPS + to);
}

// Takes the decisions and drops q, as the next step overwrites the verifier's decisions and rows.
static void record(struct speclab_decoder *d, struct step_record *s)
{
    for (int i = 0; i < s->n; i++) {
        take_verification(&s->of[i].verification, verifier_verification(d->verifier, i));
        s->of[i].draft.q = NULL;
    }
    d->pending++;
}

static void report(struct speclab_decoder *d, const struct step_record *s)
{
    const int64_t propose = lasted(d, s, PROPOSE, VERIFY) - s->untimed_ns, advance = lasted(d, s, ADVANCE, END);
    int64_t verify = lasted(d, s, VERIFY, SCORED) + lasted(d, s, DECIDE, ADVANCE);
    verify -= s->observer_ns; // an observer must not change the measured time
    for (int i = 0; i < s->n; i++) {
        struct speclab_step *of = &s->of[i].step;
        describe(of, &s->of[i].draft, &s->of[i].verification);
        of->accepted = of->decided - 1 < of->n ? of->decided - 1 : of->n;
        d->sequence[of->slot].decode_ns += (propose + verify + advance) / s->n;
        of->propose_ns = propose;
        of->verify_ns = verify;
        of->advance_ns = advance;
        of->batch = s->n;
        of->experts = s->experts;
    }
    for (int i = 0; i < s->n && d->listener.step != NULL; i++)
        d->listener.step(d->listener.self, &s->of[i].step);
}

// idle: the device has nothing to do meanwhile.
static void report_all_but(struct speclab_decoder *d, int last, bool idle)
{
    const int64_t from = clock_ns();
    for (; d->pending > last; d->pending--) {
        report(d, &d->record[d->first]);
        d->first = (d->first + 1) % MAX_PENDING_STEPS;
    }
    if (idle)
        d->still_ns += clock_ns() - from;
}

static void finish(struct speclab_decoder *d, int slot, int64_t ended)
{
    struct sequence *q = &d->sequence[slot];
    size_t bytes = 0;
    char *text = d->texts ? request_text(&q->copy, d, q->why, q->token + q->prompt, q->n - q->prompt, &bytes) : NULL;
    const struct speclab_end e = { .sequence = q->number,
                                   .token = q->token + q->prompt,
                                   .n = q->n - q->prompt,
                                   .text = text,
                                   .bytes = bytes,
                                   .reason = stop_name(q->why),
                                   .why = q->why,
                                   .shared = q->shared,
                                   .prefill_ns = q->prefill_ns,
                                   .decode_ns = q->decode_ns,
                                   .wall_ns = ended - q->began_ns };
    if (d->listener.end != NULL)
        d->listener.end(d->listener.self, &e);
    free(text);
    forget(d, slot);
}

// Waits until the times of all steps are known, reports them and finishes the texts that have ended. No work is queued
// then.
static bool report_all(struct speclab_decoder *d, struct error *err)
{
    if (!finished(d, err))
        return false;
    const int64_t ended = now(d);
    report_all_but(d, 0, true);
    if (!finished(d, err)) // the times could not be read
        return false;
    for (int i = 0; i < d->slots; i++)
        if (d->sequence[i].active && d->sequence[i].over)
            finish(d, i, ended);
    return d->drafter->failed == NULL || fail_plugin(err, "%s", d->drafter->failed);
}

// ---- a step

static bool score(struct speclab_decoder *d, struct step_record *s, struct error *err)
{
    stamp(d, s, PROPOSE);
    if (!d->drafter->type->propose(d->drafter, d->request, s->n, err))
        return false;
    stamp(d, s, VERIFY);
    s->untimed_ns = d->drafter->untimed_ns;
    d->still_ns += s->untimed_ns;
    if (!verifier_score(d->verifier, d->request, s->n, err))
        return false;
    s->experts = verifier_counts(d->verifier)->experts;
    stamp(d, s, SCORED);
    return true;
}

static bool verify(struct speclab_decoder *d, struct step_record *s, struct error *err)
{
    stamp(d, s, DECIDE);
    if (!verifier_accept(d->verifier, d->request, s->n, d->advance, err))
        return false;
    stamp(d, s, ADVANCE);
    s->observer_ns = verifier_counts(d->verifier)->observer_ns;
    d->still_ns += s->observer_ns;
    return true;
}

static bool step(struct speclab_decoder *d, struct error *err)
{
    const struct drafter_type *type = d->drafter->type;
    assert(d->pending < MAX_PENDING_STEPS);
    struct step_record *s = current(d);
    if (requests_of_active(d, s) == 0)
        return true;
    if (!score(d, s, err))
        return false;
    // The decision of the last step implied that the device had finished all steps before it.
    report_all_but(d, 1, !device(d)->queues);
    if (!verify(d, s, err))
        return false;
    const int n_continued = append_all(d, s);
    if (n_continued > 0 && type->advance != NULL && !type->advance(d->drafter, d->continued, n_continued, err))
        return false;
    stamp(d, s, END);
    record(d, s);
    // Without a queue the times are known at once.
    return (n_continued == s->n && device(d)->queues) || report_all(d, err);
}

bool speclab_decoder_step(struct speclab_decoder *d, struct speclab_error *error)
{
    struct error ignored;
    enter(d);
    return leave(d, step(d, error != NULL ? error : &ignored));
}

bool speclab_decoder_pause(struct speclab_decoder *d, struct speclab_error *error)
{
    struct error ignored;
    enter(d);
    return leave(d, report_all(d, error != NULL ? error : &ignored));
}
