#include "engine/decode.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/draft.h"
#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

struct sequence {      // of one slot
    bool active, over; // over: the text has ended, but its end is not reported yet
    int64_t number;
    struct philox rng;
    int32_t *token; // (length + nodes) prompt and text; the cache of the slot holds all tokens but the last
    int n, prompt, limit;
    const struct stops *stops;
    const struct sampling *sampling;         // NULL: the verifier's
    int shared;                              // tokens of the prompt whose rows were there
    int64_t prefill_ns, decode_ns, began_ns; // began_ns: by the decoder's clock
    enum stop_reason why;
};

// Time stamps of a step on the target's device. Earlier steps are reported between SCORED and DECIDE: time spent there beyond
// the pass is not counted.
enum { PROPOSE, VERIFY, SCORED, DECIDE, ADVANCE, END, STAMPS };

// A GPU runs behind the host: the times of a step are known only after the host should have queued the next one. A step is therefore
// recorded and reported when its times are known. A record holds data in host memory only: rows of probabilities and hidden states belong
// to another step by then. There are the current step, the step that the device may still be running, and the one that it has finished.
enum { MAX_PENDING_STEPS = 3 };

struct step_record {
    int number; // below MAX_PENDING_STEPS, unique among pending steps: selects the time stamps
    int n;      // sequences
    struct sequence_record {
        struct step step;                 // but for the times of the batch
        struct draft draft;               // (nodes) the drafter builds it here
        struct verification verification; // (nodes) a copy, without the work rows
    } * of;                               // (slots)
    int64_t observer_ns, untimed_ns;      // not counted: of the verifier's observer, of the drafter
    int64_t experts;                      // that the target's pass read
};

struct decoder {
    struct verifier *verifier;
    struct drafter *drafter;
    int slots, length, nodes;
    uint64_t seed;
    struct listener listener;
    int64_t left_ns, still_ns; // when the last call returned; time that is not part of the decoder's clock
    struct sequence *sequence; // (slots)
    struct request request[MAX_SLOTS];
    struct advance advance[MAX_SLOTS];
    struct advance continued[MAX_SLOTS]; // advances of the sequences that have not ended, for the drafter
    int first, pending; // ring buffer: so many steps that are not reported yet, beginning with record[first]
    struct step_record record[MAX_PENDING_STEPS];
};

const char *stop_name(enum stop_reason why)
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
    to->step.draft = &to->draft;
    to->step.verification = &to->verification;
}

static void destroy_record(struct sequence_record *r)
{
    free(r->draft.token);
    free(r->draft.parent);
    free(r->draft.proposal);
    free(r->draft.source);
    verification_destroy(&r->verification);
}

static void record_verification(struct sequence_record *to, const struct verification *j)
{
    const size_t n = (size_t)j->n, nodes = (size_t)to->draft.n;
    to->verification.n = j->n;
    to->verification.empty = j->empty;
    memcpy(to->verification.token, j->token, n * sizeof(*j->token));
    memcpy(to->verification.node, j->node, n * sizeof(*j->node));
    memcpy(to->verification.trial_p, j->trial_p, nodes * sizeof(*j->trial_p));
    memcpy(to->verification.trial_q, j->trial_q, nodes * sizeof(*j->trial_q));
}

// ---- the decoder

struct decoder *decoder_create(struct verifier *v, struct drafter *d, int slots, uint64_t seed,
                               struct listener listener, struct error *err)
{
    const struct verifier_setup *s = verifier_setup(v);
    if (slots > s->slots || d->nodes > s->nodes) {
        fail(err, "decoder: %d slots and drafts of %d nodes requested, the verifier has %d and %d", slots, d->nodes,
             s->slots, s->nodes);
        return NULL;
    }
    struct decoder *c = xcalloc(1, sizeof(*c));
    c->verifier = v;
    c->drafter = d;
    c->slots = slots;
    c->length = s->length;
    c->nodes = d->nodes;
    c->seed = seed;
    c->listener = listener;
    c->sequence = xcalloc((size_t)slots, sizeof(*c->sequence));
    for (int i = 0; i < slots; i++)
        c->sequence[i].token = xcalloc((size_t)(c->length + c->nodes) + 1, sizeof(int32_t));
    for (int i = 0; i < MAX_PENDING_STEPS; i++) {
        c->record[i].number = i;
        c->record[i].of = xcalloc((size_t)slots, sizeof(struct sequence_record));
        for (int k = 0; k < slots; k++)
            create_record(&c->record[i].of[k], c->nodes);
    }
    return c;
}

static void forget(struct decoder *d, int slot)
{
    verifier_forget(d->verifier, slot);
    if (d->drafter->type->forget != NULL)
        d->drafter->type->forget(d->drafter, slot);
    d->sequence[slot].active = false;
}

