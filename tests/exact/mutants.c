// mutants.c - the list of mutants, and the measure by which they are found out.
//
// The numbers behind each are those of the list: the share of instances in which the mutant shows, its mean total
// variation and its largest, over random instances of another make. Ours are printed by tests/exact/test_mutants.c and stand
// in docs/exactness.md.
#include "tests/exact/mutants.h"

#include <math.h>
#include <stddef.h>
#include "exact/law.h"

extern const struct rule rejection_rule, block_rule, traversal_rule, spectr_rule, multipath_rule;

const struct rule *const mutant_rules[] = { &rejection_mutant, &accept_mutant,    &block_mutant, &traversal_mutant,
                                            &spectr_mutant,    &multipath_mutant, NULL };

enum { MANY = 240, FEWER = 200, ANY = -1 };

static const struct ground one = { 1, { 1 }, ALL_SAMPLED, ANY, 3, 4, false, MANY };
static const struct ground chain = { 2, { 1, 1 }, ALL_SAMPLED, ANY, 3, 4, false, MANY };
static const struct ground longer = { 3, { 1, 1, 1 }, ALL_SAMPLED, ANY, 3, 3, false, MANY };
static const struct ground two = { 1, { 2 }, ALL_SAMPLED, ANY, 3, 4, false, MANY };
static const struct ground three = { 1, { 3 }, ALL_SAMPLED, ANY, 3, 4, false, MANY };
static const struct ground two_distinct = { 1, { 2 }, ALL_DISTINCT, ANY, 3, 4, false, MANY };
static const struct ground top_two = { 1, { 2 }, ALL_DETERMINISTIC, GREEDY, 3, 4, false, MANY };
static const struct ground two_alike = { 1, { 2 }, ALL_DETERMINISTIC, ARBITRARY, 3, 3, false, MANY }; // tokens 0 and 0
static const struct ground two_mixed = { 1, { 2 }, MIXED, GREEDY, 3, 4, false, MANY };
static const struct ground three_mixed = { 1, { 3 }, MIXED, ANY, 3, 4, false, MANY };
static const struct ground tree = { 2, { 2, 1 }, ALL_SAMPLED, ANY, 3, 3, false, FEWER };
static const struct ground tree_greedy = { 2, { 2, 2 }, ALL_DETERMINISTIC, GREEDY, 3, 4, false, MANY };

static const struct ground any_chain = { 3, { 1, 1, 1 }, ALL_SAMPLED, ANY, 3, 3, true, MANY };
static const struct ground any_tree = { 2, { 2, 1 }, ALL_SAMPLED, ANY, 2, 3, true, FEWER };
static const struct ground any_mixed = { 2, { 2, 1 }, MIXED, ANY, 2, 3, true, FEWER };
static const struct ground any_chosen = { 2, { 2, 2 }, ALL_DETERMINISTIC, ANY, 3, 4, true, FEWER };
static const struct ground any_greedy = { 2, { 2, 2 }, ALL_DETERMINISTIC, GREEDY, 3, 4, true, MANY };
static const struct ground any_pruned = { 2, { 2, 2 }, ALL_DETERMINISTIC, RANDOM_IF_LIKELY, 2, 3, true, FEWER };

#define FLAW(id, rule, flaw, on, seen, mean, worst, says) \
    { \
        id, says, KILLED, &rule##_mutant, flaw, HONEST, &on, NULL, seen, mean, worst, NULL \
    }
#define LIE(id, rule, lie, on, seen, mean, worst, says) \
    { \
        id, says, KILLED, &rule##_rule, FLAWLESS, lie, &on, NULL, seen, mean, worst, NULL \
    }
#define TWICE(id, rule, flaw, on, note, says) \
    { \
        id, says, SEEN_TWICE, &rule##_mutant, flaw, HONEST, &on, NULL, 0, 0, 0, note \
    }
#define SAME(id, rule, flaw, lie, on, alike, says) \
    { \
        id, says, EQUIVALENT, &rule, flaw, lie, &on, alike, 0, 0, 0, NULL \
    }
#define OTHER(id, note, says) \
    { \
        id, says, ELSEWHERE, NULL, FLAWLESS, HONEST, NULL, NULL, 0, 0, 0, note \
    }
