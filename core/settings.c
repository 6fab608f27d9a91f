#include "core/settings.h"

#include <limits.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/utf8.h"

static struct settings *new_settings(enum settings_kind kind)
{
    struct settings *s = xcalloc(1, sizeof(*s));
    s->kind = kind;
    return s;
}

struct settings *settings_scalar(const char *text)
{
    struct settings *s = new_settings(SETTINGS_SCALAR);
    s->text = xstrdup(text);
    return s;
}

struct settings *settings_list(void)
{
    return new_settings(SETTINGS_LIST);
}

struct settings *settings_map(void)
{
    return new_settings(SETTINGS_MAP);
}

static void reserve_one(struct settings *s)
{
    if (s->n < s->capacity)
        return;
    s->capacity = (int)next_capacity((size_t)s->capacity, (size_t)s->n + 1);
    s->item = xrealloc(s->item, (size_t)s->capacity * sizeof(*s->item));
    if (s->kind == SETTINGS_MAP) {
        s->key = xrealloc(s->key, (size_t)s->capacity * sizeof(*s->key));
        s->key_line = xrealloc(s->key_line, (size_t)s->capacity * sizeof(*s->key_line));
        s->key_column = xrealloc(s->key_column, (size_t)s->capacity * sizeof(*s->key_column));
    }
}

void settings_append(struct settings *list, struct settings *item)
{
    reserve_one(list);
    list->item[list->n++] = item;
}

// A larger map is looked up by hash: a file of 4 MiB may have 300,000 keys.
enum { SMALL_MAP = 32 };

static struct hash hash_of_key(const char *key)
{
    return hash_of(key, strlen(key));
}

int settings_find(const struct settings *map, const char *key)
{
    if (map == NULL || map->kind != SETTINGS_MAP)
        return -1;
    if (map->n > SMALL_MAP) {
        const int64_t *at = hash_map_find(&map->places, hash_of_key(key));
        return at != NULL ? (int)*at : -1;
    }
    for (int i = 0; i < map->n; i++)
        if (strcmp(map->key[i], key) == 0)
            return i;
    return -1;
}

void settings_put(struct settings *map, const char *key, struct settings *item)
{
    int i = settings_find(map, key);
    if (i >= 0) {
        settings_free(map->item[i]);
        map->item[i] = item;
        return;
    }
    reserve_one(map);
    i = map->n++;
    map->key[i] = xstrdup(key);
    map->item[i] = item;
    map->key_line[i] = item->line;
    map->key_column[i] = item->column;
    for (int k = map->n > SMALL_MAP + 1 ? i : 0; k <= i && map->n > SMALL_MAP; k++)
        hash_map_add(&map->places, hash_of_key(map->key[k]), k);
}

struct settings *settings_get(const struct settings *map, const char *key)
{
    int i = settings_find(map, key);
    return i < 0 ? NULL : map->item[i];
}

int64_t settings_size(const struct settings *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->n; i++)
        n += settings_size(s->item[i]);
    return n;
}

struct settings *settings_at(struct settings *s, const struct settings *place)
{
    s->file = place->file;
    s->line = place->line;
    s->column = place->column;
    return s;
}

void settings_put_key(struct settings *map, const struct settings *from, int i, struct settings *item)
{
    settings_put(map, from->key[i], item);
    map->key_line[map->n - 1] = from->key_line[i];
    map->key_column[map->n - 1] = from->key_column[i];
}

struct settings *settings_copy(const struct settings *s)
{
    struct settings *to = settings_at(new_settings(s->kind), s);
    to->text = s->text != NULL ? xstrdup(s->text) : NULL;
    to->quoted = s->quoted;
    for (int i = 0; i < s->n; i++) {
        struct settings *item = settings_copy(s->item[i]);
        if (s->kind == SETTINGS_LIST)
            settings_append(to, item);
        else
            settings_put_key(to, s, i, item);
    }
    return to;
}

void settings_free(struct settings *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->n; i++) {
        settings_free(s->item[i]);
        if (s->kind == SETTINGS_MAP)
            free(s->key[i]);
    }
    free(s->item);
    free(s->key);
    free(s->key_line);
    free(s->key_column);
    hash_map_free(&s->places);
    free(s->text);
    free(s);
}

// ---- messages

struct in_file settings_place(const struct settings *s)
{
    return s != NULL ? (struct in_file){ s->file, s->line, s->column } : (struct in_file){ 0 };
}

static const char *found(const struct settings *s)
{
    return s->kind == SETTINGS_LIST ? "a list" : s->kind == SETTINGS_MAP ? "a mapping" : s->text;
}

