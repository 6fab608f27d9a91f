// json_lines.c - lines and one JSON parser; positions in error messages refer to the file.
#include "commands/json_lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "tokenizers/tokenizer.h"

bool json_lines_open(struct json_lines *l, const char *path, struct error *err)
{
    *l = (struct json_lines){ 0 };
    const int fd = input_open(path, INPUT_STDIN, err);
    lines_begin(&l->lines, fd, input_name(path));
    return fd >= 0;
}

bool json_lines_fail(const struct json_lines *l, struct error *err, const char *format, ...)
{
    char sentence[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    return fail(err, "%s:%ld: %s", l->lines.name, l->lines.number, sentence);
}

bool json_lines_next(struct json_lines *l, struct error *err)
{
    json_free(l->object);
    l->object = NULL;
    for (;;) {
        char *text;
        size_t n;
        if (!lines_next(&l->lines, &text, &n, err)) {
            l->failed = l->lines.failed || (l->lines.number == 0 && input_is_silent(l->lines.fd, l->lines.name, err));
            return false;
        }
        if (l->lines.number == 1 && n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) // skip a byte order mark
            text += 3, n -= 3;
        if (strspn(text, " \t\r\n") == n)
            continue;
        l->object = json_parse_line(text, n, l->lines.name, (int)l->lines.number, err);
        l->failed = !json_is_object(l->object);
        return l->object != NULL &&
               (!l->failed || json_lines_fail(l, err, "expected a JSON object, as in {\"text\": \"...\"}"));
    }
}

void json_lines_close(struct json_lines *l)
{
    json_free(l->object);
    input_close(l->lines.fd);
    lines_end(&l->lines);
    *l = (struct json_lines){ 0 };
}

bool json_read_ids(const struct json *list, const char *what, int vocab, struct ids *to, struct error *err)
{
    if (!json_is_array(list))
        return fail(err, "%s: expected a list of token ids, as in '[1, 2, 3]'", what);
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *id = json_at(list, i);
        if (!json_is_int(id) || json_int(id) < 0 || json_int(id) >= vocab)
            return fail(err, "%s: entry %zu: expected a token id of this model, an integer from 0 to %d", what, i + 1,
                        vocab - 1);
        ids_add(to, (int32_t)json_int(id));
    }
    return true;
}

bool json_lines_ids(const struct json_lines *l, const char *key, int vocab, struct ids *to, struct error *err)
{
    struct error why;
    char what[64];
    snprintf(what, sizeof(what), "\"%s\"", key);
    return json_read_ids(json_get(l->object, key), what, vocab, to, &why) || json_lines_fail(l, err, "%s", why.text);
}
