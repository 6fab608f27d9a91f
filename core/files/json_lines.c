// json_lines.c - lines and one JSON parser; positions in error messages refer to the file.
#include "core/files/json_lines.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/part.h"
#include "core/memory.h"
#include "core/json.h"

bool json_lines_open(struct json_lines *l, const char *path, struct error *err)
{
    *l = (struct json_lines){ 0 };
    const int fd = input_open(path, INPUT_STDIN, err);
    lines_begin(&l->lines, fd, input_name(path));
    return fd >= 0;
}

void json_lines_of(struct json_lines *l, struct text *text, const char *name)
{
    *l = (struct json_lines){ 0 };
    lines_of(&l->lines, text, name);
}

bool json_lines_place(const struct json_lines *l, struct error *err)
{
    return fail_in(err, (struct in_file){ l->lines.name, (int)l->lines.number, 0 }, "%s", err->text);
}

bool json_lines_value(struct json_lines *l, struct error *err)
{
    json_free(l->value);
    l->value = NULL;
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
        l->value = json_parse_line(text, n, l->lines.name, (int)l->lines.number, err);
        l->failed = l->value == NULL;
        return !l->failed;
    }
}

bool json_lines_next(struct json_lines *l, struct error *err)
{
    if (!json_lines_value(l, err))
        return false;
    l->failed = !json_is_object(l->value);
    if (!l->failed)
        return true;
    fail(err, "expected a JSON object, as in {\"text\": \"...\"}");
    return json_lines_place(l, err);
}

void json_lines_close(struct json_lines *l)
{
    json_free(l->value);
    input_close(l->lines.fd);
    lines_end(&l->lines);
    *l = (struct json_lines){ 0 };
}

bool json_lines_each(const char *path, bool (*use)(void *self, const struct json *line, struct error *err), void *self,
                     struct error *err)
{
    struct json_lines l;
    bool ok = json_lines_open(&l, path, err);
    while (ok && !stdout_failed() && json_lines_next(&l, err))
        ok = use(self, l.value, err) || json_lines_place(&l, err);
    ok = ok && !l.failed;
    json_lines_close(&l);
    return ok;
}

void json_lines_put(struct text *to, struct json *j)
{
    char *line = json_write(j);
    text_puts(to, line);
    text_puts(to, "\n");
    free(line);
    json_free(j);
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
