#include "tests/experiments/small_experiments.h"

#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "core/error.h"
#include "core/json.h"
#include "experiments/experiment.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

void write_bytes(const char *name, const char *bytes, size_t n)
{
    char *path = test_path(name);
    file_write_bytes(path, bytes, n);
    free(path);
}

void write_file(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

static const char conversations[] =
    "{\"id\": \"a\", \"category\": \"chat\", \"turns\": [\"one two one two one\", \"and again\", \"enough\"]}\n"
    "{\"id\": \"b\", \"prompt\": \"a b c a b c a b\"}\n"
    "{\"id\": \"c\", \"category\": \"chat\", \"turns\": [\"ping\", \"pong\"]}\n"
    "{\"id\": \"d\", \"input_ids\": [75, 104, 111, 75, 104, 111]}\n"
    "{\"id\": \"e\", \"prompt\": \"x = x + 1\"}\n";

int make_files(void **state)
{
    struct small_model t = small_default;
    char *target = test_path("target.gguf"), *draft = test_path("draft.gguf"), *other = test_path("other.gguf");
    small_write_gguf(target, &t);
    t.layers = 1;
    small_write_gguf(draft, &t);
    t.seed++;
    small_write_gguf(other, &t);
    free(target);
    free(draft);
    free(other);
    write_file("p.jsonl", "{\"prompt\": \"abc\"}\n");
    write_file("conversations.jsonl", conversations);
    return 0;
}

void write_blocks(const char *name)
{
    struct small_model t = small_default;
    char *path = test_path(name);
    t.type = Q8_0;
    t.heads = 2;
    t.kv_heads = 1;
    t.head_dim = 32;
    small_write_gguf(path, &t);
    free(path);
}

struct experiment *load(const char *text)
{
    struct error err = { "" };
    char *path = test_path("x.yaml");
    write_file("x.yaml", text);
    struct experiment *e = experiment_load(path, &err);
    assert_ok(e != NULL, err);
    free(path);
    return e;
}

struct store *open_store(const char *name)
{
    struct error err = { "" };
    char *path = test_path(name);
    struct store *s = store_open(path, &err);
    assert_ok(s != NULL, err);
    free(path);
    return s;
}

struct json *dry_run(const char *text, struct store *s)
{
    struct error err = { "" };
    struct experiment *e = load(text);
    struct json *plan = experiment_dry_run(e, s, &err);
    assert_ok(plan != NULL, err);
    experiment_free(e);
    return plan;
}

int planned(const struct json *plan, const char *key, int cell)
{
    return (int)json_int(json_get(cell < 0 ? plan : json_at(json_get(plan, "cells"), (size_t)cell), key));
}

void perform(struct store *s, const char *sql, ...)
{
    struct error err = { "" };
    char *whole;
    va_list values;
    va_start(values, sql);
    assert_true(vasprintf(&whole, sql, values) >= 0);
    va_end(values);
    if (!query_perform(query_open(s, whole), &err))
        fail_msg("%s: %s", whole, err.text);
    free(whole);
}

void expect_none(struct store *s, const char *what, const char *sql)
{
    int64_t n = query_first_int(s, sql);
    if (n != 0)
        fail_msg("%s: %lld", what, (long long)n);
}

int64_t query_first_int(struct store *s, const char *sql)
{
    struct error err = { "" };
    struct query *q = query_open(s, sql);
    int64_t v = query_next(q) ? query_int(q, 0) : -1;
    if (!query_close(q, &err))
        fail_msg("%s: %s", sql, err.text);
    return v;
}

void run(const char *text, struct store *s)
{
    struct error err = { "" };
    struct experiment *e = load(text);
    assert_ok(experiment_run(e, s, NULL, NULL, &err), err);
    experiment_free(e);
}
