// yaml.c - parses YAML into settings with their positions in the file.
//
// It supports mappings, lists, scalars, anchors, aliases and merge keys. An alias becomes a copy, since a cell's
// settings are stored in the database and must be self-contained. Tags and several documents are errors. libyaml's
// event interface is used, so that each event is checked before a node is built.
#include "experiments/yaml.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    struct settings *value; // a copy; NULL: not yet complete
};

struct frame {                       // a list or mapping that has not yet ended
    struct settings *value, *merged; // merged: the value of << in a mapping; NULL: none
    enum { KEY, VALUE, MERGE } next; // what comes next in a mapping; MERGE: the value of <<
    int anchor;                      // index of its anchor; -1: none
    yaml_mark_t mark;
};

struct reader {
    yaml_parser_t parser;
    const char *text, *file;
    struct error *err;
    struct frame frame[MAX_DEPTH]; // (depth) each in the one before
    int depth;
    struct settings *root;   // the complete root; NULL: not yet
    struct anchor *anchor;   // (n_anchors)
    struct hash_map anchors; // indices of the anchors by name
    int n_anchors, capacity;
    int64_t copied; // number of values copied for anchors and aliases
};

// Marks count from 0, messages from 1.
#define fail_at(r, at, ...) \
    fail_in((r)->err, (struct in_file){ (r)->file, (int)(at).line + 1, (int)(at).column + 1 }, __VA_ARGS__)

// ---- bytes

static bool is_text(unsigned c)
{
    return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c < 0x7F) || c == 0x85 || (c >= 0xA0 && c < 0xFFFE) ||
           c >= 0x10000;
}

