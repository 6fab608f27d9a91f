// negative_controls.h - rules that are wrong on purpose, to show that what watches real ones would see it.
//
// Each is a mistake that somebody has made (docs/exactness.md), judged beside the real rule on the real run's drafts
// and rows, with chance of its own; nothing of it reaches the text. All walk down as `rejection` does, whatever the
// rule is that they stand beside.
#pragma once
#include "verifier/rules/rule.h"

enum plant {
    PLANT_LENIENT,  // a guess stands with probability min(1, 1.1 p / q)
    PLANT_RESAMPLE, // what follows one that fell is drawn from p itself, not from what is left of it
    PLANT_WRONG_Q,  // q as it would be at temperature 4/3; a chosen guess is taken for a draw of probability 3/4
    NEGATIVE_CONTROLS
};
extern const struct rule *const negative_control[NEGATIVE_CONTROLS]; // by enum plant: name, summary, judge
