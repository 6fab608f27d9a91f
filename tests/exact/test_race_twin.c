// test_race_twin.c - draws at their addresses against a twin in Python, and the agreement of coupled samples against a
// closed form.
//
// tests/cases/make_races.py implements Philox and the race from the papers. Here drafts are built over the same rows
// (drafters/trees/tree_builder.c) and verified by `match` (verifier/rules/match.c): every token must equal the twin's.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "drafters/trees/tree_builder.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/file_write.h"
#include "tests/support/numbers.h"
#include "verifier/rules/rule.h"

enum { VOCAB = 7, CAPACITY = 16, TEXT = 64 };

static struct json *golden;

static int open_golden(void **state)
{
    golden = golden_json("races.json");
    return 0;
}

static int close_golden(void **state)
{
    json_free(golden);
    return 0;
}

static int64_t integer(const struct json *list, int i)
{
    return json_int(json_at(list, (size_t)i));
}

static void fill(float *row, const struct json *numbers)
{
    const double one = (double)json_int(json_get(golden, "one"));
    for (int i = 0; i < VOCAB; i++)
        row[i] = (float)((double)integer(numbers, i) / one);
}

// ---- a draft and its verification by `match`

struct table { // the row after a node is that of its token
    struct rows rows;
    const struct draft *draft;
    float after[VOCAB][VOCAB];
};

static const float *row_of(struct rows *self, int node)
{
    const struct table *t = (const struct table *)self;
    return t->after[t->draft->token[node]];
}

static void fill_table(struct table *t, const char *name, const struct draft *d)
{
    const struct json *rows = json_get(golden, name);
    t->rows = (struct rows){ VOCAB, row_of };
    t->draft = d;
    for (int x = 0; x < VOCAB; x++)
        fill(t->after[x], json_at(rows, (size_t)x));
}

static struct tree_options options_of(const struct json *one)
{
    const struct json *widths = json_get(one, "widths");
    const bool coupled = strcmp(json_text(json_get(one, "pick")), "coupled") == 0;
    struct tree_options o = { .tokens = (int)json_count(widths),
                              .top = 1,
                              .pick = coupled ? PICK_COUPLED : PICK_SAMPLED,
                              .distinct = json_bool(json_get(one, "distinct")) };
    bool chain = true;
    for (int i = 0; i < (int)json_count(widths); i++)
        chain = chain && integer(widths, i) == 1;
    for (int i = 0; i < (int)json_count(widths) && !chain; i++)
        o.widths.v[o.widths.n++] = (int)integer(widths, i);
    return o;
}

static void build_draft(const struct tree_options *o, const struct request *r, const struct table *q)
{
    struct tree_shape shape;
    struct tree_builder g;
    struct error err;
    assert_ok(tree_shape(&shape, o, "test", NULL, &err), err);
    builder_create(&g, &shape, VOCAB);
    builder_begin(&g, r);
    for (bool more = g.n_frontier > 0; more; more = builder_next_level(&g, r))
        for (int f = 0; f < g.n_frontier; f++)
            builder_sample_children(&g, g.frontier[f], q->after[g.at[g.frontier[f]].token], r);
    builder_finish(&g, r->draft);
    builder_destroy(&g);
}

static void check_draft(const struct draft *d, const struct json *expected)
{
    assert_int_equal(d->n, json_count(expected));
    for (int node = 0; node < d->n; node++) {
        const struct json *one = json_at(expected, (size_t)node);
        assert_int_equal(d->token[node], integer(one, 0));
        assert_int_equal(d->parent[node], integer(one, 1));
        if (node > 0)
            assert_int_equal(d->proposal[node], integer(one, 2));
    }
}

