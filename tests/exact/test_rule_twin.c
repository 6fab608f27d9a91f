// test_rule_twin.c - every rule against a twin in Python, written from the papers' formulas in exact fractions.
//
// tests/cases/make_rules.py is independent of this program. For random drafts it gives the probability of every output
// (where the path ends and which token follows), the output under Philox's uniforms, token for token, and the output
// for uniforms on a boundary. So a rule and its end_probabilities, or rules and the enumeration, cannot be wrong in the
// same way unnoticed. Lossy rules, whose output has no required distribution, are tested only here.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/acceptance.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/expectation.h"
#include "sampling/outcomes.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/numbers.h"
#include "tests/support/plain_stages.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

enum { NODES = 8, VOCAB = 5, LONG = 1100, OPTIONS = 4 };

// The ids of a case's tokens in a long row, in the same order: around the sizes of registers, words and loops.
static const int32_t place_in_long[VOCAB] = { 15, 64, 257, 1023, 1099 };

// ---- a case of the file

struct table { // rows of p or q
    struct rows rows;
    float row[NODES][LONG];
};

struct scene {
    const struct json *json;
    const struct rule *rule;
    void *options;
    int vocab; // LONG: of long rows
    struct table p, q;
    struct draft draft;
    int32_t token[NODES], parent[NODES];
    uint8_t proposal[NODES];
    struct verification out;
};

static double number(const struct json *list, int i)
{
    return json_number(json_at(list, (size_t)i));
}

static int whole(const struct json *list, int i)
{
    return (int)json_int(json_at(list, (size_t)i));
}

static const struct json *get(const struct scene *c, const char *key)
{
    const struct json *j = json_get(c->json, key);
    assert_non_null(j);
    return j;
}

static const float *row_of(struct rows *self, int node)
{
    return ((struct table *)self)->row[node];
}

static int32_t long_token(const struct scene *c, int token)
{
    return c->vocab == LONG ? place_in_long[token] : token;
}

static void fill(struct table *t, const struct json *rows, int one, const struct scene *c)
{
    t->rows = (struct rows){ c->vocab, row_of };
    for (int node = 0; node < (int)json_count(rows); node++)
        for (int x = 0; x < (int)json_count(json_at(rows, (size_t)node)); x++)
            t->row[node][long_token(c, x)] = (float)whole(json_at(rows, (size_t)node), x) / (float)one;
}

static void *options_of(const struct rule *rule, const struct json *given)
{
    const char *pair[2 * OPTIONS + 1] = { NULL };
    struct error err;
    int n = 0;
    if (rule->options == NULL)
        return NULL;
    for (void *at = json_first(given); at != NULL; at = json_next(given, at)) {
        assert_true(n < 2 * OPTIONS);
        pair[n++] = json_key(at);
        pair[n++] = json_text(json_value(at));
    }
    struct settings *s = stages_mapping(pair);
    void *options = xcalloc(1, rule->options_size);
    assert_ok(options_read(s, rule->name, rule->options, options, &err), err);
    settings_free(s);
    return options;
}

static void open_case(struct scene *c, const struct json *j, int one, bool in_long)
{
    *c = (struct scene){ .json = j, .rule = rule_named(json_text(json_get(j, "rule"))) };
    assert_non_null(c->rule);
    c->vocab = in_long ? LONG : (int)json_int(get(c, "vocab"));
    const int n = (int)json_count(get(c, "token"));
    assert_true(json_int(get(c, "vocab")) <= VOCAB && n <= NODES);
    fill(&c->p, get(c, "p"), one, c);
    fill(&c->q, get(c, "q"), one, c);
    for (int node = 0; node < n; node++) {
        c->token[node] = long_token(c, whole(get(c, "token"), node));
        c->parent[node] = whole(get(c, "parent"), node);
        c->proposal[node] = (uint8_t)whole(get(c, "proposal"), node);
    }
    c->draft = (struct draft){
        .n = n, .capacity = NODES, .token = c->token, .parent = c->parent, .proposal = c->proposal, .q = &c->q.rows
    };
    c->options = options_of(c->rule, get(c, "options"));
    c->out = verification_create(NODES, c->vocab);
}

static void close_case(struct scene *c)
{
    if (c->options != NULL)
        options_free(c->rule->options, c->options);
    free(c->options);
    verification_destroy(&c->out);
}

static void each_case(bool in_long, void (*check)(struct scene *c))
{
    static struct scene c;
    struct json *all = golden_json("rules.json");
    const struct json *cases = json_get(all, "cases");
    assert_true(json_count(cases) > 300);
    for (size_t i = 0; i < json_count(cases); i++) {
        open_case(&c, json_at(cases, i), (int)json_int(json_get(json_at(cases, i), "one")), in_long);
        check(&c);
        close_case(&c);
    }
    json_free(all);
}

