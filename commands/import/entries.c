// entries.c - the file is mapped; of a list each entry is cut out by its brackets and parsed alone, so memory does not depend on the
// length of the file, and an error names the entry.
#include "commands/import/entries.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "experiments/replay/compression.h"

#define MOST_UNPACKED ((size_t)1 << 32)

char *entries_place(const struct entries *e)
{
    return e->list ? xformat("%s[%lld]", e->path, (long long)e->n - 1) : xformat("%s:%d", e->path, e->line);
}

bool entries_fail(const struct entries *e, struct error *err, const char *format, ...)
{
    char sentence[sizeof(err->text)], *place = entries_place(e);
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    fail(err, "%s: %s", place, sentence);
    free(place);
    return false;
}

// ---- files that are something else

static bool begins(const struct mapping *m, const char *bytes, size_t n)
{
    return m->n >= n && memcmp(m->at, bytes, n) == 0;
}

// No library of Debian 12 reads parquet, for C or for Python.
static bool fail_parquet(const char *path, struct error *err)
{
    return fail(
        err,
        "%s: expected JSON lines or one JSON list, found a parquet file; Python with pyarrow (pip install pyarrow) "
        "writes lines: python3 -c 'import json,sys,pyarrow.parquet as p; [print(json.dumps(r, default=str)) for b in "
        "p.ParquetFile(sys.argv[1]).iter_batches(64) for r in b.to_pylist()]' '%s' >'%s.jsonl'",
        path, path, path);
}

static bool check_kind(const char *path, const struct mapping *m, struct error *err)
{
    static const struct {
        const char *begin;
        size_t n;
        const char *what, *program;
    } packed[] = { { "PK\3\4", 4, "a ZIP archive", "unzip" },
                   { "\x28\xB5\x2F\xFD", 4, "a Zstandard file", "zstd -d" },
                   { "BZh", 3, "a bzip2 file", "bunzip2 -k" },
                   { "\xFD"
                     "7zXZ",
                     5, "an XZ file", "unxz -k" } };
    if (begins(m, "PAR1", 4))
        return fail_parquet(path, err);
    for (size_t i = 0; i < sizeof(packed) / sizeof(*packed); i++)
        if (begins(m, packed[i].begin, packed[i].n))
            return fail(err, "%s: expected JSON lines or one JSON list, found %s; `%s` unpacks it", path,
                        packed[i].what, packed[i].program);
    if (begins(m, "version https://git-lfs", 23))
        return fail(
            err,
            "%s: expected JSON lines or one JSON list, found Git LFS's pointer to the file; `git lfs pull` fetches it",
            path);
    return !begins(m, "\xFF\xFE", 2) || fail(err, "%s: expected UTF-8, found UTF-16 (its byte order mark)", path);
}

// ---- reading

static bool unpack(struct entries *e, struct error *err)
{
    text_puts(&e->unpacked, "");
    switch (gzip_expand(e->map.at, e->map.n, MOST_UNPACKED, &e->unpacked)) {
    case GZIP_WHOLE:
        return true;
    case GZIP_TOO_LARGE:
        return fail(err, "%s: expected a gzip file of at most %zu GiB unpacked, found more", e->path,
                    MOST_UNPACKED >> 30);
    case GZIP_DAMAGED:
    default:
        return fail(err, "%s: expected a gzip file, found one that is damaged or cut off", e->path);
    }
}

// The next byte that is not blank; '\0' at the end, or for a NUL, which is no JSON.
static char peek(struct entries *e)
{
    while (e->at < e->end && (*e->at == ' ' || *e->at == '\t' || *e->at == '\r' || *e->at == '\n'))
        e->at++;
    return e->at < e->end ? *e->at : '\0';
}

