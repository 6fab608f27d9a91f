#include "commands/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "engine/prompt_tokens.h"
#include "sampling/sampling.h"

static void add_message(struct conversation *c, const char *role, char *content)
{
    array_reserve(c->message, c->capacity, c->n + 1);
    c->message[c->n++] = (struct message){ role, content };
}

static const char *role_of(const char *role)
{
    return strcmp(role, "assistant") == 0 ? "assistant" : "user";
}

struct conversation *conversation_begin(struct prompt p, bool opening, int64_t number)
{
    struct conversation *c = xcalloc(1, sizeof(*c));
    c->prompt = p;
    c->opening = opening;
    c->number = number;
    c->answers = json_new_array();
    if (p.system != NULL)
        add_message(c, "system", xstrdup(p.system));
    for (int i = 0; i < p.n_history; i++)
        add_message(c, role_of(p.history_role[i]), xstrdup(p.history_content[i]));
    if (p.turn != NULL)
        add_message(c, "user", xstrdup(p.turn[0]));
    return c;
}

void conversation_free(struct conversation *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < c->n; i++)
        free((char *)(uintptr_t)c->message[i].content);
    if (c->own != NULL)
        sampling_free(c->own);
    prompt_free(&c->prompt);
    json_free(c->answers);
    free(c->own);
    free(c->message);
    free(c->ids.id);
    free(c->mask.id);
    free(c->shown.s);
    free(c);
}

int64_t conversation_sequence(const struct conversation *c)
{
    return (c->number * MAX_TURNS + c->turn) * 2 + c->opening;
}

// ---- prompts

static bool encode(const struct target *t, const struct chat_format *chat, const char *text, bool first, struct ids *to,
                   struct error *err)
{
    return first && chat_lacks_bos(chat) ? target_encode(t, text, strlen(text), true, to, err)
                                         : target_encode_more(t, text, strlen(text), to, err);
}

// Adds what follows the text that is in ids already.
static bool add_shown(struct conversation *c, const struct target *t, const struct chat_format *chat, struct error *err)
{
    struct text text = { 0 };
    struct error why;
    const size_t shown = c->shown.n;
    bool ok = c->opening ? chat_render_user(chat, &text, err) : chat_render(chat, c->message, c->n, &text, err);
    ok = ok && (shown == 0 || strncmp(text.s, c->shown.s, shown) == 0 ||
                fail(err, "%s: the chat template renders earlier turns in another way once a turn follows", t->path));
    if (ok && !encode(t, chat, text.s + shown, shown == 0, &c->ids, &why))
        ok = fail(err, "%s:%d: prompt %s: %s", c->prompt.path, c->prompt.line, c->prompt.id, why.text);
    if (ok && c->opening && c->ids.n == 0)
        ok =
            fail(err, "the chat template writes nothing before the user's text, so that the model cannot begin a turn");
    free(c->shown.s);
    c->shown = text;
    return ok;
}

bool conversation_prompt(struct conversation *c, const struct target *t, const struct chat_format *chat, struct ids *to,
                         struct error *err)
{
    const bool plain = c->prompt.ids != NULL || c->prompt.raw;
    if (!(plain ? prompt_token_ids(t, chat, &c->prompt, NULL, 0, &c->ids, err) : add_shown(c, t, chat, err)))
        return false;
    while (c->mask.n < c->ids.n)
        ids_add(&c->mask, 0);
    for (size_t i = 0; i < c->ids.n; i++)
        ids_add(to, c->ids.id[i]);
    return true;
}

// ---- what the target wrote

static bool has_special(const struct target *t, const int32_t *token, int n)
{
    for (int i = 0; i < n && t->tokenizer != NULL; i++)
        if (tokenizer_is_special(t->tokenizer, token[i]))
            return true;
    return false;
}

// Adds the prompt's next turn if the rendered text with it begins with what the model saw and wrote: the answer ended as the template
// ends answers, and the template writes it again as it was.
static bool next_turn(struct conversation *c, const struct chat_format *chat)
{
    struct text text = { 0 };
    struct error ignored;
    add_message(c, "user", xstrdup(c->prompt.turn[c->turn]));
    const bool follows = chat_render(chat, c->message, c->n, &text, &ignored) && text.n > c->shown.n &&
                         memcmp(text.s, c->shown.s, c->shown.n) == 0;
    if (!follows)
        free((char *)(uintptr_t)c->message[--c->n].content);
    free(text.s);
    return follows;
}

static void add_answer(struct conversation *c, const char *text, size_t bytes, int n, enum stop_reason why,
                       bool special)
{
    json_push(c->answers, json_object_of(JSON("text", text != NULL ? json_new_text_n(text, bytes) : json_new_null()),
                                         JSON("tokens", n), JSON("stop", stop_name(why)), JSON("special", special)));
}

bool conversation_take(struct conversation *c, const struct target *t, const struct chat_format *chat,
                       const struct stop_strings *stops, const int32_t *token, int n, enum stop_reason why)
{
    const bool ended = why == STOP_TOKEN;
    const int written = n - ended; // without the end token
    size_t bytes = 0;
    char *text = why == STOP_STRING ? stop_strings_text(stops, token, n, &bytes)
                                    : target_text(t, token, (size_t)written, &bytes);
    for (int i = 0; i < n; i++) {
        ids_add(&c->ids, token[i]);
        ids_add(&c->mask, 1);
    }
    if (text != NULL && c->prompt.turn != NULL && !c->prompt.raw && chat_opens_with_space(chat) && text[0] == ' ')
        memmove(text, text + 1, bytes--);
    add_answer(c, text, bytes, n, why, has_special(t, token, written));
    if (t->tokenizer == NULL)
        return false;
    add_message(c, c->opening ? "user" : "assistant", text);
    if (++c->turn >= c->prompt.n_turns || !ended)
        return false;
    size_t end_n = 0;
    const char *end = tokenizer_token(t->tokenizer, token[n - 1], &end_n);
    struct decoding goes_on = { .begun = true }; // no space is dropped within a text
    tokenizer_decode(t->tokenizer, token, (size_t)written, false, &goes_on, &c->shown);
    tokenizer_decode_end(&goes_on, &c->shown);
    if (end != NULL)
        text_add(&c->shown, end, end_n);
    return end != NULL && next_turn(c, chat);
}

struct json *conversation_line(const struct conversation *c)
{
    struct json *messages = json_new_array();
    for (int i = 0; i < c->n; i++)
        json_push(messages, json_object_of(JSON("role", c->message[i].role), JSON("content", c->message[i].content)));
    struct json *line =
        json_object_of(JSON("id", c->prompt.id), JSON("number", c->number), JSON("messages", messages),
                       JSON("answers", json_clone(c->answers)), JSON("input_ids", json_new_ids(c->ids.id, c->ids.n)),
                       JSON("loss_mask", json_new_ids(c->mask.id, c->mask.n)));
    if (c->unanswered != NULL)
        json_set(line, "unanswered", json_new_text(c->unanswered));
    return line;
}
