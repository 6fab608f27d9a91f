// prompts.c - reads prompt files, one JSON object per line, and makes token ids from them. The fields of a line
// determine its format:
//
//     turns                  Spec-Bench, MT-bench, EAGLE's question files       the user's messages, turn by turn
//     messages               chats; everything before the last message is history
//     input_ids              prompts as token ids
//     prompt, entry_point    HumanEval: code to continue, never rendered as a chat
//     prompt                 any other file with one text
//     question               GSM8K; ignored if one of the above is present
//
// The whole file is read and checked, including prompts that limits exclude, so errors do not depend on limits.
#include "engine/prompts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/input.h"
#include "core/files/json_lines.h"
#include "core/hash_map.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "engine/engine.h"

struct row { // the line that is being read
    const char *path;
    int line;
    const struct json *json;
    struct error *err;
};

#define fail_row(r, ...) fail_in((r)->err, (struct in_file){ (r)->path, (r)->line, 0 }, __VA_ARGS__)

// Returns a copy of a JSON text; NULL on failure.
static char *take_any_text(const struct row *r, const struct json *j, const char *what)
{
    if (!json_is_text(j))
        fail_row(r, "%s: expected a text, found %s", what, json_described(j));
    else if (strlen(json_text(j)) != json_text_length(j))
        fail_row(r, "%s: expected a text, found a NUL character in it", what);
    else
        return xstrdup(json_text(j));
    return NULL;
}

static char *take_text(const struct row *r, const struct json *j, const char *what)
{
    if (!json_is_text(j) || json_text_length(j) > 0)
        return take_any_text(r, j, what);
    fail_row(r, "%s: expected a text, found an empty one", what);
    return NULL;
}

// ---- the formats

static bool read_one_turn(const struct row *r, struct prompt *p, const char *field)
{
    p->turn = xcalloc(1, sizeof(*p->turn));
    p->turn[0] = take_text(r, json_get(r->json, field), field);
    p->n_turns = p->turn[0] != NULL;
    return p->n_turns == 1;
}

static bool read_turns(const struct row *r, struct prompt *p)
{
    const struct json *turns = json_get(r->json, "turns");
    if (!json_is_array(turns) || json_count(turns) == 0)
        return fail_row(r, "turns: expected a list of texts, found %s",
                        json_is_array(turns) ? "an empty one" : json_described(turns));
    if (json_count(turns) > MAX_TURNS)
        return fail_row(r, "turns: expected at most %d, found %zu", MAX_TURNS, json_count(turns));
    p->turn = xcalloc(json_count(turns), sizeof(*p->turn));
    for (size_t i = 0; i < json_count(turns); i++, p->n_turns++) {
        char what[32];
        snprintf(what, sizeof(what), "turns[%zu]", i);
        if ((p->turn[i] = take_text(r, json_at(turns, i), what)) == NULL)
            return false;
    }
    return true;
}

// A system message may come first; the last message must be the user's and becomes the only turn.
static bool read_message(const struct row *r, struct prompt *p, const struct json *m, size_t i, size_t n)
{
    char what[48];
    snprintf(what, sizeof(what), "messages[%zu]", i);
    if (!json_is_object(m))
        return fail_row(r, "%s: expected an object with role and content, found %s", what, json_described(m));
    static const char *const roles[] = { "system", "user", "assistant" };
    const char *role = json_text(json_get(m, "role"));
    const int which = choice_index(CHAT_ROLES, role);
    if (which < 0)
        return fail_row(r, "%s: expected the role system, user or assistant, found %s%s%s", what,
                        *role != '\0' ? "\"" : "", *role != '\0' ? role : json_described(json_get(m, "role")),
                        *role != '\0' ? "\"" : "");
    if (strcmp(role, "system") == 0 && i > 0)
        return fail_row(r, "%s: expected the role user or assistant, found a system message that is not the first",
                        what);
    if (i == n - 1 && strcmp(role, "user") != 0)
        return fail_row(r, "%s: expected the last message to be the user's, found the role \"%s\"", what, role);

    snprintf(what, sizeof(what), "messages[%zu].content", i);
    char *content = take_text(r, json_get(m, "content"), what);
    if (content == NULL)
        return false;
    if (i == n - 1)
        p->turn[p->n_turns++] = content;
    else
        p->history[p->n_history++] = (struct message){ roles[which], content };
    return true;
}