void decoder_drop(struct decoder *d)
{
    for (int i = 0; i < d->slots; i++)
        if (d->sequence[i].active)
            forget(d, i);
}

void decoder_destroy(struct decoder *d)
{
    if (d == NULL)
        return;
    decoder_drop(d);
    for (int i = 0; i < d->slots; i++)
        free(d->sequence[i].token);
    for (int i = 0; i < MAX_PENDING_STEPS; i++) {
        for (int k = 0; k < d->slots; k++)
            destroy_record(&d->record[i].of[k]);
        free(d->record[i].of);
    }
    free(d->sequence);
    free(d);
}

int decoder_active(const struct decoder *d)
{
    int n = 0;
    for (int i = 0; i < d->slots; i++)
        n += d->sequence[i].active;
    return n;
}

int decoder_slot(const struct decoder *d, int64_t sequence)
{
    for (int i = 0; i < d->slots; i++)
        if (d->sequence[i].active && d->sequence[i].number == sequence)
            return i;
    return -1;
}

bool decoder_has_free_slot(const struct decoder *d)
{
    return decoder_active(d) < d->slots;
}

// ---- the decoder's clock

static int64_t now(const struct decoder *d)
{
    return clock_ns() - d->still_ns;
}

static void enter(struct decoder *d)
{
    d->still_ns += clock_ns() - d->left_ns;
}

static bool leave(struct decoder *d, bool ok)
{
    d->left_ns = clock_ns();
    return ok;
}

// Processes the prompt in chunks, for the caches of both the target and the drafter.
static bool prefill(struct decoder *d, int slot, struct error *err)
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

static bool start(struct decoder *d, const struct assignment *a, struct error *err)
{
    int slot = 0;
    while (slot < d->slots && d->sequence[slot].active)
        slot++;
    assert(slot < d->slots && a->n >= 1 && a->limit >= 1);
    if (a->n >= d->length)
        return fail(err, "the prompt has %d tokens, and the context is %d: no new token fits", a->n, d->length);
    struct sequence *q = &d->sequence[slot];
    q->number = a->sequence;
    q->rng = philox_source(d->seed, (uint64_t)a->sequence);
    q->rng.workers = verifier_setup(d->verifier)->sampling->workers;
    q->n = q->prompt = a->n;
    memcpy(q->token, a->prompt, (size_t)a->n * sizeof(int32_t));
    q->limit = a->limit;
    q->stops = a->stops;
    q->sampling = a->sampling;
    q->decode_ns = 0;
    if (!verifier_finish(d->verifier, err)) // queued work must not count as time of this prompt
        return false;
    q->active = true;
    q->over = false;
    const int64_t began = now(d);
    if (!prefill(d, slot, err) || !verifier_finish(d->verifier, err)) {
        forget(d, slot);
        return false;
    }
    q->began_ns = now(d);
    q->shared = verifier_counts(d->verifier)->shared_tokens;
    q->prefill_ns = q->began_ns - began + verifier_counts(d->verifier)->shared_ns;
    return true;
}

bool decoder_start(struct decoder *d, const struct assignment *a, struct error *err)
{
    enter(d);
    return leave(d, start(d, a, err));
}

// Makes a request and a draft of the root alone for each active slot. Returns their number.
static int requests_of_active(struct decoder *d, struct step_record *s)
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
                                               .sampling = q->sampling,
                                               .depth = (left < space ? left : space) - 1 };
    }
    return s->n;
}

static bool ends_text(const struct stops *s, int32_t token)
{
    for (int i = 0; s != NULL && i < s->n; i++)
        if (s->token[i] == token)
            return true;
    return false;
}

// Appends the tokens of an advance to the text, up to its end. Returns the number of tokens added.
static int append(struct decoder *d, struct sequence *q, const struct advance *a)
{
    int before = q->n;
    for (int i = 0; i < a->n && !q->over; i++) {
        q->token[q->n++] = a->token[i];
        int new = q->n - q->prompt;
        if (ends_text(q->stops, a->token[i])) {
            q->why = STOP_TOKEN;
            q->over = true;
        } else if (new >= q->limit || q->n >= d->length) {
            q->why = new >= q->limit ? STOP_LIMIT : STOP_CONTEXT;
            q->over = true;
        }
    }
    if (q->stops != NULL && q->stops->string != NULL) {
        int kept = q->stops->string(q->stops->self, q->token + q->prompt, q->n - q->prompt, q->n - before);
        if (kept > 0) {
            q->n = q->prompt + kept;
            q->why = STOP_STRING;
            q->over = true;
        }
    }
    return q->n > before ? q->n - before : 0; // a stop string may have begun in an earlier step
}

