// generate_prompts.c - `speclab generate --prompts`: many prompts, in slots that are refilled as texts end.
//
// Random numbers are addressed by a prompt's number (its line, or `number`), turn and position, so an answer depends on
// neither slots nor order. The lines of a file come in its order. Prompts on stdin are read when a slot is free, and
// answered as they end: a program can go on by what was answered.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/generate.h"
#include "core/files/json_lines.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/files/mapped.h"
#include "core/files/part.h"
#include "core/json.h"
#include "core/settings.h"
#include "engine/prompts.h"
#include "models/model.h"
#include "sampling/sampling.h"

enum { DEFAULT_BATCH = 64, DEFAULT_CONTEXT = 2048, CONVERSATIONS = 1 << 25 };

// One prompt under way: its messages, and the tokens that the target saw and wrote.
//
//     begin -> { prompt -> decoded } for each turn -> line
struct conversation {
    struct prompt prompt;    // owned
    bool opening;            // the model writes the user's turn, from the chat template's beginning
    int64_t number;          // selects random numbers
    int64_t position;        // which line it is among the prompts
    char *sampling;          // this prompt's alone; NULL: it has none
    int turn;                // which of the user's, from 0
    struct message *message; // (n) role: constant; content: owned
    int n, capacity;
    struct ids ids, mask;   // what the target saw and wrote; 1: written as an answer
    struct text shown;      // the rendered text of ids
    struct json *answers;   // a list: text, tokens, stop, special
    const char *unanswered; // why there is no answer to a turn: "empty", "long"; NULL: none is missing
    bool ended, goes_on;    // its text has; another turn is to be answered
};

struct batch {
    struct generate *g;
    struct json_lines lines;
    struct conversation *slot[MAX_SLOTS]; // NULL: free
    int context;
    bool in_order;
    char **held; // (read) lines that wait for earlier ones; NULL: not there yet, or printed
    size_t capacity;
    int64_t read, printed; // prompts
};

// ---- conversations

static void add_message(struct conversation *c, const char *role, char *content)
{
    array_reserve(c->message, c->capacity, c->n + 1);
    c->message[c->n++] = (struct message){ role, content };
}

// Takes over the prompt.
static struct conversation *conversation_begin(struct prompt p, bool opening)
{
    struct conversation *c = xcalloc(1, sizeof(*c));
    c->prompt = p;
    c->opening = opening;
    c->answers = json_new_array();
    for (int i = 0; i < p.n_history; i++)
        add_message(c, p.history[i].role, xstrdup(p.history[i].content));
    if (p.turn != NULL)
        add_message(c, "user", xstrdup(p.turn[0]));
    return c;
}

static void conversation_free(struct conversation *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < c->n; i++)
        free((char *)(uintptr_t)c->message[i].content);
    prompt_free(&c->prompt);
    json_free(c->answers);
    free(c->sampling);
    free(c->message);
    free(c->ids.id);
    free(c->mask.id);
    free(c->shown.s);
    free(c);
}

// Its next text's, below 2^32 if the number is below CONVERSATIONS.
static int64_t conversation_sequence(const struct conversation *c)
{
    return (c->number * MAX_TURNS + c->turn) * 2 + c->opening;
}

// ---- prompts

static bool encode(const struct speclab_target *t, const char *text, bool first, struct ids *to, struct error *err)
{
    return target_encode(t, first ? encode_rendered(&t->chat) : ENCODE_SPECIAL, text, strlen(text), to, err);
}

// Adds what follows the text that is in ids already.
static bool add_shown(struct conversation *c, const struct speclab_target *t, struct error *err)
{
    const struct chat_format *chat = &t->chat;
    struct text text = { 0 };
    struct error why;
    const size_t shown = c->shown.n;
    bool ok = c->opening ? chat_render_user(chat, &text, err) : chat_render(chat, c->message, c->n, &text, err);
    ok = ok && (shown == 0 || strncmp(text.s, c->shown.s, shown) == 0 ||
                fail(err, "%s: the chat template renders earlier turns in another way once a turn follows", t->path));
    if (ok && !encode(t, text.s + shown, shown == 0, &c->ids, &why))
        ok = fail(err, "%s:%d: prompt %s: %s", c->prompt.path, c->prompt.line, c->prompt.id, why.text);
    if (ok && c->opening && c->ids.n == 0)
        ok =
            fail(err, "the chat template writes nothing before the user's text, so that the model cannot begin a turn");
    free(c->shown.s);
    c->shown = text;
    return ok;
}

