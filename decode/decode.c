#include "decode/decode.h"

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
#include "verifier/verifier.h"

struct sequence { // one slot's
    bool live;
    int64_t number;
    struct philox rng;
    int32_t *token; // (length + nodes) prompt and text; a slot's cache holds all of it but the last
    int n, prompt, limit;
    const struct stops *stops;
    struct draft draft;
    int64_t prefill_ns, decode_ns, began_ns;
    enum stop_reason why;
    int kept; // tokens of the last advance that are in the text
};

enum { PROPOSE, VERIFY, ADVANCE, PHASES }; // of a step, as the target's device stamps their beginnings; PHASES: its end

struct decoder {
    struct verifier *verifier;
    struct drafter *drafter;
    int slots, length, nodes;
    uint64_t seed;
    struct listener listener;
    struct sequence *sequence; // (slots)
    struct request request[MAX_SLOTS];
    struct advance advance[MAX_SLOTS];
    struct advance told[MAX_SLOTS]; // those of sequences that go on: the others' drafter is told to forget
};

const char *stop_name(enum stop_reason why)
{
    static const char *const names[] = { "end", "string", "limit", "context" };
    return names[why];
}

struct decoder *decoder_create(struct verifier *v, struct drafter *d, int slots, uint64_t seed,
                               struct listener listener, struct error *err)
{
    const struct verifier_setup *s = verifier_setup(v);
    if (slots > s->slots || d->nodes > s->nodes) {
        fail(err, "decoder: %d slots and drafts of %d nodes asked of a verifier for %d and %d", slots, d->nodes,
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
    size_t nodes = (size_t)c->nodes;
    for (int i = 0; i < slots; i++) {
        struct sequence *q = &c->sequence[i];
        q->token = xcalloc((size_t)c->length + nodes + 1, sizeof(int32_t));
        q->draft.token = xcalloc(nodes, sizeof(int32_t));
        q->draft.parent = xcalloc(nodes, sizeof(int32_t));
        q->draft.drawn = xcalloc(nodes, sizeof(uint8_t));
    }
    return c;
}

void decoder_destroy(struct decoder *d)
{
    if (d == NULL)
        return;
    for (int i = 0; i < d->slots; i++) {
        struct sequence *q = &d->sequence[i];
        if (q->live) {
            verifier_forget(d->verifier, i);
            if (d->drafter->type->forget != NULL)
                d->drafter->type->forget(d->drafter, i);
        }
        free(q->token);
        free(q->draft.token);
        free(q->draft.parent);
        free(q->draft.drawn);
    }
    free(d->sequence);
    free(d);
}

int decoder_live(const struct decoder *d)
{
    int n = 0;
    for (int i = 0; i < d->slots; i++)
        n += d->sequence[i].live;
    return n;
}

int decoder_slot(const struct decoder *d, int64_t sequence)
{
    for (int i = 0; i < d->slots; i++)
        if (d->sequence[i].live && d->sequence[i].number == sequence)
            return i;
    return -1;
}

bool decoder_has_room(const struct decoder *d)
{
    return decoder_live(d) < d->slots;
}

static void forget(struct decoder *d, int slot)
{
    verifier_forget(d->verifier, slot);
    if (d->drafter->type->forget != NULL)
        d->drafter->type->forget(d->drafter, slot);
    d->sequence[slot].live = false;
}

// The prompt goes into both caches, a stretch at a time.
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

bool decoder_start(struct decoder *d, const struct assignment *a, struct error *err)
{
    int slot = 0;
    while (slot < d->slots && d->sequence[slot].live)
        slot++;
    assert(slot < d->slots && a->n >= 1 && a->limit >= 1);
    if (a->n >= d->length)
        return fail(err, "the prompt has %d tokens, and the context is %d: there is no room for a new one", a->n,
                    d->length);
    struct sequence *q = &d->sequence[slot];
    q->number = a->sequence;
    q->rng = philox_source(d->seed, (uint64_t)a->sequence);
    q->rng.workers = verifier_setup(d->verifier)->sampling->workers;
    q->n = q->prompt = a->n;
    memcpy(q->token, a->prompt, (size_t)a->n * sizeof(int32_t));
    q->limit = a->limit;
    q->stops = a->stops;
    q->decode_ns = 0;
    q->live = true;
    int64_t began = clock_ns();
    if (!prefill(d, slot, err)) {
        forget(d, slot);
        return false;
    }
    q->began_ns = clock_ns();
    q->prefill_ns = q->began_ns - began;
    return true;
}

// A request and a bare root for each live slot.
static int requests_of_live(struct decoder *d)
{
    int n = 0;
    for (int i = 0; i < d->slots; i++) {
        struct sequence *q = &d->sequence[i];
        if (!q->live)
            continue;
        int left = q->limit - (q->n - q->prompt), space = d->length - q->n; // new tokens wanted; places for them
        int cache = space + 1;                                              // rows: the root's and the guesses'
        q->draft.n = 1;
        q->draft.room = d->nodes < cache ? d->nodes : cache;
        q->draft.token[0] = q->token[q->n - 1];
        q->draft.parent[0] = -1;
        q->draft.drawn[0] = CHOSEN;
        q->draft.q = NULL;
        q->rng.rng.root = q->n - 1;
        d->request[n++] = (struct request){ .slot = i,
                                            .n = q->n,
                                            .token = q->token,
                                            .rng = &q->rng.rng,
                                            .draft = &q->draft,
                                            .depth = (left < space ? left : space) - 1 };
    }
    return n;
}

static bool ends_text(const struct stops *s, int32_t token)
{
    for (int i = 0; s != NULL && i < s->n; i++)
        if (s->token[i] == token)
            return true;
    return false;
}

// Adds what was said to the text, as far as the text goes; false: it is over.
static bool append(struct decoder *d, struct sequence *q, const struct advance *a)
{
    bool live = true;
    int before = q->n;
    for (int i = 0; i < a->n && live; i++) {
        q->token[q->n++] = a->token[i];
        int new = q->n - q->prompt;
        if (ends_text(q->stops, a->token[i])) {
            q->why = STOP_TOKEN;
            live = false;
        } else if (new >= q->limit || q->n >= d->length) {
            q->why = new >= q->limit ? STOP_LIMIT : STOP_CONTEXT;
            live = false;
        }
    }
    if (q->stops != NULL && q->stops->string != NULL) {
        int stay = q->stops->string(q->stops->self, q->token + q->prompt, q->n - q->prompt, q->n - before);
        if (stay > 0) {
            q->n = q->prompt + stay;
            q->why = STOP_STRING;
            live = false;
        }
    }
    q->kept = q->n > before ? q->n - before : 0; // a stop string may have begun in an earlier step
    return live;
}

// t: what its phases took, the whole batch's.
static void report(struct decoder *d, int i, int n, const int64_t t[PHASES])
{
    const struct request *r = &d->request[i];
    struct sequence *q = &d->sequence[r->slot];
    if (d->listener.step != NULL) {
        struct step s = { q->number, r->n - 1,   r->draft,  &d->advance[i], verifier_judgement(d->verifier, i),
                          q->kept,   t[PROPOSE], t[VERIFY], t[ADVANCE],     n };
        d->listener.step(d->listener.self, &s);
    }
}

static void finish(struct decoder *d, int slot, int64_t now)
{
    struct sequence *q = &d->sequence[slot];
    struct ending e = { q->number,     q->token + q->prompt, q->n - q->prompt, q->why,
                        q->prefill_ns, q->decode_ns,         now - q->began_ns };
    d->listener.done(d->listener.self, &e);
    forget(d, slot);
}

bool decoder_step(struct decoder *d, struct error *err)
{
    struct drafter *g = d->drafter;
    int n = requests_of_live(d), told = 0;
    bool live[MAX_SLOTS];

    if (n == 0)
        return true;
    verifier_stamp(d->verifier, PROPOSE);
    if (!g->type->propose(g, d->request, n, err))
        return false;
    verifier_stamp(d->verifier, VERIFY);
    if (!verifier_verify(d->verifier, d->request, n, d->advance, err))
        return false;
    verifier_stamp(d->verifier, ADVANCE);
    for (int i = 0; i < n; i++) {
        struct sequence *q = &d->sequence[d->request[i].slot];
        live[i] = append(d, q, &d->advance[i]);
        if (live[i]) {
            d->told[told] = d->advance[i];
            d->told[told].sequence = q->token;
            d->told[told++].length = q->n;
        }
    }
    if (told > 0 && g->type->advance != NULL && !g->type->advance(g, d->told, told, err))
        return false;
    verifier_stamp(d->verifier, PHASES);
    if (!verifier_settle(d->verifier, err))
        return false;
    int64_t t[PHASES], all = 0, now = clock_ns();
    for (int i = 0; i < PHASES; i++) {
        t[i] = verifier_between(d->verifier, i, i + 1);
        t[i] -= i == VERIFY ? verifier_watched_ns(d->verifier) : 0; // as if nobody had looked on
        all += t[i];
    }
    for (int i = 0; i < n; i++)
        d->sequence[d->request[i].slot].decode_ns += all / n;
    for (int i = 0; i < n; i++)
        report(d, i, n, t);
    for (int i = 0; i < n; i++)
        if (!live[i])
            finish(d, d->request[i].slot, now);
    return true;
}
