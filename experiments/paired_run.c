// paired_run.c - decodes some prompts with each cell in turn, as planned.
//
// plan.c alone decides what is decoded, from what the database has.
//
// A sequence's number, which selects its random numbers, is made of prompt, turn and repeat only. So with the rule `match`
// every cell decodes the same text, and a text does not depend on the time, the batch or interruptions.
#include "experiments/paired_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "engine/prompt_tokens.h"
#include "experiments/environment.h"
#include "core/interrupt.h"
#include "experiments/plan.h"
#include "experiments/recorder.h"
#include "experiments/conversation.h"
#include "experiments/sweep/completion.h"
#include "results/store.h"
#include "verifier/target_cache.h"

enum { WARM_PROMPT = 64, WARM_TOKENS = 8 }; // a discarded decode before a cell's first paired run
enum { REFILLS = 8 };                       // prompts of a paired run, for each of several slots

// MAX_PROMPTS, MAX_TURNS and MAX_REPEATS keep the three within 18, 6 and 8 bits.
int64_t sequence_number(int64_t prompt, int turn, int repeat)
{
    assert(prompt < MAX_PROMPTS && turn < MAX_TURNS && repeat < MAX_REPEATS);
    return prompt << 14 | (int64_t)turn << 8 | repeat;
}

// ---- one cell

static char *label(const struct runner *r, const struct cell_runner *c)
{
    const struct experiment *e = r->e;
    bool several_rules = e->rule.n > 1;
    return xformat("%s%s%s, %s", e->drafter.entry[c->cell.drafter].shown, several_rules ? ", " : "",
                   several_rules ? e->rule.entry[c->cell.rule].shown : "", e->sampling.entry[c->cell.sampling].shown);
}

static bool warm_up(const struct runner *r, struct cell_runner *c, const struct prompt *p, struct error *err)
{
    struct ids ids = { 0 };
    bool ok = prompt_token_ids(&r->loaded.target, &r->loaded.chat, p, NULL, 0, &ids, err);
    struct assignment a = {
        .sequence = sequence_number(p->number, 0, 0),
        .prompt = ids.id,
        .n = ids.n < WARM_PROMPT ? (int)ids.n : WARM_PROMPT,
        .limit = WARM_TOKENS,
    };
    ok = ok && decoder_start(c->decoder, &a, err);
    while (ok && decoder_active(c->decoder) > 0)
        ok = interrupt_check(r->stop, err) && decoder_step(c->decoder, err);
    free(ids.id);
    c->warm = ok;
    return ok;
}

static bool start_turn(const struct runner *r, struct cell_runner *c, struct conversation *t, int repeat,
                       struct error *err)
{
    struct ids ids = { 0 };
    bool ok = conversation_ids(t, &r->loaded, &ids, err);
    struct assignment a = {
        .sequence = sequence_number(t->prompt->number, t->turn, repeat),
        .prompt = ids.id,
        .n = (int)ids.n,
        .limit = r->e->new_tokens,
        .stops = &r->loaded.ends.stops,
    };
    ok = ok && decoder_start(c->decoder, &a, err);
    if (ok) {
        recorder_begin(c->recorder, a.sequence);
        t->under_way = true;
        t->prompt_tokens = a.n;
    }
    free(ids.id);
    return ok;
}

// Restarts each conversation at its due turn. Conversations that are not due are over.
static bool restart_conversations(const struct runner *r, struct conversation *conversation, const struct due *due,
                                  int n, struct error *err)
{
    for (int i = 0; i < n; i++)
        if (due[i].from != PLAN_NOTHING && !conversation_continue(&conversation[i], &r->loaded, due[i].from, err))
            return false;
    return true;
}

// A conversation decodes one turn at a time and keeps its slot until it is over; then the next one has it.
static bool start_turns(const struct runner *r, struct cell_runner *c, struct conversation *conversation,
                        const struct paired_run *o, struct error *err)
{
    for (int i = 0; i < o->n && decoder_has_free_slot(c->decoder); i++)
        if (!conversation[i].under_way && !conversation_is_over(&conversation[i]) &&
            !start_turn(r, c, &conversation[i], o->repeat, err))
            return false;
    return true;
}

static bool store_one_turn(struct runner *r, struct cell_runner *c, struct conversation *t, const struct paired_run *o,
                           struct sequence_row *row, struct error *err)
{
    const struct prompt *p = t->prompt;
    const struct environment here = environment_of(&r->loaded, c);
    row->prompt = p->number;
    row->prompt_id = p->id;
    row->category = p->category;
    row->turn = t->turn;
    row->repeat = o->repeat;
    row->pair = o->pair;
    row->prompt_tokens = t->prompt_tokens;
    if (r->loaded.given_up != NULL)
        progress_line(&r->progress, "%s", r->loaded.given_up);
    free(r->loaded.given_up);
    r->loaded.given_up = NULL;
    row->under = c->environment_stored != NULL && strcmp(c->environment_stored, here.processor) == 0 ? NULL : &here;
    t->under_way = false;
    r->progress.tokens += row->new_tokens;
    bool ok = conversation_answered(t, &r->loaded, row->token, row->new_tokens, &row->text, err) &&
              store_sequence(r->store, c->run, row, err);
    if (ok && row->under != NULL) {
        free(c->environment_stored);
        c->environment_stored = xstrdup(here.processor);
    }
    return ok;
}