// What the target reads next: the conversation up to the answer, or for an opening up to the user's text.
static bool conversation_prompt(struct conversation *c, const struct speclab_target *t, struct ids *to,
                                struct error *err)
{
    const bool plain = c->prompt.ids != NULL || c->prompt.raw;
    if (!(plain ? prompt_token_ids(t, &c->prompt, NULL, 0, &c->ids, err) : add_shown(c, t, err)))
        return false;
    while (c->mask.n < c->ids.n)
        ids_add(&c->mask, 0);
    for (size_t i = 0; i < c->ids.n; i++)
        ids_add(to, c->ids.id[i]);
    return true;
}

// ---- what the target wrote

static bool has_special(const struct speclab_target *t, const int32_t *token, int n)
{
    for (int i = 0; i < n && t->tokenizer != NULL; i++)
        if (tokenizer_is_special(t->tokenizer, token[i]))
            return true;
    return false;
}

// Adds the prompt's next turn if the rendered text with it begins with what the model saw and wrote: the answer ended
// as the template ends answers, and the template writes it again as it was.
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

// Takes the tokens that followed. Returns whether another turn is to be answered.
static bool conversation_take(struct conversation *c, const struct generate *g, const struct speclab_end *e)
{
    const struct speclab_target *t = g->target;
    const struct stop_strings stops = generate_stops(g);
    const bool ended = e->why == SPECLAB_STOP_TOKEN;
    const int written = e->n - ended; // the end token is not written
    size_t bytes = 0;
    char *text = e->why == SPECLAB_STOP_STRING ? stop_strings_text(&stops, e->token, e->n, &bytes)
                                               : speclab_text(t, e->token, (size_t)written, &bytes);
    for (int i = 0; i < e->n; i++) {
        ids_add(&c->ids, e->token[i]);
        ids_add(&c->mask, 1);
    }
    if (text != NULL && c->prompt.turn != NULL && !c->prompt.raw && chat_opens_with_space(&t->chat) && text[0] == ' ')
        memmove(text, text + 1, bytes--);
    json_push(c->answers, json_object_of(JSON("text", text != NULL ? json_new_text_n(text, bytes) : json_new_null()),
                                         JSON("tokens", e->n), JSON("stop", e->reason),
                                         JSON("special", has_special(t, e->token, written))));
    if (t->tokenizer == NULL)
        return false;
    add_message(c, c->opening ? "user" : "assistant", text);
    if (++c->turn >= c->prompt.n_turns || !ended)
        return false;
    size_t end_n = 0;
    const char *end = tokenizer_token(t->tokenizer, e->token[written], &end_n);
    struct decoding goes_on = { .begun = true }; // no space is dropped within a text
    tokenizer_decode(t->tokenizer, e->token, (size_t)written, false, &goes_on, &c->shown);
    tokenizer_decode_end(&goes_on, &c->shown);
    if (end != NULL)
        text_add(&c->shown, end, end_n);
    return end != NULL && next_turn(c, &t->chat);
}

// id, number, messages, answers, input_ids, loss_mask, unanswered.
static struct json *conversation_line(const struct conversation *c)
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

// ---- lines

// Whether reading a line does not wait.
static bool line_is_ready(const struct lines *l)
{
    struct pollfd p = { .fd = l->fd, .events = POLLIN };
    return l->ended || (l->end > l->begin && memchr(l->buffer + l->begin, '\n', l->end - l->begin) != NULL) ||
           poll(&p, 1, 0) != 0;
}

