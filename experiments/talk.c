// talk.c - a conversation is a chain: each turn is asked with the answers before it, so what was stored is taken up in
// order and the first turn that is missing is where it goes on.
#include "experiments/talk.h"

#include <assert.h>
#include <stdlib.h>

#include "core/memory.h"
#include "experiments/cells.h"
#include "experiments/conversation.h"
#include "results/store.h"

bool talk_is_over(const struct talk *t)
{
    return t->turn == t->prompt->n_turns;
}

bool talk_ids(const struct talk *t, const struct opened *o, struct ids *to, struct error *err)
{
    return conversation_ids(&o->target, &o->chat, t->prompt, t->answer, t->turn, to, err);
}

// Every first turn fits: opened_open saw to that.
static bool end_if_full(struct talk *t, const struct opened *o, struct error *err)
{
    if (talk_is_over(t) || t->turn == 0)
        return true;
    struct ids ids = { 0 };
    bool ok = talk_ids(t, o, &ids, err);
    if (ok && ids.n >= (size_t)o->context) {
        t->turn = t->prompt->n_turns;
        t->cut = true;
    }
    free(ids.id);
    return ok;
}

static void take_answer(struct talk *t, const struct opened *o, const int32_t *token, int n)
{
    free(t->answer[t->turn]);
    t->answer[t->turn++] = conversation_text(&o->target, token, n);
}

bool talk_answered(struct talk *t, const struct opened *o, const int32_t *token, int n, const char **text,
                   struct error *err)
{
    int turn = t->turn;
    take_answer(t, o, token, n);
    *text = t->answer[turn];
    return end_if_full(t, o, err);
}

bool talk_open(struct talk *t, const struct opened *o, struct store *s, int64_t run, const struct prompt *p, int repeat,
               struct error *err)
{
    *t = (struct talk){ .prompt = p, .answer = xcalloc((size_t)p->n_turns, sizeof(*t->answer)) };
    bool ok = true, found = s != NULL && run != 0;
    while (ok && found && !talk_is_over(t)) {
        struct stored_turn stored;
        ok = store_turn(s, run, p->number, t->turn, repeat, &stored, err);
        found = ok && stored.found;
        if (found)
            take_answer(t, o, stored.token, stored.n);
        free(stored.token);
    }
    return ok && end_if_full(t, o, err);
}

void talk_rewind(struct talk *t, int turn)
{
    if (turn < t->turn) {
        t->turn = turn;
        t->cut = false;
    }
}

void talk_close(struct talk *t)
{
    for (int i = 0; t->answer != NULL && i < t->prompt->n_turns; i++)
        free(t->answer[i]);
    free(t->answer);
    *t = (struct talk){ 0 };
}