// Appends all advances, and collects those of sequences that have not ended for the drafter. Returns how many these are.
static int append_all(struct decoder *d, struct step_record *s)
{
    int n_continued = 0;
    const int64_t known = now(d);
    for (int i = 0; i < s->n; i++) {
        struct step *to = &s->of[i].step;
        struct sequence *q = &d->sequence[to->slot];
        to->at_ns = known - q->began_ns;
        to->kept = append(d, q, &d->advance[i]);
        if (q->over)
            continue;
        d->continued[n_continued] = d->advance[i];
        d->continued[n_continued].sequence = q->token;
        d->continued[n_continued++].length = q->n;
    }
    return n_continued;
}

// ---- time stamps and the listener

static void stamp(struct decoder *d, const struct step_record *s, int which)
{
    verifier_stamp(d->verifier, s->number * STAMPS + which);
}

static int64_t lasted(struct decoder *d, const struct step_record *s, int from, int to)
{
    return verifier_between(d->verifier, s->number * STAMPS + from, s->number * STAMPS + to);
}

// Copies the decisions and drops q, as the next step overwrites the verifier's decisions and rows.
static void record(struct decoder *d, struct step_record *s)
{
    for (int i = 0; i < s->n; i++) {
        record_verification(&s->of[i], verifier_verification(d->verifier, i));
        s->of[i].draft.q = NULL;
    }
    d->pending++;
}

static void report(struct decoder *d, const struct step_record *s)
{
    const int64_t propose = lasted(d, s, PROPOSE, VERIFY) - s->untimed_ns, advance = lasted(d, s, ADVANCE, END);
    int64_t verify = lasted(d, s, VERIFY, SCORED) + lasted(d, s, DECIDE, ADVANCE);
    verify -= s->observer_ns; // an observer must not change the measured time
    for (int i = 0; i < s->n; i++) {
        struct step *of = &s->of[i].step;
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
static void report_all_but(struct decoder *d, int last, bool idle)
{
    const int64_t from = clock_ns();
    for (; d->pending > last; d->pending--) {
        report(d, &d->record[d->first]);
        d->first = (d->first + 1) % MAX_PENDING_STEPS;
    }
    if (idle)
        d->still_ns += clock_ns() - from;
}

static void finish(struct decoder *d, int slot, int64_t ended)
{
    struct sequence *q = &d->sequence[slot];
    const struct ending e = { .sequence = q->number,
                              .token = q->token + q->prompt,
                              .n = q->n - q->prompt,
                              .why = q->why,
                              .shared = q->shared,
                              .prefill_ns = q->prefill_ns,
                              .decode_ns = q->decode_ns,
                              .wall_ns = ended - q->began_ns };
    d->listener.done(d->listener.self, &e);
    forget(d, slot);
}

// Waits until the times of all steps are known, reports them and finishes the texts that have ended. No work is queued then.
static bool report_all(struct decoder *d, struct error *err)
{
    if (!verifier_finish(d->verifier, err))
        return false;
    const int64_t ended = now(d);
    report_all_but(d, 0, true);
    if (!verifier_finish(d->verifier, err)) // the times could not be read
        return false;
    for (int i = 0; i < d->slots; i++)
        if (d->sequence[i].active && d->sequence[i].over)
            finish(d, i, ended);
    return true;
}

// ---- a step

static bool score(struct decoder *d, struct step_record *s, struct error *err)
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

static bool verify(struct decoder *d, struct step_record *s, struct error *err)
{
    stamp(d, s, DECIDE);
    if (!verifier_accept(d->verifier, d->request, s->n, d->advance, err))
        return false;
    stamp(d, s, ADVANCE);
    s->observer_ns = verifier_counts(d->verifier)->observer_ns;
    d->still_ns += s->observer_ns;
    return true;
}

static bool step(struct decoder *d, struct error *err)
{
    const struct drafter_type *type = d->drafter->type;
    assert(d->pending < MAX_PENDING_STEPS);
    struct step_record *s = &d->record[(d->first + d->pending) % MAX_PENDING_STEPS];
    if (requests_of_active(d, s) == 0)
        return true;
    if (!score(d, s, err))
        return false;
    report_all_but(
        d, 1,
        !verifier_queues(
            d->verifier)); // the decision of the last step implied that the device had finished all steps before it
    if (!verify(d, s, err))
        return false;
    const int n_continued = append_all(d, s);
    if (n_continued > 0 && type->advance != NULL && !type->advance(d->drafter, d->continued, n_continued, err))
        return false;
    stamp(d, s, END);
    record(d, s);
    // Without a queue the times are known at once.
    return (n_continued == s->n && verifier_queues(d->verifier)) || report_all(d, err);
}

bool decoder_step(struct decoder *d, struct error *err)
{
    enter(d);
    return leave(d, step(d, err));
}

bool decoder_pause(struct decoder *d, struct error *err)
{
    enter(d);
    return leave(d, report_all(d, err));
}
