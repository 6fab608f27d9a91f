// test_device_step.c - steps whose drafts, rows and decisions are a device's beside the same steps with the host deciding, on the same
// device: every draft, every trial and every token must be the same, for every drafter and rule, in batches whose sequences end
// at different times.
//
//     test_device_step [N]     every rule with every drafter, and texts of N tokens: 10^5 steps and more, for a GPU
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/splitmix.h"
#include "kernels/backend.h"
#include "tests/support/check.h"
#include "tests/device/gpus.h"
#include "tests/support/pairings.h"
#include "tests/support/decoded_texts.h"
#include "verifier/rules/rule.h"

static struct gpu_here gpu[MAX_GPUS_HERE];
static int gpus, limit = 4;
static bool all;

static const struct gpu_here *at_hand;

// The same device, with nothing decided on it.
static struct backend *open_undecided(struct error *err)
{
    struct backend *b = at_hand->open(err);
    b->drafts_create = NULL;
    b->verify = NULL;
    b->probabilities = NULL;
    return b;
}

static const struct prompts_given *prompts(int n)
{
    static struct prompts_given p;
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
    const struct decoded_texts_setup there = { .target = pair_target,
                                               .draft = pair_draft,
                                               .prompts = prompts(sequences),
                                               .drafter = drafter,
                                               .sampling = sampling,
                                               .rule = rule->name,
                                               .slots = slots,
                                               .limit = limit,
                                               .length = 512,
                                               .device = at_hand->open };
    struct decoded_texts_setup here = there;
    here.device = open_undecided;
    struct decoded_texts *a = say(&here), *b = say(&there);
    same_text(a, b, &there);
    for (int i = 0; i < there.prompts->n; i++)
        if (a->what_happened[i] != b->what_happened[i])
            fail_msg("%s: %s, %s, %s: the steps of prompt %d are not the host's", at_hand->name, drafter, rule->name,
                     sampling, i);
    assert_true(b->steps == a->steps && b->drafted == a->drafted);
    steps += b->steps;
    free(a);
    free(b);
}

// Rules that take such drafts, those included that the device does not have.
static int rules_for(const char *drafter, const struct rule **to)
{
    int n = 0;
    for (int k = 0; rules[k] != NULL; k++)
        if (pair_fits(drafter, rules[k]))
            to[n++] = rules[k];
    return n;
}

static void steps_are_the_hosts(void **unused)
{
    (void)unused;
    static const char *const samplings[] = { "{temperature: 1}", "{temperature: 0.8, top_p: 0.9}", "{temperature: 1}",
                                             "{temperature: 1, repetition_penalty: 1.2}", "{temperature: 0}" };
    int number = 0;
    for (int g = 0; g < gpus; g++) {
        at_hand = &gpu[g];
        steps = 0;
        for (int i = 0; i < pair_count(); i++, number++) {
            const struct rule *fit[16];
            const int n = rules_for(pair_drafter(i), fit);
            for (int k = 0; k < n; k++)
                if (all || k == number % n)
                    check(pair_drafter(i), fit[k], samplings[number % 5], all ? 8 : 4, all ? 5 : 2);
        }
        print_message("    %s: %d steps of sequences, of each draft, trial and token the host's\n", at_hand->name,
                      steps);
    }
}

// Thousands of rows a pass.
static void many_sequences_with_large_trees_too(void **unused)
{
    (void)unused;
    const int was = limit;
    limit = all ? limit : 2;
    for (int g = 0; g < gpus; g++) {
        at_hand = &gpu[g];
        for (int i = 0; i < pair_count(); i++)
            if (strstr(pair_drafter(i), "eagle:") != NULL && strstr(pair_drafter(i), "nodes=59") != NULL)
                check(pair_drafter(i), rule_named("traversal"), "{temperature: 1}", DECODED_PROMPTS, 140);
    }
    limit = was;
}

int main(int argc, char **argv)
{
    gpus = gpus_of_bits(gpu, argc > 1);
    if (gpus == 0)
        return 77;
    if (argc > 1) {
        all = true;
        limit = atoi(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps_are_the_hosts, pair_models_make_bf16, pair_models_remove),
        cmocka_unit_test_setup_teardown(many_sequences_with_large_trees_too, pair_models_make_bf16, pair_models_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
