// fuzz_database.c - an arbitrarily damaged database of results: opened, reported in every format, and written to again.
//
// Input: SQL statements, one per line, executed without constraint checks in the database of an experiment; then lines
// "!OFFSET BYTE" that change bytes of the file. Or a complete file, if it begins with "SQLite format 3".
// reader: results/store.c results/store/connection.c results/store/store_schema.c results/report.c results/report_words.c results/tally.c results/query.c
// reader: results/facts.c results/columns.c
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tests/fuzz/fuzz.h"
#include "commands/exact/exact_run.h"
#include "results/query.h"
#include "results/report.h"
#include "results/store.h"

static const struct fuzz_file files[] = { { "statements", FUZZ_WORDS }, { NULL, FUZZ_TEXT } };
static const char values[] =
    "NULL  0  1  -1  2  9223372036854775807  -9223372036854775808  1e308  9e999  -0.5  0.25  'x'  ''  '[]'  '[1,2]'  "
    "'{\"a\":1}'  'none'  'ngram'  'a, b'  x'00'  zeroblob(80)  '\xC3\xA4\xE4\xBD\xA0'  '2026-01-01T00:00:00Z'  "
    "char(10)  rowid  hex(zeroblob(200))";

static uint8_t *genuine;
static size_t genuine_bytes;
static char *experiment; // name of an experiment in the database
enum { COLUMNS = 400 };
static struct column {
    char *table, *name;
} column[COLUMNS];
static size_t columns;

// Statements of the fuzzer may not touch other files and are limited in time.
static int deny_other_files(void *unused, int action, const char *a, const char *b, const char *c, const char *d)
{
    (void)unused, (void)a, (void)b, (void)c, (void)d;
    return action == SQLITE_ATTACH || action == SQLITE_RECURSIVE ? SQLITE_DENY : SQLITE_OK;
}

static int too_long(void *left)
{
    return --*(int *)left < 0;
}

static sqlite3 *open_plain(const char *path)
{
    sqlite3 *db;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        abort();
    return db;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    char *path = fuzz_seed_path((*argv)[0], "results.db");
    genuine = fuzz_read(path, &genuine_bytes);
    fuzz_write("genuine.db", genuine, genuine_bytes);
    free(path);
    path = fuzz_path("genuine.db");
    sqlite3_hard_heap_limit64(256 << 20);
    sqlite3 *db = open_plain(path);
    sqlite3_stmt *q;
    if (sqlite3_prepare_v2(db,
                           "SELECT t.name, c.name FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c"
                           " WHERE t.type = 'table' ORDER BY 1, 2",
                           -1, &q, NULL) != SQLITE_OK)
        abort();
    while (sqlite3_step(q) == SQLITE_ROW && columns < COLUMNS)
        column[columns++] = (struct column){ xstrdup((const char *)sqlite3_column_text(q, 0)),
                                             xstrdup((const char *)sqlite3_column_text(q, 1)) };
    sqlite3_finalize(q);
    insist(columns > 20);
    sqlite3_prepare_v2(db, "SELECT experiment FROM run LIMIT 1", -1, &q, NULL);
    insist(sqlite3_step(q) == SQLITE_ROW);
    experiment = xstrdup((const char *)sqlite3_column_text(q, 0));
    sqlite3_finalize(q);
    sqlite3_close(db);
    fuzz_write("genuine.db", NULL, 0);
    free(path);
    return 0;
}

static void execute(const char *path, const char *statements)
{
    static const char unchecked[] =
        "PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0; PRAGMA writable_schema = 1;"
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE";
    sqlite3 *db = open_plain(path);
    int left = 100;
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 1 << 20);
    sqlite3_exec(db, unchecked, NULL, NULL, NULL);
    sqlite3_set_authorizer(db, deny_other_files, NULL);
    sqlite3_progress_handler(db, 1000, too_long, &left);
    for (const char *at = statements; *at != '\0';) {
        const size_t n = strcspn(at, "\n");
        char *one = xstrndup(at, n);
        if (*one != '!')
            sqlite3_exec(db, one, NULL, NULL, NULL);
        free(one);
        at += n + (at[n] == '\n');
    }
    sqlite3_close(db);
}

