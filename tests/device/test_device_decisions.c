// test_device_decisions.c - steps in which the device decides some of the drafts and the host the others: each draft is decided as on the
// same device without its device step, where the host decides all.
#include <string.h>

#include "core/digest.h"
#include "core/error.h"
#include "kernels/device_step/device_step.h"
#include "kernels/backend.h"
#include "sampling/rng.h"
#include "tests/device/gpus.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { SLOTS = 5, LENGTH = 16, NODES = 4, TIMES = 2 };

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus;
static const struct gpu_here *current;

static struct device_step step;
static void (*real_probabilities)(struct backend *b, struct tensor logits, int used_vocab, const struct row_stages *s,
                                  struct part_sum *sums);
static int made; // calls that make rows of probabilities

static void probabilities(struct backend *b, struct tensor logits, int used_vocab, const struct row_stages *s,
                          struct part_sum *sums)
{
    made++;
    real_probabilities(b, logits, used_vocab, s, sums);
}

static struct backend *open_with_step(struct error *err)
{
    struct backend *b = current->open(err);
    step = *b->step;
    real_probabilities = step.probabilities;
    step.probabilities = probabilities;
    b->step = &step;
    return b;
}

static struct backend *open_without_step(struct error *err)
{
    struct backend *b = current->open(err);
    b->step = NULL;
    return b;
}

// A row of q on the host: even tokens only, all alike.
static const float *even_row(struct rows *self, int node)
{
    static float row[1024];
    for (int x = 0; x < self->vocab; x++)
        row[x] = x % 2 == 0 ? 2 / (float)self->vocab : 0;
    return row;
}

// A source of random numbers that is not Philox, with Philox's results: the host decides by it.
struct other_source {
    struct rng rng; // first
    struct philox philox;
};

static bool other_accept(struct rng *self, double num, double den, struct address at)
{
    struct philox *p = &((struct other_source *)self)->philox;
    return p->rng.accept(&p->rng, num, den, at);
}

static int other_pick(struct rng *self, const double *weight, int n, struct address at)
{
    struct philox *p = &((struct other_source *)self)->philox;
    return p->rng.pick(&p->rng, weight, n, at);
}

enum who {
    FOUND,
    DRAWN,
    OTHER_SOURCE
}; // tokens in any way; tokens drawn from a row that the host has; numbers of another source

struct slot_here {
    int32_t token[NODES], parent[NODES];
    uint8_t proposal[NODES];
    struct draft draft;
    struct philox philox;
    struct other_source other;
};

struct decided { // a copy of the decision
    int n, empty;
    int32_t token[NODES], node[NODES];
    double trial_p[NODES], trial_q[NODES];
    struct hash rows; // that an observer sees
};

static struct hash observed[SLOTS];

static void observe(void *self, const struct verified *j)
{
    struct digest *d = digest_begin();
    for (int node = 0; node < j->request->draft->n; node++)
        digest_bytes(d, j->p->row(j->p, node), (size_t)j->p->vocab * sizeof(float));
    observed[j->request->slot] = digest_end(d);
}

// Verifies a draft in each slot, in one pass; a text is its root alone. likely: (slots) the first draft tokens; NULL: any.
static void decide(struct verifier *v, const enum who *who, const int32_t *likely, int time, struct decided to[SLOTS])
{
    static struct slot_here s[SLOTS];
    struct rows q = { small_default.vocab, even_row };
    struct request r[SLOTS];
    struct advance a[SLOTS];
    struct error err;
    for (int i = 0; i < SLOTS; i++) {
        s[i].philox = philox_source((uint64_t)(40 + time), (uint64_t)(900 + 7 * i));
        s[i].philox.rng.root = 0;
        s[i].other = (struct other_source){ { other_accept, other_pick, 0, NULL }, s[i].philox };
        s[i].draft = (struct draft){ .n = 1,
                                     .capacity = NODES,
                                     .token = s[i].token,
                                     .parent = s[i].parent,
                                     .proposal = s[i].proposal,
                                     .q = who[i] == DRAWN ? &q : NULL };
        s[i].token[0] = i * 11 + time, s[i].parent[0] = -1, s[i].proposal[0] = DETERMINISTIC;
        for (int k = 1; k < NODES; k++) // two siblings, and a token below the first
            draft_add(&s[i].draft, k < 3 ? 0 : 1,
                      k == 1 && likely != NULL ? likely[i]
                                               : 2 * ((k * 17 + i * 5 + time * 3) % (small_default.vocab / 2)),
                      who[i] == DRAWN ? SAMPLED : DETERMINISTIC);
        r[i] = (struct request){ .slot = i,
                                 .n = 1,
                                 .token = s[i].token,
                                 .rng = who[i] == OTHER_SOURCE ? &s[i].other.rng : &s[i].philox.rng,
                                 .draft = &s[i].draft };
    }
    assert_ok(verifier_score(v, r, SLOTS, &err) && verifier_accept(v, r, SLOTS, a, &err), err);
    for (int i = 0; i < SLOTS; i++) {
        const struct verification *j = verifier_verification(v, i);
        to[i] = (struct decided){ .n = j->n, .empty = j->empty, .rows = observed[i] };
        memcpy(to[i].token, j->token, (size_t)j->n * sizeof(*j->token));
        memcpy(to[i].node, j->node, (size_t)j->n * sizeof(*j->node));
        memcpy(to[i].trial_p, j->trial_p, sizeof(to[i].trial_p));
        memcpy(to[i].trial_q, j->trial_q, sizeof(to[i].trial_q));
        assert_memory_equal(a[i].token, to[i].token, (size_t)j->n * sizeof(*j->token));
        verifier_forget(v, i);
    }
}

