// generate_prompts.c - `speclab generate --prompts`: many prompts, in slots that are refilled as texts end.
//
// Random numbers are addressed by a prompt's number (its line, or `number`), turn and position, so an answer depends on neither slots nor order. Of a
// file the lines come in its order. Prompts on stdin are read when a slot is free, and answered as they end: a program can go on by what was answered.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/conversation.h"
#include "commands/generate.h"
#include "commands/json_lines.h"
#include "core/error.h"
#include "core/files/mapped.h"
#include "core/json.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "models/model.h"
#include "verifier/rules/rule.h"

enum { DEFAULT_BATCH = 64, DEFAULT_CONTEXT = 2048 };

struct slot {
    struct conversation *c; // NULL: free
    int64_t position;       // which line it is among the prompts
    int64_t sequence;
    int32_t *token; // (n) what was decoded, once it has ended; owned
    int n;
    enum stop_reason why;
    bool ended;
};

struct batch {
    struct generate *g;
    struct decoder *decoder;
    struct text_ends ends;
    struct json_lines lines;
    struct slot slot[MAX_SLOTS];
    int context;
    bool in_order;
    char **held; // (read) lines that wait for earlier ones; NULL: not there yet, or printed
    size_t capacity;
    int64_t read, printed; // prompts
};

// ---- opening

static bool open_pairing(struct generate *g, int context, struct error *err)
{
    if (pairing_open(&g->pairing, &g->target->target, NULL, (int)g->batch, context, err))
        return true;
    if (g->pairing.rows <= TARGET_ROWS || g->rows > 0)
        return false;
    g->rows = g->pairing.rows; // drafts in many slots need larger passes
    pairing_unload(&g->pairing);
    speclab_target_close(g->target);
    g->target = NULL;
    return generate_open_target(g, err) && open_pairing(g, context, err);
}

static bool open_all(struct batch *b, struct error *err)
{
    struct generate *g = b->g;
    if (!generate_open_target(g, err))
        return false;
    const int trained = speclab_target_context(g->target);
    if (g->context > trained)
        return fail(err, "--context: expected at most %d, the model's context, found %lld", trained, g->context);
    b->context = g->context > 0 ? (int)g->context : trained < DEFAULT_CONTEXT ? trained : DEFAULT_CONTEXT;
    g->batch = g->batch > 0 ? g->batch : DEFAULT_BATCH;
    if (!json_lines_open(&b->lines, g->prompts, err) || !open_pairing(g, b->context, err))
        return false;
    drafter_resolve(g->pairing.drafter, g->drafter_settings);
    text_ends_set(&b->ends, &g->target->target, &g->target->chat, g->ignore_end, g->stop.n, g->stop.text);
    return true;
}

static void print_settings(const struct batch *b)
{
    const struct generate *g = b->g;
    struct json *settings = generate_settings(g, g->pairing.rule->exact);
    json_add(settings, JSON("config_hash", hash_text(model_config(g->target->target.model)->hash).s),
             JSON("context", b->context), JSON("batch", g->batch));
    json_print(json_object_of(JSON("settings", settings)), stdout);
    fflush(stdout);
}

// ---- reading

// Whether reading a line does not wait.
static bool line_is_ready(const struct lines *l)
{
    struct pollfd p = { .fd = l->fd, .events = POLLIN };
    return l->ended || (l->end > l->begin && memchr(l->buffer + l->begin, '\n', l->end - l->begin) != NULL) ||
           poll(&p, 1, 0) != 0;
}

static bool fail_line(const struct batch *b, const struct error *why, struct error *err)
{
    return json_lines_fail(&b->lines, err, "%s", why->text);
}

// A sampling of its own, if the line has a temperature.
static bool read_temperature(struct batch *b, struct sampling **to, struct error *err)
{
    const struct json *t = json_get(b->lines.object, "temperature");
    struct error why;
    *to = NULL;
    if (json_is_null(t))
        return true;
    if (!json_is_number(t))
        return json_lines_fail(&b->lines, err, "temperature: expected a number, found %s", json_described(t));
    char *text = xformat("%.17g", json_number(t));
    struct settings *s = generate_sampling(b->g, text, &why);
    *to = xcalloc(1, sizeof(**to));
    const bool ok = (s != NULL && sampling_read(s, *to, &why)) || fail_line(b, &why, err);
    (*to)->workers = b->g->pairing.sampling.workers;
    settings_free(s);
    free(text);
    return ok;
}

static bool read_number(struct batch *b, int64_t *to, struct error *err)
{
    const struct json *n = json_get(b->lines.object, "number");
    *to = json_is_null(n) ? b->read : json_int(n);
    if ((!json_is_null(n) && !json_is_int(n)) || *to < 0 || *to >= CONVERSATIONS)
        return json_lines_fail(&b->lines, err, "number: expected an integer from 0 to %d, found %s", CONVERSATIONS - 1,
                               json_is_int(n) ? "another" : json_described(n));
    for (int i = 0; i < b->g->batch; i++)
        if (b->slot[i].c != NULL && b->slot[i].c->number == *to)
            return json_lines_fail(&b->lines, err, "number: expected one that no prompt under way has, found %lld",
                                   (long long)*to);
    return true;
}

