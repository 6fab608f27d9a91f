// mutants.c - the table of mutants, and the measurement that detects them.
//
// The numbers of each entry are reference figures, measured by others over random instances from another generator: the
// share of instances in which the mutant shows, its mean total variation and its largest. Our figures are printed by
// tests/exact/test_mutants.c and listed in docs/notes/mutants.md.
#include "tests/exact/mutants.h"

#include <math.h>
#include <stddef.h>
#include "verifier/exact/law.h"

extern const struct rule rejection_rule, block_rule, traversal_rule, spectr_rule, multipath_rule;

const struct rule *const mutant_rules[] = { &rejection_mutant, &accept_mutant,    &block_mutant, &traversal_mutant,
                                            &spectr_mutant,    &multipath_mutant, NULL };

enum { MANY = 240, FEWER = 200, ANY = -1 };

static const struct instance_kind one = { 1, { 1 }, ALL_SAMPLED, ANY, 3, 4, false, MANY };
static const struct instance_kind chain = { 2, { 1, 1 }, ALL_SAMPLED, ANY, 3, 4, false, MANY };
static const struct instance_kind longer = { 3, { 1, 1, 1 }, ALL_SAMPLED, ANY, 3, 3, false, MANY };
static const struct instance_kind two = { 1, { 2 }, ALL_SAMPLED, ANY, 3, 4, false, MANY };
static const struct instance_kind three = { 1, { 3 }, ALL_SAMPLED, ANY, 3, 4, false, MANY };
static const struct instance_kind two_distinct = { 1, { 2 }, ALL_DISTINCT, ANY, 3, 4, false, MANY };
static const struct instance_kind top_two = { 1, { 2 }, ALL_DETERMINISTIC, GREEDY, 3, 4, false, MANY };
static const struct instance_kind two_equal = {
    1, { 2 }, ALL_DETERMINISTIC, ARBITRARY, 3, 3, false, MANY
}; // tokens 0 and 0
static const struct instance_kind two_mixed = { 1, { 2 }, MIXED, GREEDY, 3, 4, false, MANY };
static const struct instance_kind three_mixed = { 1, { 3 }, MIXED, ANY, 3, 4, false, MANY };
static const struct instance_kind tree = { 2, { 2, 1 }, ALL_SAMPLED, ANY, 3, 3, false, FEWER };
static const struct instance_kind tree_greedy = { 2, { 2, 2 }, ALL_DETERMINISTIC, GREEDY, 3, 4, false, MANY };

static const struct instance_kind any_chain = { 3, { 1, 1, 1 }, ALL_SAMPLED, ANY, 3, 3, true, MANY };
static const struct instance_kind any_tree = { 2, { 2, 1 }, ALL_SAMPLED, ANY, 2, 3, true, FEWER };
static const struct instance_kind any_mixed = { 2, { 2, 1 }, MIXED, ANY, 2, 3, true, FEWER };
static const struct instance_kind any_deterministic = { 2, { 2, 2 }, ALL_DETERMINISTIC, ANY, 3, 4, true, FEWER };
static const struct instance_kind any_greedy = { 2, { 2, 2 }, ALL_DETERMINISTIC, GREEDY, 3, 4, true, MANY };
static const struct instance_kind any_pruned = { 2, { 2, 2 }, ALL_DETERMINISTIC, RANDOM_IF_LIKELY, 2, 3, true, FEWER };

#define FLAW(id, rule, flaw, on, seen, mean, worst, description) \
    { \
        id, description, KILLED, &rule##_mutant, flaw, TRUTHFUL, &on, NULL, seen, mean, worst \
    }
#define MISREPORT(id, rule, misreport, on, seen, mean, worst, description) \
    { \
        id, description, KILLED, &rule##_rule, FLAWLESS, misreport, &on, NULL, seen, mean, worst \
    }
#define REPEATED(id, rule, flaw, on, description) \
    { \
        id, description, REPEATED_ADDRESS, &rule##_mutant, flaw, TRUTHFUL, &on, NULL, 0, 0, 0 \
    }