const char *settings_described(const struct settings *s)
{
    return s->kind == SETTINGS_SCALAR && *s->text == '\0' ? "nothing" : found(s);
}

static bool is_key(const char *known, const char *key)
{
    const size_t n = strlen(known);
    return strcmp(known, key) == 0 || (known[n - 1] == '*' && strncmp(known, key, n - 1) == 0);
}

bool settings_fail_name(struct error *err, const struct settings *at, int i, enum name_place place, const char *said,
                        const char *name, const char *const *names)
{
    struct text known = { 0 }, hint = { 0 };
    text_puts(&hint, "");
    text_puts(&known, place == NAME_KIND ? "known: " : *names != NULL ? "it has: " : "it has none");
    for (const char *const *k = names; *k != NULL; k++)
        text_printf(&known, "%s%s", k == names ? "" : ", ", *k);
    if (name != NULL)
        name_hint(&hint, place, name, names);
    char *quoted = name != NULL ? xformat(" \"%s\"", name) : xstrdup("");
    if (i >= 0)
        settings_fail_key(err, at, i, "%s%s (%s)%s", said, quoted, known.s, hint.s);
    else
        settings_fail(err, at, "%s%s (%s)%s", said, quoted, known.s, hint.s);
    free(quoted);
    free(known.s);
    free(hint.s);
    return false;
}

static bool fail_key(struct error *err, const struct settings *s, int i, const char *what, const char *const *keys)
{
    char *said = xformat("%s has no key", what);
    settings_fail_name(err, s, i, NAME_KEY, said, s->key[i], keys);
    free(said);
    return false;
}

bool settings_is_map(const struct settings *s, const char *what, const char *const *keys, struct error *err)
{
    if (s->kind != SETTINGS_MAP) {
        struct text known = { 0 };
        for (const char *const *k = keys; *k != NULL; k++)
            text_printf(&known, "%s%s", k == keys ? "" : ", ", *k);
        settings_fail(err, s, "%s: expected a mapping (%s), found %s", what, known.s, settings_described(s));
        free(known.s);
        return false;
    }
    for (int i = 0; i < s->n; i++) {
        const char *const *k = keys;
        while (*k != NULL && !is_key(*k, s->key[i]))
            k++;
        if (*k == NULL)
            return fail_key(err, s, i, what, keys);
    }
    return true;
}

// ---- scalars

bool settings_int(const struct settings *s, const char *key, long long min, long long max, long long *to,
                  struct error *err)
{
    char *end = NULL;
    errno = 0;
    long long v = s->kind == SETTINGS_SCALAR && !s->quoted ? strtoll(s->text, &end, 10) : 0;
    if (end == NULL || end == s->text || *end != '\0' || isspace((unsigned char)s->text[0]) || errno == ERANGE)
        return settings_fail(err, s, "%s: expected an integer, found \"%s\"", key, found(s));
    if (v < min || v > max)
        return settings_fail(err, s, "%s: expected an integer from %lld to %lld, found %lld", key, min, max, v);
    *to = v;
    return true;
}

bool settings_real(const struct settings *s, const char *key, double min, double max, double *to, struct error *err)
{
    char *end = NULL;
    double v = s->kind == SETTINGS_SCALAR && !s->quoted ? strtod(s->text, &end) : 0;
    if (end == NULL || end == s->text || *end != '\0' || isspace((unsigned char)s->text[0]) || !isfinite(v))
        return settings_fail(err, s, "%s: expected a number, found \"%s\"", key, found(s));
    if (v < min || v > max)
        return settings_fail(err, s, "%s: expected a number from %g to %g, found %s", key, min, max, s->text);
    *to = v;
    return true;
}

bool settings_bool(const struct settings *s, const char *key, bool *to, struct error *err)
{
    bool scalar = s->kind == SETTINGS_SCALAR && !s->quoted;
    if (scalar && strcmp(s->text, "true") == 0)
        *to = true;
    else if (scalar && strcmp(s->text, "false") == 0)
        *to = false;
    else
        return settings_fail(err, s, "%s: expected true or false, found \"%s\"", key, found(s));
    return true;
}

bool settings_text(const struct settings *s, const char *key, const char **to, struct error *err)
{
    if (s->kind != SETTINGS_SCALAR)
        return settings_fail(err, s, "%s: expected a text, found %s", key, found(s));
    *to = s->text;
    return true;
}

// ---- one line