static void check_case(const struct json *one)
{
    int32_t text[TEXT] = { 0 };
    struct own_draft own;
    struct table p, q;
    struct verification out = verification_create(CAPACITY, VOCAB);
    struct philox source =
        philox_source((uint64_t)json_int(json_get(one, "seed")), (uint64_t)json_int(json_get(one, "sequence")));
    const int root = (int)json_int(json_get(one, "root"));
    const struct json *draft = json_get(one, "draft"), *expected = json_get(one, "tokens");
    const struct tree_options o = options_of(one);
    source.rng.root = root;
    text[root] = (int32_t)integer(json_at(draft, 0), 0);
    struct draft *d = own_draft_begin(&own, text[root], CAPACITY);
    fill_table(&p, "p", d);
    fill_table(&q, json_bool(json_get(one, "sparse")) ? "sparse" : "q", d);
    d->q = &q.rows;
    build_draft(&o,
                &(struct request){
                    .n = root + 1, .token = text, .rng = &source.rng, .draft = d, .depth = (int)json_count(draft) },
                &q);
    check_draft(d, draft);
    const struct rule *match = rule_named("match");
    match->verify(match, d, &p.rows, NULL, &source.rng, &out);
    assert_int_equal(out.n, json_count(expected));
    for (int i = 0; i < out.n; i++) {
        assert_int_equal(out.token[i], integer(expected, i));
        double row[VOCAB]; // the race over doubles, as in rules, is another loop
        for (int x = 0; x < VOCAB; x++)
            row[x] = (double)p.after[d->token[out.node[i]]][x];
        assert_int_equal(source.rng.pick(&source.rng, row, VOCAB, (struct address){ FOR_TOKEN, root + i + 1, 0 }),
                         integer(expected, i));
    }
    verification_destroy(&out);
}

TEST(drafts_and_match_tokens_match_the_twin)
{
    const struct json *drafts = json_get(golden, "drafts");
    assert_true(json_count(drafts) > 100);
    for (size_t i = 0; i < json_count(drafts); i++)
        check_case(json_at(drafts, i));
}

// A row longer than a chunk, with few tokens of equal weight: as floats and as doubles.
TEST(long_rows_match_the_twin)
{
    const struct json *longs = json_get(golden, "longs");
    assert_true(json_count(longs) >= 5);
    for (size_t k = 0; k < json_count(longs); k++) {
        const struct json *one = json_at(longs, k);
        const int n = (int)integer(one, 0);
        float *row = xcalloc((size_t)n, sizeof(*row));
        double *work = xcalloc((size_t)n, sizeof(*work));
        for (int i = 0; i < n; i++)
            work[i] = (double)(row[i] = i % 11 == 3 ? 0x1p-11f : 0);
        struct philox source = philox_source((uint64_t)integer(one, 1), 5);
        const struct address at = { FOR_TOKEN, (int32_t)integer(one, 2), 0 };
        assert_int_equal(source.rng.pick(&source.rng, work, n, at), integer(one, 3));
        assert_int_equal(rng_pick_row(&source.rng, row, n, at, work), integer(one, 3));
        free(row);
        free(work);
    }
}

// ---- agreement of two races

TEST(coupled_samples_agree_at_the_closed_form_rate)
{
    enum { DRAWS = 6000 };
    const struct json *pairs = json_get(golden, "agreement");
    for (size_t k = 0; k < json_count(pairs); k++) {
        const struct json *one = json_at(pairs, k);
        const double rate = json_number(json_at(one, 2));
        float p[VOCAB], q[VOCAB];
        double work[VOCAB];
        int agreed = 0;
        fill(p, json_at(one, 0));
        fill(q, json_at(one, 1));
        struct philox source = philox_source(20 + k, 1);
        for (int place = 0; place < DRAWS; place++) {
            const struct address at = { FOR_TOKEN, place, 0 };
            agreed += rng_pick_row(&source.rng, p, VOCAB, at, work) == rng_pick_row(&source.rng, q, VOCAB, at, work);
        }
        near((double)agreed / DRAWS, rate, 4 * sqrt(rate * (1 - rate) / DRAWS));
    }
}

RUN_TESTS(open_golden, close_golden)
