// occasion.c - who takes part, in which order, from which turn on; and the decoding itself.
//
// What is in the database is not decoded again. Two exceptions keep comparisons fair. `none` is run again beside
// whatever is missing, from the first turn that is. And with a batch of more than one, all who take part decode the
// conversations that anyone lacks, all of them and from their first turns on: the time of a pass depends on how many
// sequences are in it.
//
// The number of a decode, which names its stream of chance, is made of prompt, turn and repeat alone: with the rule
// `match` every cell says the same, and a text does not depend on when, beside what or after which interruption it was
// decoded.
#include "experiments/occasion.h"

#include <assert.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "experiments/conversation.h"
#include "experiments/environment.h"
#include "experiments/interrupt.h"
#include "experiments/recorder.h"
#include "experiments/talk.h"
#include "results/store.h"

enum { WARM_PROMPT = 64, WARM_TOKENS = 8 }; // a throw-away decode before a cell's first occasion

// MAX_PROMPTS, MAX_TURNS and MAX_REPEATS keep the three within 18, 6 and 8 bits.
static int64_t sequence_number(const struct prompt *p, int turn, int repeat)
{
    assert(p->number < MAX_PROMPTS && turn < MAX_TURNS && repeat < MAX_REPEATS);
    return (int64_t)p->number << 14 | (int64_t)turn << 8 | repeat;
}

// ---- one contender

static char *label(const struct runner *r, const struct contender *c)
{
    const struct experiment *e = r->e;
    bool rules = e->rule.n > 1;
    return xformat("%s%s%s, %s", e->drafter.entry[c->cell.drafter].shown, rules ? ", " : "",
                   rules ? e->rule.entry[c->cell.rule].shown : "", e->sampling.entry[c->cell.sampling].shown);
}

static bool warm_up(const struct runner *r, struct contender *c, const struct prompt *p, struct error *err)
{
    struct ids ids = { 0 };
    bool ok = conversation_ids(&r->opened.target, &r->opened.chat, p, NULL, 0, &ids, err);
    struct assignment a = {
        .sequence = sequence_number(p, 0, 0),
        .prompt = ids.id,
        .n = ids.n < WARM_PROMPT ? (int)ids.n : WARM_PROMPT,
        .limit = WARM_TOKENS,
    };
    ok = ok && decoder_start(c->decoder, &a, err);
    while (ok && decoder_live(c->decoder) > 0)
        ok = interrupt_is_none(r->stop, err) && decoder_step(c->decoder, err);
    free(ids.id);
    c->warm = ok;
    return ok;
}

static bool start_turn(const struct runner *r, struct contender *c, struct talk *t, int repeat, struct error *err)
{
    struct ids ids = { 0 };
    bool ok = talk_ids(t, &r->opened, &ids, err);
    struct assignment a = {
        .sequence = sequence_number(t->prompt, t->turn, repeat),
        .prompt = ids.id,
        .n = (int)ids.n,
        .limit = r->e->new_tokens,
        .stops = &r->stops,
    };
    ok = ok && decoder_start(c->decoder, &a, err);
    if (ok) {
        recorder_expect(c->recorder, a.sequence);
        t->under_way = true;
        t->prompt_tokens = a.n;
    }
    free(ids.id);
    return ok;
}

// A conversation has one turn under way at a time, and there is a slot for each.
static bool start_turns(const struct runner *r, struct contender *c, struct talk *talk, const struct occasion *o,
                        struct error *err)
{
    for (int i = 0; i < o->n; i++)
        if (!talk[i].under_way && !talk_is_over(&talk[i]) && !start_turn(r, c, &talk[i], o->repeat, err))
            return false;
    return true;
}

static bool keep_turn(struct runner *r, const struct contender *c, struct talk *t, const struct occasion *o,
                      struct sequence_row *row, struct error *err)
{
    const struct prompt *p = t->prompt;
    row->prompt = p->number;
    row->prompt_id = p->id;
    row->category = p->category;
    row->turn = t->turn;
    row->repeat = o->repeat;
    row->pair = o->pair;
    row->prompt_tokens = t->prompt_tokens;
    t->under_way = false;
    r->progress.tokens += row->new_tokens;
    bool ok = talk_answered(t, &r->opened, row->token, row->new_tokens, &row->text, err) &&
              store_sequence(r->store, c->run, row, err);
    r->cut = r->cut || t->cut;
    return ok;
}

