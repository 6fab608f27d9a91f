#include "commands/distill/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "commands/distill/distill.h"
#include "commands/distill/words.h"
#include "core/error.h"
#include "core/json.h"

static void add_message(struct conversation *c, const char *role, char *content)
{
    if (c->n == c->capacity) {
        c->capacity = (int)next_capacity((size_t)c->capacity, (size_t)c->n + 1);
        c->message = xrealloc(c->message, (size_t)c->capacity * sizeof(*c->message));
    }
    c->message[c->n++] = (struct message){ role, content };
}

static const char *role_of(const char *role)
{
    return strcmp(role, "assistant") == 0 ? "assistant" : "user";
}

struct conversation *conversation_begin(const struct planned *p)
{
    struct conversation *c = xcalloc(1, sizeof(*c));
    c->planned = *p;
    c->phase = p->prompt != NULL ? ANSWERING : INVENTING;
    if (p->prompt == NULL)
        return c;
    if (p->prompt->system != NULL)
        add_message(c, "system", xstrdup(p->prompt->system));
    for (int i = 0; i < p->prompt->n_history; i++)
        add_message(c, role_of(p->prompt->history_role[i]), xstrdup(p->prompt->history_content[i]));
    add_message(c, "user", xstrdup(p->prompt->turn[0]));
    return c;
}

void conversation_free(struct conversation *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < c->n; i++)
        free((char *)(uintptr_t)c->message[i].content);
    free(c->message);
    free(c->ids.id);
    free(c->mask.id);
    free(c->shown.s);
    free(c);
}

const char *conversation_user(const struct conversation *c)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->message[i].role, "user") == 0)
            return c->message[i].content;
    return "";
}

// ---- prompts

static bool encode(const struct target *t, const struct chat_format *chat, const char *text, bool first, struct ids *to,
                   struct error *err)
{
    return first && chat_lacks_bos(chat) ? target_encode(t, text, strlen(text), true, to, err)
                                         : target_encode_more(t, text, strlen(text), to, err);
}

bool conversation_prompt(struct conversation *c, const struct target *t, const struct chat_format *chat, struct ids *to,
                         struct error *err)
{
    struct text text = { 0 };
    struct error why;
    if (c->phase == INVENTING) {
        const bool ok = chat_render_user(chat, &text, err) && encode(t, chat, text.s, true, to, err);
        free(text.s);
        return ok;
    }
    const size_t shown = c->shown.n;
    bool ok = chat_render(chat, c->message, c->n, &text, err);
    ok = ok && (shown == 0 || strncmp(text.s, c->shown.s, shown) == 0 ||
                fail(err, "%s: the chat template renders earlier turns in another way once a turn follows", t->path));
    if (ok && !encode(t, chat, text.s + shown, shown == 0, &c->ids, &why))
        ok = fail(err, "conversation %s: %s", c->planned.id, why.text);
    while (c->mask.n < c->ids.n)
        ids_add(&c->mask, 0);
    for (size_t i = 0; ok && i < c->ids.n; i++)
        ids_add(to, c->ids.id[i]);
    free(c->shown.s);
    c->shown = text;
    return ok;
}

// ---- what the target wrote

static bool has_special(const struct target *t, const int32_t *token, int n)
{
    for (int i = 0; i < n; i++)
        if (tokenizer_is_special(t->tokenizer, token[i]))
            return true;
    return false;
}

static size_t words_in(const char *text)
{
    struct words w = { 0 };
    words_read(&w, text);
    const size_t n = w.n;
    words_free(&w);
    return n;
}

static void trim(char *text)
{
    static const char blank[] = " \t\r\n";
    size_t from = strspn(text, blank), n = strlen(text);
    while (n > from && strchr(blank, text[n - 1]) != NULL)
        n--;
    memmove(text, text + from, n - from);
    text[n - from] = '\0';
}

static enum drop take_user(struct conversation *c, char *text, bool ended)
{
    trim(text);
    add_message(c, "user", text);
    c->phase = ANSWERING;
    return !ended ? DROP_UNENDED : words_in(text) < MIN_WORDS ? DROP_SHORT : DROP_NOT;
}

// Adds the prompt's next turn if the rendered text with it begins with what the model saw and wrote: the answer ended as the template
// ends answers, and the template writes it again as it was.
static bool next_turn(struct conversation *c, const struct chat_format *chat)
{
    struct text text = { 0 };
    struct error ignored;
    add_message(c, "user", xstrdup(c->planned.prompt->turn[c->turn]));
    const bool follows = chat_render(chat, c->message, c->n, &text, &ignored) && text.n > c->shown.n &&
                         memcmp(text.s, c->shown.s, c->shown.n) == 0;
    if (!follows)
        free((char *)(uintptr_t)c->message[--c->n].content);
    free(text.s);
    return follows;
}

// ended: its last token is one that ends answers.
static enum drop take_answer(struct conversation *c, const struct target *t, const struct chat_format *chat, char *text,
                             const int32_t *token, int n, bool ended)
{
    const struct prompt *p = c->planned.prompt;
    size_t end_n = 0;
    const char *end = ended ? tokenizer_token(t->tokenizer, token[n - 1], &end_n) : NULL;
    const bool empty = text[strspn(text, " \t\r\n")] == '\0';
    for (int i = 0; i < n; i++) {
        ids_add(&c->ids, token[i]);
        ids_add(&c->mask, 1);
    }
    c->answer_tokens += n;
    struct decoding goes_on = { .begun = true }; // no space is dropped within a text
    tokenizer_decode(t->tokenizer, token, (size_t)(n - ended), false, &goes_on, &c->shown);
    tokenizer_decode_end(&goes_on, &c->shown);
    if (end != NULL)
        text_add(&c->shown, end, end_n);
    if (chat_opens_with_space(chat) && text[0] == ' ')
        memmove(text, text + 1, strlen(text));
    add_message(c, "assistant", text);
    c->turn++;
    const bool more = p != NULL && c->turn < p->n_turns;
    if (!more || end == NULL || !next_turn(c, chat)) {
        c->phase = WAITING;
        c->shortened = more;
    }
    return empty ? DROP_EMPTY : DROP_NOT;
}

enum drop conversation_take(struct conversation *c, const struct target *t, const struct chat_format *chat,
                            const int32_t *token, int n, enum stop_reason why)
{
    const bool ended = why == STOP_TOKEN;
    const int written = n - ended; // without the end token
    char *text = target_text(t, token, (size_t)written, NULL);
    c->cut = c->phase == ANSWERING && !ended;
    const enum drop drop =
        c->phase == INVENTING ? take_user(c, text, ended) : take_answer(c, t, chat, text, token, n, ended);
    return drop == DROP_NOT && has_special(t, token, written) ? DROP_SPECIAL : drop;
}

struct json *conversation_line(const struct conversation *c, double temperature, int64_t seed)
{
    struct json *line = json_new_object(), *messages = json_new_array();
    for (int i = 0; i < c->n; i++) {
        struct json *m = json_new_object();
        json_set(m, "role", json_new_text(c->message[i].role));
        json_set(m, "content", json_new_text(c->message[i].content));
        json_push(messages, m);
    }
    json_set(line, "id", json_new_text(c->planned.id));
    json_set(line, "conversations", messages);
    json_set(line, "input_ids", json_new_ids(c->ids.id, c->ids.n));
    json_set(line, "loss_mask", json_new_ids(c->mask.id, c->mask.n));
    json_set(line, "temperature", json_new_number(temperature));
    json_set(line, "seed", json_new_int(seed));
    return line;
}