// libyaml detects these as well, but without a line number.
static bool all_text(const struct reader *r, size_t n)
{
    const char *text = r->text;
    yaml_mark_t at = { 0 };
    for (size_t i = 0; i < n;) {
        size_t length = utf8_character(text + i, n - i);
        if (length == 0)
            return fail_at(r, at, "expected UTF-8 text, found the byte 0x%02X", (unsigned char)text[i]);
        unsigned c = utf8_code(text + i);
        if (!is_text(c))
            return fail_at(r, at, "expected text, found %s (U+%04X)",
                           c == 0 ? "a NUL character" : "a control character", c);
        i += length;
        at.column++;
        if (c == '\n' || (c == '\r' && (i == n || text[i] != '\n')))
            at = (yaml_mark_t){ .line = at.line + 1 };
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
        return fail_at(r, p->problem_mark, "not valid YAML: a tab where spaces are expected");
    if (p->context != NULL && p->context_mark.line != p->problem_mark.line)
        return fail_at(r, p->problem_mark, "not valid YAML: %s (%s that begins on line %zu)", p->problem, p->context,
                       p->context_mark.line + 1);
    return fail_at(r, p->problem_mark, "not valid YAML: %s%s%s%s", p->problem, p->context != NULL ? " (" : "",
                   p->context != NULL ? p->context : "", p->context != NULL ? ")" : "");
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
        return fail_at(r, e->start_mark, "tags are not supported: leave out %s", tag);
    if (e->type == YAML_SCALAR_EVENT && strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
        return fail_at(r, e->start_mark, "expected text, found a NUL character in it");
    return true;
}

static struct settings *at_mark(struct settings *s, const struct reader *r, yaml_mark_t mark)
{
    s->file = r->file;
    s->line = (int)mark.line + 1;
    s->column = (int)mark.column + 1;
    return s;
}

// ---- anchors and aliases

static int height(const struct settings *s) // depth of nested lists and mappings
{
    int most = 0;
    for (int i = 0; i < s->n; i++) {
        const int h = height(s->item[i]);
        most = h > most ? h : most;
    }
    return s->kind == SETTINGS_SCALAR ? 0 : most + 1;
}

// Returns a copy. Aliases of aliases multiply, so copying has a limit. NULL on failure.
static struct settings *copy_of(struct reader *r, const struct settings *s, yaml_mark_t mark)
{
    r->copied += settings_size(s);
    if (r->copied <= MAX_COPIED)
        return settings_copy(s);
    fail_at(r, mark, "expected anchors and aliases for at most %d values, found more", MAX_COPIED);
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
        return fail_at(r, mark, "the anchor &%s is given twice, first on line %d", name, first->line);
    array_reserve(r->anchor, r->capacity, r->n_anchors + 1);
    hash_map_add(&r->anchors, hash_of(name, strlen(name)), r->n_anchors);
    r->anchor[r->n_anchors++] = (struct anchor){ (int)mark.line + 1, NULL };
    return true;
}

// The copy has the alias's position; the values in it keep the positions where they are written.
static struct settings *read_alias(struct reader *r, const yaml_event_t *e)
{
    const char *name = (const char *)e->data.alias.anchor;
    const struct anchor *a = find_anchor(r, name);
    if (a == NULL)
        fail_at(r, e->start_mark, "*%s: expected the anchor &%s before it, found none", name, name);
    else if (a->value == NULL)
        fail_at(r, e->start_mark, "*%s: the value of &%s, on line %d, contains itself", name, name, a->line);
    else if (r->depth + height(a->value) > MAX_DEPTH)
        fail_at(r, e->start_mark, "nested more than %d deep", MAX_DEPTH);
    else {
        struct settings *s = copy_of(r, a->value, e->start_mark);
        return s != NULL ? at_mark(s, r, e->start_mark) : NULL;
    }
    return NULL;
}

// ---- nodes

static bool is_good_key(const struct reader *r, const struct settings *map, const yaml_event_t *e)
{
    const yaml_mark_t at = e->start_mark;
    if (!is_plain_node(r, e))
        return false;
    if (e->type != YAML_SCALAR_EVENT)
        return fail_at(r, at, "expected a key, found %s",
                       e->type == YAML_SEQUENCE_START_EVENT  ? "a list"
                       : e->type == YAML_MAPPING_START_EVENT ? "a mapping"
                                                             : "an alias");
    if (anchor_of(e) != NULL)
        return fail_at(r, at, "expected a key, found the anchor &%s: it goes before a value", anchor_of(e));
    const char *key = (const char *)e->data.scalar.value;
    if (*key == '\0')
        return fail_at(r, at, "expected a key, found nothing before the colon");
    const int first = settings_find(map, key);
    return first < 0 || fail_at(r, at, "the key \"%s\" is given twice, first on line %d", key, map->key_line[first]);
}

static bool is_merge_key(const yaml_event_t *key)
{
    return strcmp((const char *)key->data.scalar.value, "<<") == 0 && key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
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

static bool take_key(struct reader *r, struct frame *f, const yaml_event_t *e)
{
    struct settings *map = f->value;
    if (!is_good_key(r, map, e))
        return false;
    f->next = is_merge_key(e) ? MERGE : VALUE;
    if (f->next == MERGE)
        return f->merged == NULL || fail_at(r, e->start_mark, "the key \"<<\" is given twice; expected <<: [*a, *b]");
    settings_put(map, (const char *)e->data.scalar.value, settings_scalar("")); // a placeholder until its value comes
    map->key_line[map->n - 1] = (int)e->start_mark.line + 1;
    map->key_column[map->n - 1] = (int)e->start_mark.column + 1;
    return true;
}

// Puts a complete node, which it takes over, into the node that contains it.
static bool put_node(struct reader *r, struct settings *s, int anchor, yaml_mark_t mark)
{
    struct frame *f = r->depth > 0 ? &r->frame[r->depth - 1] : NULL;
    struct settings **to = f == NULL ? &r->root : f->next == MERGE ? &f->merged : NULL;
    bool maps = s->kind != SETTINGS_SCALAR;
    for (int i = 0; s->kind == SETTINGS_LIST && i < s->n; i++)
        maps = maps && s->item[i]->kind == SETTINGS_MAP;
    if (to != NULL)
        *to = s;
    else if (f->value->kind == SETTINGS_LIST)
        settings_append(f->value, s);
    else {
        settings_free(f->value->item[f->value->n - 1]);
        f->value->item[f->value->n - 1] = s;
    }
    if (f != NULL && f->next == MERGE && !maps)
        return settings_fail(r->err, s,
                             "<<: expected a mapping or a list of mappings, as in <<: *name, found something else");
    if (f != NULL)
        f->next = KEY;
    return anchor < 0 || (r->anchor[anchor].value = copy_of(r, s, mark)) != NULL;
}

static bool take_node(struct reader *r, const yaml_event_t *e)
{
    const char *name = anchor_of(e);
    const int anchor = name != NULL ? r->n_anchors : -1;
    if ((name != NULL && !begin_anchor(r, name, e->start_mark)) || !is_plain_node(r, e))
        return false;
    struct settings *s;
    if (e->type == YAML_ALIAS_EVENT) {
        s = read_alias(r, e);
        return s != NULL && put_node(r, s, -1, e->start_mark);
    }
    if (e->type == YAML_SCALAR_EVENT) {
        s = at_mark(settings_scalar((const char *)e->data.scalar.value), r, e->start_mark);
        s->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        return put_node(r, s, anchor, e->start_mark);
    }
    if (r->depth == MAX_DEPTH)
        return fail_at(r, e->start_mark, "nested more than %d deep", MAX_DEPTH);
    s = e->type == YAML_SEQUENCE_START_EVENT ? settings_list() : settings_map();
    r->frame[r->depth++] =
        (struct frame){ .value = at_mark(s, r, e->start_mark), .anchor = anchor, .mark = e->start_mark };
    return true;
}

static bool take_end(struct reader *r, const yaml_event_t *e)
{
    const struct frame f = r->frame[--r->depth];
    const bool ok = f.merged == NULL || merge(r, f.value, f.merged, e->start_mark);
    settings_free(f.merged);
    if (ok)
        return put_node(r, f.value, f.anchor, f.mark);
    settings_free(f.value);
    return false;
}

static bool take_event(struct reader *r, const yaml_event_t *e)
{
    struct frame *f = r->depth > 0 ? &r->frame[r->depth - 1] : NULL;
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return r->root == NULL || fail_at(r, e->start_mark, "expected the end of the file, found a second document");
    case YAML_STREAM_END_EVENT:
        return r->root != NULL || fail_at(r, (yaml_mark_t){ 0 }, "expected keys and values, found an empty file");
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return take_end(r, e);
    case YAML_SCALAR_EVENT:
    case YAML_ALIAS_EVENT:
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        return f != NULL && f->value->kind == SETTINGS_MAP && f->next == KEY ? take_key(r, f, e) : take_node(r, e);
    default:
        return true;
    }
}

// Reads the stream's only document. Returns NULL on failure.
static struct settings *read_stream(struct reader *r)
{
    bool ok = true, end = false;
    while (ok && !end) {
        yaml_event_t e;
        if (yaml_parser_parse(&r->parser, &e) != 1) {
            ok = fail_syntax(r);
            break;
        }
        end = e.type == YAML_STREAM_END_EVENT;
        ok = take_event(r, &e);
        yaml_event_delete(&e);
    }
    for (int i = 0; i < r->depth; i++) {
        settings_free(r->frame[i].value);
        settings_free(r->frame[i].merged);
    }
    if (ok)
        return r->root;
    settings_free(r->root);
    return NULL;
}

struct settings *yaml_parse(const char *text, size_t n, const char *file, struct error *err)
{
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        text += 3, n -= 3; // skips a byte order mark
    struct reader r = { .text = text, .file = file, .err = err };
    if (!all_text(&r, n))
        return NULL;
    char *copy = xstrndup(text, n); // NUL-terminated for strchr
    r.text = copy;
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
    const bool ok = input_read(path, INPUT_STDIN, MAX_BYTES, &text, err);
    struct settings *s = ok ? yaml_parse(text.s, text.n, input_name(path), err) : NULL;
    free(text.s);
    return s;
}
