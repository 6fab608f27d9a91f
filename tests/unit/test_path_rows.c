// test_path_rows.c - rows of probabilities that depend on the text: at every node of a draft, p and q equal sampling_row of the
// logits with the whole text up to that node, draft tokens included.
//
// The contract test (tests/unit/test_drafters.c) compares two drafters with the same code, and exactness does not depend on q:
// a drafter whose penalties ignore draft tokens only drafts worse. sampling_row itself is compared with a twin (test_stage_twin.c).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/yaml.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "tests/support/model_runner.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 96, PROMPT = 14, LIMIT = 24, WIDE = 288, MAX_ROWS = 80 };

static struct {
    struct backend real;
    const struct drafter_type *drafter;
    bool proposing;
    int n; // rows of logits that the drafter downloaded for the current draft
    int width[MAX_ROWS];
    float row[MAX_ROWS][WIDE];
    float target[MAX_ROWS * WIDE]; // logits of the draft nodes
    struct pair *pair;
    struct sampling of_q; // the stages of q: those of the pair, at the temperature that the drafter has of its own
    struct runner *own;   // a second instance of the draft model; NULL: the drafter has none
    int rows_of_p, rows_of_q, distinguished, coupled;
} recorded;

static void record_download(struct backend *b, void *host, const void *from, size_t bytes)
{
    recorded.real.download(b, host, from, bytes);
    if (!recorded.proposing)
        return;
    assert_true(recorded.n < MAX_ROWS && bytes <= sizeof(recorded.row[0]));
    memcpy(recorded.row[recorded.n], host, bytes);
    recorded.width[recorded.n++] = (int)(bytes / sizeof(float));
}

static bool record_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    recorded.n = 0;
    recorded.proposing = true;
    const bool ok = recorded.drafter->propose(d, r, n, err);
    recorded.proposing = false;
    return ok;
}

static void record_scored(void *self, const struct request *r, struct tensor logits)
{
    assert_true(r->draft->n <= MAX_ROWS && logits.width == WIDE);
    recorded.real.download(recorded.pair->backend, recorded.target, logits.data, tensor_bytes(logits));
}

// The text up to and including a node.
static int path_to(const struct request *r, int node, int32_t *to)
{
    int n = r->n + draft_depth(r->draft, node);
    memcpy(to, r->token, (size_t)r->n * sizeof(*to));
    for (int at = node, i = n; at > 0; at = r->draft->parent[at])
        to[--i] = r->draft->token[at];
    return n;
}

static void row_of(const struct sampling *s, float *to, const float *logits, const int32_t *text, int n)
{
    const struct pair *p = recorded.pair;
    memcpy(to, logits, WIDE * sizeof(*to));
    sampling_row(s, to, WIDE, verifier_setup(p->verifier)->used_vocab, &(struct path){ n, text, PROMPT });
}

// The drafter's k-th row of logits over the ids of the target; a smaller vocabulary has every third id
// (tests/support/small_heads.c).
static void spread(float *to, int k)
{
    const int width = recorded.width[k];
    for (int x = 0; x < WIDE; x++)
        to[x] = -INFINITY;
    for (int i = 0; i < width; i++)
        to[(int64_t)i * WIDE / width] = recorded.row[k][i];
}

static void compare(const char *whose, const float *is, const float *expected, int node)
{
    if (memcmp(is, expected, WIDE * sizeof(*is)) != 0)
        fail_msg("%s: the row of node %d is not sampling_row of the whole path", whose, node);
}

// Compares with the draft model run over the whole path as a text.
static void compare_with_own_model(const float *logits, const int32_t *text, int n)
{
    if (recorded.own == NULL)
        return;
    kv_truncate(recorded.own->cache, 0, 0);
    const float *all = runner_pass(recorded.own, n, text, NULL, NULL);
    runner_same_bits(logits, all + (size_t)(n - 1) * WIDE, WIDE, "the draft model at a node", n);
}

static void check_q(const struct request *r, int node, const int32_t *text, int n, int k)
{
    float logits[WIDE], expected[WIDE], at_root[WIDE];
    const int child = draft_next_child(r->draft, node, node);
    assert_true(k < recorded.n);
    spread(logits, k);
    compare_with_own_model(logits, text, n);
    row_of(&recorded.of_q, expected, logits, text, n);
    row_of(&recorded.of_q, at_root, logits, text, r->n);
    recorded.distinguished += memcmp(expected, at_root, sizeof(expected)) != 0;
    if (r->draft->proposal[child] != DETERMINISTIC) {
        compare("q", r->draft->q->row(r->draft->q, node), expected, node);
        recorded.rows_of_q++;
        return;
    }
    double work[WIDE]; // coupled: the token picked from that row with the randomness of this position
    const struct address at = { FOR_TOKEN, n, 0 };
    assert_int_equal(r->draft->token[child], rng_pick_row(r->rng, expected, WIDE, at, work));
    recorded.coupled++;
}

