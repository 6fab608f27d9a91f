// messages.c - a list of messages becomes the user's turns; the model's messages are answers.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/import/datasets.h"
#include "commands/import/entries.h"
#include "commands/import/made_parts.h"
#include "core/error.h"
#include "core/json.h"
#include "core/settings.h"
#include "engine/prompts.h"

static bool take_message(struct making *m, const struct json *message, const char *list, size_t i)
{
    char what[64];
    const struct json *role = json_get(message, "from"), *value = json_get(message, "value");
    snprintf(what, sizeof(what), "%s[%zu].from", list, i);
    if (!json_is_object(message))
        return entries_fail(m->e, m->err, "%s[%zu]: expected an object with from and value, found %s", list, i,
                            json_described(message));
    if (!making_check_text(m, what, (int)strlen(what), role))
        return false;
    snprintf(what, sizeof(what), "%s[%zu].value", list, i);
    if (!making_check_text(m, what, (int)strlen(what), value))
        return false;
    const bool user = choice_index("human|user", json_text(role)) >= 0;
    const bool model = choice_index("gpt|chatgpt|bing|bard|assistant", json_text(role)) >= 0;
    const bool blank = making_is_blank(json_text(value)), due = json_count(m->turns) == json_count(m->answers);
    if (strcmp(json_text(role), "system") == 0)
        m->drop = blank ? m->drop : DROP_SYSTEM;
    else if (!user && !model)
        m->drop = DROP_ROLE;
    else if (user != due)
        m->drop = DROP_ORDER;
    else if (user && blank)
        m->drop = DROP_EMPTY;
    else
        json_push(user ? m->turns : m->answers, json_clone(value));
    return true;
}

bool make_messages(struct making *m)
{
    const char *list = json_is_null(json_get(m->entry, "conversations")) ? "conversation" : "conversations";
    const struct json *messages = json_get(m->entry, list), *instruction = json_get(m->entry, "instruction");
    const size_t most = m->c->turns > 0 ? (size_t)m->c->turns : SIZE_MAX;
    if (json_is_null(messages) && !json_is_null(instruction)) {
        const struct json *response = json_get(m->entry, "response");
        if (!making_check_text(m, "instruction", 11, instruction))
            return false;
        m->drop = making_is_blank(json_text(instruction)) ? DROP_EMPTY : DROP_NOT;
        json_push(m->turns, json_clone(instruction));
        if (json_is_text(response))
            json_push(m->answers, json_clone(response));
        return true;
    }
    if (!json_is_array(messages))
        return entries_fail(m->e, m->err, "%s: expected a list of messages, found %s", list, json_described(messages));
    for (size_t i = 0; i < json_count(messages) && m->drop == DROP_NOT; i++)
        if (json_count(m->answers) < most && !take_message(m, json_at(messages, i), list, i))
            return false;
    if (m->drop == DROP_NOT && json_count(m->turns) == 0)
        m->drop = DROP_EMPTY;
    if (m->drop == DROP_NOT && json_count(m->turns) > MAX_TURNS)
        m->drop = DROP_TURNS;
    return true;
}