// ---- output

static void verify(struct scene *c, struct rng *rng)
{
    c->rule->verify(c->rule, &c->draft, &c->p.rows, c->options, rng, &c->out);
    assert_true(draft_is_path(&c->draft, c->out.node, c->out.token, c->out.n, c->vocab));
}

static int last_node(const struct scene *c)
{
    return c->out.node[c->out.n - 1];
}

static int last_token(const struct scene *c)
{
    return c->out.token[c->out.n - 1];
}

// rho is computed to nine digits, and any larger one is also valid (spectr.c).
static double tolerance(const struct scene *c)
{
    return strcmp(c->rule->name, "spectr") == 0 ? 1e-8 : 1e-12;
}

static void check_end_probabilities(struct scene *c)
{
    double ends[NODES] = { 0 }, end[NODES];
    const struct json *expected = get(c, "outputs");
    for (size_t i = 0; i < json_count(expected); i++)
        ends[whole(json_at(expected, i), 0)] += number(json_at(expected, i), 2);
    c->rule->end_probabilities(c->rule, &c->draft, &c->p.rows, c->options, end);
    for (int node = 0; node < c->draft.n; node++)
        near(end[node], ends[node], tolerance(c));
}

static void check_probabilities(struct scene *c)
{
    double difference[NODES][VOCAB] = { { 0 } };
    struct outcomes o;
    outcomes_begin(&o);
    while (outcomes_next(&o)) {
        verify(c, &o.rng);
        difference[last_node(c)][last_token(c)] += outcomes_probability(&o);
    }
    outcomes_end(&o);
    const struct json *expected = get(c, "outputs");
    for (size_t i = 0; i < json_count(expected); i++) {
        const struct json *one = json_at(expected, i);
        difference[whole(one, 0)][whole(one, 1)] -= number(one, 2);
    }
    for (int node = 0; node < c->draft.n; node++)
        for (int x = 0; x < c->vocab; x++)
            if (fabs(difference[node][x]) > tolerance(c))
                fail_msg("%s, node %d, token %d: off by %g", c->rule->name, node, x, difference[node][x]);
    check_end_probabilities(c);
}

TEST(output_probabilities_match_the_papers)
{
    each_case(false, check_probabilities);
}

// result: the last node, the token, and the number of empty residuals (null: not given).
static void check_result(const struct scene *c, const struct json *result, int from)
{
    const int last = whole(result, from), token = long_token(c, whole(result, from + 1));
    if (last_node(c) != last || last_token(c) != token)
        fail_msg("%s ends at node %d with token %d; the twin at %d with %d", c->rule->name, last_node(c), last_token(c),
                 last, token);
    if (json_is_int(json_at(result, (size_t)from + 2)))
        assert_int_equal(c->out.empty, whole(result, from + 2));
}

// p and q of every node's trial; NAN for nodes that were not tried.
static void check_trials(const struct scene *c, const struct json *trials)
{
    size_t k = 0;
    for (int node = 1; node < c->draft.n; node++) {
        const struct json *one = json_at(trials, k);
        if (one == NULL || whole(one, 0) != node) {
            if (!isnan(c->out.trial_p[node]))
                fail_msg("%s tried node %d; the twin did not", c->rule->name, node);
            continue;
        }
        near(c->out.trial_p[node], number(one, 1), tolerance(c));
        near(c->out.trial_q[node], number(one, 2), tolerance(c));
        k++;
    }
    assert_int_equal(k, json_count(trials));
}

static void verify_under_philox(struct scene *c)
{
    const struct json *verified = get(c, "verified");
    for (size_t i = 0; i < json_count(verified); i++) {
        const struct json *one = json_at(verified, i);
        struct philox source = philox_source((uint64_t)json_int(json_at(one, 0)), (uint64_t)json_int(json_at(one, 1)));
        source.rng.root = whole(one, 2);
        verify(c, &source.rng);
        check_result(c, one, 3);
        if (json_count(one) > 6)
            check_trials(c, json_at(one, 6));
    }
}

TEST(the_same_uniforms_give_the_same_tokens)
{
    each_case(false, verify_under_philox);
}

// Not match: the uniforms of a race belong to token ids. Nor what compares ids.
static void verify_in_long(struct scene *c)
{
    const struct json *accept = json_get(get(c, "options"), "accept");
    if (strcmp(c->rule->name, "match") != 0 && (accept == NULL || strcmp(json_text(accept), "distance") != 0)) {
        verify_under_philox(c);
        check_end_probabilities(c);
    }
}

TEST(long_rows_are_verified_like_short_ones)
{
    each_case(true, verify_in_long);
}

