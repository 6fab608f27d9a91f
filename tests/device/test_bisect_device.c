// test_bisect_device.c - the output distribution of a device's rules, as black boxes: uniforms in, tokens out (tests/support/bisect.h).
//
//     test_bisect_device [N]     N instances for each rule on each device, instead of a few
#include <stdlib.h>
#include <string.h>

#include "kernels/device_step/device_step.h"
#include "kernels/device_step/verification.h"
#include "tests/support/bisect.h"
#include "kernels/backend.h"
#include "tests/support/tests.h"
#include "tests/device/gpus.h"
#include "verifier/rules/rejection.h"
#include "verifier/rules/rule.h"

#define ROUNDING 1e-14

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus, instances = 2;

struct device_box {
    struct black_box box; // first
    struct backend *b;
    const struct rule_body *body;
    double parameter[RULE_PARAMETERS];
    struct tensor p, q; // (LAW_NODES, vocab) each
};

static void upload_rows(const struct device_box *b, struct tensor to, struct rows *rows, int n)
{
    for (int node = 0; rows != NULL && node < n; node++)
        b->b->upload(b->b, tensor_rows(to, node, 1).data, rows->row(rows, node), (size_t)rows->vocab * sizeof(float));
}

static void verify_on_device(struct black_box *self, const struct draft *d, struct rows *p, const double *u,
                             struct verification *out)
{
    struct device_box *b = (struct device_box *)self;
    double uniforms[3 * LAW_NODES + BISECT_UNIFORMS] = { 0 };
    memcpy(uniforms, u, (size_t)bisect_uniforms(d, p->vocab, self->races) * sizeof(*uniforms));
    b->p.rows = b->q.rows = d->n;
    b->p.width = b->q.width = p->vocab;
    upload_rows(b, b->p, p, d->n);
    bool draws = false;
    for (int node = 1; node < d->n; node++)
        if (d->proposal[node] != DETERMINISTIC) {
            const int parent = d->parent[node];
            b->b->upload(b->b, tensor_rows(b->q, parent, 1).data, d->q->row(d->q, parent),
                         (size_t)p->vocab * sizeof(float));
            draws = true;
        }
    const struct verify_request j = { .body = b->body,
                                      .parameter = { b->parameter[0], b->parameter[1] },
                                      .n = d->n,
                                      .token = d->token,
                                      .parent = d->parent,
                                      .proposal = d->proposal,
                                      .p = b->p,
                                      .q = draws ? b->q : (struct tensor){ 0 },
                                      .root = BISECT_ROOT,
                                      .uniforms = uniforms };
    struct verify_result to = {
        .token = out->token, .node = out->node, .trial_p = out->trial_p, .trial_q = out->trial_q
    };
    b->b->step->verify(b->b, &j, 1);
    b->b->step->verify_wait(b->b, &j, &to, 1);
    out->n = to.n;
}

struct figure { // the shape of an instance
    int levels, widths[2], vocab;
};
static const struct figure chains[] = { { 1, { 1 }, 3 }, { 2, { 1, 1 }, 2 } };
static const struct figure trees[] = { { 1, { 2 }, 3 }, { 2, { 2, 1 }, 2 } };

static struct bisected sweep(struct device_box *box, const struct figure *f)
{
    struct bisected worst = { .instances = 0 };
    for (int i = 0; i < instances; i++) {
        const struct figure *g = &f[i % 2];
        struct instance in =
            instance_create(g->widths, g->levels, g->vocab, (enum proposal_mix)(i / 2 % PROPOSAL_MIXES),
                            (enum family)(i % (FAMILIES + 1)), (uint64_t)i * 331 + 3);
        struct bisected one = bisect_examine(&in, &box->box);
        bisect_merge_worst(&worst, &one);
        instance_free(&in);
    }
    return worst;
}

static struct bisected examine(struct backend *b, const char *rule, double lenience, const struct figure *f)
{
    struct device_box box = { .box = { .races = strcmp(rule, "match") == 0, .verify = verify_on_device, .n_reads = -1 },
                              .b = b,
                              .body = b->step->rule_body(b, rule_named(rule)->device_body),
                              .p = rows_on(b, LAW_NODES, LAW_VOCAB),
                              .q = rows_on(b, LAW_NODES, LAW_VOCAB) };
    if (rule_named(rule)->device_parameters != NULL)
        rule_named(rule)->device_parameters(&(struct acceptance_test){ lenience, 0 }, box.parameter);
    const struct bisected found = sweep(&box, f);
    print_message("    %s, lenience %g: %d drafts, %d runs: distance %.1e, lost %.1e\n", rule, lenience,
                  (int)found.drafts, (int)found.runs, found.distance, found.lost);
    b->release(b, box.p.data);
    b->release(b, box.q.data);
    return found;
}

TEST(rules_on_a_device_are_lossless)
{
    static const char *const names[] = { "rejection", "block", "match" };
    for (int g = 0; g < gpus; g++) {
        struct backend *b = gpu_open(&gpu[g]);
        for (size_t r = 0; r < sizeof(names) / sizeof(*names); r++)
            for (int tree = 0; tree < 2; tree++) {
                const char *rule = tree == 1 && strcmp(names[r], "block") == 0 ? "traversal" : names[r];
                const struct bisected found = examine(b, rule, 1, tree == 1 ? trees : chains);
                assert_true(found.sound && found.impossible == 0 && found.max_cuts <= 1);
                assert_true(found.distance <= ROUNDING && found.lost <= ROUNDING && found.ratio_spread <= ROUNDING);
                assert_int_equal(found.contradictions, 0);
            }
        const struct bisected bent = examine(b, "lenient", 1.1, chains);
        assert_true(bent.sound && bent.distance > 1e-3); // a lossy rule is detected
        gpu_close(b);
    }
}

int main(int argc, char **argv)
{
    gpus = gpus_of_bits(gpu, argc, argv, &instances, NULL);
    if (gpus == 0)
        return 77;
    return tests_run(NULL, NULL);
}
