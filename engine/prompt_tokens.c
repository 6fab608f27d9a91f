// prompt_tokens.c - the token ids of a turn: earlier messages, the model's own answers included, then the user's message.
#include "engine/prompts.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "engine/engine.h"

// All messages up to this turn's. message: capacity n_history + 2 * n_turns. Returns their number.
static int messages(const struct prompt *p, char *const *answer, int turn, struct message *message)
{
    int n = 0;
    for (int i = 0; i < p->n_history; i++)
        message[n++] = p->history[i];
    for (int t = 0; t <= turn; t++) {
        message[n++] = (struct message){ "user", p->turn[t] };
        if (t < turn)
            message[n++] = (struct message){ "assistant", answer[t] };
    }
    return n;
}

// Without a chat template a conversation is its texts, one per line.
static void join(const struct message *m, int n, struct text *to)
{
    for (int i = 0; i < n; i++)
        text_printf(to, "%s%s", i > 0 ? "\n" : "", m[i].content);
}

static bool given_ids(const struct target *target, const struct prompt *p, struct ids *to, struct error *err)
{
    for (int i = 0; i < p->n_ids; i++) {
        if (p->ids[i] >= target->used_vocab)
            return fail(err,
                        "%s:%d: input_ids[%d]: expected an id below %d, where the target's vocabulary ends, found %d",
                        p->path, p->line, i, target->used_vocab, p->ids[i]);
        ids_add(to, p->ids[i]);
    }
    return true;
}

bool prompt_token_ids(const struct target *target, const struct chat_format *chat, const struct prompt *p,
                      char *const *answer, int turn, struct ids *to, struct error *err)
{
    if (p->ids != NULL)
        return given_ids(target, p, to, err);
    struct message *m = xcalloc((size_t)p->n_history + 2 * (size_t)p->n_turns, sizeof(*m));
    const int n = messages(p, answer, turn, m);
    struct error why;
    bool ok;
    if (p->raw || chat->kind == CHAT_NONE) {
        struct text text = { 0 };
        join(m, n, &text);
        // Special tokens are recognized in plain text too, so that with `chat: none` a prompt can contain a rendered template.
        ok = target_encode(target, ENCODE_BOS | ENCODE_SPECIAL, text.s, text.n, to, &why);
        free(text.s);
    } else
        ok = target_encode_chat(target, chat, m, n, to, &why);
    free(m);
    return ok || fail(err, "%s:%d: prompt %s, turn %d: %s", p->path, p->line, p->id, turn, why.text);
}