static bool read_messages(const struct row *r, struct prompt *p)
{
    const struct json *messages = json_get(r->json, "messages");
    size_t n = json_count(messages);
    if (!json_is_array(messages) || n == 0)
        return fail_row(r, "messages: expected a list of messages, found %s",
                        json_is_array(messages) ? "an empty one" : json_described(messages));
    p->turn = xcalloc(1, sizeof(*p->turn));
    p->history = xcalloc(n, sizeof(*p->history));
    for (size_t i = 0; i < n; i++)
        if (!read_message(r, p, json_at(messages, i), i, n))
            return false;
    return true;
}

static bool read_ids(const struct row *r, struct prompt *p)
{
    const struct json *ids = json_get(r->json, "input_ids");
    size_t n = json_count(ids);
    if (!json_is_array(ids) || n == 0 || n > INT_MAX)
        return fail_row(r, "input_ids: expected a list of token ids, found %s",
                        json_is_array(ids) ? "an empty one" : json_described(ids));
    p->ids = xcalloc(n, sizeof(*p->ids));
    for (size_t i = 0; i < n; i++) {
        const struct json *id = json_at(ids, i);
        if (!json_is_int(id))
            return fail_row(r, "input_ids[%zu]: expected a token id, found %s", i, json_described(id));
        if (json_int(id) < 0 || json_int(id) > INT32_MAX)
            return fail_row(r, "input_ids[%zu]: expected a token id, found %lld", i, (long long)json_int(id));
        p->ids[i] = (int32_t)json_int(id);
    }
    p->n_ids = (int)n;
    p->n_turns = 1;
    return true;
}

static const char *const format_fields[] = { "turns", "messages", "input_ids", "prompt" };

static bool read_content(const struct row *r, struct prompt *p)
{
    const char *field = NULL;
    for (size_t i = 0; i < sizeof(format_fields) / sizeof(*format_fields); i++) {
        if (json_is_null(json_get(r->json, format_fields[i])))
            continue;
        if (field != NULL)
            return fail_row(r, "expected one of %s and %s, found both", field, format_fields[i]);
        field = format_fields[i];
    }
    if (field == NULL && json_is_null(json_get(r->json, "question")))
        return fail_row(r, "expected one of turns, messages, input_ids, prompt or question, found none of them");
    if (field == NULL)
        return read_one_turn(r, p, "question");
    if (strcmp(field, "turns") == 0)
        return read_turns(r, p);
    if (strcmp(field, "messages") == 0)
        return read_messages(r, p);
    if (strcmp(field, "input_ids") == 0)
        return read_ids(r, p);
    p->raw = json_is_text(json_get(r->json, "task_id")) && json_is_text(json_get(r->json, "entry_point"));
    return read_one_turn(r, p, "prompt");
}

// An answer may be empty: a model may end at once.
static bool read_answers(const struct row *r, struct prompt *p)
{
    const char *field = json_is_null(json_get(r->json, "answer")) ? "reference" : "answer";
    const struct json *j = json_get(r->json, field);
    size_t n = json_is_array(j) ? json_count(j) : 1;
    if (json_is_null(j))
        return fail_row(r, "expected an answer (answer or reference), found none");
    if (n == 0 || n > (size_t)p->n_turns)
        return fail_row(r, "%s: expected a text for each of %d turns, found %zu", field, p->n_turns, n);
    p->answer = xcalloc(n, sizeof(*p->answer));
    for (size_t i = 0; i < n; i++, p->n_answers++)
        if ((p->answer[i] = take_any_text(r, json_is_array(j) ? json_at(j, i) : j, field)) == NULL)
            return false;
    return true;
}

// ---- a line

enum { MAX_NAME = 1 << 20 }; // maximum bytes of a name in a database