// A sampling of its own, if the line has sampling stages.
static bool read_sampling(struct batch *b, char **to, struct error *err)
{
    bool own = false;
    *to = NULL;
    for (int k = 0; stages[k] != NULL; k++)
        own = own || !json_is_null(json_get(b->lines.value, stages[k]->name));
    if (!own)
        return true;
    struct settings *s = generate_sampling(b->g, b->lines.value, err);
    struct sampling read = { 0 };
    const bool ok = s != NULL && sampling_read(s, &read, err) && sampling_check(&read, b->g->target->used_vocab, err);
    struct text text = { 0 };
    for (int i = 0; ok && i < s->n; i++) {
        text_printf(&text, "%s%s=", i > 0 ? "," : "", s->key[i]);
        settings_write(s->item[i], &text);
    }
    *to = text.s;
    sampling_free(&read);
    settings_free(s);
    return ok;
}

static bool read_number(struct batch *b, int64_t *to, struct error *err)
{
    const struct json *n = json_get(b->lines.value, "number");
    *to = json_is_null(n) ? b->read : json_int(n);
    if ((!json_is_null(n) && !json_is_int(n)) || *to < 0 || *to >= CONVERSATIONS)
        return fail(err, "number: expected an integer from 0 to %d, found %s", CONVERSATIONS - 1,
                    json_is_int(n) ? "another" : json_described(n));
    for (int i = 0; i < b->g->batch; i++)
        if (b->slot[i] != NULL && b->slot[i]->number == *to)
            return fail(err, "number: expected one that no prompt under way has, found %lld", (long long)*to);
    return true;
}

// The prompt of the line that was read.
static bool read_prompt(struct batch *b, struct conversation **to, struct error *err)
{
    struct prompt p;
    char *own = NULL;
    int64_t number;
    bool opening;
    if (!prompt_of_line(b->lines.value, b->lines.lines.name, (int)b->lines.lines.number, (int)(b->read % CONVERSATIONS),
                        &opening, &p, err))
        return false;
    bool ok = (read_number(b, &number, err) && read_sampling(b, &own, err)) || json_lines_place(&b->lines, err);
    ok = ok && (p.ids != NULL || p.raw || speclab_target_has_chat(b->g->target, err));
    *to = conversation_begin(p, opening);
    (*to)->number = number;
    (*to)->sampling = own;
    return ok;
}

static void print_line(char *line)
{
    printf("%s\n", line);
    free(line);
}

// Prints the slot's conversation, or keeps it until the earlier ones are there, and frees the slot.
static bool leave(struct batch *b, struct conversation **slot, struct error *err)
{
    struct json *j = conversation_line(*slot);
    const int64_t position = (*slot)->position;
    char *line = json_write(j);
    json_free(j);
    conversation_free(*slot);
    *slot = NULL;
    if (!mapped_unchanged(err)) {
        free(line);
        return false;
    }
    if (!b->in_order)
        print_line(line);
    else
        b->held[position] = line;
    for (; b->in_order && b->printed < b->read && b->held[b->printed] != NULL; b->held[b->printed++] = NULL)
        print_line(b->held[b->printed]);
    return true;
}

// ---- decoding

static bool start(struct batch *b, struct conversation **slot, struct error *err)
{
    const struct generate *g = b->g;
    struct conversation *c = *slot;
    struct ids prompt = { 0 };
    bool ok = conversation_prompt(c, g->target, &prompt, err);
    if (ok && (prompt.n == 0 || prompt.n >= (size_t)b->context)) {
        c->unanswered = prompt.n == 0 ? "empty" : "long";
        ok = leave(b, slot, err);
    } else if (ok) {
        struct speclab_request r = generate_request(g, conversation_sequence(c), &prompt);
        r.sampling = c->sampling;
        ok = speclab_decoder_start(g->decoder, &r, err);
    }
    free(prompt.id);
    return ok;
}

