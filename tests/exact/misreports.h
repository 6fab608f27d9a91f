// misreports.h - drafters of an instance (verifier/exact/instance.h) that violate core/draft.h, which a law must show.
#pragma once
#include "verifier/exact/instance.h"

enum misreport { // a drafter's violation of core/draft.h
    TRUTHFUL,
    GREEDY_AS_SAMPLED,         // an argmax, declared SAMPLED
    SHARPENED_AS_SAMPLED,      // sampled at another temperature than the reported row
    DISTINCT_AS_SAMPLED,       // sampled without replacement, declared independent
    PRUNED_AS_SAMPLED,         // sampled, then dropped because the token is improbable
    DETERMINISTIC_AFTER_LATER, // a function of a later sibling's sampled token
    TOP_TWO_AS_SAMPLED,        // sampled from the top two tokens, the whole row reported
    BEST_OF_TWO_AS_SAMPLED,    // two siblings are sampled, the more probable one is kept
    RANKED_AS_SAMPLED,         // argmax without the siblings' tokens, declared SAMPLED
    ROUNDED_AS_SAMPLED,        // sampled from the row rounded to bfloat16
    UNMAPPED_AS_SAMPLED,       // the row has the ids of the drafter's vocabulary, the token those of the target's
    PADDING_IN_ROW,            // the last id is padding: never sampled, but with mass in the row
    MISREPORTS,
    // Allowed: what is below a token may depend on that token and its siblings.
    STOPS_AFTER_UNLIKELY = MISREPORTS, // no children below an improbable token
    LEAVES_BESIDE_UNLIKELY,            // nor below a token with an improbable sibling
};

const struct drafter_flaw *misreport_of(enum misreport m); // TRUTHFUL: NULL