#define SAME(id, rule, flaw, misreport, on, same_acceptance, description) \
    { \
        id, description, EQUIVALENT, &rule, flaw, misreport, &on, same_acceptance, 0, 0, 0 \
    }

// clang-format off
const struct mutant mutants[] = {
    // ---- declared proposals
    MISREPORT("M01", rejection, TOP_TWO_AS_SAMPLED, chain, .965, .055, .28,
              "samples from the top two tokens, reports the whole row"),
    MISREPORT("M02", rejection, SHARPENED_AS_SAMPLED, chain, .993, .042, .20,
              "samples at another temperature than it reports"),
    MISREPORT("M03", rejection, GREEDY_AS_SAMPLED, chain, .970, .142, .65, "proposes the argmax as sampled"),
    MISREPORT("M04", rejection, PRUNED_AS_SAMPLED, chain, .978, .042, .24, "samples, and drops improbable tokens"),
    MISREPORT("M05", rejection, BEST_OF_TWO_AS_SAMPLED, two, .983, .076, .32,
              "samples two siblings and keeps the more probable one"),

    // ---- rejection: the acceptance test
    FLAW("M06", rejection, ROW_OF_PARENT, chain, .993, .242, .97,
         "verifies a token against the row of the previous node"),
    FLAW("M07", rejection, ACCEPTS_SHARPENED, chain, .990, .080, .30, "accepts by p at another temperature"),
    FLAW("M08", rejection, ACCEPTS_IF_MORE_PROBABLE, chain, .993, .280, .98, "accepts if and only if p >= q"),
    FLAW("M09", rejection, LENIENT, chain, .992, .056, .20, "accepts with 1.25 p / q"),
    FLAW("M09a", rejection, LENIENT_BY_2_PERCENT, chain, 0, 0, 0, "accepts with 1.02 p / q"),
    FLAW("M09b", rejection, LENIENT_BY_1_PERMILLE, chain, 0, 0, 0, "accepts with 1.001 p / q"),
    FLAW("M10", rejection, ACCEPTS_BY_Q_OVER_P, chain, .992, .573, .98, "accepts with q / p"),
    FLAW("M11", rejection, ACCEPTS_EVERYTHING, chain, 1, .721, 1, "accepts every token"),
    FLAW("M12", rejection, ACCEPTS_BY_P, chain, .993, .097, .44,
         "accepts with p, but uses the residual of a sampled token"),

    // ---- rejection: the residual and the bonus token
    FLAW("M13", rejection, CORRECTION_FROM_P, chain, .993, .102, .25, "samples the replacement from p"),
    FLAW("M14", rejection, RESIDUAL_IS_STRIKE, chain, .992, .036, .18,
         "samples the replacement from p without the token"),
    FLAW("M15", rejection, RESIDUAL_IS_REVERSED, chain, 1, .682, 1, "residual (q - p)+"),
    FLAW("M16", rejection, RESIDUAL_IS_ABSOLUTE, chain, 1, .347, .50, "residual |p - q|"),
    FLAW("M17", rejection, RESIDUAL_IS_SOFTMAX, chain, 1, .246, .42, "residual softmax of (p - q)+"),
    FLAW("M18", rejection, RESIDUAL_IS_GREEDY, chain, .885, .084, .42, "residual is the argmax of (p - q)+ only"),
    FLAW("M19", rejection, RESIDUAL_OF_PREVIOUS_ROW, chain, .977, .124, .93, "residual of the previous row"),
    FLAW("M20", rejection, RESIDUAL_WITH_NEXT_Q, chain, .767, .134, .93, "subtracts the next row of q"),
    FLAW("M21", rejection, BONUS_FROM_PREVIOUS_ROW, chain, .99, .12, .91,
         "samples the bonus token from the previous row"),
    FLAW("M22", rejection, BONUS_IS_GREEDY, chain, .99, .09, .56, "takes the argmax as the bonus token"),
    FLAW("M23", rejection, BONUS_FROM_Q, chain, .99, .09, .82, "samples the bonus token from the drafter's row"),

    // ---- block
    FLAW("M24", block, UNCAPPED_LAST, longer, .970, .034, .18, "the last share is the whole product, uncapped"),
    FLAW("M25", block, UNCAPPED, longer, .788, .023, .21, "no share is capped"),
    FLAW("M26", block, H_IS_B, longer, .992, .095, .36, "h = b"),
    FLAW("M27", block, H_IS_S, longer, .998, .045, .29, "h = S"),
    FLAW("M28", block, H_OF_PREVIOUS_ROWS, longer, .980, .081, .43, "h from the previous rows"),
    FLAW("M29", block, BREAKS_AT_FIRST_FAILURE, longer, .995, .119, .62, "stops at the first failed acceptance test"),
    FLAW("M30", block, RESIDUAL_OF_ONE_TOKEN, longer, .785, .0022, .037, "replacement from (p - q)+ without b"),

    // ---- traversal
    FLAW("M31", traversal, SHARE_BY_DRAFT_MASS, tree, .92, .14, .89, "a = S / the remaining mass of q"),
    FLAW("T1", traversal, SHARE_STAYS, tree, 0, 0, 0, "a is unchanged when a child is given up"),
    FLAW("T2", traversal, SHARE_NOT_IN_RESIDUAL, tree, 0, 0, 0, "residual (p - q)+ without a"),
    FLAW("T3", traversal, SHARE_UNCAPPED, tree, 0, 0, 0, "hands down more than 1"),
    FLAW("T4", traversal, SIBLINGS_AGAINST_FULL_ROW, tree, 0, 0, 0, "tries siblings against the unchanged p"),

    // ---- siblings
    FLAW("M32", rejection, UNMASKED_Q, two_distinct, .860, .112, .93,
         "verifies samples without replacement by the full row"),
    MISREPORT("M32d", rejection, DISTINCT_AS_SAMPLED, two, .860, .112, .93,
              "samples without replacement, reports independent samples"),
    FLAW("M33", rejection, DETERMINISTIC_ACCEPTED_BY_Q, top_two, .993, .336, .85,
         "verifies top-k tokens as samples of q"),
    MISREPORT("M33d", rejection, RANKED_AS_SAMPLED, two, .993, .336, .85, "proposes the top-k tokens as sampled"),
    FLAW("M34", rejection, MASKED_Q, two, .860, .0064, .063, "verifies independent samples as if without replacement"),
    FLAW("M35", rejection, SKIPS_DUPLICATES, two, .787, .0084, .086, "does not try a token that was rejected before"),
    FLAW("M36", rejection, STALE_P, two, .987, .051, .17, "tries every sibling against the unchanged p"),
    FLAW("M37", rejection, RESIDUAL_IS_STRIKE, two, .987, .046, .16, "strikes sampled tokens as if deterministic"),
    FLAW("M38", rejection, RESIDUAL_NOT_NORMALIZED, two, .947, .054, .24,
         "tries the next sibling against (p - q)+, not normalised"),
    FLAW("M39", rejection, BONUS_FROM_PARENT, two, .97, .12, .89,
         "a later sibling's bonus token from its parent's residual"),
    FLAW("M39t", rejection, BONUS_FROM_PARENT, top_two, .99, .12, .89, "the same, with top-k tokens"),
    FLAW("M40", accept, LONGEST_PATH_WINS, tree_greedy, .987, .202, .36, "verifies paths separately, the longest wins"),
    FLAW("M41", accept, ACCEPT_REUSED, top_two, .810, .079, .25, "one uniform for siblings and replacement"),
    FLAW("M42", accept, DUPLICATES_COUNT_TWICE, two_equal, .907, .145, .50,
         "one uniform for siblings that repeat each other"),
    FLAW("R1", rejection, RESIDUAL_IS_P, two, 0, 0, 0, "leaves p unchanged, also for the next sibling"),
    FLAW("R2", rejection, TRIES_LAST_FIRST, two_distinct, 0, 0, 0,
         "tries siblings without replacement in reverse order"),
    FLAW("R3", rejection, CARRIED_Q, three_mixed, 0, 0, 0, "makes q once for a node and strikes rejected tokens"),
    FLAW("R4", rejection, DETERMINISTIC_NOT_MASKED, two_mixed, 0, 0, 0,
         "keeps deterministic siblings in a without-replacement row"),
    FLAW("R5", rejection, DETERMINISTIC_NOT_STRUCK, top_two, 0, 0, 0,
         "leaves p unchanged when a deterministic token is rejected"),
    MISREPORT("D1", rejection, DETERMINISTIC_AFTER_LATER, three_mixed, 0, 0, 0,
              "selects by the sampled token of a later sibling"),

    // ---- randomness and precision
    FLAW("M43", rejection, RESIDUAL_BY_THE_ACCEPT_TEST, one, .598, .048, .23,
         "one uniform for acceptance test and replacement"),
    REPEATED("M44", rejection, RESIDUAL_AT_THE_DRAFTS_ADDRESS, chain,
          "samples the replacement at the draft's address"),
    MISREPORT("M47", rejection, ROUNDED_AS_SAMPLED, chain, 1, .0012, 0,
              "samples from a row in bfloat16, reports floats"),

    // ---- vocabularies and ties
    MISREPORT("M61", rejection, UNMAPPED_AS_SAMPLED, chain, 0, 0, 0, "the row is not in the target's token ids"),
    MISREPORT("M62", rejection, PADDING_IN_ROW, chain, 0, 0, 0, "the row has mass on padding that is never sampled"),

    // ---- spectr
    FLAW("S1", spectr, RHO_IS_ONE, two, 0, 0, 0, "rho = 1, negative mass is cut off"),
    FLAW("S2", spectr, RHO_IS_TOO_SMALL, two, 0, 0, 0, "rho a tenth below the smallest"),
    FLAW("S3", spectr, RHO_NOT_IN_TRIAL, three, 0, 0, 0, "tries p / q, without rho"),
    FLAW("S4", spectr, NOTHING_TAKEN_OUT, two, 0, 0, 0, "samples the replacement from p"),
    FLAW("S5", spectr, TAKEN_OUT_ONCE, two, 0, 0, 0, "subtracts min(p / rho, q) once"),
    FLAW("S6", spectr, BETA_OF_ONE, two, 0, 0, 0, "beta of rho = 1 in the residual"),
    FLAW("S7", spectr, ONE_TRY_TOO_FEW, three, 0, 0, 0, "residual as if one fewer had been tried"),
    MISREPORT("S8", spectr, DISTINCT_AS_SAMPLED, two, 0, 0, 0, "siblings without replacement instead of independent"),

    // ---- multipath
    FLAW("P1", multipath, NOT_SKEWED, tree, 0, 0, 0, "verifies the selected chain by q"),
    FLAW("P2", multipath, FIRST_IS_SELECTED, tree, 0, 0, 0,
         "the order depends on the draft: the first chain is largest"),
    FLAW("P3", multipath, LARGEST_AS_A_WHOLE, tree, 0, 0, 0, "the order is not lexicographic: p / q of whole chains"),
    FLAW("P4", multipath, ORDER_NOT_STRICT, tree, 0, 0, 0, "the order is not strict"),
    FLAW("P5", multipath, ORDERS_DIFFER, tree, 0, 0, 0, "selects by one order, skews by another"),
    FLAW("P6", multipath, SMALLEST_IS_SELECTED, tree, 0, 0, 0, "selects the smallest chain"),
    FLAW("P7", multipath, ONE_PATH_TOO_MANY, tree, 0, 0, 0, "skews for one chain too many"),
    FLAW("P8", multipath, BAND_NOT_CARRIED, tree, 0, 0, 0, "every text's band is (0, 1)"),
    FLAW("P9", multipath, RESIDUAL_NOT_SKEWED, tree, 0, 0, 0, "replacement from (b p - q)+ with q as reported"),
    MISREPORT("P10", multipath, DISTINCT_AS_SAMPLED, tree, 0, 0, 0, "the chains are not independent"),

    // ---- equivalent changes
    SAME("E1", rejection_mutant, RESIDUAL_IS_STRIKE, TRUTHFUL, any_deterministic, &rejection_rule,
         "strikes deterministic tokens"),
    SAME("E2", block_mutant, NOTHING_OF_NOTHING_IS_ONE, TRUTHFUL, any_chain, &block_rule, "block: 0 / 0 is 1, not 0"),
    SAME("E3", rejection_rule, FLAWLESS, STOPS_AFTER_UNLIKELY, any_mixed, NULL,
         "no children below an improbable token"),
    SAME("E4", traversal_rule, FLAWLESS, STOPS_AFTER_UNLIKELY, any_mixed, NULL, "the same, under traversal"),
    SAME("E5", rejection_rule, FLAWLESS, LEAVES_BESIDE_UNLIKELY, any_mixed, NULL,
         "children depend on their parent's siblings"),
    SAME("E6", traversal_rule, FLAWLESS, LEAVES_BESIDE_UNLIKELY, any_mixed, NULL, "the same, under traversal"),
    SAME("E7", rejection_rule, FLAWLESS, TRUTHFUL, any_pruned, NULL,
         "samples, drops improbable tokens, declares deterministic"),
    SAME("E8", rejection_mutant, NO_BONUS, TRUTHFUL, any_mixed, NULL, "samples no bonus token"),
    SAME("E9", block_mutant, STEPS_BACK, TRUTHFUL, any_chain, &block_rule, "HSD, every ratio capped: equal to block"),
    SAME("E10", traversal_rule, FLAWLESS, TRUTHFUL, any_greedy, &rejection_rule, "traversal of deterministic tokens"),
    SAME("E11", accept_mutant, FLAWLESS, TRUTHFUL, any_greedy, &rejection_rule,
         "one uniform for all deterministic siblings"),
    SAME("E12", traversal_mutant, SHARE_SUMMED_FROM_THE_LEFT, TRUTHFUL, any_tree, &traversal_rule, "(S + 1) - a"),
    SAME("E13", spectr_mutant, RHO_IS_K, TRUTHFUL, any_tree, NULL, "K-SEQ with rho = k"),
    SAME("E14", spectr_mutant, RHO_IS_BETWEEN, TRUTHFUL, any_tree, NULL, "K-SEQ with any rho between"),
    SAME("E15", multipath_mutant, ORDER_BY_ID, TRUTHFUL, any_tree, NULL, "multipath by another fixed order"),
    { NULL, NULL, KILLED, NULL, FLAWLESS, TRUTHFUL, NULL, NULL, 0, 0, 0 },
};
// clang-format on