#define NOT_YET(id, note, says) \
    { \
        id, says, NOT_ANNOUNCED, NULL, FLAWLESS, HONEST, NULL, NULL, 0, 0, 0, note \
    }

// clang-format off
const struct mutant mutants[] = {
    // ---- the drafter's word
    LIE("M01", rejection, TOP_TWO_AS_SAMPLED, chain, .965, .055, .28, "draws from the two likeliest, reports the whole row"),
    LIE("M02", rejection, SHARPENED_AS_SAMPLED, chain, .993, .042, .20, "draws at another temperature than it reports"),
    LIE("M03", rejection, GREEDY_AS_SAMPLED, chain, .970, .142, .65, "takes the likeliest and calls it drawn"),
    LIE("M04", rejection, PRUNED_AS_SAMPLED, chain, .978, .042, .24, "draws, and drops what came out unlikely"),
    LIE("M05", rejection, BEST_OF_TWO_AS_SAMPLED, two, .983, .076, .32, "draws two siblings and keeps the likelier"),

    // ---- rejection: when a guess stands
    FLAW("M06", rejection, ROW_OF_PARENT, chain, .993, .242, .97, "judges a guess by the row of the node before"),
    FLAW("M07", rejection, ACCEPTS_SHARPENED, chain, .990, .080, .30, "accepts by p at another temperature"),
    FLAW("M08", rejection, ACCEPTS_IF_LIKELIER, chain, .993, .280, .98, "accepts if and only if p >= q"),
    FLAW("M09", rejection, LENIENT, chain, .992, .056, .20, "accepts with 1.25 p / q"),
    FLAW("M09a", rejection, LENIENT_BY_2_PERCENT, chain, 0, 0, 0, "accepts with 1.02 p / q"),
    FLAW("M09b", rejection, LENIENT_BY_1_PERMILLE, chain, 0, 0, 0, "accepts with 1.001 p / q"),
    FLAW("M10", rejection, ACCEPTS_BY_Q_OVER_P, chain, .992, .573, .98, "accepts with q / p"),
    FLAW("M11", rejection, ACCEPTS_EVERYTHING, chain, 1, .721, 1, "accepts whatever is proposed"),
    FLAW("M12", rejection, ACCEPTS_BY_P, chain, .993, .097, .44, "accepts with p, but keeps the residual of a draw"),

    // ---- rejection: what is left, and whose row
    FLAW("M13", rejection, CORRECTION_FROM_P, chain, .993, .102, .25, "draws the correction from p"),
    FLAW("M14", rejection, RESIDUAL_IS_STRIKE, chain, .992, .036, .18, "draws the correction from p without the token"),
    FLAW("M15", rejection, RESIDUAL_IS_REVERSED, chain, 1, .682, 1, "leaves (q - p)+"),
    FLAW("M16", rejection, RESIDUAL_IS_ABSOLUTE, chain, 1, .347, .50, "leaves |p - q|"),
    FLAW("M17", rejection, RESIDUAL_IS_SOFTMAX, chain, 1, .246, .42, "leaves the softmax of (p - q)+"),
    FLAW("M18", rejection, RESIDUAL_IS_GREEDY, chain, .885, .084, .42, "leaves the likeliest of (p - q)+ alone"),
    FLAW("M19", rejection, RESIDUAL_OF_PREVIOUS_ROW, chain, .977, .124, .93, "leaves the residual of the row before"),
    FLAW("M20", rejection, RESIDUAL_WITH_NEXT_Q, chain, .767, .134, .93, "subtracts the next row of q"),
    FLAW("M21", rejection, BONUS_FROM_PREVIOUS_ROW, chain, .99, .12, .91, "draws the bonus from the row before"),
    FLAW("M22", rejection, BONUS_IS_GREEDY, chain, .99, .09, .56, "takes the likeliest as the bonus"),
    FLAW("M23", rejection, BONUS_FROM_Q, chain, .99, .09, .82, "draws the bonus from the drafter's row"),

    // ---- block
    FLAW("M24", block, UNCAPPED_LAST, longer, .970, .034, .18, "the last share is the whole product's, uncapped"),
    FLAW("M25", block, UNCAPPED, longer, .788, .023, .21, "no share is capped"),
    FLAW("M26", block, H_IS_B, longer, .992, .095, .36, "h = b"),
    FLAW("M27", block, H_IS_S, longer, .998, .045, .29, "h = S"),
    FLAW("M28", block, H_OF_PREVIOUS_ROWS, longer, .980, .081, .43, "h by the rows before"),
    FLAW("M29", block, BREAKS_AT_FIRST_FAILURE, longer, .995, .119, .62, "stops at the first coin that fails"),
    FLAW("M30", block, RESIDUAL_OF_ONE_TOKEN, longer, .785, .0022, .037, "corrects from (p - q)+ without b"),

    // ---- traversal
    FLAW("M31", traversal, SHARE_BY_DRAFT_MASS, tree, .92, .14, .89, "a = S / what is left of q"),
    FLAW("T1", traversal, SHARE_STAYS, tree, 0, 0, 0, "a stays as it was when a child is given up"),
    FLAW("T2", traversal, SHARE_NOT_IN_RESIDUAL, tree, 0, 0, 0, "leaves (p - q)+ without a"),
    FLAW("T3", traversal, SHARE_UNCAPPED, tree, 0, 0, 0, "hands down more than 1"),
    FLAW("T4", traversal, SIBLINGS_AGAINST_FULL_ROW, tree, 0, 0, 0, "tries siblings against p as it was"),

    // ---- siblings
    FLAW("M32", rejection, UNMASKED_Q, two_distinct, .860, .112, .93, "judges distinct draws by the full row"),
    LIE("M32d", rejection, DISTINCT_AS_SAMPLED, two, .860, .112, .93, "draws distinct siblings, calls them independent"),
    FLAW("M33", rejection, DETERMINISTIC_JUDGED_BY_Q, top_two, .993, .336, .85, "takes the likeliest for draws of q"),
    LIE("M33d", rejection, RANKED_AS_SAMPLED, two, .993, .336, .85, "takes the likeliest in turn, calls them drawn"),
    FLAW("M34", rejection, MASKED_Q, two, .860, .0064, .063, "judges independent draws as if distinct"),
    FLAW("M35", rejection, SKIPS_DUPLICATES, two, .787, .0084, .086, "does not try a token that fell before"),
    FLAW("M36", rejection, STALE_P, two, .987, .051, .17, "tries every sibling against p as it was"),
    FLAW("M37", rejection, RESIDUAL_IS_STRIKE, two, .987, .046, .16, "strikes drawn tokens as if they were chosen"),
    FLAW("M38", rejection, RESIDUAL_NOT_NORMALIZED, two, .947, .054, .24, "tries the next against (p - q)+ as it is"),
    FLAW("M39", rejection, BONUS_FROM_PARENT, two, .97, .12, .89, "a later sibling's bonus from its parent's residual"),
    FLAW("M39t", rejection, BONUS_FROM_PARENT, top_two, .99, .12, .89, "likewise, of the likeliest in turn"),
    FLAW("M40", accept, LONGEST_PATH_WINS, tree_greedy, .987, .202, .36, "judges paths alone, the longest wins"),
    FLAW("M41", accept, ACCEPT_REUSED, top_two, .810, .079, .25, "one coin for siblings and correction"),
    FLAW("M42", accept, DUPLICATES_COUNT_TWICE, two_alike, .907, .145, .50, "one coin, siblings that repeat each other"),
    FLAW("R1", rejection, RESIDUAL_IS_P, two, 0, 0, 0, "leaves p as it is, for the next sibling too"),
    FLAW("R2", rejection, TRIES_LAST_FIRST, two_distinct, 0, 0, 0, "tries distinct siblings in reverse order"),
    FLAW("R3", rejection, CARRIED_Q, three_mixed, 0, 0, 0, "makes q once for a node and strikes what falls"),
    FLAW("R4", rejection, DETERMINISTIC_NOT_MASKED, two_mixed, 0, 0, 0, "leaves chosen siblings in a distinct row"),
    FLAW("R5", rejection, DETERMINISTIC_NOT_STRUCK, top_two, 0, 0, 0, "leaves p as it is when a chosen token falls"),
    LIE("D1", rejection, DETERMINISTIC_AFTER_LATER, three_mixed, 0, 0, 0, "chooses by what a later sibling was drawn as"),

    // ---- chance and precision
    FLAW("M43", rejection, RESIDUAL_BY_THE_ACCEPT_TEST, one, .598, .048, .23, "one uniform for trial and correction"),
    TWICE("M44", rejection, RESIDUAL_AT_THE_DRAFTS_ADDRESS, chain,
          "also test_audit: noise_that_drafts_and_corrects_is_found_out", "corrects by the draft's chance"),
    OTHER("M45", "test_bisect: coarse_uniforms_are_found_out", "uniforms of 11 bits"),
    OTHER("M46", "test_bisect: coarse_uniforms_are_found_out", "uniforms of 24 bits"),
    LIE("M47", rejection, ROUNDED_AS_SAMPLED, chain, 1, .0012, 0, "draws from a row in bfloat16, reports floats"),
    OTHER("M48", "test_bisect: a_token_that_is_impossible_is_found_out_though_its_chance_is_2_to_the_minus_53",
          "u <= p / q: what is impossible happens at u = 0"),

    // ---- the loop
    OTHER("M49", "test_decode_law", "end-of-text is looked for at the end of a step"),
    OTHER("M50", "test_decode_law", "penalties know no token of the draft"),
    OTHER("M51", "test_decode_law", "penalties count the last token twice"),
    OTHER("M52", "test_decode_law", "penalties remember guesses that fell"),
    NOT_YET("M53", "there are no grammars; test_decode_law: what_rules_tokens_out_rules_them_out_everywhere",
            "no grammar on the bonus row"),
    OTHER("M54", "test_decode_law", "the cache keeps guesses that fell"),
    OTHER("M55", "test_decode_law", "the cache keeps one row too few"),
    OTHER("M56", "test_decode_law", "positions are shifted"),
    OTHER("M57", "test_decode_law; test_models", "the rows of a path are gathered in another order"),
    OTHER("M58", "test_decode_law; test_models: a_path_through_a_tree_has_the_bits_of_the_chain",
          "siblings are seen"),
    OTHER("M59", "test_audit: streams_of_batch_rows_are_found_out", "chance is keyed by the row in the batch"),
    OTHER("M60", "test_audit: streams_that_begin_again_are_found_out", "chance begins anew with each step"),

    // ---- vocabularies and ties
    LIE("M61", rejection, UNMAPPED_AS_SAMPLED, chain, 0, 0, 0, "the row is not in the numbers of the target's tokens"),
    LIE("M62", rejection, PADDING_IN_ROW, chain, 0, 0, 0, "the row has mass on padding that is never drawn"),
    OTHER("M63", "test_kernels: best_gives_the_likeliest_with_ties_to_the_lowest_id; test_sampling: "
          "among_equals_the_lowest_ids_stay", "of equals the last id is taken"),

    // ---- spectr
    FLAW("S1", spectr, RHO_IS_ONE, two, 0, 0, 0, "rho = 1, what falls below 0 is cut off"),
    FLAW("S2", spectr, RHO_IS_TOO_SMALL, two, 0, 0, 0, "rho a tenth below the smallest"),
    FLAW("S3", spectr, RHO_NOT_IN_TRIAL, three, 0, 0, 0, "tries p / q, without rho"),
    FLAW("S4", spectr, NOTHING_TAKEN_OUT, two, 0, 0, 0, "draws the correction from p"),
    FLAW("S5", spectr, TAKEN_OUT_ONCE, two, 0, 0, 0, "takes min(p / rho, q) out once"),
    FLAW("S6", spectr, BETA_OF_ONE, two, 0, 0, 0, "beta of rho = 1 in what is taken out"),
    FLAW("S7", spectr, ONE_TRY_TOO_FEW, three, 0, 0, 0, "takes out as if one fewer had been tried"),
    LIE("S8", spectr, DISTINCT_AS_SAMPLED, two, 0, 0, 0, "siblings are distinct and not independent"),

    // ---- multipath
    FLAW("P1", multipath, NOT_SKEWED, tree, 0, 0, 0, "judges the kept chain by q"),
    FLAW("P2", multipath, FIRST_IS_KEPT, tree, 0, 0, 0, "the order depends on the draft: what came first is largest"),
    FLAW("P3", multipath, LARGEST_AS_A_WHOLE, tree, 0, 0, 0, "the order is not a dictionary's: p / q of whole chains"),
    FLAW("P4", multipath, ORDER_NOT_STRICT, tree, 0, 0, 0, "the order is not strict"),
    FLAW("P5", multipath, ORDERS_DIFFER, tree, 0, 0, 0, "keeps by one order, skews by another"),
    FLAW("P6", multipath, SMALLEST_IS_KEPT, tree, 0, 0, 0, "keeps the smallest chain"),
    FLAW("P7", multipath, ONE_PATH_TOO_MANY, tree, 0, 0, 0, "skews for one chain more than there are"),
    FLAW("P8", multipath, BAND_NOT_CARRIED, tree, 0, 0, 0, "every text's band is (0, 1)"),
    FLAW("P9", multipath, RESIDUAL_NOT_SKEWED, tree, 0, 0, 0, "corrects from (b p - q)+ with q as reported"),
    LIE("P10", multipath, DISTINCT_AS_SAMPLED, tree, 0, 0, 0, "the chains are not independent"),

    // ---- what changes nothing
    SAME("E1", rejection_mutant, RESIDUAL_IS_STRIKE, HONEST, any_chosen, &rejection_rule, "strikes chosen tokens"),
    SAME("E2", block_mutant, NOTHING_OF_NOTHING_IS_ONE, HONEST, any_chain, &block_rule, "block: 0 / 0 is 1, not 0"),
    SAME("E3", rejection_rule, FLAWLESS, STOPS_AFTER_UNLIKELY, any_mixed, NULL, "stops behind an unlikely token"),
    SAME("E4", traversal_rule, FLAWLESS, STOPS_AFTER_UNLIKELY, any_mixed, NULL, "likewise, under traversal"),
    SAME("E5", rejection_rule, FLAWLESS, LEAVES_BESIDE_UNLIKELY, any_mixed, NULL, "what is below depends on siblings"),
    SAME("E6", traversal_rule, FLAWLESS, LEAVES_BESIDE_UNLIKELY, any_mixed, NULL, "likewise, under traversal"),
    SAME("E7", rejection_rule, FLAWLESS, HONEST, any_pruned, NULL, "draws, drops what is unlikely and calls it chosen"),
    SAME("E8", rejection_mutant, NO_BONUS, HONEST, any_mixed, NULL, "draws no bonus token"),
    SAME("E9", block_mutant, STEPS_BACK, HONEST, any_chain, &block_rule, "HSD, every ratio capped: it is block"),
    SAME("E10", traversal_rule, FLAWLESS, HONEST, any_greedy, &rejection_rule, "traversal of chosen tokens"),
    SAME("E11", accept_mutant, FLAWLESS, HONEST, any_greedy, &rejection_rule, "one coin for all chosen siblings"),
    SAME("E12", traversal_mutant, SHARE_SUMMED_FROM_THE_LEFT, HONEST, any_tree, &traversal_rule, "(S + 1) - a"),
    SAME("E13", spectr_mutant, RHO_IS_K, HONEST, any_tree, NULL, "K-SEQ with rho = k"),
    SAME("E14", spectr_mutant, RHO_IS_BETWEEN, HONEST, any_tree, NULL, "K-SEQ with any rho between"),
    SAME("E15", multipath_mutant, ORDER_BY_ID, HONEST, any_tree, NULL, "multipath by another fixed order"),
    { NULL, NULL, KILLED, NULL, FLAWLESS, HONEST, NULL, NULL, 0, 0, 0, NULL },
};
// clang-format on

static struct instance instance_of(const struct ground *g, int i)
{
    int vocab = g->least + i % (g->most - g->least + 1);
    enum family family = g->any_rows ? (enum family)(i % (FAMILIES + 1)) : i / 2 % 2 ? PEAKED : DENSE;
    struct instance in = instance_create(g->widths, g->levels, vocab, g->way, family, 1000 + (uint64_t)i);
    for (int k = 1; k < in.nodes && g->choice >= 0; k++)
        in.choice[k] = (uint8_t)g->choice;
    return in;
}

struct measured mutant_measure(const struct mutant *m)
{
    struct measured all = { .instances = m->ground->instances, .sound = true };
    for (int i = 0; i < all.instances; i++) {
        struct instance in = instance_of(m->ground, i);
        in.lie = m->lie;
        struct finding f = law_examine(&in, m->rule, &m->flaw);
        if (m->alike != NULL)
            all.unlike = fmax(all.unlike, fabs(f.accepted - law_examine(&in, m->alike, NULL).accepted));
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
