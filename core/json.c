#include "core/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/files/input.h"
#include "core/memory.h"
#include "core/utf8.h"

// Jansson reports some failed allocations as errors of the text.
__attribute__((constructor)) static void end_without_memory(void)
{
    json_set_alloc_funcs(xmalloc, free);
}

static const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;

// line: the line of the file where the parsed text begins.
static bool fail_at(struct error *err, const char *what, int line, const json_error_t *e)
{
    return fail(err, "%s:%d:%d: not valid JSON: %s", what, e->line + line - 1, e->column, e->text);
}

// Returns whether s (n) is an integer that does not fit in int64_t.
static bool is_too_big(const char *s, size_t n)
{
    char digits[24];
    const size_t sign = n > 0 && *s == '-';
    size_t end = sign; // the text may end with the number, without a NUL
    while (end < n && s[end] >= '0' && s[end] <= '9')
        end++;
    if (n <= sign + 18 || end < n)
        return false;
    if (n >= sizeof(digits))
        return true;
    memcpy(digits, s, n);
    digits[n] = '\0';
    errno = 0;
    strtoll(digits, NULL, 10);
    return errno == ERANGE;
}

// Returns the text with ".0" after each integer that does not fit in int64_t: a tokenizer_config.json of Hugging Face
// has "model_max_length": 1000000000000000019884624838656 for "no limit", which is valid JSON. free() it.
static struct text with_reals(const char *s, size_t n)
{
    struct text to = { 0 };
    bool quoted = false;
    for (size_t i = 0, length; i < n; i += length) {
        length = 1;
        if (s[i] == '"')
            quoted = !quoted;
        else if (quoted)
            length = s[i] == '\\' && i + 1 < n ? 2 : 1;
        else
            while (strchr("+-.0123456789Ee", s[i]) != NULL && s[i] != '\0' && i + length < n && s[i + length] != '\0' &&
                   strchr("+-.0123456789Ee", s[i + length]) != NULL)
                length++;
        text_add(&to, s + i, length);
        if (!quoted && is_too_big(s + i, length))
            text_puts(&to, ".0");
    }
    return to;
}

static struct json *load(const char *text, size_t n, json_error_t *e)
{
    struct json *j = json_loadb(text, n, flags, e);
    if (j != NULL || json_error_code(e) != json_error_numeric_overflow)
        return j;
    struct text changed = with_reals(text, n);
    j = json_loadb(changed.s, changed.n, flags, e);
    free(changed.s);
    return j;
}

struct json *json_parse_line(const char *text, size_t n, const char *what, int line, struct error *err)
{
    json_error_t e;
    struct json *j = load(text, n, &e);
    if (j == NULL)
        fail_at(err, what, line, &e);
    return j;
}

struct json *json_parse(const char *text, size_t n, const char *what, struct error *err)
{
    return json_parse_line(text, n, what, 1, err);
}

struct json *json_read(const char *path, struct error *err)
{
    struct text t = { 0 };
    struct json *j = input_read(path, INPUT_REGULAR, INPUT_SETTINGS, &t, err) ? json_parse(t.s, t.n, path, err) : NULL;
    free(t.s);
    return j;
}

bool json_is_null(const struct json *j)
{
    return j == NULL || json_typeof(j) == JSON_NULL;
}

const char *json_described(const struct json *j)
{
    return json_is_null(j)     ? "nothing"
           : json_is_text(j)   ? "a text"
           : json_is_int(j)    ? "an integer"
           : json_is_number(j) ? "a number"
           : json_is_bool(j)   ? "true or false"
           : json_is_array(j)  ? "a list"
                               : "an object";
}

size_t json_count(const struct json *j)
{
    if (json_is_array(j))
        return json_array_size(j);
    return json_is_object(j) ? json_object_size(j) : 0;
}

const char *json_text(const struct json *j)
{
    return json_is_text(j) ? json_string_value(j) : "";
}

static int by_key(const void *a, const void *b)
{
    return strcmp(json_key(*(void *const *)a), json_key(*(void *const *)b));
}

// The order of keys has no meaning in JSON, so members are sorted.
static void digest_members(const struct json *object, struct digest *d)
{
    size_t n = 0;
    void **member = xcalloc(json_count(object), sizeof(*member));
    for (void *at = json_first(object); at != NULL; at = json_next(object, at))
        member[n++] = at;
    if (n > 1)
        qsort(member, n, sizeof(*member), by_key);
    for (size_t i = 0; i < n; i++) {
        digest_text(d, json_key(member[i]));
        json_digest(json_value(member[i]), d);
    }
    free(member);
}

void json_digest(const struct json *j, struct digest *d)
{
    digest_int(d, j == NULL ? -1 : (int64_t)json_typeof(j));
    if (json_is_text(j))
        digest_text_n(d, json_text(j), json_text_length(j));
    else if (json_is_int(j))
        digest_int(d, json_int(j));
    else if (json_is_number(j)) {
        int64_t bits;
        const double v = json_number(j);
        memcpy(&bits, &v, sizeof(bits));
        digest_int(d, bits);
    } else if (json_is_array(j) || json_is_object(j))
        digest_int(d, (int64_t)json_count(j));
    for (size_t i = 0; json_is_array(j) && i < json_count(j); i++)
        json_digest(json_at(j, i), d);
    if (json_is_object(j))
        digest_members(j, d);
}

struct json *json_new_text_n(const char *s, size_t n)
{
    struct text valid = { 0 };
    text_add(&valid, "", 0);
    for (size_t i = 0; i < n;) {
        size_t length = utf8_character(s + i, n - i);
        text_add(&valid, length != 0 ? s + i : "\xEF\xBF\xBD", length != 0 ? length : 3);
        i += length != 0 ? length : 1;
    }
    struct json *j = json_stringn(valid.s, valid.n);
    free(valid.s);
    return j;
}

struct json *json_new_text(const char *s)
{
    return s != NULL ? json_new_text_n(s, strlen(s)) : json_new_null();
}

struct json *json_new_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

struct json *json_new_bool(bool v)
{
    return v ? json_true() : json_false();
}

struct json *json_new_ids(const int32_t *id, size_t n)
{
    struct json *j = json_new_array();
    for (size_t i = 0; i < n; i++)
        json_push(j, json_new_int(id[i]));
    return j;
}

struct json *json_choices(const char *choices)
{
    struct json *list = json_new_array();
    for (const char *word = choices; *word != '\0';) {
        const size_t n = strcspn(word, "|");
        json_push(list, json_new_text_n(word, n));
        word += n + (word[n] == '|');
    }
    return list;
}

void json_set(struct json *object, const char *key, struct json *value)
{
    if (json_object_set_new(object, key, value) != 0)
        memory_out(0);
}

char *json_write(const struct json *j)
{
    char *s = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY | JSON_PRESERVE_ORDER);
    if (s == NULL)
        memory_out(0);
    return s;
}

void json_print(struct json *j, FILE *to)
{
    char *line = json_write(j);
    fprintf(to, "%s\n", line);
    free(line);
    json_free(j);
}

struct json *json_add_members(struct json *object, const struct json_member *member, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_set(object, member[i].key, member[i].value);
    return object;
}

struct json *json_itself(struct json *j)
{
    return j;
}
