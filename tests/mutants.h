// mutants.h - the rejection rule with one flaw at a time. Each was, or well might have been, somebody's code; each must
// be found out by the very test that the real rules pass (tests/test_rules.c). A test that lets one through tests too
// little.
#pragma once
#include "verifier/rule.h"

#define MUTANTS(MUTANT) \
    /* when a child stands */ \
    MUTANT(LENIENT, "accepts with 1.1 p / q") \
    MUTANT(ACCEPTS_EVERYTHING, "accepts whatever is proposed") \
    MUTANT(ACCEPTS_IF_LIKELIER, "accepts if and only if p >= q") \
    MUTANT(ACCEPTS_BY_Q_OVER_P, "accepts with q / p") \
    MUTANT(ACCEPTS_BY_P, "accepts with p, as if chosen, but keeps the residual of a draw") \
    MUTANT(CHOSEN_JUDGED_BY_Q, "takes the likeliest tokens for draws from q") \
    MUTANT(ROW_OF_PARENT, "judges the children of a node by the row of its parent") \
    MUTANT(STALE_P, "tries every sibling against the row as it was before any fell") \
    MUTANT(SKIPS_DUPLICATES, "does not try a sibling whose token has fallen before") \
    MUTANT(TRIES_LAST_FIRST, "tries the siblings in reverse order") \
    /* the row q that a child was drawn from */ \
    MUTANT(UNMASKED_Q, "judges distinct draws by the full row") \
    MUTANT(MASKED_Q, "judges independent draws by the row without their earlier siblings") \
    MUTANT(CARRIED_Q, "makes q once for a node and strikes what falls") \
    MUTANT(CHOSEN_NOT_MASKED, "judges distinct draws by the row without the drawn siblings only") \
    /* what is left when it falls */ \
    MUTANT(RESIDUAL_IS_P, "leaves p as it is") \
    MUTANT(RESIDUAL_IS_ABSOLUTE, "leaves |p - q|") \
    MUTANT(RESIDUAL_IS_REVERSED, "leaves (q - p)+") \
    MUTANT(RESIDUAL_IS_SOFTMAX, "leaves the softmax of (p - q)+") \
    MUTANT(RESIDUAL_IS_LIKELIEST, "leaves the likeliest of (p - q)+ alone") \
    MUTANT(RESIDUAL_NOT_NORMALIZED, "tries the next sibling against (p - q)+ as it is") \
    MUTANT(RESIDUAL_IS_STRIKE, "strikes the token that fell, of draws too") \
    MUTANT(CHOSEN_NOT_STRUCK, "leaves p as it is when a chosen child falls") \
    /* the target's own token */ \
    MUTANT(CORRECTION_FROM_P, "draws the correction from the row as it was before any fell") \
    MUTANT(BONUS_FROM_PARENT, "draws the bonus of a later sibling from its parent's residual") \
    MUTANT(BONUS_IS_LIKELIEST, "takes the likeliest token as the bonus") \
    MUTANT(BONUS_FROM_Q, "draws the bonus from the drafter's row")

#define MUTANT_ENUM(name, says) name,
enum flaw { MUTANTS(MUTANT_ENUM) FLAWS, FLAWLESS = FLAWS };
extern const char *const flaw_names[FLAWS];

extern const struct rule mutant_rule; // its options: an enum flaw; FLAWLESS is the rule itself, once more
