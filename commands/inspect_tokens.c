// inspect_tokens.c - `speclab inspect --tokenize` and `--detokenize`: text to token ids and back, in JSON Lines.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "commands/inspect_texts.h"
#include "engine/engine.h"
#include "core/files/json_lines.h"
#include "models/paths.h"

struct tokenize {
    struct tokenizer *tokenizer;
    struct model_config config;
    bool plain; // --no-special
    struct chat_request chat;
    struct chat_format format; // format of lines with messages; chosen at the first one
};

static bool read_messages(const struct json *line, struct message **to, int *n, struct error *err)
{
    static const char *const others[] = { "text", "tools", "documents", "add_generation_prompt",
                                          "continue_final_message" };
    const struct json *list = json_get(line, "messages");
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (json_get(line, others[i]) != NULL)
            return fail(
                err, "\"%s\" beside \"messages\" is not supported (variables of the template: --chat-template-kwargs)",
                others[i]);
    if (!json_is_array(list))
        return fail(err, "\"messages\": expected a list of objects with a role and a content");
    *n = (int)json_count(list);
    *to = xcalloc((size_t)*n + 1, sizeof(**to));
    for (int i = 0; i < *n; i++) {
        const struct json *role = json_get(json_at(list, (size_t)i), "role"),
                          *content = json_get(json_at(list, (size_t)i), "content");
        for (void *at = json_first(json_at(list, (size_t)i)); at != NULL; at = json_next(json_at(list, (size_t)i), at))
            if (strcmp(json_key(at), "role") != 0 && strcmp(json_key(at), "content") != 0)
                return fail(err, "\"messages\": entry %d: expected a role and a content, found %s", i + 1,
                            json_key(at));
        if (json_is_text(content) && strlen(json_text(content)) != json_text_length(content))
            return fail(err, "\"messages\": entry %d: expected a text, found a NUL character in it", i + 1);
        if (choice_index(CHAT_ROLES, json_text(role)) < 0 || !json_is_text(content))
            return fail(err, "\"messages\": entry %d: expected a role (" CHAT_ROLES ") and a content", i + 1);
        (*to)[i] = (struct message){ json_text(role), json_text(content) };
    }
    return true;
}

// {"messages": [..]}: the ids of the conversation, ready for the answer, and the text that they encode.
static bool encode_chat(struct tokenize *t, const struct json *line, struct error *err)
{
    struct message *m = NULL;
    struct text text = { 0 };
    struct ids ids = { 0 };
    int n = 0;
    if (t->plain)
        return fail(err, "\"messages\": a chat template consists of special tokens, which --no-special excludes");
    bool ok = read_messages(line, &m, &n, err);
    ok = ok && (t->format.label[0] != '\0' || chat_choose(&t->chat, &t->format, err)) &&
         chat_render(&t->format, m, n, &text, err);
    if (ok)
        ok = text_encode(t->tokenizer, &t->config, encode_rendered(&t->format), text.s, text.n, &ids, err);
    if (ok)
        json_print(
            json_object_of(JSON("text", json_new_text_n(text.s, text.n)), JSON("ids", json_new_ids(ids.id, ids.n))),
            stdout);
    free(m);
    free(text.s);
    free(ids.id);
    return ok;
}

static bool encode_line(void *self, const struct json *line, struct error *err)
{
    struct tokenize *t = self;
    const struct json *text = json_get(line, "text");
    struct ids ids = { 0 };
    if (json_get(line, "messages") != NULL)
        return encode_chat(t, line, err);
    if (!json_is_text(text))
        return fail(err, "\"text\": expected a text");
    bool ok = t->plain ? tokenizer_encode(t->tokenizer, json_text(text), json_text_length(text), false, &ids, err)
                       : text_encode(t->tokenizer, &t->config, ENCODE_BOS | ENCODE_SPECIAL, json_text(text),
                                     json_text_length(text), &ids, err);
    if (ok)
        json_print(json_object_of(JSON("ids", json_new_ids(ids.id, ids.n))), stdout);
    free(ids.id);
    return ok;
}

static bool decode_line(void *self, const struct json *line, struct error *err)
{
    const struct tokenize *t = self;
    struct ids ids = { 0 };
    struct decoding hold = { 0 };
    struct text text = { 0 };
    bool ok = json_read_ids(json_get(line, "ids"), "\"ids\"", tokenizer_size(t->tokenizer), &ids, err);
    if (ok) {
        text_puts(&text, "");
        tokenizer_decode(t->tokenizer, ids.id, ids.n, !t->plain, &hold, &text);
        tokenizer_decode_end(&hold, &text);
        json_print(json_object_of(JSON("text", json_new_text_n(text.s, text.n))), stdout);
    }
    free(ids.id);
    free(text.s);
    return ok;
}

// The configuration is read only if the beginning-of-text token matters.
static bool open_model(struct tokenize *t, const char *name, bool decode, struct error *err)
{
    char *path = model_path(name, NULL, err);
    bool ok = path != NULL && (decode || t->plain || config_read_text(path, &t->config, err));
    t->chat.jinja = t->config.chat_template;
    t->chat.tokens = t->config.special_tokens;
    if (ok)
        t->tokenizer = tokenizer_open(t->config.path != NULL ? t->config.path : path, err);
    free(path);
    return ok && t->tokenizer != NULL;
}

static bool each_line(const struct inspect_texts *o, bool decode, struct error *err)
{
    struct tokenize t = { .plain = o->plain,
                          .chat = { .name = o->chat != NULL ? o->chat : "auto", .variables = o->variables } };
    const bool ok =
        open_model(&t, o->model, decode, err) && json_lines_each(o->path, decode ? decode_line : encode_line, &t, err);
    chat_close(&t.format);
    tokenizer_close(t.tokenizer);
    config_free(&t.config);
    return ok;
}

bool inspect_tokens(const struct inspect_texts *o, struct error *err)
{
    return each_line(o, false, err);
}

bool inspect_detokens(const struct inspect_texts *o, struct error *err)
{
    return each_line(o, true, err);
}
