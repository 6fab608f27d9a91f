// test_replay.c - replays of recorded drafts decide what real runs of the other rule, length or tree decided.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/trees/tree.h"
#include "experiments/experiment.h"
#include "experiments/replay/packed_rows.h"
#include "experiments/replay/replay.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/tests.h"
#include "tests/support/small_model.h"

#define LONG "small(model=draft.gguf, tokens=5)"
#define SHORT "small(model=draft.gguf, tokens=2)"
#define TREE "small(model=draft.gguf, widths=[2, 2])"
#define LEVEL "small(model=draft.gguf, widths=[2])"

enum { CONVERSATIONS = 5 }; // of conversations.jsonl

static struct store *decode(const char *db, const char *record, const char *sampling)
{
    struct store *s = open_store(db);
    char *text =
        xformat("name: replay\ntarget: {model: target.gguf}\nthreads: 1\n"
                "prompts: {file: conversations.jsonl, chat: none}\n"
                "limits: {new_tokens: 16, context: 120, stop: [q]}\nseed: 5\nrecord: {expected: true, %s}\n"
                "cells: {sampling: %s, rule: [rejection, match], drafter: [none, {kind: small, model: draft.gguf,"
                " tokens: 5}, {kind: small, model: draft.gguf, tokens: 2}, {kind: small, model: draft.gguf,"
                " widths: [2, 2]}, {kind: small, model: draft.gguf, widths: [2]}, {kind: ngram, tokens: 3}]}\n",
                record, sampling);
    run(text, s);
    free(text);
    return s;
}

static int64_t run_named(struct store *s, const char *drafter, const char *rule, const char *sampling)
{
    char *sql =
        xformat("SELECT id FROM run WHERE drafter = '%s' AND rule = '%s' AND sampling = '%s'", drafter, rule, sampling);
    const int64_t id = query_first_int(s, sql);
    if (id < 0)
        fail_msg("%s: no such run", sql);
    free(sql);
    return id;
}

// ---- comparison with a real run

struct real { // compares covered steps with those of a run
    struct store *s;
    int64_t run;
    int64_t steps; // compared
};

static void compare_step(void *self, const struct replay_step *step)
{
    struct real *real = self;
    struct error err = { "" };
    if (!step->covered)
        return;
    struct query *q = query_open(
        real->s, "SELECT d.tokens, d.out FROM draft AS d JOIN sequence AS mine ON mine.id = d.sequence JOIN sequence AS"
                 " theirs ON (theirs.prompt, theirs.turn, theirs.repeat) = (mine.prompt, mine.turn, mine.repeat)"
                 " WHERE theirs.id = ?1 AND mine.run = ?2 AND d.position = ?3");
    query_put(q, SQL(step->sequence), SQL(real->run), SQL(step->position));
    if (!query_next(q))
        fail_msg("the run has no step at %d", step->position);
    struct json *draft = json_new_ids(step->draft->token, (size_t)step->draft->n),
                *out = json_new_ids(step->token, (size_t)step->n);
    char *draft_text = json_write(draft), *out_text = json_write(out);
    assert_string_equal(query_text(q, 0), draft_text);
    assert_string_equal(query_text(q, 1), out_text);
    assert_ok(query_close(q, &err), err);
    free(draft_text);
    free(out_text);
    json_free(draft);
    json_free(out);
    real->steps++;
}

// Replays `from` as the options say; every covered step must be that of the real run `as`.
static struct replay_result replay_as(struct store *s, int64_t from, int64_t as, const char *rule,
                                      struct replay_options o)
{
    struct error err = { "" };
    struct real real = { .s = s, .run = as };
    struct settings *kind = settings_inline(rule, "--rule", &err);
    struct replay_result r;
    o.rule = kind;
    o.step = compare_step;
    o.self = &real;
    assert_ok(replay(s, from, &o, &r, &err), err);
    assert_int_equal(r.covered.steps, real.steps);
    settings_free(kind);
    return r;
}

static int64_t sum_of(struct store *s, const char *what, int64_t run)
{
    char *sql =
        xformat("SELECT coalesce(sum(%s), 0) FROM step JOIN sequence ON sequence.id = sequence WHERE run = %lld", what,
                (long long)run);
    const int64_t n = query_first_int(s, sql);
    free(sql);
    return n;
}

