// negative_controls.h - rules that are wrong on purpose, to show that the observer of real ones would detect it.
//
// Each is a mistake found in real code (docs/exactness.md). It verifies the drafts and rows of a real run beside the
// real rule, with a random source of its own; it has no effect on the text. All walk down the tree as `rejection` does,
// whatever the real rule is.
#pragma once
#include "verifier/rules/rule.h"

enum negative_control {
    CONTROL_LENIENT,  // accepts with probability min(1, 1.1 p / q)
    CONTROL_RESAMPLE, // after a rejection samples from p itself, not from the residual
    CONTROL_WRONG_Q,  // uses q at temperature 4/3; treats a deterministic token as sampled with probability 3/4
    NEGATIVE_CONTROLS
};
extern const struct rule *const negative_control[NEGATIVE_CONTROLS]; // by enum negative_control: name, summary, verify