// The prompt of the line that was read.
static bool read_prompt(struct batch *b, struct conversation **to, struct error *err)
{
    struct prompt p;
    struct sampling *own = NULL;
    int64_t number;
    bool opening;
    struct speclab_error why;
    if (!prompt_of_line(b->lines.object, b->lines.lines.name, (int)b->lines.lines.number,
                        (int)(b->read % CONVERSATIONS), &opening, &p, err))
        return false;
    bool ok = read_number(b, &number, err);
    if (ok && p.ids == NULL && !p.raw && !speclab_target_has_chat(b->g->target, &why))
        ok = fail(err, "%s", why.text);
    ok = ok && read_temperature(b, &own, err);
    *to = conversation_begin(p, opening, number);
    (*to)->own = own;
    return ok;
}

// ---- writing

static void print_line(char *line)
{
    printf("%s\n", line);
    free(line);
}

// Prints the slot's conversation, or keeps it until the earlier ones are there, and frees the slot.
static bool leave(struct batch *b, struct slot *s, struct error *err)
{
    struct json *j = conversation_line(s->c);
    char *line = json_write(j);
    json_free(j);
    conversation_free(s->c);
    s->c = NULL;
    if (!mapped_unchanged(err)) {
        free(line);
        return false;
    }
    if (!b->in_order)
        print_line(line);
    else
        b->held[s->position] = line;
    for (; b->in_order && b->printed < b->read && b->held[b->printed] != NULL; b->held[b->printed++] = NULL)
        print_line(b->held[b->printed]);
    return true;
}

// ---- decoding

static bool start(struct batch *b, struct slot *s, struct error *err)
{
    const struct generate *g = b->g;
    struct conversation *c = s->c;
    struct ids prompt = { 0 };
    bool ok = conversation_prompt(c, &g->target->target, &g->target->chat, &prompt, err);
    if (ok && (prompt.n == 0 || prompt.n >= (size_t)b->context)) {
        c->unanswered = prompt.n == 0 ? "empty" : "long";
        ok = leave(b, s, err);
    } else if (ok) {
        s->sequence = conversation_sequence(c);
        ok = decoder_start(b->decoder,
                           &(struct assignment){ .sequence = s->sequence,
                                                 .prompt = prompt.id,
                                                 .n = (int)prompt.n,
                                                 .limit = (int)g->tokens,
                                                 .stops = &b->ends.stops,
                                                 .sampling = c->own },
                           err);
    }
    free(prompt.id);
    return ok;
}

static bool fill_slots(struct batch *b, bool *more, struct error *err)
{
    for (int i = 0; i < b->g->batch && *more; i++) {
        struct slot *s = &b->slot[i];
        if (s->c != NULL)
            continue;
        if (decoder_active(b->decoder) > 0 && !line_is_ready(&b->lines.lines))
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
        s->position = b->read;
        const bool ok = read_prompt(b, &s->c, err);
        b->read++;
        if (!ok || !start(b, s, err))
            return false;
        i -= s->c == NULL; // it needed no slot
    }
    return true;
}

static void on_done(void *self, const struct ending *e)
{
    struct batch *b = self;
    for (int i = 0; i < b->g->batch; i++) {
        struct slot *s = &b->slot[i];
        if (s->c == NULL || s->sequence != e->sequence || s->ended)
            continue;
        s->ended = true;
        s->token = xmalloc((size_t)e->n * sizeof(*s->token) + 1);
        memcpy(s->token, e->token, (size_t)e->n * sizeof(*s->token));
        s->n = e->n;
        s->why = e->why;
    }
}

// Takes what ended, and goes on with turns that follow.
static bool take_ended(struct batch *b, struct error *err)
{
    const struct generate *g = b->g;
    bool ok = true;
    for (int i = 0; i < g->batch; i++) {
        struct slot *s = &b->slot[i];
        if (s->c == NULL || !s->ended)
            continue;
        s->ended = false;
        const bool more =
            conversation_take(s->c, &g->target->target, &g->target->chat, &b->ends.strings, s->token, s->n, s->why);
        free(s->token);
        s->token = NULL;
        ok = ok && (more ? start(b, s, err) : leave(b, s, err));
    }
    return ok;
}

static bool decode_all(struct batch *b, struct error *err)
{
    for (bool more = true;;) {
        if (!fill_slots(b, &more, err))
            return false;
        if (stdout_failed() || (decoder_active(b->decoder) == 0 && !more))
            return true;
        if (decoder_active(b->decoder) > 0 && (!decoder_step(b->decoder, err) || !take_ended(b, err)))
            return false;
    }
}

bool generate_prompts(struct generate *g, struct error *err)
{
    struct batch *b = xcalloc(1, sizeof(*b));
    b->g = g;
    b->in_order = strcmp(g->prompts, "-") != 0;
    bool ok = open_all(b, err);
    if (ok) {
        print_settings(b);
        b->decoder = decoder_create(g->pairing.verifier, g->pairing.drafter, (int)g->batch, (uint64_t)g->seed,
                                    (struct listener){ .done = on_done, .self = b }, err);
        ok = b->decoder != NULL && decode_all(b, err);
        decoder_destroy(b->decoder);
    }
    for (int i = 0; i < MAX_SLOTS; i++) {
        conversation_free(b->slot[i].c);
        free(b->slot[i].token);
    }
    for (int64_t i = b->printed; b->in_order && i < b->read; i++)
        free(b->held[i]);
    free(b->held);
    json_lines_close(&b->lines);
    pairing_unload(&g->pairing);
    free(b);
    return ok;
}
