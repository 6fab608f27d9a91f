#include "experiments/pairs/cell_part.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/mapped.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "engine/prompt_tokens.h"
#include "experiments/pairs/conversation.h"
#include "experiments/environment.h"
#include "experiments/pairs/paired_run.h"
#include "experiments/pairs/plan.h"
#include "experiments/recorder.h"
#include "results/store.h"

enum { WARM_PROMPT = 64, WARM_TOKENS = 8 };

// A sequence's number is made of prompt, turn and repeat only. So with the rule `match` every cell decodes the same text, and a text does not
// depend on the time, the batch or interruptions. The three have 18, 6 and 8 bits; no text is repeat MAX_REPEATS, which is the fillers'.
enum { TURN_BITS = 6, REPEAT_BITS = 8 };
_Static_assert(MAX_PROMPTS <= 1 << (32 - TURN_BITS - REPEAT_BITS) && MAX_TURNS == 1 << TURN_BITS &&
                   MAX_REPEATS < 1 << REPEAT_BITS,
               "a sequence number has 32 bits");

int64_t sequence_number(int64_t prompt, int turn, int repeat)
{
    assert(prompt < MAX_PROMPTS && turn < MAX_TURNS && repeat < MAX_REPEATS);
    return ((prompt << TURN_BITS | turn) << REPEAT_BITS) | repeat;
}

static int64_t filler_number(int n)
{
    return (int64_t)(n % (1 << (32 - REPEAT_BITS))) << REPEAT_BITS | MAX_REPEATS;
}

static char *label_of(const struct runner *r, const struct cell_runner *c)
{
    const struct experiment *e = r->e;
    bool several_rules = e->rule.n > 1;
    return xformat("%s%s%s, %s", e->drafter.entry[c->cell.drafter].shown, several_rules ? ", " : "",
                   several_rules ? e->rule.entry[c->cell.rule].shown : "", e->sampling.entry[c->cell.sampling].shown);
}

// Starts the first turn of a prompt. longest: tokens of the prompt that are used; 0: all. Nothing is recorded.
static bool start_unrecorded(const struct runner *r, struct cell_runner *c, int prompt, int longest, int limit,
                             int64_t number, struct error *err)
{
    struct ids ids = { 0 };
    bool ok = prompt_token_ids(&r->loaded->target, &r->loaded->chat, &r->e->prompts.prompt[prompt], NULL, 0, &ids, err);
    const struct assignment a = {
        .sequence = number,
        .prompt = ids.id,
        .n = longest > 0 && ids.n > (size_t)longest ? longest : (int)ids.n,
        .limit = limit,
    };
    ok = ok && decoder_start(c->decoder, &a, err);
    free(ids.id);
    return ok;
}

bool cell_warm_up(struct runner *r, struct cell_runner *c, int prompt, struct error *err)
{
    const int64_t number = sequence_number(r->e->prompts.prompt[prompt].number, 0, 0);
    bool ok = start_unrecorded(r, c, prompt, WARM_PROMPT, WARM_TOKENS, number, err);
    while (ok && decoder_active(c->decoder) > 0)
        ok = interrupt_check(r->stop, err) && decoder_step(c->decoder, err);
    c->warm = ok;
    return ok;
}

static bool start_turn(struct cell_part *p, struct conversation *t, struct error *err)
{
    const struct runner *r = p->r;
    struct ids ids = { 0 };
    bool ok = conversation_ids(t, r->loaded, &ids, err);
    struct assignment a = {
        .sequence = sequence_number(t->prompt->number, t->turn, p->o->repeat),
        .prompt = ids.id,
        .n = (int)ids.n,
        .limit = r->e->new_tokens,
        .stops = &r->loaded->ends.stops,
    };
    ok = ok && decoder_start(p->c->decoder, &a, err);
    if (ok) {
        recorder_begin(p->c->recorder, a.sequence);
        t->under_way = true;
        t->prompt_tokens = a.n;
    }
    free(ids.id);
    return ok;
}

