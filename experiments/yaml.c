// yaml.c - parses YAML into settings with their positions in the file.
//
// Supports mappings, lists and scalars. Anchors, aliases, merge keys, tags and several documents are errors: a cell's
// settings are stored in the database and must be self-contained. libyaml's event interface is used, so that each event is
// checked before a node is built.
#include "experiments/yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "core/utf8.h"

enum { MAX_DEPTH = 32, MAX_BYTES = 4 << 20 };

struct reader {
    yaml_parser_t parser;
    const char *text, *file;
    struct error *err;
};

struct place { // 1-based
    int line, column;
};

static struct place place(yaml_mark_t mark)
{
    return (struct place){ (int)mark.line + 1, (int)mark.column + 1 };
}

__attribute__((format(printf, 4, 5))) static bool fail_at(struct error *err, const char *file, struct place at,
                                                          const char *format, ...)
{
    char sentence[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    return fail(err, "%s:%d:%d: %s", file, at.line, at.column, sentence);
}

// ---- bytes

static bool is_text(unsigned c)
{
    return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c < 0x7F) || c == 0x85 || (c >= 0xA0 && c < 0xFFFE) ||
           c >= 0x10000;
}

// libyaml detects these too, but without a line number.
static bool all_text(const char *text, size_t n, const char *file, struct error *err)
{
    struct place at = { 1, 1 };
    for (size_t i = 0; i < n;) {
        size_t length = utf8_character(text + i, n - i);
        if (length == 0)
            return fail_at(err, file, at, "expected UTF-8 text, found the byte 0x%02X", (unsigned char)text[i]);
        unsigned c = utf8_code(text + i);
        if (!is_text(c))
            return fail_at(err, file, at, "expected text, found %s (U+%04X)",
                           c == 0 ? "a NUL character" : "a control character", c);
        i += length;
        at.column++;
        if (c == '\n' || (c == '\r' && (i == n || text[i] != '\n')))
            at = (struct place){ at.line + 1, 1 };
    }
    return true;
}

// ---- events

static bool is_at_tab(const struct reader *r, yaml_mark_t mark)
{
    const char *line = r->text;
    for (size_t i = 0; i < mark.line && line != NULL; i++) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return line != NULL && strspn(line, " \t") > mark.column && line[mark.column] == '\t';
}

static bool fail_syntax(const struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        abort();
    if (is_at_tab(r, p->problem_mark))
        return fail_at(r->err, r->file, place(p->problem_mark), "not valid YAML: a tab where spaces are expected");
    if (p->context != NULL && p->context_mark.line != p->problem_mark.line)
        return fail_at(r->err, r->file, place(p->problem_mark), "not valid YAML: %s (%s that begins on line %zu)",
                       p->problem, p->context, p->context_mark.line + 1);
    return fail_at(r->err, r->file, place(p->problem_mark), "not valid YAML: %s%s%s%s", p->problem,
                   p->context != NULL ? " (" : "", p->context != NULL ? p->context : "", p->context != NULL ? ")" : "");
}

static bool next_event(struct reader *r, yaml_event_t *event)
{
    return yaml_parser_parse(&r->parser, event) == 1 || fail_syntax(r);
}

// Rejects aliases, anchors, tags and NUL characters.
static bool is_plain_node(const struct reader *r, const yaml_event_t *e)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (e->type == YAML_ALIAS_EVENT)
        return fail_at(r->err, r->file, place(e->start_mark), "aliases are not supported: write out the value of *%s",
                       e->data.alias.anchor);
    if (e->type == YAML_SCALAR_EVENT)
        anchor = e->data.scalar.anchor, tag = e->data.scalar.tag;
    else if (e->type == YAML_SEQUENCE_START_EVENT)
        anchor = e->data.sequence_start.anchor, tag = e->data.sequence_start.tag;
    else if (e->type == YAML_MAPPING_START_EVENT)
        anchor = e->data.mapping_start.anchor, tag = e->data.mapping_start.tag;
    if (anchor != NULL)
        return fail_at(r->err, r->file, place(e->start_mark),
                       "anchors are not supported: leave out &%s and write values where they are used", anchor);
    if (tag != NULL)
        return fail_at(r->err, r->file, place(e->start_mark), "tags are not supported: leave out %s", tag);
    if (e->type == YAML_SCALAR_EVENT && strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
        return fail_at(r->err, r->file, place(e->start_mark), "expected text, found a NUL character in it");
    return true;
}

static struct settings *at_mark(struct settings *s, const struct reader *r, yaml_mark_t mark)
{
    s->file = r->file;
    s->line = place(mark).line;
    s->column = place(mark).column;
    return s;
}

static struct settings *read_node(struct reader *r, const yaml_event_t *e, int depth);

// Reads items up to the event that ends the list; false on failure.
static bool read_list(struct reader *r, struct settings *list, int depth)
{
    for (;;) {
        yaml_event_t e;
        if (!next_event(r, &e))
            return false;
        bool end = e.type == YAML_SEQUENCE_END_EVENT;
        struct settings *item = end ? NULL : read_node(r, &e, depth);
        yaml_event_delete(&e);
        if (item == NULL)
            return end;
        settings_append(list, item);
    }
}

