// yaml.c - parses YAML into settings with their positions in the file.
//
// Supports mappings, lists, scalars, anchors, aliases and merge keys; an alias becomes a copy, as a cell's settings are stored in the
// database and must be self-contained. Tags and several documents are errors. libyaml's event interface is used, so that each event
// is checked before a node is built.
#include "experiments/yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "core/error.h"
#include "core/files/input.h"
#include "core/hash_map.h"
#include "core/memory.h"
#include "core/settings.h"
#include "core/utf8.h"

enum { MAX_DEPTH = 32, MAX_BYTES = 4 << 20, MAX_COPIED = 1 << 20 };

struct anchor {
    int line;
    struct settings *value; // a copy; NULL: not complete yet
};

struct reader {
    yaml_parser_t parser;
    const char *text, *file;
    struct error *err;
    struct anchor *anchor;   // (n_anchors)
    struct hash_map anchors; // their indices by name
    int n_anchors, capacity;
    int64_t copied; // values, by anchors and aliases
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
        memory_out(0);
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

static const char *anchor_of(const yaml_event_t *e) // NULL: none
{
    return (const char *)(e->type == YAML_SCALAR_EVENT           ? e->data.scalar.anchor
                          : e->type == YAML_SEQUENCE_START_EVENT ? e->data.sequence_start.anchor
                          : e->type == YAML_MAPPING_START_EVENT  ? e->data.mapping_start.anchor
                                                                 : NULL);
}

// Rejects tags and NUL characters.
static bool is_plain_node(const struct reader *r, const yaml_event_t *e)
{
    const yaml_char_t *tag = e->type == YAML_SCALAR_EVENT           ? e->data.scalar.tag
                             : e->type == YAML_SEQUENCE_START_EVENT ? e->data.sequence_start.tag
                             : e->type == YAML_MAPPING_START_EVENT  ? e->data.mapping_start.tag
                                                                    : NULL;
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

// ---- anchors and aliases

static int height(const struct settings *s) // lists and mappings in one another
{
    int most = 0;
    for (int i = 0; i < s->n; i++) {
        const int h = height(s->item[i]);
        most = h > most ? h : most;
    }
    return s->kind == SETTINGS_SCALAR ? 0 : most + 1;
}

// Aliases of aliases multiply, so what is copied has a limit. NULL on failure.
static struct settings *copy_of(struct reader *r, const struct settings *s, yaml_mark_t mark)
{
    r->copied += settings_size(s);
    if (r->copied <= MAX_COPIED)
        return settings_copy(s);
    fail_at(r->err, r->file, place(mark), "expected anchors and aliases for at most %d values, found more", MAX_COPIED);
    return NULL;
}

static const struct anchor *find_anchor(const struct reader *r, const char *name)
{
    const int64_t *at = hash_map_find(&r->anchors, hash_of(name, strlen(name)));
    return at != NULL ? &r->anchor[*at] : NULL;
}

static bool begin_anchor(struct reader *r, const char *name, yaml_mark_t mark)
{
    const struct anchor *first = find_anchor(r, name);
    if (first != NULL)
        return fail_at(r->err, r->file, place(mark), "the anchor &%s is given twice, first on line %d", name,
                       first->line);
    array_reserve(r->anchor, r->capacity, r->n_anchors + 1);
    hash_map_add(&r->anchors, hash_of(name, strlen(name)), r->n_anchors);
    r->anchor[r->n_anchors++] = (struct anchor){ place(mark).line, NULL };
    return true;
}

// The alias's own position is that of the copy; what is in it keeps the positions where it is written.
static struct settings *read_alias(struct reader *r, const yaml_event_t *e, int depth)
{
    const char *name = (const char *)e->data.alias.anchor;
    const struct anchor *a = find_anchor(r, name);
    if (a == NULL)
        fail_at(r->err, r->file, place(e->start_mark), "*%s: expected the anchor &%s before it, found none", name,
                name);
    else if (a->value == NULL)
        fail_at(r->err, r->file, place(e->start_mark), "*%s: the value of &%s, on line %d, contains itself", name, name,
                a->line);
    else if (depth + height(a->value) > MAX_DEPTH)
        fail_at(r->err, r->file, place(e->start_mark), "nested more than %d deep", MAX_DEPTH);
    else {
        struct settings *s = copy_of(r, a->value, e->start_mark);
        return s != NULL ? at_mark(s, r, e->start_mark) : NULL;
    }
    return NULL;
}

// ---- nodes

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
                       e->type == YAML_SEQUENCE_START_EVENT  ? "a list"
                       : e->type == YAML_MAPPING_START_EVENT ? "a mapping"
                                                             : "an alias");
    if (anchor_of(e) != NULL)
        return fail_at(r->err, r->file, at, "expected a key, found the anchor &%s: it goes before a value",
                       anchor_of(e));
    const char *key = (const char *)e->data.scalar.value;
    if (*key == '\0')
        return fail_at(r->err, r->file, at, "expected a key, found nothing before the colon");
    const int first = settings_find(map, key);
    return first < 0 ||
           fail_at(r->err, r->file, at, "the key \"%s\" is given twice, first on line %d", key, map->key_line[first]);
}