// A conversation decodes one turn at a time and keeps its slot until it is over; then the next one has it. Sets `over`.
static bool start_turns(struct cell_part *p, struct error *err)
{
    p->over = true;
    for (int i = 0; i < p->o->n; i++) {
        struct conversation *t = &p->conversation[i];
        const bool waits = !t->under_way && !conversation_is_over(t);
        if (waits && decoder_has_free_slot(p->c->decoder) && !start_turn(p, t, err))
            return false;
        p->over = p->over && !waits && !t->under_way;
    }
    return true;
}

int filler_prompt(const struct paired_run *o, int number)
{
    const int begun = o->first + o->n;
    return begun - 1 - number % begun;
}

// No end of a text but the limit ends fillers.
static bool start_fillers(struct cell_part *p, struct error *err)
{
    for (; decoder_has_free_slot(p->c->decoder); p->fillers++)
        if (!start_unrecorded(p->r, p->c, filler_prompt(p->o, p->fillers), 0, p->r->e->new_tokens,
                              filler_number(p->fillers), err))
            return false;
    return true;
}

static bool store_one_turn(struct cell_part *p, struct conversation *t, struct sequence_row *row, struct error *err)
{
    struct runner *r = p->r;
    struct cell_runner *c = p->c;
    const struct environment here = environment_of(r->loaded, c);
    row->prompt = t->prompt->number;
    row->prompt_id = t->prompt->id;
    row->category = t->prompt->category;
    row->turn = t->turn;
    row->repeat = p->o->repeat;
    row->pair = p->o->pair;
    row->prompt_tokens = t->prompt_tokens;
    if (r->loaded->given_up != NULL)
        progress_line(&r->progress, "%s", r->loaded->given_up);
    free(r->loaded->given_up);
    r->loaded->given_up = NULL;
    row->under = c->environment_stored != NULL && strcmp(c->environment_stored, here.processor) == 0 ? NULL : &here;
    t->under_way = false;
    r->progress.tokens += row->new_tokens;
    bool ok = mapped_unchanged(err) && // the weights are still those of the run
              conversation_answered(t, r->loaded, row->token, row->new_tokens, &row->text, err) &&
              store_sequence(r->store, c->run, row, err);
    if (ok && row->under != NULL) {
        free(c->environment_stored);
        c->environment_stored = xstrdup(here.processor);
    }
    return ok;
}

static bool store_finished_turns(struct cell_part *p, struct error *err)
{
    struct sequence_row row;
    for (int64_t number; (number = recorder_take(p->c->recorder, &row)) >= 0;) {
        int i = 0;
        while (!p->conversation[i].under_way ||
               sequence_number(p->conversation[i].prompt->number, p->conversation[i].turn, p->o->repeat) != number)
            i++;
        if (!store_one_turn(p, &p->conversation[i], &row, err))
            return false;
    }
    return true;
}

bool cell_part_open(struct cell_part *p, const struct due *due, struct error *err)
{
    p->label = label_of(p->r, p->c);
    p->earlier = recorder_tokens(p->c->recorder);
    for (int i = 0; i < p->o->n; i++)
        if (due[i].from != PLAN_NOTHING && !conversation_continue(&p->conversation[i], p->r->loaded, due[i].from, err))
            return false;
    return true;
}

bool cell_part_step(struct cell_part *p, struct error *err)
{
    progress_tick(&p->r->progress, p->label);
    return interrupt_check(p->r->stop, err) && start_turns(p, err) &&
           (p->over || (start_fillers(p, err) && decoder_step(p->c->decoder, err) && store_finished_turns(p, err) &&
                        start_turns(p, err)));
}

int64_t cell_part_tokens(const struct cell_part *p)
{
    return recorder_tokens(p->c->recorder) - p->earlier;
}

void cell_part_close(struct cell_part *p)
{
    if (p->c != NULL)
        decoder_drop(p->c->decoder);
    free(p->label);
    *p = (struct cell_part){ 0 };
}
