// conversation.c - a prompt's turn as the tokens that the target reads: what came before it, the model's own answers
// included, and what the user says now.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "experiments/cells.h"

// Every message up to this turn's; returns how many. message: room for 2 + n_history + 2 * turns.
static int messages(const struct prompt *p, char *const *answer, int turn, struct message *message)
{
    int n = 0;
    if (p->system != NULL)
        message[n++] = (struct message){ "system", p->system };
    for (int i = 0; i < p->n_history; i++)
        message[n++] = (struct message){ p->history_role[i], p->history_content[i] };
    for (int t = 0; t <= turn; t++) {
        message[n++] = (struct message){ "user", p->turn[t] };
        if (t < turn)
            message[n++] = (struct message){ "assistant", answer[t] };
    }
    return n;
}

// Without a chat format a conversation is its texts, each on a line of its own.
static void join(const struct message *m, int n, struct text *to)
{
    for (int i = 0; i < n; i++)
        text_printf(to, "%s%s", i > 0 ? "\n" : "", m[i].content);
}

bool conversation_ids(const struct opened *o, const struct prompt *p, char *const *answer, int turn, struct ids *to,
                      struct error *err)
{
    if (p->ids != NULL) {
        for (int i = 0; i < p->n_ids; i++)
            ids_add(to, p->ids[i]);
        return true;
    }
    struct text text = { 0 };
    struct message *m = xcalloc((size_t)p->n_history + 2 * (size_t)p->n_turns + 2, sizeof(*m));
    int n = messages(p, answer, turn, m);
    if (p->raw || o->chat.kind == CHAT_NONE)
        join(m, n, &text);
    else
        chat_render(&o->chat, m, n, &text);
    free(m);
    struct error why;
    // Special tokens are read as such in plain text too: `chat: none` is how one brings a template of one's own.
    bool ok = target_encode(&o->target, text.s, text.n, true, to, &why);
    free(text.s);
    return ok || fail(err, "%s:%d: prompt %s, turn %d: %s", o->e->prompts.path, p->line, p->id, turn, why.text);
}

char *conversation_text(const struct opened *o, const int32_t *token, int n)
{
    if (o->target.tokenizer == NULL)
        return NULL;
    struct decoding hold = { 0 };
    struct text text = { 0 };
    text_puts(&text, "");
    tokenizer_decode(o->target.tokenizer, token, (size_t)n, false, &hold, &text);
    tokenizer_decode_end(&hold, &text);
    return text.s;
}