static bool read_name(const struct row *r, struct prompt *p)
{
    static const char *const field[] = { "question_id", "id", "task_id" };
    for (size_t i = 0; i < sizeof(field) / sizeof(*field) && p->id == NULL; i++) {
        const struct json *id = json_get(r->json, field[i]);
        if (json_is_int(id))
            p->id = xformat("%lld", (long long)json_int(id));
        else if (!json_is_null(id) && !json_is_text(id))
            return fail_row(r, "%s: expected a text or an integer, found %s", field[i], json_described(id));
        else if (!json_is_null(id) && (p->id = take_text(r, id, field[i])) == NULL)
            return false;
    }
    if (p->id == NULL)
        p->id = xformat("%d", p->number);
    const struct json *category = json_get(r->json, "category");
    if (!json_is_null(category) && (p->category = take_text(r, category, "category")) == NULL)
        return false;
    const size_t longest =
        p->category != NULL && strlen(p->category) > strlen(p->id) ? strlen(p->category) : strlen(p->id);
    return longest <= MAX_NAME ||
           fail_row(r, "id and category: expected at most %d bytes, found %zu", MAX_NAME, longest);
}

void prompt_free(struct prompt *p)
{
    for (int i = 0; i < p->n_turns && p->turn != NULL; i++)
        free(p->turn[i]);
    for (int i = 0; i < p->n_history; i++)
        free((char *)(uintptr_t)p->history[i].content);
    for (int i = 0; i < p->n_answers; i++)
        free(p->answer[i]);
    free(p->answer);
    free(p->turn);
    free(p->history);
    free(p->id);
    free(p->category);
    free(p->ids);
    *p = (struct prompt){ 0 };
}

static bool is_opening(const struct json *line)
{
    const struct json *messages = json_get(line, "messages"), *only = json_at(messages, 0);
    return json_count(messages) == 1 && strcmp(json_text(json_get(only, "role")), "user") == 0 &&
           json_is_null(json_get(only, "content"));
}

bool prompt_of_line(const struct json *line, const char *path, int n, int number, bool *opening, struct prompt *to,
                    struct error *err)
{
    const struct row r = { path, n, line, err };
    *to = (struct prompt){ .number = number, .path = path, .line = n };
    bool ok;
    if (json_is_array(line) && n == 1)
        ok = fail_row(&r, "expected one JSON object a line, found a list; `jq -c '.[]'` turns it into lines");
    else if (!json_is_object(line))
        ok = fail_row(&r, "expected a JSON object, found %s", json_described(line));
    else if (opening != NULL && (*opening = is_opening(line)))
        ok = read_name(&r, to);
    else
        ok = read_name(&r, to) && read_content(&r, to);
    if (!ok)
        prompt_free(to);
    return ok;
}

static bool read_line(const struct json *j, int line, struct prompts *to, size_t *capacity, struct error *err)
{
    struct prompt p = { 0 };
    bool ok = prompt_of_line(j, to->path, line, to->n, NULL, &p, err) &&
              (!to->answered || read_answers(&(struct row){ to->path, line, j, err }, &p));
    if (ok && to->n == MAX_PROMPTS)
        ok = fail(err, "%s:%d: expected at most %d prompts, found more", to->path, line, MAX_PROMPTS);
    if (!ok) {
        prompt_free(&p);
        return false;
    }
    array_reserve(to->prompt, *capacity, to->n + 1);
    to->prompt[to->n++] = p;
    return true;
}

static bool read_lines(struct text *text, struct prompts *to, struct error *err) // takes the text over
{
    struct json_lines l;
    size_t capacity = 0;
    json_lines_of(&l, text, to->path);
    bool ok = true;
    while (ok && json_lines_value(&l, err))
        ok = read_line(l.value, (int)l.lines.number, to, &capacity, err);
    ok = ok && !l.failed;
    json_lines_close(&l);
    return ok && (to->n > 0 || fail(err, "%s: expected prompts, found none", to->path));
}

// ---- the file

// Ids must be unique: reports and Spec-Bench's scripts identify prompts by them.
static bool ids_differ(const struct prompts *p, struct error *err)
{
    struct hash_map lines = { 0 };
    bool ok = true;
    for (const struct prompt *q = p->prompt; q < p->prompt + p->n && ok; q++) {
        const int64_t first = *hash_map_add(&lines, hash_of(q->id, strlen(q->id)), q->line);
        ok = first == q->line || fail(err, "%s:%d: expected a unique id, found \"%s\", which line %lld has", p->path,
                                      q->line, q->id, (long long)first);
    }
    hash_map_free(&lines);
    return ok;
}