static struct instance instance_of(const struct instance_kind *g, int i)
{
    int vocab = g->min_vocab + i % (g->max_vocab - g->min_vocab + 1);
    enum family family = g->any_rows ? (enum family)(i % (FAMILIES + 1)) : i / 2 % 2 ? PEAKED : DENSE;
    struct instance in = instance_create(g->widths, g->levels, vocab, g->mix, family, 1000 + (uint64_t)i);
    for (int k = 1; k < in.nodes && g->choice >= 0; k++)
        in.choice[k] = (uint8_t)g->choice;
    return in;
}

struct measured mutant_measure(const struct mutant *m)
{
    struct measured all = { .instances = m->instance_kind->instances, .sound = true };
    for (int i = 0; i < all.instances; i++) {
        struct instance in = instance_of(m->instance_kind, i);
        in.flaw = misreport_of(m->misreport);
        struct law_result f = law_examine(&in, m->rule, &m->flaw);
        if (m->same_acceptance != NULL)
            all.acceptance_difference =
                fmax(all.acceptance_difference, fabs(f.accepted - law_examine(&in, m->same_acceptance, NULL).accepted));
        instance_free(&in);
        all.seen += f.distance > 1e-9;
        all.mean += f.distance;
        all.worst = fmax(all.worst, f.distance);
        all.repeated += f.repeated;
        all.sound = all.sound && f.sound && f.lost <= 1e-12;
    }
    all.seen /= all.instances;
    all.mean /= all.instances;
    return all;
}
