// test_draft_temperature.c - a draft's own temperature: tokens are drawn from exactly the row that is reported, and texts
// keep the target's distribution, by enumeration of every draft and every decision.
//
// The draft batch that all drafters with rows of logits share (drafters/trees/draft_batch.h) builds drafts of two levels
// over three tokens, from tables of logits. Rows are compared with a softmax in doubles.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "drafters/trees/draft_batch.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/dist.h"
#include "sampling/outcomes.h"
#include "tests/support/check.h"
#include "tests/support/plain_stages.h"
#include "verifier/rules/rule.h"

// Text 0 is empty; text t followed by token x is text t * VOCAB + 1 + x.
enum { VOCAB = 3, DEPTH = 2, ROWS = 1 + VOCAB + VOCAB * VOCAB, TEXTS = ROWS + VOCAB * VOCAB * VOCAB, NODES = 16 };

static struct backend *backend;
static struct kv_cache *cache; // holds nothing: it has the number of pending rows that a pass needs

static struct {
    float p[ROWS][VOCAB], q[ROWS][VOCAB]; // logits after each text
    struct sampling sampling;             // the target's
    double temperature;                   // the draft's own, or the target's
    struct draft_batch batch;
    int first[1];
} table;

static struct {
    struct rows rows; // first: those of p
    struct draft draft;
    int32_t token[NODES], parent[NODES];
    uint8_t proposal[NODES];
    float row[NODES][VOCAB];
} step;

static int text_of(int node)
{
    return node == 0 ? 0 : text_of(step.parent[node]) * VOCAB + 1 + step.token[node];
}

static const float *row_of_p(struct rows *self, int node)
{
    (void)self;
    memcpy(step.row[node], table.p[text_of(node)], sizeof(step.row[node]));
    sampling_row(&table.sampling, step.row[node], VOCAB, VOCAB, NULL);
    return step.row[node];
}

static void upload(struct draft_batch *g, int rows, const int *text)
{
    const struct tensor to = draft_batch_logits(g, rows);
    for (int i = 0; i < rows; i++)
        backend->upload(backend, tensor_rows(to, i, 1).data, table.q[text[i]], sizeof(table.q[0]));
}

static bool logits_of_root(void *self, const struct request *r, int n, struct error *err)
{
    (void)r, (void)err;
    assert_int_equal(n, 1);
    upload(self, 1, &(const int){ 0 });
    return true;
}

static bool logits_of_frontier(void *self, const struct request *r, int n, struct error *err)
{
    int32_t token[NODES], slot[NODES], parent[NODES];
    int text[NODES];
    (void)err;
    const struct pass pass = draft_batch_rows(self, r, n, cache, table.first, token, slot, parent);
    for (int i = 0; i < pass.n; i++)
        text[i] = 1 + token[i];
    upload(self, pass.n, text);
    return true;
}

static void draft_with(struct rng *rng)
{
    static const struct draft_logits by = { logits_of_root, logits_of_frontier, 1 };
    static const int32_t prompt[] = { 1 };
    struct error err;
    step.rows = (struct rows){ VOCAB, row_of_p };
    step.draft = (struct draft){
        .n = 1, .capacity = NODES, .token = step.token, .parent = step.parent, .proposal = step.proposal
    };
    step.parent[0] = -1;
    step.proposal[0] = DETERMINISTIC;
    struct request r = { .n = 1, .prompt = 1, .token = prompt, .rng = rng, .draft = &step.draft, .depth = DEPTH };
    assert_ok(draft_batch_build(&table.batch, &r, 1, table.first, &by, &table.batch, &err), err);
}