static void change_bytes(const char *path, const char *statements)
{
    FILE *f = NULL;
    for (const char *at = statements; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        long where;
        int byte;
        if (sscanf(at, "!%9ld %3d", &where, &byte) != 2)
            continue;
        if (f == NULL && (f = fopen(path, "r+b")) == NULL)
            abort();
        if (fseek(f, where, SEEK_SET) == 0 && (size_t)where < genuine_bytes)
            fputc(byte & 0xff, f);
    }
    if (f != NULL)
        fclose(f);
}

// ---- uses of the database

static void report(struct store *s, enum report_format format, const char *which)
{
    struct report_options o = { .experiment = which, .format = format };
    struct report_options against = { .experiment = which, .format = format, .against = "2" };
    struct error err = { "" };
    static FILE *nowhere;
    if (nowhere == NULL)
        nowhere = fopen("/dev/null", "w");
    insist(report_write(s, &o, nowhere, &err) || *err.text != '\0');
    insist(report_write(s, &against, nowhere, &err) || *err.text != '\0');
}

static void write_runs(struct store *s)
{
    struct error err = { "" };
    struct stored_turn turn = { 0 };
    for (int run = 1; run < 4; run++) {
        volatile int32_t sum = 0; // reads every token
        if (store_turn(s, run, 0, run % 2, 0, &turn, &err) && turn.found)
            for (int i = 0; i < turn.n; i++)
                sum = sum ^ turn.token[i];
        free(turn.token);
        turn = (struct stored_turn){ 0 };
    }
    const struct run_row row = { .experiment = experiment,
                                 .cell = "0",
                                 .peers = "0",
                                 .settings = "{}",
                                 .target = "t",
                                 .drafter = "d",
                                 .rule = "r",
                                 .sampling = "s",
                                 .drafter_kind = "none",
                                 .device = "cpu",
                                 .machine = "m",
                                 .revision = "v",
                                 .target_hash = "0",
                                 .prompts = "p",
                                 .model_type = "f32",
                                 .activations = "f32",
                                 .cache = "f32",
                                 .lossless = true,
                                 .seed = 1,
                                 .batch = 1 };
    int64_t id, pair;
    const int32_t token[] = { 1, 2 };
    const struct trial_row trial = {
        .node = 1, .depth = 1, .token = 1, .p = 0.5, .q = 0.5, .accepted = true, .source = "a"
    };
    const struct source_row source = { "a", 1, 1 };
    const struct expected_row expected = { "r", true, 1, 0.5 };
    const struct step_row step = { .drafted = 1,
                                   .depth = 1,
                                   .accepted = 1,
                                   .expected = 0.5,
                                   .variance = 0.25,
                                   .accepted_uncut = 1,
                                   .propose_ns = 1,
                                   .verify_ns = 1,
                                   .advance_ns = 1,
                                   .batch = 1,
                                   .trial = &trial,
                                   .n_trials = 1,
                                   .by_rule = &expected,
                                   .n_by_rule = 1,
                                   .by_source = &source,
                                   .n_by_source = 1 };
    const struct sequence_row q = { .prompt = 0,
                                    .prompt_id = "a",
                                    .new_tokens = 2,
                                    .prefill_ns = 1,
                                    .decode_ns = 1,
                                    .wall_ns = 1,
                                    .token = token,
                                    .text = "x",
                                    .stop = "limit",
                                    .step = &step,
                                    .n_steps = 1 };
    if (store_lock(s, experiment, &err) && store_run(s, &row, &id, &err) &&
        store_new_pair(s, experiment, &pair, &err)) {
        struct sequence_row own = q;
        own.pair = pair;
        if (store_sequence(s, id, &own, &err))
            store_shard_finished(s, id, &(struct shard_row){ 0 }, true, &err);
        store_run(s, &row, &id, &err);
    }
    store_ns_per_token(s, "0", "f32", "f32", "none", &err);
}

