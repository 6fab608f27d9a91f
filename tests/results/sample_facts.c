#include "tests/results/sample_facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static int below(uint64_t *state, int n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)n);
}

#define LOOKUP_OPTIONS "{\"longest\": \"3\", \"tokens\": \"8\"}"
#define TREE_OPTIONS "{\"model\": \"smollm2-135m-instruct\", \"widths\": \"[3, 2, 1]\"}"

static const struct {
    const char *cell, *drafter, *kind, *options, *rule;
} runs[SAMPLE_RUNS] = {
    [NONE] = { "c0", "none", "none", NULL, "rejection" },
    [LOOKUP] = { "c1", "ngram(longest=3, tokens=8)", "ngram", LOOKUP_OPTIONS, "rejection" },
    [TREE] = { "c2", "small(model=smollm2-135m-instruct, widths=[3, 2, 1])", "small", TREE_OPTIONS, "rejection" },
    [LOSSY] = { "c3", "ngram(longest=3, tokens=8)", "ngram", LOOKUP_OPTIONS, "typical(epsilon=0.3)" },
    [PAIR_NONE] = { "c4", "none", "none", NULL, "rejection" },
    [PAIR_LOOKUP] = { "c5", "ngram", "ngram", NULL, "rejection" },
};

static struct run_row run_row_of(int run)
{
    const bool alone = run < PAIR_NONE;
    return (struct run_row){ .cell = runs[run].cell,
                             .drafter = runs[run].drafter,
                             .drafter_kind = runs[run].kind,
                             .drafter_options = runs[run].options,
                             .drafter_hash = run == TREE ? "abcd" : NULL,
                             .rule = runs[run].rule,
                             .lossless = run != LOSSY,
                             .batch = alone ? 1 : 2,
                             .experiment = "synthetic",
                             .peers = alone ? "alone" : "in twos",
                             .settings =
                                 "{\"name\": \"synthetic\", \"limits\": {\"new_tokens\": 40, \"context\": 512}}",
                             .target = "smollm2-135m-instruct",
                             .target_hash = "0123",
                             .sampling = "temperature=0",
                             .device = "cpu",
                             .machine = "AMD EPYC, avx2, 2 threads",
                             .revision = "0.1.0-abc",
                             .prompts = "prompts.jsonl 0123456789abcdef",
                             .model_type = "q4_1",
                             .activations = "f32",
                             .cache = "f32",
                             .seed = 7 };
}

// One step: a random draft, partly accepted, with a trial of the first token. *left: tokens that the text still needs.
static void make_step(struct sample_sequence *q, int n, int *left, uint64_t *state)
{
    const bool tree = q->run == TREE, none = q->run == NONE || q->run == PAIR_NONE, alone = q->run < PAIR_NONE;
    const int depth = none ? 0 : tree ? 1 + below(state, 3) : below(state, 6), accepted = below(state, depth + 1);
    q->trial[n] = (struct trial_row){
        .node = 1, .depth = 1, .token = below(state, 100), .p = 0.5, .q = tree ? 0.75 : NAN, .accepted = accepted > 0
    };
    q->step[n] = (struct step_row){ .depth = depth,
                                    .drafted = tree ? depth + below(state, 4) : depth,
                                    .accepted_uncut = n % 2 == 0 ? accepted : -1, // -1: computed from the trials
                                    .accepted = accepted < *left ? accepted : *left,
                                    .expected = tree ? depth * 0.5 : NAN,
                                    .variance = tree ? 0.5 : NAN,
                                    .trial = &q->trial[n],
                                    .n_trials = depth > 0,
                                    .propose_ns = none ? 10 : 1000 + below(state, 1000),
                                    .verify_ns = 100000 + below(state, 20000) + 500 * depth,
                                    .advance_ns = 50 + below(state, 50),
                                    .batch = alone ? 1 : 2,
                                    .round = alone ? 0 : n / 6 };
    *left -= accepted < *left ? accepted + 1 : *left;
}

static void make_sequence(struct sample_sequence *q, uint64_t *state)
{
    struct sequence_row *r = &q->row;
    // The text depends on prompt, turn and repeat only; some of LOSSY's differ, TREE's first one ends early.
    uint64_t text_state = (uint64_t)(r->prompt * 100 + r->turn * 10 + r->repeat);
    r->new_tokens = 20 + below(&text_state, 20);
    for (int i = 0; i < r->new_tokens; i++)
        q->token[i] = below(&text_state, 49152);
    if (q->run == LOSSY && (r->prompt + r->turn) % 2 == 1)
        q->token[7 + r->prompt] += 1;
    if (q->run == TREE && r->prompt == 0 && r->turn == 0 && r->repeat == 0)
        r->new_tokens -= 5;

    int left = r->new_tokens;
    for (; left > 0; r->n_steps++) {
        make_step(q, r->n_steps, &left, state);
        const struct step_row *t = &q->step[r->n_steps];
        r->decode_ns += (t->propose_ns + t->verify_ns + t->advance_ns) / t->batch + 40;
    }
    r->wall_ns = r->decode_ns * q->step[0].batch + 1000;
    r->prefill_ns = 50000 + below(state, 1000);
    r->prompt_tokens = 30;
    r->stop = "limit";
    r->step = q->step;
    r->token = q->token;
    r->text = r->turn == 0 ? "an answer, \"quoted\"\nand a caf\xC3\xA9" : "half of a character \xC3";
    snprintf(q->prompt_id, sizeof(q->prompt_id), r->prompt % 2 == 0 ? "%lld" : "HumanEval/%lld",
             (long long)r->prompt + 81);
    r->prompt_id = q->prompt_id;
    r->category = r->prompt % 3 == 0 ? "math" : "writing, long";
}