// Returns the number of bytes of the character at t if YAML requires an escape for it, or ends a line at it: control
// characters, U+0080 to U+009F, U+2028 and U+2029, U+FFFE and U+FFFF. 0: no escape is needed.
static size_t unwritable(const char *t, unsigned *code)
{
    const size_t bytes = utf8_character(t, strnlen(t, 4));
    *code = bytes > 0 ? utf8_code(t) : ' '; // a byte that is not UTF-8 is written unchanged
    const bool escaped = *code < 0x20 || (*code >= 0x7F && *code <= 0x9F) || *code == 0x2028 || *code == 0x2029 ||
                         *code == 0xFFFE || *code == 0xFFFF;
    return escaped ? bytes : 0;
}

// Returns whether a scalar parses back to itself in flow style without quotes.
static bool is_plain(const struct settings *s)
{
    const char *t = s->text;
    unsigned code;
    if (s->quoted || *t == '\0' || isspace((unsigned char)*t) || isspace((unsigned char)t[strlen(t) - 1]) ||
        strchr("-?:!&*|>%@`'\"#", *t))
        if (!(*t == '-' && isdigit((unsigned char)t[1])) || s->quoted)
            return false;
    for (; *t != '\0'; t++)
        if (strchr(",[]{}:#\"\\", *t) != NULL || unwritable(t, &code) > 0)
            return false;
    return true;
}

enum form { YAML, JSON };

static const char *digits(const char *t)
{
    return t + strspn(t, "0123456789");
}

// Returns whether a scalar is spelled like a number, true or false of JSON.
static bool is_json_literal(const struct settings *s)
{
    if (s->quoted)
        return false;
    if (strcmp(s->text, "true") == 0 || strcmp(s->text, "false") == 0)
        return true;
    const char *t = s->text + (*s->text == '-'), *end = digits(t);
    if (end == t || (*t == '0' && end > t + 1))
        return false;
    if (*end == '.' && end[1] >= '0' && end[1] <= '9')
        end = digits(end + 1);
    if (*end == 'e' || *end == 'E') {
        t = end + 1 + (end[1] == '-' || end[1] == '+');
        end = digits(t);
        if (end == t)
            return false;
    }
    return *end == '\0';
}

static void write_text(const struct settings *s, enum form form, struct text *out)
{
    if (form == YAML ? is_plain(s) : is_json_literal(s)) {
        text_puts(out, s->text);
        return;
    }
    text_puts(out, "\"");
    for (const char *t = s->text; *t != '\0';) {
        unsigned code;
        const size_t bytes = unwritable(t, &code);
        if (bytes > 0)
            text_printf(out, code < 0x100 && form == YAML ? "\\x%02X" : "\\u%04X", code);
        else if (*t == '"' || *t == '\\')
            text_printf(out, "\\%c", *t);
        else
            text_add(out, t, 1);
        t += bytes > 0 ? bytes : 1;
    }
    text_puts(out, "\"");
}

static void write_key(const char *key, enum form form, struct text *out)
{
    const struct settings s = { .kind = SETTINGS_SCALAR,
                                .text = (char *)key,
                                .quoted = form == JSON || strcmp(key, "<<") == 0 };
    write_text(&s, form, out); // the quotes keep "<<" from being a merge key
    text_puts(out, ": ");
}

static void write_settings(const struct settings *s, enum form form, struct text *out)
{
    if (s->kind == SETTINGS_SCALAR) {
        write_text(s, form, out);
        return;
    }
    text_puts(out, s->kind == SETTINGS_LIST ? "[" : "{");
    for (int i = 0; i < s->n; i++) {
        if (i > 0)
            text_puts(out, ", ");
        if (s->kind == SETTINGS_MAP)
            write_key(s->key[i], form, out);
        write_settings(s->item[i], form, out);
    }
    text_puts(out, s->kind == SETTINGS_LIST ? "]" : "}");
}

void settings_write(const struct settings *s, struct text *out)
{
    write_settings(s, YAML, out);
}

char *settings_line(const struct settings *s)
{
    struct text line = { 0 };
    settings_write(s, &line);
    return line.s;
}

void settings_write_json(const struct settings *s, struct text *out)
{
    write_settings(s, JSON, out);
}

// ---- the inline form of the command line

// Returns the end of a value: the next comma outside brackets.
static const char *value_end(const char *t)
{
    int depth = 0;
    for (; *t != '\0' && !(depth == 0 && *t == ','); t++)
        depth += *t == '[' || *t == '{' ? 1 : *t == ']' || *t == '}' ? -1 : 0;
    return t;
}

struct inline_text {
    const char *what, *all; // the option and its whole text, for messages
    struct error *err;
};

static struct settings *read_value(const struct inline_text *t, const char *at, const char *end);

