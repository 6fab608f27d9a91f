// test_device_step.c - steps with drafts, rows and decisions on a device equal steps decided by the host on the same device: every draft,
// trial and token, for every drafter and rule, in batches whose sequences end at different times.
//
//     test_device_step [N]     every rule with every drafter, and texts of N tokens: 10^5 steps and more, for a GPU
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/splitmix.h"
#include "kernels/backend.h"
#include "tests/support/tests.h"
#include "tests/device/gpus.h"
#include "tests/support/pairings.h"
#include "tests/support/decode_prompts.h"
#include "verifier/rules/rule.h"

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus, limit = 4;
static bool all;

static const struct gpu_here *current;

// The same device without its device step.
static struct backend *open_without_step(struct error *err)
{
    struct backend *b = current->open(err);
    b->step = NULL;
    return b;
}

static const struct prompt_set *prompts(int n)
{
    static struct prompt_set p;
    static const int length[] = { 6, 1, 9, 3, 20, 2, 11, 7 };
    p.n = n;
    uint64_t state = 3;
    for (int i = 0; i < n; i++) {
        p.length[i] = length[i % 8];
        for (int k = 0; k < p.length[i]; k++)
            p.token[i][k] = (int32_t)(splitmix(&state) % 250);
    }
    return &p;
}

static int steps;

static void check(const char *drafter, const struct rule *rule, const char *sampling, int sequences, int slots)
{
    const struct decode_setup on_device = { .target = pair_target,
                                            .draft = pair_draft,
                                            .prompts = prompts(sequences),
                                            .drafter = drafter,
                                            .sampling = sampling,
                                            .rule = rule->name,
                                            .slots = slots,
                                            .limit = limit,
                                            .length = 512,
                                            .device = current->open };
    struct decode_setup on_host = on_device;
    on_host.device = open_without_step;
    struct decode_result *a = decode_prompts(&on_host), *b = decode_prompts(&on_device);
    assert_same_texts(a, b, &on_device);
    for (int i = 0; i < on_device.prompts->n; i++)
        if (a->step_hash[i] != b->step_hash[i])
            fail_msg("%s: %s, %s, %s: the steps of prompt %d differ from the host's", current->name, drafter,
                     rule->name, sampling, i);
    assert_true(b->steps == a->steps && b->drafted == a->drafted);
    steps += b->steps;
    free(a);
    free(b);
}

// Rules that take such drafts, including those without a body on the device.
static int rules_for(const char *drafter, const struct rule **to)
{
    int n = 0;
    for (int k = 0; rules[k] != NULL; k++)
        if (pair_fits(drafter, rules[k]))
            to[n++] = rules[k];
    return n;
}

TEST(steps_equal_the_hosts)
{
    static const char *const samplings[] = { "{temperature: 1}", "{temperature: 0.8, top_p: 0.9}", "{temperature: 1}",
                                             "{temperature: 1, frequency_penalty: 0.7, presence_penalty: 0.4}",
                                             "{temperature: 0}" };
    int number = 0;
    for (int g = 0; g < gpus; g++) {
        current = &gpu[g];
        steps = 0;
        for (int i = 0; i < pair_count(); i++, number++) {
            const struct rule *fit[16];
            const int n = pair_remembers(pair_drafter(i)) < DRAFTS_OF_OTHERS ? rules_for(pair_drafter(i), fit)
                                                                             : 0; // clocks differ
            for (int k = 0; k < n; k++)
                if (all || k == number % n)
                    check(pair_drafter(i), fit[k], samplings[number % 5], all ? 8 : 4, all ? 5 : 2);
        }
        print_message("    %s: %d steps of sequences, each draft, trial and token as on the host\n", current->name,
                      steps);
    }
}

// Thousands of rows a pass.
TEST(many_sequences_with_large_trees_too)
{
    const int was = limit;
    limit = all ? limit : 2;
    for (int g = 0; g < gpus; g++) {
        current = &gpu[g];
        for (int i = 0; i < pair_count(); i++)
            if (strstr(pair_drafter(i), "eagle:") != NULL && strstr(pair_drafter(i), "nodes=59") != NULL)
                check(pair_drafter(i), rule_named("traversal"), "{temperature: 1}", DECODED_PROMPTS, 140);
    }
    limit = was;
}

int main(int argc, char **argv)
{
    gpus = gpus_of_bits(gpu, argc, argv, &limit, NULL);
    if (gpus == 0)
        return 77;
    all = argc > 1;
    return tests_run_each(pair_models_make_bf16, pair_models_remove);
}