static bool is_merge_key(const yaml_event_t *key)
{
    return strcmp((const char *)key->data.scalar.value, "<<") == 0 && key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static struct settings *read_value(struct reader *r, int depth)
{
    yaml_event_t e;
    if (!next_event(r, &e))
        return NULL;
    struct settings *value = read_node(r, &e, depth);
    yaml_event_delete(&e);
    return value;
}

// What `<<` names: a mapping or a list of them; NULL on failure.
static struct settings *read_merged(struct reader *r, const yaml_event_t *key, const struct settings *before, int depth)
{
    if (before != NULL) {
        fail_at(r->err, r->file, place(key->start_mark), "the key \"<<\" is given twice; expected <<: [*a, *b]");
        return NULL;
    }
    struct settings *s = read_value(r, depth);
    bool maps = s != NULL && s->kind != SETTINGS_SCALAR;
    for (int i = 0; maps && s->kind == SETTINGS_LIST && i < s->n; i++)
        maps = s->item[i]->kind == SETTINGS_MAP;
    if (s == NULL || maps)
        return s;
    settings_fail(r->err, s, "<<: expected a mapping or a list of mappings, as in <<: *name, found something else");
    settings_free(s);
    return NULL;
}

// Adds the keys that the mapping lacks; the first of several mappings wins.
static bool merge(struct reader *r, struct settings *map, const struct settings *from, yaml_mark_t mark)
{
    for (int i = 0; i < from->n; i++) {
        if (from->kind == SETTINGS_LIST) {
            if (!merge(r, map, from->item[i], mark))
                return false;
        } else if (settings_get(map, from->key[i]) == NULL) {
            struct settings *s = copy_of(r, from->item[i], mark);
            if (s == NULL)
                return false;
            settings_put_key(map, from, i, s);
        }
    }
    return true;
}

static bool read_entry(struct reader *r, struct settings *map, struct settings **merged, const yaml_event_t *key,
                       int depth)
{
    if (!is_good_key(r, map, key))
        return false;
    if (is_merge_key(key)) {
        struct settings *s = read_merged(r, key, *merged, depth);
        if (s != NULL)
            *merged = s;
        return s != NULL;
    }
    struct settings *value = read_value(r, depth);
    if (value == NULL)
        return false;
    settings_put(map, (const char *)key->data.scalar.value, value);
    map->key_line[map->n - 1] = place(key->start_mark).line;
    map->key_column[map->n - 1] = place(key->start_mark).column;
    return true;
}

static bool read_map(struct reader *r, struct settings *map, int depth)
{
    struct settings *merged = NULL;
    bool end = false, more = true;
    while (more) {
        yaml_event_t e;
        if (!next_event(r, &e))
            break;
        end = e.type == YAML_MAPPING_END_EVENT;
        more = !end && read_entry(r, map, &merged, &e, depth);
        if (end && merged != NULL)
            end = merge(r, map, merged, e.start_mark);
        yaml_event_delete(&e);
    }
    settings_free(merged);
    return end;
}

static struct settings *read_unnamed(struct reader *r, const yaml_event_t *e, int depth)
{
    if (!is_plain_node(r, e))
        return NULL;
    if (e->type == YAML_ALIAS_EVENT)
        return read_alias(r, e, depth);
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

// Reads the node that starts with this event; NULL on failure.
static struct settings *read_node(struct reader *r, const yaml_event_t *e, int depth)
{
    const char *name = anchor_of(e);
    const int at = r->n_anchors;
    if (name != NULL && !begin_anchor(r, name, e->start_mark))
        return NULL;
    struct settings *s = read_unnamed(r, e, depth);
    if (s == NULL || name == NULL || (r->anchor[at].value = copy_of(r, s, e->start_mark)) != NULL)
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
        memory_out(0);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)copy, n);
    struct settings *s = read_stream(&r);
    yaml_parser_delete(&r.parser);
    for (int i = 0; i < r.n_anchors; i++)
        settings_free(r.anchor[i].value);
    free(r.anchor);
    hash_map_free(&r.anchors);
    free(copy);
    return s;
}

struct settings *yaml_read(const char *path, struct error *err)
{
    struct text text = { 0 };
    const bool ok = input_read(path, INPUT_STREAM, MAX_BYTES, &text, err);
    struct settings *s = ok ? yaml_parse(text.s, text.n, path, err) : NULL;
    free(text.s);
    return s;
}