static void check_is_all(struct store *s, const struct replay_result *r, int64_t as)
{
    assert_int_equal(r->complete, r->texts);
    assert_int_equal(r->texts, TURNS);
    assert_int_equal(r->beyond.steps, 0);
    assert_int_equal(r->covered.steps, sum_of(s, "1", as));
    assert_int_equal(r->covered.tokens, sum_of(s, "step.tokens", as));
    assert_int_equal(r->covered.drafted, sum_of(s, "drafted", as));
    assert_int_equal(r->covered.accepted, sum_of(s, "accepted", as));
    for (int i = 0; i < GAPS; i++)
        assert_int_equal(r->gaps[i], 0);
}

static const char *const drafters[] = { LONG, SHORT, TREE, LEVEL, "ngram(tokens=3)" };
static const char *const rule[] = { "rejection", "match" };
static const char *const sampling[] = { "temperature=0", "temperature=1" };

// The expected tokens of the run's steps.
static void expect_expected(struct store *s, int64_t run, double sum, double within)
{
    char *sql = xformat(
        "SELECT abs(sum(expected) - %.17g) > %g FROM step JOIN sequence ON sequence.id = sequence WHERE run = %lld",
        sum, within, (long long)run);
    assert_int_equal(query_first_int(s, sql), 0);
    free(sql);
}

// With the run's own rule a replay is the run, and at temperature 0 with another one, too. Sampled texts are covered until the rules part.
TEST(replays_by_each_rule_decide_as_its_run)
{
    struct store *s = decode("own.db", "rows: full", "[{temperature: 0}, {temperature: 1}]");
    int64_t covered = 0, texts = 0;
    for (int i = 0; i < 5 * 2 * 2 * 2; i++) {
        const char *const drafter = drafters[i % 5], *const by = rule[i / 5 % 2], *const at = sampling[i / 10 % 2];
        const bool other = i / 20 == 1;
        const char *const as_rule = other ? rule[1 - i / 5 % 2] : by;
        const int64_t from = run_named(s, drafter, by, at), as = run_named(s, drafter, as_rule, at);
        struct replay_result r = replay_as(s, from, as, as_rule, (struct replay_options){ 0 });
        if (!other || at == sampling[0])
            check_is_all(s, &r, as);
        if (!other)
            expect_expected(s, from, r.covered.expected, 1e-9);
        if (other && at == sampling[1]) {
            assert_true(r.covered.steps >= CONVERSATIONS); // the first step of each
            assert_true(r.gaps[GAP_TEXT] > 0 && r.gaps[GAP_ROWS] == 0 && r.gaps[GAP_DRAFTER] == 0);
            covered += r.covered.steps;
            texts += CONVERSATIONS;
        }
        replay_result_free(&r);
    }
    assert_true(covered > texts);
    store_close(s);
}

// A draft model whose picks depend on the text and the place alone drafts the rest of its draft again.
TEST(shorter_chains_of_a_draft_model_are_covered_where_one_continues)
{
    struct store *s = open_store("continues.db");
    run("name: continues\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
        "limits: {new_tokens: 19, context: 120, ignore_end: true}\nrecord: {rows: full}\ncells: {sampling: [{temperature: 0},"
        " {temperature: 1}], rule: match, drafter: [{kind: small, model: target.gguf, tokens: 5, pick: coupled},"
        " {kind: small, model: target.gguf, tokens: 2, pick: coupled}, {kind: small, model: target.gguf, tokens: 3, pick:"
        " coupled}]}\n",
        s);
    for (int i = 0; i < 4; i++) {
        char *shorter = xformat("small(model=target.gguf, tokens=%d, pick=coupled)", 2 + i % 2);
        const int64_t from = run_named(s, "small(model=target.gguf, tokens=5, pick=coupled)", "match", sampling[i / 2]),
                      as = run_named(s, shorter, "match", sampling[i / 2]);
        struct replay_result r = replay_as(s, from, as, "match", (struct replay_options){ .tokens = 2 + i % 2 });
        assert_true(r.continued > 0 || i % 2 == 1);
        if (i % 2 == 0) // steps of 6 tokens are two steps of 3; of 4, the second lacks a draft token
            check_is_all(s, &r, as);
        else
            assert_true(r.complete == 0 && r.gaps[GAP_ROOT] > 0);
        replay_result_free(&r);
        r = replay_as(s, from, as, "match", (struct replay_options){ .nodes = 2 + i % 2 });
        assert_true(r.continued == 0 && r.gaps[GAP_ROOT] > 0);
        replay_result_free(&r);
        free(shorter);
    }
    store_close(s);
}