static void record_verified(void *self, const struct verified *j)
{
    const struct request *r = j->request;
    int k = 0;
    for (int node = 0; node < r->draft->n; node++) {
        int32_t text[LENGTH + MAX_ROWS];
        float expected[WIDE];
        const int n = path_to(r, node, text);
        row_of(&recorded.pair->sampling, expected, recorded.target + (size_t)node * WIDE, text, n);
        compare("p", j->p->row(j->p, node), expected, node);
        recorded.rows_of_p++;
        if (draft_next_child(r->draft, node, node) >= 0 && recorded.n > 0)
            check_q(r, node, text, n, k++);
    }
    assert_int_equal(k, recorded.n);
}

static void done(void *self, const struct speclab_end *e)
{
    *(int *)self = e->n;
}

static struct sampling read_sampling(const char *text)
{
    struct sampling s;
    struct error err;
    struct settings *read = yaml_parse(text, strlen(text), "sampling", &err);
    assert_ok(read != NULL && sampling_read(read, &s, &err), err);
    settings_free(read);
    return s;
}

// form: of a sampling, without its temperature.
static void decode(const char *drafter, const char *form, double temperature, const char *rule)
{
    const char *own = strstr(drafter, "temperature=");
    char *sampling = xformat(form, temperature),
         *of_q = xformat(form, own != NULL ? strtod(own + strlen("temperature="), NULL) : temperature);
    struct error err;
    int32_t prompt[PROMPT];
    int tokens = 0;
    struct pair *p = pair_open(pair_target, pair_draft, drafter, sampling, rule_named(rule), 1, LENGTH);
    struct runner own_model;
    const bool has_own = strcmp(p->type->name, "small") == 0;
    if (has_own)
        own_model = runner_open(pair_draft, 1, NULL, 1);
    recorded.own = has_own ? &own_model : NULL;
    recorded.pair = p;
    recorded.of_q = read_sampling(of_q);
    recorded.real = *p->backend;
    p->backend->download = record_download;
    recorded.drafter = p->drafter->type;
    struct drafter_type type = *p->drafter->type;
    type.propose = record_propose;
    p->drafter->type = &type;
    struct verifier_setup with = *verifier_setup(p->verifier);
    with.observer = (struct step_observer){ record_scored, record_verified, NULL };
    struct verifier *v = verifier_create(&with, &err);
    struct speclab_decoder *d =
        decoder_create(v, p->drafter, 1, 9, (struct speclab_listener){ .end = done, .self = &tokens }, &err);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i * i % 5 + 40;
    assert_true(
        decoder_start(d, &(struct speclab_request){ .sequence = 3, .prompt = prompt, .n = PROMPT, .max_tokens = LIMIT },
                      NULL, NULL, &err));
    while (speclab_decoder_active(d) > 0)
        assert_true(speclab_decoder_step(d, &err));
    assert_int_equal(tokens, LIMIT);
    speclab_decoder_destroy(d);
    verifier_destroy(v);
    pair_close(p);
    if (has_own)
        runner_close(&own_model);
    sampling_free(&recorded.of_q);
    free(sampling);
    free(of_q);
}

TEST(penalties_include_draft_tokens)
{
    static const char *const samplings[] = {
        "{repetition_penalty: 1.9, temperature: %g}",
        "{frequency_penalty: 1.3, presence_penalty: -0.5, temperature: %g, top_p: 0.9}",
        "{repetition_penalty: 0.5, logit_bias: {9: 2.5}, temperature: %g, top_k: 20}",
    };
    static const double temperatures[] = { 0.9, 1.2, 1.3 };
    for (int i = 0; i < pair_count(); i++) {
        const char *drafter = pair_drafter(i);
        const unsigned made = pair_makes(drafter);
        if (strstr(drafter, "vocabulary=") != NULL) // this test runs the draft model on the target's ids
            continue;
        // Those whose q test_layer_drafts.c compares; a union, whose nodes have other numbers (test_union.c).
        if (pair_uses_target(drafter) || strncmp(drafter, "union", 5) == 0)
            continue;
        const bool coupled = (made & SHARES_RANDOMNESS) != 0,
                   sampled = (made & (TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT)) != 0;
        recorded.rows_of_p = recorded.rows_of_q = recorded.distinguished = recorded.coupled = 0;
        for (int k = 0; k < 3; k++)
            decode(drafter, samplings[k], temperatures[k], coupled ? "match" : "rejection");
        assert_true(recorded.rows_of_p > LIMIT / 4);
        if (pair_is_of_drafters(drafter)) // a part that samples may hardly ever be reached
            continue;
        assert_true((recorded.rows_of_q > 10) == sampled);
        assert_true((recorded.coupled > 10) == coupled);
        // A draft with a single level has no row after a draft token.
        assert_true((recorded.distinguished > 4) == ((sampled || coupled) && strstr(drafter, "tokens=1") == NULL));
    }
}

int main(int argc, char **argv)
{
    pair_only(argv + 1, argc - 1);
    return tests_run(pair_models_make_foreign, pair_models_remove);
}