static bool keep_turns(struct runner *r, const struct contender *c, struct talk *talk, const struct occasion *o,
                       struct error *err)
{
    struct sequence_row row;
    for (int64_t number; (number = recorder_take(c->recorder, &row)) >= 0;) {
        int i = 0;
        while (!talk[i].under_way || sequence_number(talk[i].prompt, talk[i].turn, o->repeat) != number)
            i++;
        if (!keep_turn(r, c, &talk[i], o, &row, err))
            return false;
    }
    return true;
}

static bool run_contender(struct runner *r, struct contender *c, struct talk *talk, const struct occasion *o,
                          struct error *err)
{
    char *what = label(r, c);
    bool ok = start_turns(r, c, talk, o, err);
    while (ok && decoder_live(c->decoder) > 0) {
        progress_tick(&r->progress, what);
        ok = interrupt_is_none(r->stop, err) && decoder_step(c->decoder, err) && keep_turns(r, c, talk, o, err) &&
             start_turns(r, c, talk, o, err);
    }
    free(what);
    return ok;
}

// ---- all of them

static bool open_talks(struct occasion *o, const struct runner *r, const struct group *g, struct error *err)
{
    o->talk = xcalloc((size_t)g->n, sizeof(*o->talk));
    o->lacks = xcalloc((size_t)g->n, sizeof(*o->lacks));
    for (int c = 0; c < g->n; c++) {
        o->talk[c] = xcalloc((size_t)o->n, sizeof(**o->talk));
        for (int i = 0; i < o->n; i++) {
            struct talk *t = &o->talk[c][i];
            if (!talk_open(t, &r->opened, r->store, g->contender[c].run, &r->e->prompts.prompt[o->first + i], o->repeat,
                           err))
                return false;
            o->lacks[c] = o->lacks[c] || !talk_is_over(t);
        }
    }
    return true;
}

static void close_talks(struct occasion *o, const struct group *g)
{
    for (int c = 0; c < g->n && o->talk[c] != NULL; c++) {
        for (int i = 0; i < o->n; i++)
            talk_close(&o->talk[c][i]);
        free(o->talk[c]);
    }
    free(o->talk);
    free(o->lacks);
}

// The first turn of conversation i that anyone lacks; beyond the last if nobody does.
static int first_turn_missing(const struct occasion *o, const struct group *g, int i)
{
    int turn = o->talk[0][i].prompt->n_turns;
    for (int c = 0; c < g->n; c++)
        if (o->talk[c][i].turn < turn)
            turn = o->talk[c][i].turn;
    return turn;
}

static bool takes_part(const struct occasion *o, const struct group *g, int c)
{
    return o->lacks[c] || g->contender[c].none;
}

static void rewind_talks(struct occasion *o, const struct group *g, int batch)
{
    for (int i = 0; i < o->n; i++) {
        int turn = first_turn_missing(o, g, i);
        bool lacking = turn < o->talk[0][i].prompt->n_turns;
        for (int c = 0; c < g->n && lacking; c++)
            if (takes_part(o, g, c) && (batch > 1 || g->contender[c].none))
                talk_rewind(&o->talk[c][i], batch > 1 ? 0 : turn);
    }
}

static bool run_in_turn(struct occasion *o, struct runner *r, struct group *g, struct error *err)
{
    int n = 0, *order = xcalloc((size_t)g->n, sizeof(*order));
    bool ok = true;
    for (int c = 0; c < g->n; c++)
        if (takes_part(o, g, c))
            order[n++] = c;
    for (int k = 0; k < n && ok; k++)
        ok = environment_enter(r, &g->contender[order[k]], err);
    for (int k = 0; k < n && ok; k++)
        if (!g->contender[order[k]].warm)
            ok = warm_up(r, &g->contender[order[k]], o->talk[0][0].prompt, err);
    ok = ok && store_new_pair(r->store, r->e->name, &o->pair, err);
    for (int k = 0; k < n && ok; k++) {
        int c = order[(k + o->number) % n];
        ok = run_contender(r, &g->contender[c], o->talk[c], o, err);
        progress_did(&r->progress, ok && o->lacks[c] ? o->n : 0);
    }
    free(order);
    return ok;
}

bool occasion_run(struct occasion *o, struct runner *r, struct group *g, struct error *err)
{
    bool ok = open_talks(o, r, g, err), lacking = false;
    for (int c = 0; c < g->n && ok; c++) {
        lacking = lacking || o->lacks[c];
        progress_skip(&r->progress, o->lacks[c] ? 0 : o->n);
    }
    if (ok && lacking) {
        rewind_talks(o, g, experiment_batch(r->e, g->batch));
        ok = run_in_turn(o, r, g, err);
    }
    close_talks(o, g);
    return ok;
}
