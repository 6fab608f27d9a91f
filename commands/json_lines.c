// json_lines.c - getline and one JSON parser; positions in error messages refer to the file.
#include "commands/json_lines.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "tokenizers/tokenizer.h"

bool json_lines_open(struct json_lines *l, const char *path, struct error *err)
{
    bool standard = path == NULL || strcmp(path, "-") == 0;
    *l = (struct json_lines){ .file = standard ? stdin : fopen(path, "rb"), .name = standard ? "stdin" : path };
    return l->file != NULL || fail(err, "%s: %s", path, strerror(errno));
}

bool json_lines_fail(const struct json_lines *l, struct error *err, const char *format, ...)
{
    char sentence[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    return fail(err, "%s:%ld: %s", l->name, l->line, sentence);
}

// json_parse reports line 1, as it gets a single line: replaces that by the line of the file.
static bool fail_parse(const struct json_lines *l, struct error *err, const struct error *reason)
{
    int line, column, end = 0;
    if (sscanf(reason->text, "line:%d:%d: %n", &line, &column, &end) == 2 && end > 0)
        return fail(err, "%s:%ld:%d: %s", l->name, l->line, column, reason->text + end);
    return json_lines_fail(l, err, "%s", reason->text);
}

bool json_lines_next(struct json_lines *l, struct error *err)
{
    json_free(l->object);
    l->object = NULL;
    for (;;) {
        struct error reason;
        errno = 0;
        ssize_t n = getline(&l->text, &l->capacity, l->file);
        if (n < 0) {
            l->failed = ferror(l->file) != 0;
            return l->failed ? fail(err, "%s: cannot read: %s", l->name, strerror(errno)) : false;
        }
        l->line++;
        if (l->line == 1 && n >= 3 && memcmp(l->text, "\xEF\xBB\xBF", 3) == 0) // skip a byte order mark
            memmove(l->text, l->text + 3, (size_t)(n -= 3) + 1);
        if (strspn(l->text, " \t\r\n") == (size_t)n)
            continue;
        l->object = json_parse(l->text, (size_t)n, "line", &reason);
        l->failed = l->object == NULL || !json_is_object(l->object);
        if (l->object == NULL)
            return fail_parse(l, err, &reason);
        return l->failed ? json_lines_fail(l, err, "expected a JSON object, as in {\"text\": \"...\"}") : true;
    }
}

void json_lines_close(struct json_lines *l)
{
    json_free(l->object);
    free(l->text);
    if (l->file != NULL && l->file != stdin)
        fclose(l->file);
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