bool entries_open(struct entries *e, const char *path, struct error *err)
{
    *e = (struct entries){ .path = path };
    if (!file_map(path, &e->map, err) || !check_kind(path, &e->map, err))
        return false;
    const bool packed = gzip_begins(e->map.at, e->map.n);
    if (packed && !unpack(e, err))
        return false;
    e->at = packed ? e->unpacked.s : (const char *)e->map.at;
    e->end = e->at + (packed ? e->unpacked.n : e->map.n);
    e->hash = hash_of(e->at, (size_t)(e->end - e->at));
    if (e->end - e->at >= 3 && memcmp(e->at, "\xEF\xBB\xBF", 3) == 0)
        e->at += 3; // a byte order mark
    const char *begin = e->at;
    e->list = peek(e) == '[';
    e->at = e->list ? e->at + 1 : begin;
    return true;
}

// The end of the JSON value at s, or of the list that ends there; NULL: the text ends within it.
static const char *value_end(const char *s, const char *end)
{
    bool quoted = false;
    for (size_t depth = 0; s < end; s++) {
        if (quoted) {
            quoted = *s != '"';
            s += *s == '\\';
            continue;
        }
        if (depth == 0 && (*s == ',' || *s == ']' || *s == '}'))
            return s;
        quoted = *s == '"';
        depth += *s == '[' || *s == '{';
        if ((*s == ']' || *s == '}') && --depth == 0)
            return s + 1;
    }
    return NULL;
}

// The reason without the position, which within a list counts from the entry's beginning.
static bool fail_parse(const struct entries *e, const struct error *reason, struct error *err)
{
    const char *what = strstr(reason->text, "not valid JSON");
    return entries_fail(e, err, "%s", what != NULL ? what : reason->text);
}

static bool take_element(struct entries *e, struct error *err)
{
    char c = peek(e);
    const bool comma = e->n > 0 && c == ',';
    if (comma) {
        e->at++;
        c = peek(e);
    }
    if (c == ']' && !comma) {
        e->at++;
        if (peek(e) == '\0' && e->at == e->end)
            return false;
        e->failed = true;
        return fail(err, "%s: expected the end of the file behind the list, found more", e->path);
    }
    e->failed = true;
    if (e->n > 0 && !comma && e->at < e->end)
        return fail(err, "%s[%lld]: expected a comma or the end of the list behind the object", e->path,
                    (long long)e->n - 1);
    const char *end = value_end(e->at, e->end);
    e->n++;
    if (end == NULL)
        return entries_fail(e, err, "expected an object, found the end of the file: is it complete?");
    struct error reason;
    e->entry = json_parse(e->at, (size_t)(end - e->at), "entry", &reason);
    e->at = end;
    e->failed = e->entry == NULL;
    return e->entry != NULL || fail_parse(e, &reason, err);
}

static bool take_line(struct entries *e, struct error *err)
{
    while (e->at < e->end) {
        const char *line = e->at, *newline = memchr(line, '\n', (size_t)(e->end - line));
        const char *end = newline != NULL ? newline : e->end, *at = line;
        e->at = newline != NULL ? newline + 1 : e->end;
        e->line++;
        while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
            at++;
        if (at == end)
            continue;
        e->n++;
        e->entry = json_parse_line(line, (size_t)(end - line), e->path, e->line, err);
        e->failed = e->entry == NULL;
        if (e->failed && newline == NULL) {
            const struct error reason = *err;
            fail(err, "%s; the file ends in this line: is it complete?", reason.text);
        }
        return !e->failed;
    }
    return false;
}

bool entries_next(struct entries *e, struct error *err)
{
    json_free(e->entry);
    e->entry = NULL;
    if (e->failed || !(e->list ? take_element(e, err) : take_line(e, err)))
        return false;
    e->failed = !json_is_object(e->entry);
    return !e->failed || entries_fail(e, err, "expected an object, found %s", json_described(e->entry));
}

void entries_close(struct entries *e)
{
    json_free(e->entry);
    file_unmap(&e->map);
    free(e->unpacked.s);
    *e = (struct entries){ 0 };
}