static struct decided on_device[TIMES][SLOTS], on_host[TIMES][SLOTS];

static void compare(const char *rule, const char *sampling, const enum who *who, const int32_t *likely)
{
    for (int host = 0; host < 2; host++) {
        struct error err;
        struct pair *p = pair_open_on(host ? open_without_step : open_with_step, NULL, pair_target, pair_draft,
                                      "ngram:tokens=3", sampling, rule_named(rule), SLOTS, LENGTH);
        struct verifier_setup s = *verifier_setup(p->verifier);
        s.nodes = NODES;
        s.observer = (struct step_observer){ .verified = observe };
        struct verifier *v = verifier_create(&s, &err);
        assert_ok(v != NULL, err);
        memset(host ? on_host : on_device, 0, sizeof(on_host));
        for (int time = 0; time < TIMES; time++)
            decide(v, who, likely, time, host ? on_host[time] : on_device[time]);
        verifier_destroy(v);
        pair_close(p);
    }
    for (int time = 0; time < TIMES; time++)
        for (int i = 0; i < SLOTS; i++)
            if (memcmp(&on_device[time][i], &on_host[time][i], sizeof(struct decided)) != 0)
                fail_msg("%s, %s, %s: time %d, slot %d is decided otherwise on the device", current->name, rule,
                         sampling, time, i);
}

TEST(each_draft_is_decided_as_on_the_host)
{
    static const enum who some[SLOTS] = { DRAWN, FOUND, OTHER_SOURCE, DRAWN, FOUND };
    static const enum who none[SLOTS] = { OTHER_SOURCE, DRAWN, DRAWN, OTHER_SOURCE, DRAWN };
    for (int g = 0; g < gpus; g++) {
        current = &gpu[g];
        compare("rejection", "{temperature: 1}", some, NULL);
        assert_true(made > 0);
        compare("rejection", "{temperature: 0}", some, NULL);
        compare("rejection", "{temperature: 1}", none, NULL);
        compare("match", "{temperature: 1}", some, NULL);
        compare("traversal", "{temperature: 1, repetition_penalty: 1.5}", some, NULL);
    }
}

// At temperature 0 a row has one token. Only a rule that ignores the row rejects it, and then no token is left.
TEST(a_residual_without_tokens_is_counted)
{
    static const enum who found[SLOTS] = { FOUND };
    for (int g = 0; g < gpus; g++) {
        int32_t likely[SLOTS];
        int empty = 0;
        current = &gpu[g];
        made = 0;
        compare("match", "{temperature: 0}", found, NULL);
        assert_int_equal(made,
                         TIMES * SLOTS * NODES); // none by decisions, to which tokens are enough; each by the observer
        for (int i = 0; i < SLOTS; i++)
            likely[i] = on_host[0][i].token[0];
        compare("synthetic", "{temperature: 0}", found, likely);
        for (int i = 0; i < SLOTS; i++)
            empty += on_host[0][i].empty;
        assert_true(empty > 0);
    }
}

int main(int argc, char **argv)
{
    gpus = gpus_of_bits(gpu, 1, argv, NULL, NULL);
    if (gpus == 0)
        return 77;
    return tests_run(pair_models_make, pair_models_remove);
}