static bool fill_slots(struct batch *b, bool *more, struct error *err)
{
    for (int i = 0; i < b->g->batch && *more; i++) {
        struct conversation **slot = &b->slot[i];
        if (*slot != NULL)
            continue;
        if (speclab_decoder_active(b->g->decoder) > 0 && !line_is_ready(&b->lines.lines))
            return true;
        fflush(stdout); // who writes the prompts may wait for answers
        *more = json_lines_next(&b->lines, err);
        if (!*more)
            return !b->lines.failed &&
                   (b->read > 0 || !b->in_order || fail(err, "%s: expected prompts, found none", b->lines.lines.name));
        if (b->in_order)
            array_reserve(b->held, b->capacity, b->read + 1);
        if (b->in_order)
            b->held[b->read] = NULL;
        const bool ok = read_prompt(b, slot, err);
        if (ok)
            (*slot)->position = b->read;
        b->read++;
        if (!ok || !start(b, slot, err))
            return false;
        i -= *slot == NULL; // it needed no slot
    }
    return true;
}

static void on_done(void *self, const struct speclab_end *e)
{
    struct batch *b = self;
    for (int i = 0; i < b->g->batch; i++) {
        struct conversation *c = b->slot[i];
        if (c == NULL || c->ended || conversation_sequence(c) != e->sequence)
            continue;
        c->goes_on = conversation_take(c, b->g, e);
        c->ended = true;
    }
}

// Goes on with what ended, or leaves it.
static bool take_ended(struct batch *b, struct error *err)
{
    bool ok = true;
    for (int i = 0; i < b->g->batch; i++)
        if (b->slot[i] != NULL && b->slot[i]->ended) {
            b->slot[i]->ended = false;
            ok = ok && (b->slot[i]->goes_on ? start : leave)(b, &b->slot[i], err);
        }
    return ok;
}

static bool decode_all(struct batch *b, struct error *err)
{
    const volatile int *stop = interrupt_catch_in_plugins();
    for (bool more = true;;) {
        if (!interrupt_check(stop, err) || !fill_slots(b, &more, err))
            return false;
        const int active = speclab_decoder_active(b->g->decoder);
        if (stdout_failed() || (active == 0 && !more))
            return true;
        if (active > 0 && (!speclab_decoder_step(b->g->decoder, err) || !take_ended(b, err)))
            return false;
    }
}

static bool open_all(struct batch *b, struct error *err)
{
    struct generate *g = b->g;
    if (!generate_open_target(g, err))
        return false;
    const int trained = model_shape(g->target->model)->context;
    if (g->context > trained)
        return fail(err, "--context: expected at most %d, the model's context, found %lld", trained, g->context);
    b->context = g->context > 0 ? (int)g->context : trained < DEFAULT_CONTEXT ? trained : DEFAULT_CONTEXT;
    g->batch = g->batch > 0 ? g->batch : DEFAULT_BATCH;
    return json_lines_open(&b->lines, g->prompts, err) &&
           generate_open(g, (int)g->batch, b->context, (struct speclab_listener){ .end = on_done, .self = b }, err);
}

static void print_settings(const struct batch *b)
{
    const struct generate *g = b->g;
    struct json *settings = generate_settings(g);
    json_add(settings, JSON("config_hash", hash_text(model_config(g->target->model)->hash).s),
             JSON("context", b->context), JSON("batch", g->batch));
    json_print(json_object_of(JSON("settings", settings)), stdout);
    fflush(stdout);
}

bool generate_prompts(struct generate *g, struct error *err)
{
    struct batch *b = xcalloc(1, sizeof(*b));
    b->g = g;
    b->in_order = strcmp(g->prompts, "-") != 0;
    bool ok = open_all(b, err);
    if (ok) {
        print_settings(b);
        ok = decode_all(b, err);
    }
    for (int i = 0; i < MAX_SLOTS; i++)
        conversation_free(b->slot[i]);
    for (int64_t i = b->printed; b->in_order && i < b->read; i++)
        free(b->held[i]);
    free(b->held);
    json_lines_close(&b->lines);
    free(b);
    return ok;
}