static void softmax_at(double *to, const float *logit, double temperature)
{
    double x[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        x[i] = (double)logit[i] / temperature;
    plain_softmax(to, x, VOCAB);
}

// The reported rows, and of a chain the probability of the draft: that of its tokens under these rows.
static double check_rows(void)
{
    double probability = 1, q[VOCAB];
    for (int node = 1; node < step.draft.n; node++) {
        const float *row = step.draft.q->row(step.draft.q, step.parent[node]);
        softmax_at(q, table.q[text_of(step.parent[node])], table.temperature);
        for (int x = 0; x < VOCAB; x++)
            assert_true(fabs((double)row[x] - q[x]) < 1e-6);
        probability *= q[step.token[node]];
    }
    return probability;
}

static void continue_text(int text, int length, double probability, double *to)
{
    float row[VOCAB];
    double p[VOCAB];
    if (length > DEPTH) {
        to[text] += probability;
        return;
    }
    memcpy(row, table.p[text], sizeof(row));
    sampling_row(&table.sampling, row, VOCAB, VOCAB, NULL);
    dist_from_row(p, row, VOCAB);
    for (int x = 0; x < VOCAB; x++)
        if (p[x] > 0)
            continue_text(text * VOCAB + 1 + x, length + 1, probability * p[x], to);
}

static void check_drafts_of_chains(void)
{
    double found[TEXTS] = { 0 }, expected[TEXTS] = { 0 };
    struct outcomes o;
    outcomes_begin(&o);
    while (outcomes_next(&o)) {
        draft_with(&o.rng);
        assert_int_equal(step.draft.n, 1 + DEPTH);
        expected[text_of(DEPTH)] = check_rows();
        found[text_of(DEPTH)] += outcomes_probability(&o);
    }
    outcomes_end(&o);
    for (int text = 0; text < TEXTS; text++)
        assert_true(fabs(found[text] - expected[text]) < 1e-6);
}

static double distance_under(const struct rule *rule)
{
    double found[TEXTS] = { 0 }, own[TEXTS] = { 0 }, distance = 0;
    struct verification v = verification_create(NODES, VOCAB);
    struct outcomes o;
    continue_text(0, 0, 1, own);
    outcomes_begin(&o);
    while (outcomes_next(&o)) {
        int text = 0;
        draft_with(&o.rng);
        check_rows();
        rule->verify(rule, &step.draft, &step.rows, NULL, &o.rng, &v);
        for (int i = 0; i < v.n; i++)
            text = text * VOCAB + 1 + v.token[i];
        continue_text(text, v.n, outcomes_probability(&o), found);
    }
    assert_int_equal(o.repeated, 0);
    outcomes_end(&o);
    verification_destroy(&v);
    for (int text = 0; text < TEXTS; text++)
        distance += fabs(found[text] - own[text]) / 2;
    return distance;
}

static void fill_logits(float (*to)[VOCAB], uint64_t seed)
{
    for (int i = 0; i < ROWS * VOCAB; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        to[i / VOCAB][i % VOCAB] = (float)((int)(seed >> 40) % 1000) / 250 - 2;
    }
}

static void open_table(const struct tree_options *o, const char *temperature, uint64_t seed)
{
    struct error err;
    struct tree_shape shape;
    table.sampling = SAMPLING("temperature", temperature);
    table.temperature = o->temperature > 0 ? o->temperature : strtod(temperature, NULL);
    fill_logits(table.p, 2 * seed + 1);
    fill_logits(table.q, 2 * seed + 2);
    const struct drafter_env env = { .backend = backend,
                                     .target_backend = backend,
                                     .sampling = &table.sampling,
                                     .slots = 1,
                                     .length = 8,
                                     .used_vocab = VOCAB };
    assert_ok(tree_shape(&shape, o, "test", NULL, &err), err);
    assert_ok(draft_batch_create(&table.batch, &shape, &env, VOCAB, NULL, VOCAB, &err), err);
}

static void close_table(void)
{
    draft_batch_destroy(&table.batch);
    sampling_free(&table.sampling);
}

static void tokens_of_a_chain_are_drawn_from_the_row_at_the_drafts_own_temperature(void **state)
{
    static const double own[] = { 0, 0.3, 1, 2.5 };
    (void)state;
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) {
        open_table(&(const struct tree_options){ .tokens = DEPTH, .top = 8, .temperature = own[i] }, "0.7", i);
        check_drafts_of_chains();
        close_table();
    }
}

static void texts_have_the_targets_law_under_every_exact_rule(void **state)
{
    static const struct tree_options shapes[] = {
        { .tokens = DEPTH, .temperature = 0.3 },
        { .tokens = DEPTH, .temperature = 2.5 },
        { .widths = { 2, { 2, 1 } }, .temperature = 0.6 },
        { .widths = { 2, { 2, 1 } }, .distinct = true, .temperature = 1.8 },
        { .widths = { 2, { 2, 2 } }, .distinct = true, .temperature = 0.6 },
    };
    static const char *const target[] = { "0.7", "0" };
    int tried = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (int t = 0; t < 2; t++)
            for (int k = 0; rules[k] != NULL; k++) {
                if (!rules[k]->exact || takes_missing(rules[k]->takes, tree_options_kinds(&shapes[i])) != 0)
                    continue;
                open_table(&shapes[i], target[t], 7 * i);
                const double distance = distance_under(rules[k]);
                if (!(distance < 1e-12))
                    fail_msg("%s, shape %d, target at %s: the law differs by %g", rules[k]->name, (int)i, target[t],
                             distance);
                tried++;
                close_table();
            }
    assert_true(tried >= 20);
}

static int open_backend(void **state)
{
    struct error err;
    const struct kv_shape kv = { 1, 32, 32, 1, 64, 32, F32, 0, { { 0 } }, 0 };
    (void)state;
    backend = backend_cpu(1, &err);
    cache = backend != NULL ? kv_create(backend, &kv, &err) : NULL;
    return cache == NULL;
}

static int close_backend(void **state)
{
    (void)state;
    kv_destroy(cache);
    backend->destroy(backend);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_a_chain_are_drawn_from_the_row_at_the_drafts_own_temperature),
        cmocka_unit_test(texts_have_the_targets_law_under_every_exact_rule),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
