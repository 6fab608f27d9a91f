// file_forms.c - finds out whose results a file has: a database, or JSON, JSON Lines or CSV whose objects one reader knows by their keys.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/compare/compare.h"
#include "core/csv.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"

static const struct compared_form *const forms[] = { &vllm_serve_form, &vllm_latency_form, &vllm_throughput_form,
                                                     &sglang_form,     &llama_bench_form,  &llama_server_form,
                                                     &spec_bench_form, &profile_form };
enum { FORMS = sizeof(forms) / sizeof(forms[0]) };

#define EXPECTED \
    "expected results of vllm bench serve, latency or throughput, SGLang's bench_serving, llama-bench (json, jsonl, csv), llama-server, " \
    "Spec-Bench, a speculation profile, or a database of speclab"

static void add(struct compared_objects *to, struct json *object, int line)
{
    if (to->n == to->capacity) {
        to->capacity = (int)next_capacity((size_t)to->capacity, (size_t)to->n + 1);
        to->object = xrealloc(to->object, (size_t)to->capacity * sizeof(*to->object));
        to->line = xrealloc(to->line, (size_t)to->capacity * sizeof(*to->line));
    }
    to->object[to->n] = object;
    to->line[to->n++] = line;
}

static void drop(struct compared_objects *all)
{
    for (int i = 0; i < all->n; i++)
        json_free(all->object[i]);
    free(all->object);
    free(all->line);
}

// ---- JSON and JSON Lines

// Python writes NaN, Infinity and -Infinity, which are no JSON (SGLang's request_rate is Infinity by default): they become null.
static void replace_python_numbers(struct text *text)
{
    static const char *const number[] = { "NaN", "Infinity", "-Infinity" };
    struct text plain = { 0 };
    bool quoted = false;
    if (strstr(text->s, "NaN") == NULL && strstr(text->s, "Infinity") == NULL)
        return;
    text_puts(&plain, "");
    for (size_t i = 0, n; i < text->n; i += n) {
        const char *at = text->s + i;
        n = quoted && *at == '\\' && i + 1 < text->n ? 2 : 1; // an escaped quote ends no text
        quoted = quoted != (n == 1 && *at == '"');
        const char *word = NULL;
        for (int k = 0; k < 3 && !quoted && word == NULL; k++)
            word = strncmp(at, number[k], strlen(number[k])) == 0 ? number[k] : NULL;
        text_add(&plain, word != NULL ? "null" : at, word != NULL ? 4 : n);
        n = word != NULL ? strlen(word) : n;
    }
    free(text->s);
    *text = plain;
}

static bool read_array(struct compared_objects *to, const struct text *text, struct error *err)
{
    struct json *list = json_parse(text->s, text->n, to->path, err);
    for (size_t i = 0; i < json_count(list); i++)
        add(to, json_clone(json_at(list, i)), 0);
    json_free(list);
    return list != NULL;
}

static bool read_lines(struct compared_objects *to, const struct text *text, struct error *err)
{
    int line = 1;
    for (const char *at = text->s, *end = text->s + text->n; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t n = newline != NULL ? (size_t)(newline - at) : (size_t)(end - at);
        if (strspn(at, " \t\r") < n) {
            struct json *o = json_parse_line(at, n, to->path, line, err);
            if (o == NULL)
                return false;
            add(to, o, line);
        }
        at += n + (newline != NULL);
    }
    return true;
}

// An object may extend over lines; several are one a line, so that the first line is one.
static bool read_objects(struct compared_objects *to, const struct text *text, struct error *err)
{
    struct error ignored;
    struct json *one = json_parse(text->s, text->n, to->path, err);
    if (one == NULL) {
        const size_t blank = strspn(text->s, " \t\r\n");
        struct json *line = json_parse(text->s + blank, strcspn(text->s + blank, "\n"), to->path, &ignored);
        json_free(line);
        return line != NULL && read_lines(to, text, err);
    }
    add(to, one, 0);
    return true;
}

// ---- CSV