TEST(shorter_drafts_and_smaller_trees_decide_as_their_runs)
{
    struct store *s = open_store("own.db");
    struct error err = { "" };
    struct tree level;
    assert_ok(tree_read("[[0], [1]]", NULL, &level, &err), err);
    for (int i = 0; i < 4; i++) {
        const char *const by = rule[i % 2], *const at = sampling[i / 2];
        const int64_t from = run_named(s, LONG, by, at), as = run_named(s, SHORT, by, at);
        const int64_t tree = run_named(s, TREE, by, at), as_level = run_named(s, LEVEL, by, at);
        struct replay_result r[] = { replay_as(s, from, as, by, (struct replay_options){ .tokens = 2 }),
                                     replay_as(s, from, as, by, (struct replay_options){ .nodes = 2 }),
                                     replay_as(s, tree, as_level, by, (struct replay_options){ .tokens = 1 }),
                                     replay_as(s, tree, as_level, by, (struct replay_options){ .tree = &level }) };
        assert_true(r[0].covered.steps >= r[1].covered.steps);
        assert_int_equal(r[2].covered.steps, r[3].covered.steps);
        for (int k = 0; k < 4; k++) {
            assert_true(r[k].covered.steps >= CONVERSATIONS && r[k].covered.drafted > 0);
            assert_true(r[k].depth == (k < 2 ? 2 : 1) && r[k].gaps[GAP_ROWS] == 0);
            if (i % 2 == 1 || i / 2 == 0) // the texts are equal: only roots may be missing
                assert_int_equal(r[k].gaps[GAP_TEXT], 0);
            replay_result_free(&r[k]);
        }
    }
    store_close(s);
}

// At temperature 0 a row is one token, and after top_k: 4 it is 4: both are complete. The races of match are recorded with larger rows.
TEST(rows_of_the_largest_entries_cover_what_depends_on_them)
{
    struct store *s =
        decode("largest.db", "rows: 8", "[{temperature: 0}, {temperature: 1}, {temperature: 1, top_k: 4}]");
    struct replay_result r;
    for (int i = 0; i < 2; i++) {
        static const char *const complete[] = { "temperature=0", "temperature=1, top_k=4" };
        for (int k = 0; k < 2; k++) {
            const int64_t id = run_named(s, LONG, rule[k], complete[i]);
            r = replay_as(s, id, id, rule[k], (struct replay_options){ 0 });
            check_is_all(s, &r, id);
            assert_int_equal(r.entries, 8);
            replay_result_free(&r);
        }
    }
    int64_t id = run_named(s, LONG, "match", "temperature=1");
    r = replay_as(s, id, id, "match", (struct replay_options){ 0 });
    check_is_all(s, &r, id);
    replay_result_free(&r);
    r = replay_as(s, run_named(s, LONG, "rejection", "temperature=1"), id, "match", (struct replay_options){ 0 });
    assert_true(r.covered.steps >= CONVERSATIONS && r.gaps[GAP_ROWS] == 0);
    replay_result_free(&r);
    id = run_named(s, LONG, "rejection", "temperature=1");
    r = replay_as(s, id, id, "rejection", (struct replay_options){ 0 });
    assert_true(r.covered.steps == 0 && r.gaps[GAP_ROWS] == r.beyond.steps);
    // The tokens that are tried are kept, so their probabilities are known however small they are.
    expect_expected(s, id, r.beyond.expected, 1e-6);
    replay_result_free(&r);
    store_close(s);
}