static void apply_limits(struct prompts *p, int limit, int per_category)
{
    struct hash_map of_category = { 0 }; // kept prompts
    int kept = 0;
    for (int i = 0; i < p->n; i++) {
        const char *category = p->prompt[i].category;
        const struct hash key = category != NULL ? hash_of(category, strlen(category)) : hash_of("", 1);
        int64_t *before = per_category > 0 ? hash_map_add(&of_category, key, 0) : NULL;
        if ((before == NULL || *before < per_category) && (limit == 0 || kept < limit)) {
            p->prompt[kept++] = p->prompt[i];
            if (before != NULL)
                ++*before;
        } else {
            prompt_free(&p->prompt[i]);
        }
    }
    p->n = kept;
    hash_map_free(&of_category);
}

static bool read_file(struct prompts *to, struct error *err)
{
    struct text text = { 0 };
    bool ok = input_read(to->path, INPUT_STREAM, INPUT_TEXTS, &text, err);
    if (ok && text.n >= 2 && memcmp(text.s, "\x1F\x8B", 2) == 0)
        ok = fail(err, "%s: expected JSON lines, found a gzip file; `gunzip -k` unpacks it", to->path);
    if (ok)
        to->hash = hash_of(text.s, text.n);
    ok = ok && read_lines(&text, to, err) && ids_differ(to, err);
    free(text.s);
    if (!ok)
        prompts_free(to);
    return ok;
}

bool prompts_read(const char *path, int limit, int per_category, struct prompts *to, struct error *err)
{
    *to = (struct prompts){ .path = xstrdup(path) };
    if (!read_file(to, err))
        return false;
    apply_limits(to, limit, per_category);
    return true;
}

bool prompts_read_answered(const char *path, struct prompts *to, struct error *err)
{
    *to = (struct prompts){ .path = xstrdup(path), .answered = true };
    return read_file(to, err);
}

void prompts_free(struct prompts *p)
{
    for (int i = 0; i < p->n; i++)
        prompt_free(&p->prompt[i]);
    free(p->prompt);
    free(p->path);
    *p = (struct prompts){ 0 };
}

// ---- token ids: earlier messages, the model's own answers included, then the user's message

// Collects all messages up to this turn's. message: capacity n_history + 2 * n_turns. Returns their number.
static int messages_of(const struct prompt *p, char *const *answer, int turn, struct message *message)
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

// A conversation without a chat template is its texts, one per line.
static void join(const struct message *m, int n, struct text *to)
{
    for (int i = 0; i < n; i++)
        text_printf(to, "%s%s", i > 0 ? "\n" : "", m[i].content);
}

static bool given_ids(const struct speclab_target *target, const struct prompt *p, struct ids *to, struct error *err)
{
    const struct row r = { p->path, p->line, NULL, err };
    for (int i = 0; i < p->n_ids; i++) {
        if (p->ids[i] >= target->used_vocab)
            return fail_row(&r, "input_ids[%d]: expected an id below %d, where the target's vocabulary ends, found %d",
                            i, target->used_vocab, p->ids[i]);
        ids_add(to, p->ids[i]);
    }
    return true;
}

bool prompt_token_ids(const struct speclab_target *target, const struct prompt *p, char *const *answer, int turn,
                      struct ids *to, struct error *err)
{
    if (p->ids != NULL)
        return given_ids(target, p, to, err);
    struct message *m = xcalloc((size_t)p->n_history + 2 * (size_t)p->n_turns, sizeof(*m));
    const int n = messages_of(p, answer, turn, m);
    struct error why;
    bool ok;
    if (p->raw || target->chat.kind == CHAT_NONE) {
        struct text text = { 0 };
        join(m, n, &text);
        // Special tokens are recognized in plain text as well, so that with `chat: none` a prompt can contain a
        // rendered template.
        ok = target_encode(target, ENCODE_BOS | ENCODE_SPECIAL, text.s, text.n, to, &why);
        free(text.s);
    } else
        ok = target_encode_chat(target, m, n, to, &why);
    free(m);
    return ok || fail(err, "%s:%d: prompt %s, turn %d: %s", p->path, p->line, p->id, turn, why.text);
}