// Stores what `speclab exact` stores, including partial sums of an existing row, which it reads again.
static void write_exact(struct store *s)
{
    struct error err = { "" };
    const struct exact_row row = FUZZ_EXACT_ROW;
    double sum[10] = { 0 };
    struct exact_sums sums = { .sum = sum, .n = 10 };
    int64_t id = INT64_MIN;
    if (store_exact(s, &row, &id, &sums, &err)) {
        static struct verdict verdict = { .n = 1, .row = { { STREAM_TEXT, { "a", "b", "c", 0.5, -1, 10 }, -0.5 } } };
        static const struct observed seen = { .steps = 1, .accepted = 1, .expected = 1 };
        insist(id != INT64_MIN);
        store_exact_sums(s, id, &sums, &err);
        exact_store(s, id, &verdict, &seen, &err);
    }
    const struct exact_rule_row rule = { "r", "exact", "v", true, 1, 2, 0, 0 };
    store_exact_rule(s, &rule, &err);
    bits_store(s, &row, &(struct logit_comparison){ .rows = 1 }, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    char *path = fuzz_path("results.db"), *text = xstrndup(n > 0 ? (const char *)input : "", n);
    fuzz_write("results.db-wal", NULL, 0);
    fuzz_write("results.db-shm", NULL, 0);
    if (n >= 16 && memcmp(input, "SQLite format 3", 16) == 0) {
        fuzz_write("results.db", input, n);
    } else {
        fuzz_write("results.db", genuine, genuine_bytes);
        execute(path, text);
        change_bytes(path, text);
    }
    struct error err = { "" };
    struct store *s = store_open(path, &err);
    insist(s != NULL || strncmp(err.text, path, strlen(path)) == 0);
    if (s != NULL) {
        report(s, n % REPORT_FORMATS, n % 4 == 0 ? experiment : NULL); // only one format: each is slow
        if (n % 5 == 0)
            report(s, REPORT_CSV, "no such experiment");
        write_runs(s);
        write_exact(s);
    }
    store_close(s);
    free(text);
    free(path);
    return 0;
}

// ---- mutations: an added statement or byte, or a changed word

static char *some_statement(void)
{
    const struct column *c = &column[fuzz_below(columns)];
    const char *value = fuzz_word(values);
    const int by = 1 + (int)fuzz_below(4), rest = (int)fuzz_below((size_t)by);
    switch (fuzz_below(16)) {
    case 0:
        return xformat("DELETE FROM \"%s\" WHERE rowid %% %d = %d", c->table, by, rest);
    case 1:
        return xformat("ALTER TABLE \"%s\" RENAME COLUMN \"%s\" TO x", c->table, c->name);
    case 2:
        return fuzz_below(2) ? xformat("DROP TABLE \"%s\"", c->table) : xformat("DROP VIEW run_summary");
    case 3:
        return xformat("PRAGMA user_version = %d", (int)fuzz_below(13) - 1);
    case 4:
        return xformat("UPDATE sqlite_schema SET sql = replace(sql, '%s', 'x') WHERE name = '%s'", c->name, c->table);
    case 5:
        return xformat("DELETE FROM \"%s\"", c->table);
    default:
        if (fuzz_below(2) == 0) // of the tables that a report reads
            while (strcmp(c->table, "run") != 0 && strcmp(c->table, "sequence") != 0 && strcmp(c->table, "step") != 0 &&
                   strcmp(c->table, "trial") != 0)
                c = &column[fuzz_below(columns)];
        // Not by rowid: some tables are WITHOUT ROWID.
        return xformat("UPDATE \"%s\" SET \"%s\" = %s%s", c->table, c->name, value,
                       by > 1 ? " WHERE (SELECT count(*) FROM run) % 2 = 0" : "");
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max_size, unsigned seed)
{
    fuzz_seed(seed ^ 0x5eed);
    const size_t what = fuzz_below(8);
    if (what < 2 || (n >= 16 && memcmp(data, "SQLite format 3", 16) == 0))
        return fuzz_change(data, n, max_size, seed, files, values);
    char *more = what == 2 ? xformat("!%zu %zu", fuzz_below(3) == 0 ? fuzz_below(100) : fuzz_below(genuine_bytes),
                                     fuzz_below(256))
                           : some_statement();
    const size_t length = strlen(more);
    if (n + length + 1 <= max_size) {
        if (n > 0 && data[n - 1] != '\n')
            data[n++] = '\n';
        if (n + length <= max_size) {
            memcpy(data + n, more, length);
            n += length;
        }
    }
    free(more);
    return n;
}