TEST(drafters_that_remember_are_covered_while_nothing_differs)
{
    struct store *s = open_store("remember.db");
    run("name: remember\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
        "limits: {new_tokens: 16, context: 120, ignore_end: true}\nrecord: {rows: full}\n"
        "cells: {sampling: {temperature: 0}, drafter: {kind: recycling, tree: \"[[0], [1], [0, 0]]\"}}\n",
        s);
    const int64_t id = query_first_int(s, "SELECT id FROM run WHERE drafter_kind = 'recycling'");
    struct replay_result r = replay_as(s, id, id, "match", (struct replay_options){ 0 });
    check_is_all(s, &r, id);
    replay_result_free(&r);
    r = replay_as(s, id, id, "match", (struct replay_options){ .tokens = 1 });
    assert_true(r.covered.steps == 0 && r.gaps[GAP_DRAFTER] > 0);
    replay_result_free(&r);
    // Other texts: of two slots, another rule's texts could have been there.
    run("name: others\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
        "limits: {new_tokens: 16, context: 120, ignore_end: true}\nrecord: {rows: full}\n"
        "cells: {sampling: {temperature: 0}, batch: [1, 2], drafter: {kind: suffix, past: 1000}}\n",
        s);
    for (int batch = 1; batch <= 2; batch++) {
        char *sql = xformat("SELECT id FROM run WHERE drafter_kind = 'suffix' AND batch = %d", batch);
        const int64_t suffix = query_first_int(s, sql);
        r = replay_as(s, suffix, suffix, "rejection", (struct replay_options){ 0 });
        check_is_all(s, &r, suffix);
        replay_result_free(&r);
        r = replay_as(s, suffix, suffix, "match", (struct replay_options){ 0 });
        assert_true(batch == 1 ? r.complete == r.texts : r.covered.steps == 0);
        replay_result_free(&r);
        free(sql);
    }
    store_close(s);
}

// ---- what is refused

static void expect_refused(struct store *s, int64_t run, const char *rule_text, struct replay_options o,
                           const char *why)
{
    struct error err = { "" };
    struct replay_result r;
    struct settings *kind = rule_text != NULL ? settings_inline(rule_text, "--rule", &err) : NULL;
    o.rule = kind;
    assert_false(replay(s, run, &o, &r, &err));
    if (strstr(err.text, why) == NULL)
        fail_msg("expected \"%s\", found \"%s\"", why, err.text);
    replay_result_free(&r);
    settings_free(kind);
}

TEST(what_cannot_be_evaluated_is_one_sentence)
{
    struct store *s = open_store("own.db");
    const int64_t none = query_first_int(s, "SELECT id FROM run WHERE drafter = 'none'"),
                  tree = run_named(s, TREE, "rejection", "temperature=1"),
                  chain = run_named(s, LONG, "rejection", "temperature=1");
    expect_refused(s, 999, NULL, (struct replay_options){ 0 }, "there is no run 999 in it");
    expect_refused(s, none, NULL, (struct replay_options){ 0 }, "has no recorded rows: run its experiment with");
    expect_refused(s, tree, "block", (struct replay_options){ 0 },
                   "rule block does not take this draft, which branches");
    expect_refused(s, chain, "blok", (struct replay_options){ 0 }, "unknown rule \"blok\"");
    struct error err = { "" };
    struct tree second;
    assert_ok(tree_read("[[1]]", NULL, &second, &err), err);
    expect_refused(s, tree, NULL, (struct replay_options){ .tree = &second },
                   "after siblings that the tree leaves out");
    perform(s, "UPDATE draft SET rows = zeroblob(9) WHERE sequence IN (SELECT id FROM sequence WHERE run = %lld)",
            (long long)chain);
    expect_refused(s, chain, NULL, (struct replay_options){ 0 }, "expected packed rows, found other bytes");
    perform(s, "UPDATE draft SET parents = '[-1, 7]' WHERE sequence IN (SELECT id FROM sequence WHERE run = %lld)",
            (long long)tree);
    expect_refused(s, tree, NULL, (struct replay_options){ 0 }, "its draft is damaged");
    store_close(s);
}

// ---- packed rows