struct sample_facts *sample_facts_create(uint64_t seed, int prompts, int turns, int repeats)
{
    struct sample_facts *m = xcalloc(1, sizeof(*m));
    uint64_t state = seed;
    for (int i = 0; i < SAMPLE_RUNS; i++)
        m->run[i] = run_row_of(i);
    m->sequence = xcalloc((size_t)(prompts * turns * repeats * (SAMPLE_RUNS + 1)), sizeof(*m->sequence));
    int64_t pair = 0;
    for (int prompt = 0; prompt < prompts; prompt++)
        for (int repeat = 0; repeat < repeats; repeat++, pair += 2)
            for (int run = 0; run < SAMPLE_RUNS; run++)
                for (int turn = 0; turn < turns; turn++)
                    for (int again = 0; again < (run == NONE && prompt == 1 ? 2 : 1); again++) {
                        struct sample_sequence *q = &m->sequence[m->n++];
                        q->run = run;
                        q->row = (struct sequence_row){ .prompt = prompt, .turn = turn, .repeat = repeat };
                        // LOSSY's first prompt is alone in its pair; NONE's second one was run twice.
                        q->row.pair = pair + ((run == LOSSY && prompt == 0) || again == 1);
                        make_sequence(q, &state);
                    }
    return m;
}

void sample_facts_free(struct sample_facts *m)
{
    if (m != NULL)
        free(m->sequence);
    free(m);
}

bool sample_facts_store(struct sample_facts *m, struct store *s, struct error *err)
{
    int64_t first = 0, pair = -1;
    for (int i = 0; i < SAMPLE_RUNS; i++)
        if (!store_run(s, &m->run[i], &m->id[i], err))
            return false;
    for (int i = 0; i < m->n; i++) {
        struct sequence_row row = m->sequence[i].row;
        for (; pair < row.pair; pair++) {
            int64_t id;
            if (!store_new_pair(s, "synthetic", &id, err))
                return false;
            if (pair < 0)
                first = id;
        }
        row.pair += first;
        if (!store_sequence(s, m->id[m->sequence[i].run], &row, err))
            return false;
    }
    static const char slices_sql[] =
        "INSERT INTO slice (pair, run, round, ns, foreign_load, disturbed)"
        " SELECT DISTINCT q.pair, q.run, t.round, 1000000, 0.01, 0 FROM step AS t JOIN sequence AS q ON q.id = t.sequence";
    if (!query_perform(query_open(s, slices_sql), err))
        return false;
    for (int i = 0; i < SAMPLE_RUNS; i++)
        if (i != LOSSY && !store_shard_finished(s, m->id[i], &(struct shard_row){ 0 }, true, err))
            return false;
    return true;
}

const char *sample_store_path(void)
{
    static char path[200];
    snprintf(path, sizeof(path), "%s/results.db", test_directory());
    return path;
}

struct store *sample_store(struct sample_facts *m)
{
    struct error err;
    struct store *s = store_open(sample_store_path(), &err);
    if (s == NULL || (m != NULL && !sample_facts_store(m, s, &err)))
        fail_msg("%s", err.text);
    return s;
}

struct store *sample_store_small(void)
{
    struct sample_facts *m = sample_facts_create(5, 2, 1, 1);
    struct store *s = sample_store(m);
    sample_facts_free(m);
    return s;
}

char *sample_report(struct store *s, struct report_options o)
{
    struct error err;
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    assert_ok(report_write(s, &o, out, &err), err);
    fclose(out);
    return text;
}

double sample_facts_query(struct store *s, const char *sql)
{
    struct error err;
    struct query *q = query_open(s, sql);
    double x = query_next(q) ? query_real(q, 0) : NAN;
    while (query_next(q))
        ;
    if (!query_close(q, &err))
        fail_msg("%s: %s", sql, err.text);
    return x;
}

void sample_facts_hold(struct store *s, const char *sql)
{
    if (sample_facts_query(s, sql) != 1)
        fail_msg("expected 1: %s", sql);
}

void sample_facts_put_cases(struct store *s)
{
    char *path = xformat("%s/views_facts.sql", CASES), *line = NULL;
    size_t capacity = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    sample_facts_query(s, "PRAGMA synchronous = OFF"); // faster; nothing here needs durability
    sample_facts_query(s, "BEGIN");
    while (getline(&line, &capacity, f) > 0)
        sample_facts_query(s, line);
    sample_facts_query(s, "COMMIT");
    (void)fclose(f);
    free(line);
    free(path);
}

int cases_open(void **state)
{
    struct cases *c = xcalloc(1, sizeof(*c));
    c->s = sample_store(NULL);
    sample_facts_put_cases(c->s);
    c->golden = golden_json("views.json");
    *state = c;
    return 0;
}

int cases_close(void **state)
{
    struct cases *c = *state;
    store_close(c->s);
    json_free(c->golden);
    free(c);
    test_directory_remove();
    return 0;
}
