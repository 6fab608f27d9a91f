#include "tests/exact/toy_language.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/support/rule_defaults.h"
#include "tests/exact/shared_randomness.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

// ---- a language

// Rows by last token. p: language; q: drafter_row.
static float language[VOCAB][VOCAB], drafter_row[VOCAB][VOCAB];
float toy_language_misreported[VOCAB][VOCAB];

static double random_unit(int i, int k, int purpose)
{
    return philox_uniform(2, 7, (struct address){ (enum purpose)purpose, i, k }, 0);
}

static void normalize(float *row)
{
    double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += (double)row[i];
    for (int i = 0; i < VOCAB; i++)
        row[i] = (float)((double)row[i] / sum);
}

static double overlap(int row)
{
    double both = 0;
    for (int i = 0; i < VOCAB; i++)
        both += fmin((double)language[row][i], (double)drafter_row[row][i]);
    return both;
}

// Each row of p has a token of probability 0, which has mass in q.
int toy_language_make(void **state)
{
    double min = 1, max = 0;
    for (int i = 0; i < VOCAB; i++) {
        for (int k = 0; k < VOCAB; k++) {
            const double of_p = random_unit(i, k, FOR_TOKEN), of_q = random_unit(i, k, FOR_DRAFT);
            language[i][k] = (float)exp(7 * of_p);
            drafter_row[i][k] = (float)exp(7 * (0.6 * of_p + 0.4 * of_q));
        }
        language[i][(i + 3) % VOCAB] = 0;
        normalize(language[i]);
        normalize(drafter_row[i]);
        for (int k = 0; k < VOCAB; k++)
            toy_language_misreported[i][k] = powf(drafter_row[i][k], 1.5F);
        normalize(toy_language_misreported[i]);
        min = fmin(min, overlap(i));
        max = fmax(max, overlap(i));
    }
    print_message("a row of q overlaps with that of p by %.2f to %.2f\n", min, max);
    assert_true(min > 0.4 && max < 0.9);
    return 0;
}

struct table_rows {
    struct rows rows;
    const float (*table)[VOCAB];
    const struct draft *draft;
};

static const float *table_row(struct rows *self, int node)
{
    const struct table_rows *t = (const struct table_rows *)self;
    return t->table[t->draft->token[node]];
}

// ---- drafts

static int argmax(const float *row, int but)
{
    int best = but == 0 ? 1 : 0;
    for (int i = 0; i < VOCAB; i++)
        if (i != but && row[i] > row[best])
            best = i;
    return best;
}

// The drafter reports drafter_row; it samples from `from`.
static int sample_below(struct draft *d, int parent, const float (*from)[VOCAB], enum proposal how, struct rng *rng)
{
    double w[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        w[i] = (double)from[d->token[parent]][i];
    for (int s = draft_next_child(d, parent, parent); s >= 0 && how == SAMPLED_WITHOUT_REPLACEMENT;
         s = draft_next_child(d, parent, s))
        w[d->token[s]] = 0;
    int token = rng->pick(rng, w, VOCAB, (struct address){ FOR_DRAFT, rng->root, d->n });
    return draft_add(d, parent, token, how);
}

static int argmax_below(struct draft *d, int parent, int but)
{
    return draft_add(d, parent, argmax(drafter_row[d->token[parent]], but), DETERMINISTIC);
}

static void build_draft(struct draft *d, enum shape shape, const float (*from)[VOCAB], struct rng *rng)
{
    int at = 0, first;
    switch (shape) {
    case SAMPLED_CHAIN:
        for (int i = 0; i < 3; i++)
            at = sample_below(d, at, from, SAMPLED, rng);
        break;
    case DISTINCT_TREE:
        for (int i = 0; i < 3; i++)
            sample_below(d, 0, from, SAMPLED_WITHOUT_REPLACEMENT, rng);
        for (int i = 0; i < 6; i++)
            sample_below(d, 1 + i / 2, from, SAMPLED_WITHOUT_REPLACEMENT, rng);
        break;
    case DETERMINISTIC_CHAIN:
        for (int i = 0; i < 3; i++)
            at = argmax_below(d, at, -1);
        break;
    case DETERMINISTIC_TREE:
        first = argmax_below(d, 0, -1);
        at = argmax_below(d, 0, d->token[first]);
        argmax_below(d, first, -1);
        argmax_below(d, at, -1);
        break;
    case SAMPLED_CHAINS:
        for (int i = 0; i < 4; i++)
            sample_below(d, i < 2 ? 0 : i - 1, from, SAMPLED, rng);
        break;
    case NO_DRAFT:
        break;
    }
}

// ---- texts

struct text_writer text_writer_open(const struct text_setup *text_setup, uint64_t seed)
{
    const struct rule *rule = text_setup->declared_rule != NULL ? text_setup->declared_rule : text_setup->rule;
    struct text_writer w = { .text_setup = text_setup, .seed = seed };
    w.options = rule_defaults(rule);
    const struct observer_setup setup = {
        .rule = rule, .rule_options = w.options, .slots = 2, .nodes = NODES, .vocab = VOCAB, .end = END, .seed = seed
    };
    w.observer = observer_create(&setup);
    return w;
}

void text_writer_close(struct text_writer *w)
{
    observer_destroy(w->observer);
    free(w->options);
}

void text_writer_write(struct text_writer *w, int64_t sequence, struct observed *to)
{
    const struct text_setup *text_setup = w->text_setup;
    int32_t token[NODES], parent[NODES] = { -1 };
    uint8_t proposal[NODES] = { 0 };
    int32_t *text = xcalloc((size_t)text_setup->tokens + NODES + 1, sizeof(*text));
    struct verification out = verification_create(NODES, VOCAB);
    struct philox source = philox_source(w->seed, (uint64_t)sequence);
    struct sharing sharing = sharing_source(&source.rng, FOR_DRAFT);
    struct rng *rng = text_setup->shares_randomness ? &sharing.rng : &source.rng;
    observer_start(w->observer, 1, sequence);
    for (int n = 1; n <= text_setup->tokens;) {
        struct draft d = { .n = 1, .capacity = NODES, .token = token, .parent = parent, .proposal = proposal };
        struct table_rows p = { { VOCAB, table_row }, language, &d }, q = { { VOCAB, table_row }, drafter_row, &d };
        const struct request r = { .slot = 1, .n = n, .token = text, .rng = rng, .draft = &d, .depth = 9 };
        token[0] = text[n - 1];
        rng->root = n - 1;
        d.q = &q.rows;
        build_draft(&d, text_setup->shape, text_setup->from != NULL ? text_setup->from : drafter_row, rng);
        text_setup->rule->verify(text_setup->rule, &d, &p.rows, w->options, rng, &out);
        observer_verified(w->observer, &(struct verified){ &r, &p.rows, &out });
        memcpy(text + n, out.token, (size_t)out.n * sizeof(*text));
        n += out.n;
    }
    observer_take(w->observer, 1, to);
    verification_destroy(&out);
    free(text);
}

double toy_language_write(const struct text_setup *text_setup, uint64_t seed, struct observed *to)
{
    struct text_writer w = text_writer_open(text_setup, seed);
    double max = 0;
    for (int i = 0; i < text_setup->texts; i++) {
        text_writer_write(&w, i, to);
        max = fmax(max, evidence_log_e(&to->of[STREAM_TEXT]));
    }
    text_writer_close(&w);
    return max;
}
