// conversation.c - each turn contains the answers to earlier turns, so stored turns are read in order. Whether the next turn fits
// the context is computed from those answers and never stored.
#include "experiments/pairs/conversation.h"

#include <assert.h>
#include <stdlib.h>

#include "core/memory.h"
#include "experiments/cells.h"
#include "engine/prompt_tokens.h"
#include "experiments/pairs/plan.h"
#include "results/store.h"

bool conversation_is_over(const struct conversation *t)
{
    return t->full || t->turn == t->prompt->n_turns;
}

bool conversation_ids(const struct conversation *t, const struct loaded_experiment *o, struct ids *to,
                      struct error *err)
{
    return prompt_token_ids(&o->target, &o->chat, t->prompt, t->answer, t->turn, to, err);
}

// Sets t->full. Every first turn fits: loaded_experiment_open has checked them.
static bool update_full(struct conversation *t, const struct loaded_experiment *o, struct error *err)
{
    t->full = false;
    if (t->turn == 0 || t->turn == t->prompt->n_turns)
        return true;
    struct ids ids = { 0 };
    bool ok = conversation_ids(t, o, &ids, err);
    t->full = ok && ids.n >= (size_t)o->context;
    free(ids.id);
    return ok;
}

static void set_answer(struct conversation *t, const struct loaded_experiment *o, const int32_t *token, int n)
{
    free(t->answer[t->turn]);
    t->answer[t->turn++] = target_text(&o->target, token, (size_t)n, NULL);
}

bool conversation_answered(struct conversation *t, const struct loaded_experiment *o, const int32_t *token, int n,
                           const char **text, struct error *err)
{
    int turn = t->turn;
    set_answer(t, o, token, n);
    *text = t->answer[turn];
    return update_full(t, o, err);
}

// Reads a stored turn. A turn that does not continue the current answers enters the history only: it continues other answers.
static bool read_turn(struct conversation *t, const struct loaded_experiment *o, struct store *s, int64_t run,
                      int64_t none, int turn, int repeat, struct history *to, struct error *err)
{
    struct stored_turn stored;
    if (!store_turn(s, run, t->prompt->number, turn, repeat, &stored, err))
        return false;
    to->turn[turn].pair = stored.found ? stored.pair : 0;
    if (history_answers(to) == turn + 1)
        set_answer(t, o, stored.token, stored.n);
    free(stored.token);
    return !stored.found || store_has_pair(s, run, none, t->prompt->number, turn, repeat, &to->turn[turn].paired, err);
}

bool conversation_open(struct conversation *t, const struct loaded_experiment *o, struct store *s, int64_t run,
                       int64_t none, const struct prompt *p, int repeat, struct history *to, struct error *err)
{
    *t = (struct conversation){ .prompt = p, .answer = xcalloc((size_t)p->n_turns, sizeof(*t->answer)) };
    *to = (struct history){ .n_turns = p->n_turns };
    bool ok = true;
    for (int turn = 0; turn < p->n_turns && s != NULL && run != 0 && ok; turn++)
        ok = read_turn(t, o, s, run, none, turn, repeat, to, err);
    assert(!ok || t->turn == history_answers(to));
    ok = ok && update_full(t, o, err);
    to->full = t->full;
    return ok;
}

bool conversation_continue(struct conversation *t, const struct loaded_experiment *o, int turn, struct error *err)
{
    assert(turn <= t->turn);
    t->turn = turn;
    return update_full(t, o, err);
}

void conversation_close(struct conversation *t)
{
    for (int i = 0; t->answer != NULL && i < t->prompt->n_turns; i++)
        free(t->answer[i]);
    free(t->answer);
    *t = (struct conversation){ 0 };
}