// ---- uniforms on a boundary

struct given {
    struct rng rng;
    const struct json *u; // [purpose, node, u] of each
};

static double given_at(const struct rng *self, struct address at)
{
    const struct given *g = (const struct given *)self;
    for (size_t i = 0; i < json_count(g->u); i++) {
        const struct json *one = json_at(g->u, i);
        if (whole(one, 0) == (int)at.purpose && whole(one, 1) == at.node)
            return number(one, 2);
    }
    fail_msg("unexpected draw of purpose %d at node %d", (int)at.purpose, at.node);
    return NAN;
}

static bool given_accept(struct rng *self, double num, double den, struct address at)
{
    return acceptance_of(num > 0 && num < den ? given_at(self, at) : 0, num, den);
}

static int given_pick(struct rng *self, const double *weight, int n, struct address at)
{
    return rng_invert(given_at(self, at), weight, n);
}

static int boundary_cases;

static void verify_by_given_uniforms(struct scene *c)
{
    const struct json *given = json_get(c->json, "given");
    for (size_t i = 0; i < json_count(given); i++, boundary_cases++) {
        const struct json *one = json_at(given, i);
        struct given g = { { given_accept, given_pick, 0, NULL }, json_at(one, 3) };
        verify(c, &g.rng);
        check_result(c, one, 0);
    }
}

TEST(boundary_uniforms_and_ties_match_the_twin)
{
    boundary_cases = 0;
    each_case(false, verify_by_given_uniforms);
    assert_true(boundary_cases >= 30);
}

// ---- expected acceptance

static unsigned kinds_of(const struct draft *d)
{
    static const unsigned kind[] = { TAKES_DETERMINISTIC, TAKES_SAMPLED, TAKES_WITHOUT_REPLACEMENT };
    int leaf = -1;
    bool chains = true, branches = false;
    unsigned made = 0;
    for (int node = 0; node < d->n; node++) {
        const int child = draft_next_child(d, node, node);
        const bool several = child >= 0 && draft_next_child(d, node, child) >= 0;
        made |= node > 0 ? kind[d->proposal[node]] : 0;
        branches = branches || several;
        chains = chains && !(several && node > 0) && (child >= 0 || leaf < 0 || draft_depth(d, node) == leaf);
        leaf = child < 0 ? draft_depth(d, node) : leaf;
    }
    return made | (!branches ? 0 : chains ? TAKES_CHAINS : TAKES_TREES);
}

static void agree(double a, const struct json *expected, const char *rule)
{
    const double b = json_is_null(expected) ? NAN : json_number(expected);
    if (!(isnan(a) && isnan(b)) && !(fabs(a - b) <= (strcmp(rule, "spectr") == 0 ? 1e-8 : 1e-12)))
        fail_msg("%s: found %.17g, the twin has %.17g", rule, a, b);
}

static int drafts_checked;

static void check_expectation(struct scene *c)
{
    const struct json *expected = json_get(c->json, "expected");
    struct request request = { .draft = &c->draft };
    struct expectation got;
    if (expected == NULL)
        return;
    drafts_checked++;
    c->out.n = 1;
    struct expecter *e = expecter_create(c->rule, c->options, kinds_of(&c->draft), NODES, c->vocab);
    expect(e, &(struct verified){ &request, &c->p.rows, &c->out }, &got);
    assert_int_equal(got.n, json_count(expected));
    for (int i = 0; i < got.n; i++) {
        const char *name = got.by[i].rule;
        const struct json *by = json_get(expected, name);
        if (by == NULL)
            fail_msg("%s: the twin has no expected acceptance", name);
        agree(got.by[i].accepted, json_at(by, 0), name);
        agree(got.by[i].first, json_at(by, 1), name);
        if (json_count(by) > 2) {
            agree(got.accepted, json_at(by, 0), name);
            agree(got.variance, json_at(by, 2), name);
        }
    }
    expecter_destroy(e);
}

TEST(expected_acceptance_matches_the_twin)
{
    drafts_checked = 0;
    each_case(false, check_expectation);
    assert_true(drafts_checked > 50);
}

// ---- every rule has a twin

static int seen[64];

static void count_rule(struct scene *c)
{
    for (int i = 0; rules[i]; i++)
        seen[i] += rules[i] == c->rule;
}

TEST(every_rule_has_a_twin)
{
    memset(seen, 0, sizeof(seen));
    each_case(false, count_rule);
    for (int i = 0; rules[i]; i++)
        if (seen[i] < 20)
            fail_msg("%s: %d cases in tests/cases/rules.json; write its twin in rule_outputs.py and rule_decisions.py",
                     rules[i]->name, seen[i]);
}

RUN_TESTS(NULL, NULL)