static bool is_good_key(const struct reader *r, const struct settings *map, const yaml_event_t *e)
{
    struct place at = place(e->start_mark);
    if (!is_plain_node(r, e))
        return false;
    if (e->type != YAML_SCALAR_EVENT)
        return fail_at(r->err, r->file, at, "expected a key, found %s",
                       e->type == YAML_SEQUENCE_START_EVENT ? "a list" : "a mapping");
    const char *key = (const char *)e->data.scalar.value;
    if (*key == '\0')
        return fail_at(r->err, r->file, at, "expected a key, found nothing before the colon");
    if (strcmp(key, "<<") == 0 && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return fail_at(r->err, r->file, at, "merge keys are not supported: write out the keys of <<");
    for (int i = 0; i < map->n; i++)
        if (strcmp(map->key[i], key) == 0)
            return fail_at(r->err, r->file, at, "the key \"%s\" is given twice, first on line %d", key,
                           map->key_line[i]);
    return true;
}

static bool read_entry(struct reader *r, struct settings *map, const yaml_event_t *key, int depth)
{
    yaml_event_t e;
    if (!is_good_key(r, map, key) || !next_event(r, &e))
        return false;
    struct settings *value = read_node(r, &e, depth);
    yaml_event_delete(&e);
    if (value == NULL)
        return false;
    settings_put(map, (const char *)key->data.scalar.value, value);
    map->key_line[map->n - 1] = place(key->start_mark).line;
    map->key_column[map->n - 1] = place(key->start_mark).column;
    return true;
}

static bool read_map(struct reader *r, struct settings *map, int depth)
{
    for (;;) {
        yaml_event_t e;
        if (!next_event(r, &e))
            return false;
        bool end = e.type == YAML_MAPPING_END_EVENT;
        bool more = !end && read_entry(r, map, &e, depth);
        yaml_event_delete(&e);
        if (!more)
            return end;
    }
}

// Reads the node that starts with this event; NULL on failure.
static struct settings *read_node(struct reader *r, const yaml_event_t *e, int depth)
{
    if (!is_plain_node(r, e))
        return NULL;
    if (e->type == YAML_SCALAR_EVENT) {
        struct settings *s = at_mark(settings_scalar((const char *)e->data.scalar.value), r, e->start_mark);
        s->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        return s;
    }
    if (depth == MAX_DEPTH) {
        fail_at(r->err, r->file, place(e->start_mark), "nested more than %d deep", MAX_DEPTH);
        return NULL;
    }
    bool list = e->type == YAML_SEQUENCE_START_EVENT;
    struct settings *s = at_mark(list ? settings_list() : settings_map(), r, e->start_mark);
    if (list ? read_list(r, s, depth + 1) : read_map(r, s, depth + 1))
        return s;
    settings_free(s);
    return NULL;
}

// Reads the stream's only document; NULL on failure.
static struct settings *read_stream(struct reader *r)
{
    struct settings *s = NULL;
    for (;;) {
        yaml_event_t e;
        if (!next_event(r, &e))
            break;
        yaml_event_type_t type = e.type;
        bool ok = true;
        if (type == YAML_DOCUMENT_START_EVENT && s != NULL)
            ok = fail_at(r->err, r->file, place(e.start_mark), "expected the end of the file, found a second document");
        else if (type == YAML_SCALAR_EVENT || type == YAML_ALIAS_EVENT || type == YAML_SEQUENCE_START_EVENT ||
                 type == YAML_MAPPING_START_EVENT)
            ok = (s = read_node(r, &e, 0)) != NULL;
        else if (type == YAML_STREAM_END_EVENT && s == NULL)
            ok = fail_at(r->err, r->file, (struct place){ 1, 1 }, "expected keys and values, found an empty file");
        yaml_event_delete(&e);
        if (!ok)
            break;
        if (type == YAML_STREAM_END_EVENT)
            return s;
    }
    settings_free(s);
    return NULL;
}

struct settings *yaml_parse(const char *text, size_t n, const char *file, struct error *err)
{
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        text += 3, n -= 3; // a byte order mark
    if (!all_text(text, n, file, err))
        return NULL;
    char *copy = xstrndup(text, n); // NUL-terminated, for strchr
    struct reader r = { .text = copy, .file = file, .err = err };
    if (yaml_parser_initialize(&r.parser) == 0)
        abort();
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)copy, n);
    struct settings *s = read_stream(&r);
    yaml_parser_delete(&r.parser);
    free(copy);
    return s;
}

static bool read_bytes(FILE *f, const char *path, struct text *to, struct error *err)
{
    struct stat st;
    char chunk[1 << 14];
    size_t n;
    if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode))
        return fail(err, "%s: expected a YAML file, found a directory", path);
    text_puts(to, "");
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0) {
        text_add(to, chunk, n);
        if (to->n > MAX_BYTES)
            return fail(err, "%s: expected a YAML file, found more than %d MiB", path, MAX_BYTES >> 20);
    }
    return !ferror(f) || fail(err, "%s: cannot read it: %s", path, strerror(errno));
}

struct settings *yaml_read(const char *path, struct error *err)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fail(err, "%s: %s", path, strerror(errno));
        return NULL;
    }
    struct text text = { 0 };
    bool ok = read_bytes(f, path, &text, err);
    fclose(f);
    struct settings *s = ok ? yaml_parse(text.s, text.n, path, err) : NULL;
    free(text.s);
    return s;
}