TEST(packed_rows_come_back_to_the_bit)
{
    enum { VOCAB = 50 };
    struct error err = { "" };
    float row[2][VOCAB], back[VOCAB];
    double sum[2] = { 0, 0 };
    for (int i = 0; i < VOCAB; i++) {
        row[0][i] = ldexpf((float)((i * 37) % 51 + 1), -12);
        row[1][i] = i == 7 ? 1 : 0;
    }
    for (int i = 0; i < 2 * VOCAB; i++)
        sum[i / VOCAB] += (double)row[i / VOCAB][i % VOCAB];
    for (int keep = 0; keep < 3; keep++) {
        static const int entries[] = { ROWS_FULL, 6, VOCAB };
        static const int32_t also[] = { 3 };
        struct text t = { 0 };
        struct unpacked_rows u;
        size_t bytes;
        row_pack(row[0], VOCAB, entries[keep], also, 1, (struct drawn){ 9, 4 }, &t);
        row_pack(row[1], VOCAB, entries[keep], NULL, 0, (struct drawn){ -1, -1 }, &t);
        void *packed = rows_pack(&t, VOCAB, &bytes);
        assert_ok(rows_unpack(packed, bytes, "x", &u, &err), err);
        assert_true(u.row[0].drawn.position == 9 && u.row[0].drawn.token == 4 && u.row[1].drawn.token == -1);
        assert_true(u.n == 2 && u.vocab == VOCAB && u.row[1].n == 1 && u.row[1].rest == 0);
        for (int k = 0; k < 2; k++) {
            double again = 0;
            row_write(&u.row[k], VOCAB, back);
            for (int i = 0; i < u.row[k].n; i++)
                assert_true(back[u.row[k].entry[i].token] == row[k][u.row[k].entry[i].token]);
            for (int i = 0; i < VOCAB; i++)
                again += (double)back[i];
            assert_true(again == sum[k]);
        }
        if (entries[keep] == 6) {      // the six largest, and token 3, whose entry is smaller than theirs
            float least = 1, most = 0; // of those that are kept for their size; of the others
            assert_int_equal(u.row[0].n, 7);
            for (int i = 0; i < VOCAB; i++) {
                bool kept = false;
                for (int k = 0; k < 7; k++)
                    kept = kept || u.row[0].entry[k].token == i;
                least = kept && i != 3 ? fminf(least, row[0][i]) : least;
                most = kept ? most : fmaxf(most, row[0][i]);
            }
            assert_true(most <= least);
        } else {
            assert_memory_equal(back, row[1], sizeof(back));
            assert_true(u.row[0].n == VOCAB && u.row[0].rest == 0);
        }
        rows_free(&u);
        const uint32_t vocab = (1 << 20) + 1; // more than a draw can be from
        memcpy((char *)packed + sizeof(vocab), &vocab, sizeof(vocab));
        assert_false(rows_unpack(packed, bytes, "x", &u, &err));
        assert_string_equal(err.text, "x: rows: expected packed rows, found other bytes");
        rows_free(&u);
        free(packed);
        free(t.s);
    }
}

// A step of a large draft and vocabulary would be larger than a blob; it is refused before anything is decoded.
TEST(rows_of_a_gibibyte_are_refused_when_a_cell_opens)
{
    struct error err = { "" };
    assert_true(rows_packable(512, true, ROWS_FULL, 128256, &err)); // Llama 3, the largest draft
    assert_false(rows_packable(512, true, ROWS_FULL, 151936, &err));
    expect_error(&err, "rows: .. 511 tokens .. 1023 rows .. 151936 .. 1.16 GiB", "rows");
    assert_true(rows_packable(512, false, ROWS_FULL, 151936, &err) && rows_packable(512, true, 100000, 262144, &err));
    assert_true(rows_packable(512, true, ROWS_FULL, 1, &err));
    assert_false(rows_packable(512, true, 200000, 262144, &err));

    struct small_model t = small_default;
    t.vocab = 300000;
    t.width = t.hidden = 32;
    t.layers = t.heads = t.kv_heads = 1;
    t.head_dim = 32;
    t.tied = true;
    t.tokenizer = false;
    t.type = F16;
    char *target = test_path("wide.gguf");
    small_write_gguf(target, &t);
    write_file("ids.jsonl", "{\"input_ids\": [1, 2, 3]}\n");
    struct store *s = open_store("wide.db");
    struct experiment *e = load(
        "name: wide\ntarget: {model: wide.gguf}\nthreads: 1\nprompts: {file: ids.jsonl}\nlimits: {new_tokens: 2}\n"
        "record: {rows: full}\ncells: {sampling: {temperature: 1}, drafter: {kind: small, model: wide.gguf, widths: [64, 4]}}\n");
    assert_false(experiment_run(e, s, NULL, NULL, &err));
    expect_error(&err, "x.yaml:6:16: small(model=wide.gguf, widths=[64, 4]): .. 641 rows .. 300000 .. 1.43 GiB",
                 "rows");
    experiment_free(e);
    store_close(s);
    unlink(target);
    free(target);
}

RUN_TESTS(make_files, test_directory_tear_down)
