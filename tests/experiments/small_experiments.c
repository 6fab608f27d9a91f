#include "tests/experiments/small_experiments.h"

#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "experiments/cells.h"
#include "experiments/division.h"
#include "experiments/experiment.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/printed_text.h"
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

void expect_count(struct store *s, int64_t n, const char *from)
{
    char *sql = xformat("SELECT count(*) FROM %s", from);
    const int64_t found = query_first_int(s, sql);
    if (found != n)
        fail_msg("expected %lld rows, found %lld: %s", (long long)n, (long long)found, from);
    free(sql);
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
    run_part(text, s, 0, 1);
}

void run_part(const char *text, struct store *s, int shard, int of)
{
    struct error err = { "" };
    struct experiment *e = load(text);
    e->shard = (struct shard){ shard, of, false };
    assert_ok(experiment_run(e, s, NULL, NULL, &err), err);
    experiment_free(e);
}

#define OF_RUN " JOIN %1$s.run AS r ON r.id = s.run"
#define OF_SEQUENCE " AS x JOIN %1$s.sequence AS s ON s.id = x.sequence" OF_RUN

void expect_same_results(struct store *s, const char *other, bool pairs)
{
    static const char *const facts[] = {
        "SELECT cell, peers, settings, target, target_hash, drafter, drafter_options, rule, lossless, sampling, batch,"
        " finished IS NULL FROM %1$s.run",
        "SELECT cell, prompt, prompt_id, turn, repeat, prompt_tokens, new_tokens, steps, tokens, text, stop"
        " FROM %1$s.sequence AS s" OF_RUN,
        "SELECT cell, prompt, turn, repeat, step, drafted, depth, x.accepted, x.tokens, x.batch, x.experts FROM %1$s.step" OF_SEQUENCE,
        "SELECT cell, prompt, turn, repeat, x.step, node, x.depth, rank, token, proposal, x.p, x.q, x.accepted"
        " FROM %1$s.trial" OF_SEQUENCE,
        // What was decoded together: a pair by the least of its texts.
        "SELECT cell, prompt, turn, repeat, (SELECT min(o.cell || ' ' || q.prompt || ' ' || q.repeat) FROM %1$s.sequence AS q"
        " JOIN %1$s.run AS o ON o.id = q.run WHERE q.pair = s.pair) FROM %1$s.sequence AS s" OF_RUN,
    };
    char *path = test_path(other);
    perform(s, "ATTACH '%s' AS other", path);
    free(path);
    assert_true(query_first_int(s, "SELECT count(*) FROM sequence") > 0);
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts) - !pairs; i++) {
        char *mine = xformat(facts[i], "main"), *theirs = xformat(facts[i], "other"),
             *sql = xformat("SELECT (SELECT count(*) FROM (%s EXCEPT %s)) + (SELECT count(*) FROM (%s EXCEPT %s))",
                            mine, theirs, theirs, mine);
        expect_none(s, facts[i], sql);
        free(mine);
        free(theirs);
        free(sql);
    }
    perform(s, "DETACH other");
}

void expect_error(const struct error *err, const char *pattern, const char *of)
{
    char *prefix = xformat("%s/", test_directory()), *text = xstrdup(err->text);
    for (char *at; (at = strstr(text, prefix)) != NULL;)
        memmove(at, at + strlen(prefix), strlen(at + strlen(prefix)) + 1);
    expect_pattern(text, pattern, of);
    free(prefix);
    free(text);
}

void expect_load_error(const char *text, const char *pattern)
{
    struct error err = { "" };
    char *path = test_path("x.yaml");
    write_file("x.yaml", text);
    struct experiment *e = experiment_load(path, &err);
    if (e != NULL)
        fail_msg("accepted: %s", text);
    expect_error(&err, pattern, text);
    free(path);
}
