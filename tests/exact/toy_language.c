#include "tests/exact/toy_language.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/exact/shared_randomness.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

// ---- a language

// What comes next depends on the last token. p: language; q, what the drafter thinks is said: guessed.
static float language[VOCAB][VOCAB], drafted_right[VOCAB][VOCAB];
float language_lie[VOCAB][VOCAB];

static double chance(int i, int k, int purpose)
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

static double overlap_of(int row)
{
    double both = 0;
    for (int i = 0; i < VOCAB; i++)
        both += fmin((double)language[row][i], (double)drafted_right[row][i]);
    return both;
}

// Each row has a token that is never said, of which the drafter knows nothing.
int language_make(void **state)
{
    (void)state;
    double least = 1, most = 0;
    for (int i = 0; i < VOCAB; i++) {
        for (int k = 0; k < VOCAB; k++) {
            const double says = chance(i, k, FOR_TOKEN), thinks = chance(i, k, FOR_DRAFT);
            language[i][k] = (float)exp(7 * says);
            drafted_right[i][k] = (float)exp(7 * (0.6 * says + 0.4 * thinks));
        }
        language[i][(i + 3) % VOCAB] = 0;
        normalize(language[i]);
        normalize(drafted_right[i]);
        for (int k = 0; k < VOCAB; k++)
            language_lie[i][k] = powf(drafted_right[i][k], 1.5F);
        normalize(language_lie[i]);
        least = fmin(least, overlap_of(i));
        most = fmax(most, overlap_of(i));
    }
    print_message("a row of q overlaps with that of p by %.2f to %.2f\n", least, most);
    assert_true(least > 0.4 && most < 0.9);
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

// The drafter says that it draws from guessed; `from` is what it does draw from.
static int draw_below(struct draft *d, int parent, const float (*from)[VOCAB], enum proposal how, struct rng *rng)
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

static int choose_below(struct draft *d, int parent, int but)
{
    return draft_add(d, parent, argmax(drafted_right[d->token[parent]], but), DETERMINISTIC);
}

static void grow(struct draft *d, enum shape shape, const float (*from)[VOCAB], struct rng *rng)
{
    int at = 0, first;
    switch (shape) {
    case SAMPLED_CHAIN:
        for (int i = 0; i < 3; i++)
            at = draw_below(d, at, from, SAMPLED, rng);
        break;
    case DISTINCT_TREE:
        for (int i = 0; i < 3; i++)
            draw_below(d, 0, from, SAMPLED_WITHOUT_REPLACEMENT, rng);
        for (int i = 0; i < 6; i++)
            draw_below(d, 1 + i / 2, from, SAMPLED_WITHOUT_REPLACEMENT, rng);
        break;
    case DETERMINISTIC_CHAIN:
        for (int i = 0; i < 3; i++)
            at = choose_below(d, at, -1);
        break;
    case DETERMINISTIC_TREE:
        first = choose_below(d, 0, -1);
        at = choose_below(d, 0, d->token[first]);
        choose_below(d, first, -1);
        choose_below(d, at, -1);
        break;
    case SAMPLED_CHAINS:
        for (int i = 0; i < 4; i++)
            draw_below(d, i < 2 ? 0 : i - 1, from, SAMPLED, rng);
        break;
    case NO_DRAFT:
        break;
    }
}

// ---- texts

struct writer writer_open(const struct told *told, uint64_t seed)
{
    const struct rule *rule = told->seen_as != NULL ? told->seen_as : told->rule;
    struct writer w = { .told = told, .seed = seed };
    if (rule->options != NULL) {
        w.options = xcalloc(1, rule->options_size);
        assert_true(options_read(NULL, rule->name, rule->options, w.options, NULL));
    }
    const struct observer_setup setup = {
        .rule = rule, .rule_options = w.options, .slots = 2, .nodes = NODES, .vocab = VOCAB, .end = END, .seed = seed
    };
    w.observer = observer_create(&setup);
    return w;
}

void writer_close(struct writer *w)
{
    observer_destroy(w->observer);
    free(w->options);
}

void writer_write(struct writer *w, int64_t sequence, struct observed *to)
{
    const struct told *told = w->told;
    int32_t token[NODES], parent[NODES] = { -1 };
    uint8_t proposal[NODES] = { 0 };
    int32_t *text = xcalloc((size_t)told->tokens + NODES + 1, sizeof(*text));
    struct verification j = verification_create(NODES, VOCAB);
    struct philox honest = philox_source(w->seed, (uint64_t)sequence);
    struct sharing sharing = sharing_source(&honest.rng, FOR_DRAFT);
    struct rng *rng = told->shares_randomness ? &sharing.rng : &honest.rng;
    observer_start(w->observer, 1, sequence);
    for (int n = 1; n <= told->tokens;) {
        struct draft d = { 1, NODES, token, parent, proposal, NULL, NULL };
        struct table_rows p = { { VOCAB, table_row, NULL }, language, &d },
                          q = { { VOCAB, table_row, NULL }, drafted_right, &d };
        const struct request r = { .slot = 1, .n = n, .token = text, .rng = rng, .draft = &d, .depth = 9 };
        token[0] = text[n - 1];
        rng->root = n - 1;
        d.q = &q.rows;
        grow(&d, told->shape, told->from != NULL ? told->from : drafted_right, rng);
        told->rule->verify(&d, &p.rows, w->options, rng, &j);
        observer_verified(w->observer, &(struct verified){ &r, &p.rows, &j });
        memcpy(text + n, j.token, (size_t)j.n * sizeof(*text));
        n += j.n;
    }
    observer_take(w->observer, 1, to);
    verification_destroy(&j);
    free(text);
}

double language_write(const struct told *told, uint64_t seed, struct observed *to)
{
    struct writer w = writer_open(told, seed);
    double most = 0;
    for (int i = 0; i < told->texts; i++) {
        writer_write(&w, i, to);
        most = fmax(most, evidence_log_e(&to->of[THE_TEXT]));
    }
    writer_close(&w);
    return most;
}