// Adds the pair from `at` to `end` to a map; sign: '=', or ':' surrounded by blanks.
static bool add_pair(const struct inline_text *t, struct settings *map, char sign, const char *at, const char *end)
{
    const char *value = memchr(at, sign, (size_t)(end - at)), *key_end = value;
    while (sign == ':' && key_end != NULL && key_end > at && isspace((unsigned char)key_end[-1]))
        key_end--;
    if (value == NULL || key_end == at)
        return fail(t->err, "%s: expected %s, found \"%.*s\" in \"%s\"", t->what,
                    sign == ':' ? "KEY: VALUE" : "key=value", (int)(end - at), at, t->all);
    for (value++; sign == ':' && value < end && isspace((unsigned char)*value); value++)
        ;
    char *key = xstrndup(at, (size_t)(key_end - at));
    struct settings *item = NULL;
    if (settings_get(map, key) != NULL)
        fail(t->err, "%s: \"%s\" is given twice in \"%s\"", t->what, key, t->all);
    else if ((item = read_value(t, value, end)) != NULL)
        settings_put(map, key, item);
    free(key);
    return item != NULL;
}

// Adds the items of a list, or the pairs of a map, from `at` to the end of the text, and returns it. On failure frees
// it and returns NULL.
static struct settings *add_all(const struct inline_text *t, struct settings *to, char sign, const char *at)
{
    for (const char *next; *at != '\0'; at = next) {
        const char *end = value_end(at);
        next = *end == ',' ? end + 1 : end;
        while (sign != '=' && isspace((unsigned char)*at))
            at++;
        while (sign != '=' && end > at && isspace((unsigned char)end[-1]))
            end--;
        if (sign == ':' && *at == '\0')
            break; // only spaces are left
        struct settings *item = to->kind == SETTINGS_LIST ? read_value(t, at, end) : NULL;
        if (item != NULL)
            settings_append(to, item);
        else if (to->kind == SETTINGS_LIST || !add_pair(t, to, sign, at, end)) {
            settings_free(to);
            return NULL;
        }
    }
    return to;
}

static struct settings *read_value(const struct inline_text *t, const char *at, const char *end)
{
    const bool map = end - at >= 2 && at[0] == '{' && end[-1] == '}',
               list = end - at >= 2 && at[0] == '[' && end[-1] == ']';
    char *inside = map || list ? xstrndup(at + 1, (size_t)(end - at - 2)) : xstrndup(at, (size_t)(end - at));
    struct settings *s = map    ? add_all(t, settings_map(), ':', inside)
                         : list ? add_all(t, settings_list(), ',', inside)
                                : settings_scalar(inside);
    free(inside);
    return s;
}

struct settings *settings_value(const char *text, const char *what, struct error *err)
{
    return read_value(&(struct inline_text){ what, text, err }, text, text + strlen(text));
}

struct settings *settings_pairs(const char *text, const char *what, struct error *err)
{
    return add_all(&(struct inline_text){ what, text, err }, settings_map(), '=', text);
}

struct settings *settings_inline(const char *text, const char *what, struct error *err)
{
    const size_t n = strcspn(text, ":");
    if (n == 0) {
        fail(err, "%s: expected a kind, found \"%s\"", what, text);
        return NULL;
    }
    char *kind = xstrndup(text, n);
    struct settings *map = settings_map();
    settings_put(map, "kind", settings_scalar(kind));
    free(kind);
    return add_all(&(struct inline_text){ what, text, err }, map, '=', text[n] == ':' ? text + n + 1 : "");
}

int choice_index(const char *choices, const char *word)
{
    const size_t length = strlen(word);
    for (int i = 0; choices != NULL; i++) {
        const char *end = strchr(choices, '|');
        const size_t n = end != NULL ? (size_t)(end - choices) : strlen(choices);
        if (length == n && memcmp(word, choices, n) == 0)
            return i;
        choices = end != NULL ? end + 1 : NULL;
    }
    return -1;
}

struct json *settings_json(const struct settings *s)
{
    struct error ignored;
    long long i;
    double r;
    bool b = false;
    struct json *j;
    if (s->kind == SETTINGS_SCALAR)
        return settings_int(s, "", LLONG_MIN, LLONG_MAX, &i, &ignored) ? json_new_int(i)
               : settings_real(s, "", -1e300, 1e300, &r, &ignored)     ? json_new_number(r)
               : settings_bool(s, "", &b, &ignored)                    ? json_new_bool(b)
                                                                       : json_new_text(s->text);
    j = s->kind == SETTINGS_MAP ? json_new_object() : json_new_array();
    for (int k = 0; k < s->n; k++)
        if (s->kind == SETTINGS_MAP)
            json_set(j, s->key[k], settings_json(s->item[k]));
        else
            json_push(j, settings_json(s->item[k]));
    return j;
}