static struct json *csv_value(const char *s)
{
    char *end;
    const double x = strtod(s, &end);
    return *s != '\0' && *end == '\0' && strchr("0123456789-", *s) != NULL ? json_new_number(x) : json_new_text(s);
}

static bool read_csv(struct compared_objects *to, const struct text *text, struct error *err)
{
    struct csv at = { text->s, text->s + text->n, 1 };
    struct text field = { 0 };
    struct json *head = json_new_array(), *row = NULL;
    size_t n = 0;
    bool ok = true;
    for (bool first = true, last; ok && csv_read(&at, &field, &last);) {
        if (first)
            json_push(head, json_new_text(field.s));
        else if (n < json_count(head))
            json_set(row, json_text(json_at(head, n++)), csv_value(field.s));
        else
            ok = fail(err, "%s:%d: expected %zu fields, found more", to->path, to->line[to->n - 1], json_count(head));
        if (ok && last && !first && n != json_count(head))
            ok = fail(err, "%s:%d: expected %zu fields, found %zu", to->path, to->line[to->n - 1], json_count(head), n);
        if (ok && last && at.at < at.end)
            add(to, row = json_new_object(), at.line);
        first = first && !last;
        n = last ? 0 : n;
    }
    json_free(head);
    free(field.s);
    return ok;
}

// ---- which form

static bool read_form(struct compared_objects *all, struct compared_rows *to, struct error *err)
{
    const struct compared_form *form = NULL;
    if (all->n == 0)
        return fail(err, "%s: no results; " EXPECTED, all->path);
    for (int i = 0; i < all->n; i++) {
        const struct compared_form *of = NULL;
        for (int k = 0; k < FORMS && of == NULL; k++)
            of = json_is_object(all->object[i]) && forms[k]->fits(all->object[i]) ? forms[k] : NULL;
        if (of == NULL)
            return field_fail(all, i, err, "%s; " EXPECTED,
                              json_is_object(all->object[i]) ? "an object with other keys" : "not an object");
        if (form != NULL && of != form)
            return field_fail(all, i, err, "expected results of %s as before, found those of %s", form->name, of->name);
        form = of;
    }
    return form->read(all, to, err);
}

static bool read_text(struct compared_rows *to, const char *path, struct text *text, struct error *err)
{
    struct compared_objects all = { .path = path };
    replace_python_numbers(text);
    const char *begin = text->s + strspn(text->s, " \t\r\n");
    bool ok;
    if (*begin == '[')
        ok = read_array(&all, text, err);
    else if (*begin == '{')
        ok = read_objects(&all, text, err);
    else if (strncmp(begin, "build_commit,", 13) == 0)
        ok = read_csv(&all, text, err);
    else if (strncmp(begin, "CREATE TABLE", 12) == 0 || *begin == '|')
        ok = fail(err, "%s: %s cannot be read: run llama-bench with -o json, jsonl or csv", path,
                  *begin == '|' ? "a Markdown table" : "SQL");
    else
        ok = fail(err, "%s: not JSON; " EXPECTED, path);
    ok = ok && read_form(&all, to, err);
    drop(&all);
    return ok;
}

enum kind { TEXT_FILE, DATABASE, BINARY_FILE };

// By its first bytes: a database or a model may be larger than memory. What cannot be read is left to its reader's message.
static enum kind kind_of(const char *path)
{
    char head[512];
    FILE *f = fopen(path, "rb");
    const size_t n = f != NULL ? fread(head, 1, sizeof(head), f) : 0;
    if (f != NULL)
        (void)fclose(f);
    if (n >= 16 && memcmp(head, "SQLite format 3", 16) == 0)
        return DATABASE;
    return memchr(head, '\0', n) != NULL ? BINARY_FILE : TEXT_FILE;
}

bool compared_read(struct compared_rows *to, const char *path, struct error *err)
{
    const enum kind kind = kind_of(path);
    if (kind == DATABASE)
        return compared_read_database(to, path, err);
    if (kind == BINARY_FILE)
        return fail(err, "%s: a binary file; " EXPECTED, path);
    struct text text = { 0 };
    bool ok = read_all(path, &text, err) && read_text(to, path, &text, err);
    free(text.s);
    return ok;
}
