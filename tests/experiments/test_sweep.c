// test_sweep.c - which cells an experiment has: ranges and `any` against lists written out, zip and exclude against loops over the product,
// and the message of every kind of bad input.
#include "tests/support/tests.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "core/splitmix.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/sweep/variants.h"
#include "experiments/yaml.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "sampling/sampling.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

// ---- values that stand for several

TEST(every_value_that_stands_for_several_is_written_out)
{
    static const struct {
        const char *text, *values;
    } cases[] = {
        { "4", "[4]" },
        { "[1, 4]", "[1, 4]" },
        { "{from: 1, to: 4}", "[1, 2, 3, 4]" },
        { "{from: 1, to: 8, step: 3}", "[1, 4, 7]" },
        { "{from: 3, to: 3}", "[3]" },
        { "{from: -1, to: 1}", "[-1, 0, 1]" },
        { "{from: 0, to: 1, step: 0.1}", "[0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]" },
        { "{from: 0.05, to: 0.1, step: 0.025}", "[0.05, 0.075, 0.1]" },
        { "{from: -0.5, to: 0.5, step: 0.25}", "[-0.5, -0.25, 0, 0.25, 0.5]" },
        { "{from: 1, to: 100, factor: 4}", "[1, 4, 16, 64]" },
        { "{from: 0.25, to: 1, factor: 2}", "[0.25, 0.5, 1]" },
        { "[1, {from: 4, to: 16, factor: 2}, 32]", "[1, 4, 8, 16, 32]" },
        { "{any: [1, {from: 2, to: 3}, {any: [7, 9]}]}", "[1, 2, 3, 7, 9]" },
        { "{kind: a, tokens: {any: [2, 4]}}", "[{kind: a, tokens: 2}, {kind: a, tokens: 4}]" },
        { "{any: [{kind: a}, {kind: b, n: {from: 1, to: 2}}]}", "[{kind: a}, {kind: b, n: 1}, {kind: b, n: 2}]" },
        { "{kind: a, n: {from: 1, to: 2}, m: {any: [x, \"5\"]}}",
          "[{kind: a, n: 1, m: x}, {kind: a, n: 1, m: \"5\"}, {kind: a, n: 2, m: x}, {kind: a, n: 2, m: \"5\"}]" },
        { "{kind: a, widths: [4, 2]}", "[{kind: a, widths: [4, 2]}]" },
        { "{kind: a, widths: {any: [[4, 2], [2, 2, 1]]}}",
          "[{kind: a, widths: [4, 2]}, {kind: a, widths: [2, 2, 1]}]" },
        { "{kind: a, widths: [4, {any: [1, 2]}]}", "[{kind: a, widths: [4, 1]}, {kind: a, widths: [4, 2]}]" },
        { "[{of: [{n: {any: [1, 2]}}, b], m: 0}]", "[{of: [{n: 1}, b], m: 0}, {of: [{n: 2}, b], m: 0}]" },
        { "{kind: a, zip: {n: [1, 2], m: {from: 5, to: 6}}, o: {any: [x, y]}}",
          "[{kind: a, n: 1, m: 5, o: x}, {kind: a, n: 1, m: 5, o: y}, {kind: a, n: 2, m: 6, o: x}, "
          "{kind: a, n: 2, m: 6, o: y}]" },
        { "{logit_bias: {3: 1, 5: -1}}", "[{logit_bias: {3: 1, 5: -1}}]" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        struct text t = { 0 };
        struct settings *s = yaml_parse(cases[i].text, strlen(cases[i].text), "f", &err);
        assert_ok(s != NULL, err);
        struct settings *values = variants_read(s, "x", &err);
        assert_ok(values != NULL, err);
        settings_write(values, &t);
        assert_string_equal(t.s, cases[i].values);
        free(t.s);
        settings_free(values);
        settings_free(s);
    }
}

TEST(variants_are_where_they_are_written)
{
    static const char text[] = "a:\n  - {n: {any: [1,\n     2]}, m: {from: 3, to: 4}}\n";
    struct error err = { "" };
    struct settings *s = yaml_parse(text, sizeof(text) - 1, "f", &err), *values;
    values = variants_read(settings_get(s, "a"), "x", &err);
    assert_int_equal(values->n, 4);
    for (int i = 0; i < 4; i++) {
        const struct settings *one = values->item[i];
        assert_int_equal(one->line, 2);
        assert_int_equal(one->column, 5);
        assert_int_equal(one->key_column[0], 6);
        assert_int_equal(one->key_line[1], 3);
        assert_int_equal(one->item[0]->line, 2 + i / 2);
        assert_int_equal(one->item[0]->column, i < 2 ? 16 : 6);
        assert_int_equal(one->item[1]->line, 3);
        assert_int_equal(one->item[1]->column, 14);
    }
    settings_free(values);
    settings_free(s);
}

TEST(products_have_a_limit)
{
    static const char *const texts[] = {
        "{a: {from: 1, to: 32}, b: {from: 1, to: 32}}",
        "[{a: {from: 1, to: 33}, b: {from: 1, to: 32}}]",
        "{a: {from: 1, to: 10}, b: {from: 1, to: 10}, c: {from: 1, to: 10}, d: {any: [1, 2]}}",
        "[{from: 1, to: 1000}, {from: 1, to: 25}]",
        "{any: [{from: 1, to: 1000}, {a: {from: 1, to: 25}}]}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct error err = { "" };
        struct settings *s = yaml_parse(texts[i], strlen(texts[i]), "f", &err), *values = variants_read(s, "x", &err);
        assert_int_equal(values != NULL, i == 0);
        if (i == 0)
            assert_int_equal(values->n, MAX_VARIANTS);
        else
            assert_non_null(strstr(err.text, "x: expected at most 1024 values, found more"));
        settings_free(values);
        settings_free(s);
    }
    // Variants of a long list
    struct error err = { "" };
    struct text t = { 0 };
    text_puts(&t, "{n: {from: 1, to: 1000}, list: [");
    for (int i = 0; i < 2000; i++)
        text_puts(&t, "1, ");
    text_puts(&t, "1]}");
    struct settings *s = yaml_parse(t.s, t.n, "f", &err);
    assert_null(variants_read(s, "x", &err));
    assert_string_equal(err.text, "f:1:1: x: expected smaller values or fewer: these are more than 1048576 in all");
    free(t.s);
    settings_free(s);
}

static void check_names(const struct option *table)
{
    for (; table != NULL && table->name != NULL; table++)
        assert_true(choice_index("any|from|to|zip", table->name) < 0);
}

TEST(no_option_is_named_like_a_value_that_stands_for_several)
{
    for (int i = 0; drafter_types[i] != NULL; i++)
        check_names(drafter_types[i]->options);
    for (int i = 0; rules[i] != NULL; i++)
        check_names(rules[i]->options);
    for (int i = 0; stages[i] != NULL; i++)
        check_names(stages[i]->option);
}

// ---- which cells there are

#define HEAD "name: x\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl, chat: none}\n"

enum { LISTS = 4, MOST = 4, ITEMS = 3 };
static const char *const keys[LISTS] = { "sampling", "batch", "rule", "drafter" };
static const char *const values[LISTS][MOST] = {
    { "{temperature: 0}", "{temperature: 0.5}", "{temperature: 1, top_p: 0.9}", "{temperature: 1}" },
    { "1", "2", "3", "4" },
    { "rejection", "match", "{kind: typical, epsilon: 0.2}", "block" },
    { "none", "{kind: ngram, tokens: 2}", "{kind: ngram, tokens: 4}", "suffix" },
};
// Other spellings, for exclude
static const char *const spellings[LISTS][MOST] = {
    { "{temperature: 0.0}", "{temperature: 5e-1}", "{top_p: 0.90}", "{temperature: 1.0}" },
    { "01", "2", "3", "4" },
    { "{kind: rejection}", "match", "typical", "{kind: block}" },
    { "{kind: none}", "{tokens: 2, kind: ngram}", "{tokens: 04}", "suffix" },
};

struct sweep {
    int n[LISTS];                          // values 0 .. n - 1 of each list
    int zipped[2], positions, at[MOST][2]; // positions 0: no zip
    int items;
    bool says[ITEMS][LISTS], has[ITEMS][LISTS][MOST]; // exclude
};

static int below(uint64_t *state, int n)
{
    return (int)(splitmix(state) % (uint64_t)n);
}

static struct sweep random_sweep(uint64_t *state)
{
    struct sweep w = { .items = below(state, ITEMS + 1) };
    for (int l = 0; l < LISTS; l++)
        w.n[l] = 1 + below(state, MOST);
    if (below(state, 2) == 0) {
        w.zipped[0] = below(state, LISTS - 1);
        w.zipped[1] = w.zipped[0] + 1 + below(state, LISTS - 1 - w.zipped[0]);
        const int a = w.n[w.zipped[0]], b = w.n[w.zipped[1]];
        w.positions = a > b ? a : b;
        for (int k = 0; k < w.positions; k++)
            w.at[k][0] = k % a, w.at[k][1] = k % b;
    }
    for (int i = 0; i < w.items; i++)
        for (int l = 0, any = 0; l < LISTS; l++) {
            w.says[i][l] = below(state, 2) == 0 || (l == LISTS - 1 && any == 0);
            any += w.says[i][l];
            for (int v = 0; v < w.n[l]; v++)
                w.has[i][l][v] = below(state, 3) == 0;
            if (w.says[i][l])
                w.has[i][l][below(state, w.n[l])] = true;
        }
    return w;
}

static char *written(const struct sweep *w)
{
    struct text t = { 0 };
    text_puts(&t, HEAD "cells:\n");
    for (int l = 0; l < LISTS; l++) {
        if (w->positions > 0 && (l == w->zipped[0] || l == w->zipped[1]))
            continue;
        text_printf(&t, "  %s: [", keys[l]);
        for (int v = 0; v < w->n[l]; v++)
            text_printf(&t, "%s%s", v > 0 ? ", " : "", values[l][v]);
        text_puts(&t, "]\n");
    }
    if (w->positions > 0)
        text_puts(&t, "  zip:\n");
    for (int z = 0; z < 2 && w->positions > 0; z++) {
        text_printf(&t, "    %s: [", keys[w->zipped[z]]);
        for (int k = 0; k < w->positions; k++)
            text_printf(&t, "%s%s", k > 0 ? ", " : "", values[w->zipped[z]][w->at[k][z]]);
        text_puts(&t, "]\n");
    }
    text_puts(&t, w->items > 0 ? "  exclude:\n" : "");
    for (int i = 0; i < w->items; i++) {
        const char *first = "{";
        text_puts(&t, "    - ");
        for (int l = 0; l < LISTS; l++) {
            if (!w->says[i][l])
                continue;
            text_printf(&t, "%s%s: [", first, keys[l]);
            const char *next = "";
            for (int v = 0; v < w->n[l]; v++)
                if (w->has[i][l][v]) {
                    text_printf(&t, "%s%s", next, spellings[l][v]);
                    next = ", ";
                }
            text_puts(&t, "]");
            first = ", ";
        }
        text_puts(&t, "}\n");
    }
    return t.s;
}

typedef bool cells[MOST][MOST][MOST][MOST];

static bool is_in_zip(const struct sweep *w, const int v[LISTS])
{
    for (int k = 0; k < w->positions; k++)
        if (v[w->zipped[0]] == w->at[k][0] && v[w->zipped[1]] == w->at[k][1])
            return true;
    return w->positions == 0;
}

static bool is_excluded(const struct sweep *w, int item, const int v[LISTS])
{
    for (int l = 0; l < LISTS; l++) {
        bool has = w->has[item][l][v[l]];
        // "{temperature: 1.0}" also matches {temperature: 1, top_p: 0.9}
        has = has || (l == 0 && v[0] == 2 && w->n[0] == 4 && w->has[item][0][3]);
        if (w->says[item][l] && !has)
            return false;
    }
    return true;
}

// Rules other than `match` have one `none`, that of `rejection`.
static int baseline_of(int rule)
{
    return rule == 1 ? 1 : 0;
}

// The cells of a sampling and a batch, before any is excluded.
static void list_group(const struct sweep *w, cells set, int s, int b)
{
    for (int r = 0; r < w->n[2]; r++)
        for (int d = 0; d < w->n[3]; d++)
            if (is_in_zip(w, (int[]){ s, b, r, d }))
                set[s][b][d == 0 ? baseline_of(r) : r][d] = set[s][b][baseline_of(r)][0] = true;
}

// The cells that there should be. NULL: these; else a part of the message.
static const char *expected(const struct sweep *w, cells set)
{
    int found[ITEMS] = { 0 }, all = 0;
    bool none_lost = false;
    memset(set, 0, sizeof(cells));
    for (int s = 0; s < w->n[0]; s++)
        for (int b = 0; b < w->n[1]; b++) {
            bool compared[MOST] = { false };
            list_group(w, set, s, b);
            for (int d = w->n[3] - 1; d >= 0; d--) // `none`, which is 0, last
                for (int r = 0; r < w->n[2]; r++) {
                    bool out = false,
                         by_name = false; // `none` is left out by an item that names drafters, if others need it
                    for (int i = 0; i < w->items; i++)
                        if (set[s][b][r][d] && is_excluded(w, i, (int[]){ s, b, r, d })) {
                            found[i]++;
                            out = true;
                            by_name = by_name || w->says[i][3];
                        }
                    none_lost = none_lost || (d == 0 && by_name && compared[r]);
                    out = out && !(d == 0 && compared[r]);
                    set[s][b][r][d] = set[s][b][r][d] && !out;
                    compared[baseline_of(r)] = compared[baseline_of(r)] || (d > 0 && set[s][b][r][d]);
                    all += set[s][b][r][d];
                }
        }
    for (int i = 0; i < w->items; i++)
        if (found[i] == 0)
            return "exclude: no cell has all of these settings";
    return none_lost ? "exclude: leaves out none, with which" : all == 0 ? "exclude: leaves out every cell" : NULL;
}

static int number_of(const struct entries *of, int list, int at)
{
    static const char *const shown[LISTS][MOST] = {
        { "temperature=0", "temperature=0.5", "temperature=1, top_p=0.9", "temperature=1" },
        { "1", "2", "3", "4" },
        { "rejection", "match", "typical(epsilon=0.2)", "block" },
        { "none", "ngram(tokens=2)", "ngram(tokens=4)", "suffix" },
    };
    for (int v = 0; v < MOST; v++)
        if (strcmp(of->entry[at].shown, shown[list][v]) == 0)
            return v;
    fail_msg("%s", of->entry[at].shown);
    return -1;
}

static void check_cells(const struct experiment *e, cells set, const char *text)
{
    int n = 0, all = 0;
    for (int s = 0; s < e->sampling.n; s++)
        for (int b = 0; b < e->batch.n; b++) {
            int group = 0;
            for (int r = 0; r < e->rule.n; r++)
                for (int d = 0; d < e->drafter.n; d++) {
                    const bool has = experiment_has(e, (struct cell){ { { s, b, r, d, 0 } } });
                    if (has != set[number_of(&e->sampling, 0, s)][number_of(&e->batch, 1, b)][number_of(&e->rule, 2, r)]
                                  [number_of(&e->drafter, 3, d)])
                        fail_msg("%s %s %s %s: %s\n%s", e->sampling.entry[s].shown, e->batch.entry[b].shown,
                                 e->rule.entry[r].shown, e->drafter.entry[d].shown, has ? "is a cell" : "is missing",
                                 text);
                    group += has;
                }
            assert_int_equal(group_cells(e, s * e->batch.n + b), group);
            n += group;
        }
    for (const bool *at = &set[0][0][0][0]; at < &set[0][0][0][0] + sizeof(cells); at++)
        all += *at;
    assert_int_equal(n, all);
    assert_int_equal(n, experiment_cells(e));
}

TEST(zip_and_exclude_leave_the_cells_that_loops_find)
{
    uint64_t random_state = 5;
    int accepted = 0, refused = 0;
    char *path = test_path("x.yaml");
    for (int round = 0; round < 3000; round++) {
        const struct sweep w = random_sweep(&random_state);
        struct error err = { "" };
        cells set;
        const char *message = expected(&w, set);
        char *text = written(&w);
        write_file("x.yaml", text);
        struct experiment *e = experiment_load(path, &err);
        if ((e != NULL) != (message == NULL) || (message != NULL && strstr(err.text, message) == NULL))
            fail_msg("%s\n%s\nexpected: %s", text, err.text, message != NULL ? message : "no error");
        if (e != NULL)
            check_cells(e, set, text);
        accepted += e != NULL;
        refused += e == NULL;
        experiment_free(e);
        free(text);
    }
    assert_true(accepted > 500 && refused > 100);
    free(path);
}

// Rules by which `none` has one text share its run under `rejection`, which need not be listed; what leaves a rule out leaves its `none` where
// others need it, and nobody's cells are none that were left out. A rule and a drafter that do not fit may be listed if their cell is excluded.
TEST(rules_share_a_baseline_and_keep_it)
{
    static const struct {
        const char *cells, *nones; // rules that have a `none`, at any batch
        int n, listed, left_out;
    } cases[] = {
        { "{rule: block, drafter: ngram}", "rejection", 2, 1, 0 },
        { "{rule: match, drafter: ngram}", "match", 2, 1, 0 },
        { "{rule: [typical, lenient], drafter: ngram}", "rejection", 3, 2, 0 },
        { "{rule: [typical, block], drafter: none}", "rejection", 1, 0, 0 },
        { "{rule: [rejection, block, typical], drafter: [none, ngram]}", "rejection", 4, 4, 0 },
        { "{rule: [match, typical, rejection, blockwise], drafter: [none, ngram]}", "match rejection blockwise", 7, 7,
          0 },
        { "{zip: {rule: [typical, match], drafter: [ngram, suffix]}}", "match rejection", 4, 4, 2 },
        { "{zip: {batch: [1, 2], drafter: [ngram, suffix]}}", "rejection", 4, 4, 2 },
        { "{batch: [1, 2], drafter: [ngram, suffix], exclude: [{batch: 2}]}", "rejection", 3, 4, 2 },
        { "{batch: [1, 2], rule: [rejection, block], drafter: ngram, exclude: {rule: rejection, batch: 2}}",
          "rejection", 5, 4, 1 },
        { "{rule: [rejection, block], exclude: {rule: rejection}, drafter: [none, ngram]}", "rejection", 2, 3, 1 },
        { "{batch: [1, 2], drafter: [none, ngram], exclude: {batch: 2, drafter: ngram}}", "rejection", 3, 4, 1 },
        { "{rule: [match, block], drafter: ngram, exclude: {rule: match}}", "rejection", 2, 2, 1 },
        { "{rule: [typical, match], drafter: ngram, exclude: {rule: typical}}", "match", 2, 2, 1 },
        { "{rule: [rejection, multipath], drafter: [none, {kind: ngram, tokens: 4}, {kind: small, model: draft.gguf,"
          " pick: sampled}], exclude: {rule: multipath, drafter: ngram}}",
          "rejection", 4, 5, 1 },
        { "{rule: [traversal, rejection], drafter: ngram, exclude: {rule: rejection, drafter: ngram}}", "rejection", 2,
          2, 1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct text nones = { 0 };
        char *text = xformat("%scells: %s\n", HEAD, cases[i].cells);
        struct experiment *e = load(text);
        int listed, has;
        for (int r = 0; r < e->rule.n; r++) {
            has = 0;
            for (int b = 0; b < e->batch.n; b++)
                has += experiment_has(e, (struct cell){ .batch = b, .rule = r, .drafter = e->none });
            if (has > 0)
                text_printf(&nones, "%s%s", nones.n > 0 ? " " : "",
                            settings_get(e->rule.entry[r].settings, "kind")->text);
        }
        if (experiment_cells(e) != cases[i].n || experiment_left_out(e, &listed) != cases[i].left_out ||
            listed != cases[i].listed || strcmp(nones.s, cases[i].nones) != 0)
            fail_msg("%s: %d cells, %d of %d left out, none under %s", cases[i].cells, experiment_cells(e),
                     experiment_left_out(e, &listed), listed, nones.s);
        experiment_free(e);
        free(nones.s);
        free(text);
    }
}

// The texts of `none` under rules that share it are equal to those it has under each, and every text is compared with one of its pair.
TEST(the_shared_none_is_everyones_partner)
{
    struct store *s = open_store("baseline.db");
    const char *const text = HEAD
        "limits: {new_tokens: 12}\ncells:\n  sampling: {temperature: 1}\n  rule: [match, typical, lenient, traversal]\n"
        "  drafter: ngram\n";
    for (int time = 0; time < 2; time++) { // the second finds that nothing is missing
        run(text, s);
        expect_count(s, 2, "run WHERE drafter_kind = 'none'");
        expect_count(s, 6, "sequence");
    }
    expect_none(
        s, "a text with another partner",
        "SELECT count(*) FROM paired AS p JOIN run AS r ON r.id = p.run LEFT JOIN sequence AS q"
        " ON q.id = p.none LEFT JOIN run AS n ON n.id = q.run WHERE n.rule IS NOT CASE r.rule WHEN 'match' THEN 'match' ELSE 'rejection' END");
    expect_none(s, "a lossy baseline", "SELECT count(*) FROM run WHERE drafter_kind = 'none' AND NOT lossless");
    store_close(s);
}

// ---- identity

TEST(cells_are_the_same_however_they_are_listed)
{
    static const char *const texts[] = {
        HEAD "cells:\n  batch: [1, 2]\n  drafter: [none, {kind: ngram, tokens: 2}, {kind: ngram, tokens: 4}]\n",
        HEAD "cells:\n  batch: {from: 1, to: 2}\n  drafter: {kind: ngram, tokens: {any: [2, 4]}}\n",
        HEAD "x-base: &base {kind: ngram, tokens: 2}\ncells:\n  batch: [1, 2, 4]\n  drafter: [none, *base, {<<: *base, "
             "tokens: 4}]\n  exclude: [{batch: 4}]\n",
        HEAD "cells:\n  zip: {batch: [1, 1, 2, 2], drafter: [{kind: ngram, tokens: 2}, {kind: ngram, tokens: 4}, "
             "{kind: ngram, tokens: 4}, {kind: ngram, tokens: 2}]}\n",
    };
    struct store *s = open_store("listed.db");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        run(texts[i], s);
        expect_count(s, 6, "run");
        expect_count(s, 6, "sequence"); // none is decoded again
        expect_count(s, 0, "run WHERE finished IS NULL");
    }
    store_close(s);
}

// ---- bad input

TEST(bad_sweeps_are_refused_with_line_and_column)
{
    static const struct {
        const char *cells, *message;
    } cases[] = {
        { "{batch: {from: 4, to: 1}}", "x.yaml:4:30: to: expected at least 4, which is from, found 1" },
        { "{batch: {from: 1, to: 4, stp: 2}}", "x.yaml:4:33: a range has no key \"stp\" .. did you mean step?" },
        { "{batch: {to: 1}}", "x.yaml:4:16: a range needs the key \"from\", as in {from: 1, to: 8}" },
        { "{batch: {from: 1}}", "x.yaml:4:16: a range needs the key \"to\", as in {from: 1, to: 8}" },
        { "{batch: {from: 1, to: 4, step: -1}}", "x.yaml:4:39: step: expected a number above 0, found -1" },
        { "{batch: {from: 1, to: 4, step: 1, factor: 2}}", "x.yaml:4:16: a range has step or factor, found both" },
        { "{batch: {from: 0, to: 4, factor: 2}}",
          "x.yaml:4:23: from: expected a number above 0 beside factor, found 0" },
        { "{batch: {from: 1, to: 4, factor: 1.5}}", "x.yaml:4:41: factor: expected an integer, found \"1.5\"" },
        { "{batch: {from: 1.0000001, to: 4}}", "x.yaml:4:23: from: expected at most 6 decimals, found 1.0000001" },
        { "{batch: {from: 1, to: 1e10}}", "x.yaml:4:30: to: expected a number from -1e+09 to 1e+09, found 1e10" },
        { "{batch: {from: 1, to: [4]}}", "x.yaml:4:30: to: expected a number, found \"a list\"" },
        { "{batch: {from: 0, to: 4}}", "x.yaml:4:16: batch: expected an integer from 1 to 256, found 0" },
        { "{batch: {from: 1, to: 1000000}}", "x.yaml:4:16: cells.batch: expected at most 1024 values, found more" },
        { "{batch: [1, {from: 1, to: 2}]}", "x.yaml:4:20: cells.batch: 1 is listed twice, first on line 4" },
        { "{drafter: {kind: ngram, tokens: {any: 4}}}", "x.yaml:4:46: any .. found 4" },
        { "{drafter: {kind: ngram, tokens: {any: []}}}", "x.yaml:4:46: any .. found an empty one" },
        { "{drafter: {kind: ngram, tokens: {any: [4], from: 1}}}", "x.yaml:4:51: any .. found \"from\"" },
        { "{drafter: {kind: ngram, tokens: {any: [4, x]}}}", "x.yaml:4:50: drafter ngram: tokens .. found \"x\"" },
        { "{drafter: {kind: ngram, tokens: [4, 6]}}", "x.yaml:4:40: drafter ngram: tokens .. found \"a list\"" },
        { "{zip: {batch: [1, 2], drafter: [ngram]}}", "x.yaml:4:39: zip .. found 2 of \"batch\" and 1 of \"drafter\"" },
        { "{zip: {batch: [1, 2]}}", "x.yaml:4:14: zip .. b: [3, 4]}" },
        { "{zip: []}", "x.yaml:4:14: zip: expected a mapping (sampling, batch, rule, drafter, target), found a list" },
        { "{batch: 1, zip: {batch: [1, 2], drafter: [ngram, none]}}",
          "x.yaml:4:25: zip: \"batch\" is also given .. on line 4" },
        { "{zip: [{batch: [1, 2], drafter: [ngram, none]}, {rule: [match, block], batch: [1, 2]}]}",
          "x.yaml:4:79: zip: \"batch\" is also given .. on line 4" },
        { "{drafter: {kind: ngram, tokens: 4, zip: {tokens: [1, 2], longest: [3, 4]}}}",
          "x.yaml:4:49: zip: \"tokens\" is also given .. on line 4" },
        { "{drafter: [ngram, none], exclude: [{drafter: [none, ngrm]}]}",
          "x.yaml:4:60: exclude: no drafter of this .. experiment is ngrm" },
        { "{drafter: [ngram, none],\n  exclude: [{drafter: {kind: ngram, tokens: 3}}]}",
          "x.yaml:5:23: exclude: no drafter of this .. ngram, tokens: 3}" },
        { "{zip: {batch: [1, 2], drafter: [ngram, suffix]},\n  exclude: [{batch: 1},\n    {batch: 2, drafter: ngram}]}",
          "x.yaml:6:5: exclude: no cell has all .. of these settings" },
        { "{drafter: [ngram, none],\n  exclude: {drafter: none}}",
          "x.yaml:5:12: exclude: leaves out none, .. 1, rule rejection)" },
        { "{exclude: {batch: 1}}", "x.yaml:4:18: exclude: leaves out every cell" },
        { "{exclude: []}", "x.yaml:4:18: exclude: expected a list of 1 to 1024 partial settings, found 0" },
        { "{exclude: [{}]}", "x.yaml:4:19: exclude: expected settings of the cells to leave out, found none" },
        { "{exclude: [ngram]}", "x.yaml:4:19: exclude .. found ngram" },
        { "{sampling: [{temperature: 0}, {temperature: {from: 0.1, to: 1, step: 0.1}}], batch: {from: 1, to: 200}, drafter: {kind: ngram, tokens: {from: 1, to: 60}}}",
          "x.yaml:4:8: cells .. found 134200" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = xformat(HEAD "cells: %s\n", cases[i].cells);
        expect_load_error(text, cases[i].message);
        free(text);
    }
}

RUN_TESTS(make_files, test_directory_tear_down)