static bool store_finished_turns(struct runner *r, struct cell_runner *c, struct conversation *conversation,
                                 const struct paired_run *o, struct error *err)
{
    struct sequence_row row;
    for (int64_t number; (number = recorder_take(c->recorder, &row)) >= 0;) {
        int i = 0;
        while (!conversation[i].under_way ||
               sequence_number(conversation[i].prompt->number, conversation[i].turn, o->repeat) != number)
            i++;
        if (!store_one_turn(r, c, &conversation[i], o, &row, err))
            return false;
    }
    return true;
}

static bool run_cell_runner(struct runner *r, struct cell_runner *c, struct conversation *conversation,
                            const struct due *due, const struct paired_run *o, struct error *err)
{
    char *what = label(r, c);
    bool ok = restart_conversations(r, conversation, due, o->n, err) && start_turns(r, c, conversation, o, err);
    while (ok && decoder_active(c->decoder) > 0) {
        progress_tick(&r->progress, what);
        ok = interrupt_check(r->stop, err) && decoder_step(c->decoder, err) &&
             store_finished_turns(r, c, conversation, o, err) && start_turns(r, c, conversation, o, err);
    }
    free(what);
    return ok;
}

// ---- all cells

static const struct cell_runner *none_of(const struct group *g, const struct cell_runner *c)
{
    const struct cell_runner *none = g->cell_runner;
    while (!none->none || none->cell.rule != c->cell.rule)
        none++;
    return none;
}

static bool open_conversations(struct paired_run *o, const struct loaded_experiment *loaded, struct store *s,
                               const struct group *g, struct history *history, struct error *err)
{
    for (int k = 0; k < g->n * o->n; k++) {
        const struct cell_runner *c = &g->cell_runner[k / o->n];
        const struct prompt *p = &loaded->e->prompts.prompt[o->first + k % o->n];
        if (!conversation_open(&o->conversation[k], loaded, s, c->run, none_of(g, c)->run, p, o->repeat, &history[k],
                               err))
            return false;
    }
    return true;
}

int paired_run_prompts(int batch)
{
    return batch == 1 ? 1 : REFILLS * batch;
}

struct paired_run paired_run_at(const struct experiment *e, int batch, int repeat, int first)
{
    const int left = e->prompts.n - first, most = paired_run_prompts(batch);
    return (struct paired_run){
        .number = first / most + repeat,
        .repeat = repeat,
        .first = first,
        .n = left < most ? left : most,
    };
}

bool paired_run_open(struct paired_run *o, const struct loaded_experiment *loaded, struct store *s,
                     const struct group *g, struct error *err)
{
    size_t all = (size_t)g->n * (size_t)o->n;
    o->conversation = xcalloc(all, sizeof(*o->conversation));
    o->due = xcalloc(all, sizeof(*o->due));
    struct history *history = xcalloc(all, sizeof(*history));
    int *none = xcalloc((size_t)g->n, sizeof(*none));
    for (int c = 0; c < g->n; c++)
        none[c] = (int)(none_of(g, &g->cell_runner[c]) - g->cell_runner);
    bool ok = open_conversations(o, loaded, s, g, history, err);
    if (ok)
        plan_turns(&(struct stored){ g->n, o->n, none, history }, o->due);
    free(history);
    free(none);
    return ok;
}

void paired_run_close(struct paired_run *o, const struct group *g)
{
    for (int k = 0; k < g->n * o->n; k++)
        conversation_close(&o->conversation[k]);
    free(o->conversation);
    free(o->due);
}

static bool takes_part(const struct paired_run *o, int c)
{
    for (int i = 0; i < o->n; i++)
        if (o->due[c * o->n + i].from != PLAN_NOTHING)
            return true;
    return false;
}

int paired_run_missing(const struct paired_run *o, int c)
{
    int n = 0;
    for (int i = 0; i < o->n; i++)
        n += o->due[c * o->n + i].missing;
    return n;
}

static bool run_cells(struct paired_run *o, struct runner *r, struct group *g, struct error *err)
{
    int n = 0, *order = xcalloc((size_t)g->n, sizeof(*order));
    bool ok = true;
    for (int c = 0; c < g->n; c++)
        if (takes_part(o, c))
            order[n++] = c;
    for (int k = 0; k < n && ok; k++)
        ok = environment_check(r, &g->cell_runner[order[k]], err);
    for (int k = 0; k < n && ok; k++)
        if (!g->cell_runner[order[k]].warm)
            ok = warm_up(r, &g->cell_runner[order[k]], o->conversation[0].prompt, err);
    target_cache_clear(g->cache);
    ok = ok && (n == 0 || store_new_pair(r->store, r->e->name, &o->pair, err));
    for (int k = 0; k < n && ok; k++) {
        int c = order[(k + o->number) % n];
        ok = run_cell_runner(r, &g->cell_runner[c], &o->conversation[c * o->n], &o->due[c * o->n], o, err);
        progress_done(&r->progress, ok ? paired_run_missing(o, c) : 0);
    }
    free(order);
    return ok;
}

static bool any_is_full(const struct paired_run *o, const struct group *g)
{
    for (int k = 0; k < g->n * o->n; k++)
        if (o->conversation[k].full)
            return true;
    return false;
}

bool paired_run_decode(struct paired_run *o, struct runner *r, struct group *g, struct error *err)
{
    bool ok = paired_run_open(o, &r->loaded, r->store, g, err);
    for (int c = 0; c < g->n && ok; c++) {
        progress_skip(&r->progress, o->n - paired_run_missing(o, c));
        ok = paired_run_missing(o, c) == 0 || completion_lacks(r, g->cell_runner[c].run, err);
    }
    ok = ok && run_cells(o, r, g, err);
    r->full = r->full || any_is_full(o, g);
    paired_run_close(o, g);
    return ok;
}
