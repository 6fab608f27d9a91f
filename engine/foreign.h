// foreign.h - drafters (foreign_drafters.c) and rules (foreign_rules.c) in another language: flat structs of functions,
// which become a struct drafter_type and a struct rule. python/speclab/door.py mirrors these structs; FOREIGN_VERSION
// changes with them.
//
// A function of the plugin returns 0 if it failed, and has then left a sentence in report.why. Memory that is passed to
// it is borrowed for the call. Everything that a plugin does wrong (a token out of range, a row that is no
// distribution) is such a failure, too, and ends decoding.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FOREIGN_VERSION = 4 };

struct foreign_report { // the report of the last call
    int64_t own_ns;     // the plugin's own time, without the way to it and back
    char why[1000];     // NUL-terminated
};

enum foreign_option_type { FOREIGN_INT, FOREIGN_REAL, FOREIGN_BOOL, FOREIGN_TEXT, FOREIGN_CHOICE };
struct foreign_option {
    const char *name;
    int32_t type;              // enum foreign_option_type
    const char *default_value; // spelled as in YAML; NULL: the option is required
    const char *help;
    double min, max; // both 0: no bounds
    const char *choices;
};
struct foreign_value { // the value of an option
    double number;     // 0 or 1 for a bool; for a choice its index
    const char *text;  // value of a text; NULL: none is given
};

// ---- drafters

struct foreign_setting {       // what a drafter is created for
    int32_t vocab, used_vocab; // width of a row; ids from used_vocab on are padding
    int32_t width;             // width of a hidden state of one layer
    int32_t slots, length;     // sequences at a time; maximum length of one
};

struct foreign_request {     // core/draft.h: struct request
    int32_t slot, n, prompt; // prompt: the first of the n tokens
    const int32_t *token;    // (n)
    int32_t depth;
    void *draft; // argument of speclab_foreign_add
};

struct foreign_path {     // the path from the root of a draft to one of its nodes
    int32_t slot, n;      // n: 1 for the root itself
    const int32_t *token; // (n) the root first
};

struct foreign_advance { // core/draft.h: struct advance
    int32_t slot, n;
    const int32_t *token;    // (n)
    const int32_t *node;     // (n) NULL: a prompt
    const float *features;   // (n, layers * width) NULL: no layers were asked for
    int32_t device;          // CUDA's number of the device that has the features; -1: they are in the host's memory
    const int32_t *sequence; // (length)
    int32_t length;
};

struct foreign_drafter { // it and all that it points to stay for the rest of the process
    int32_t version;     // FOREIGN_VERSION
    int32_t options, layers;
    const char *name, *summary;
    const char *where;                   // the place of its source, "idea.py:4: ", before messages; NULL: unknown
    const struct foreign_option *option; // (options)
    const int32_t *layer;                // (layers) as in struct taps
    uint32_t kinds;                      // enum takes, of `propose`; with `rows` the options of trees say it
    int32_t memory;                      // enum draft_memory
    int32_t on_device; // features stay where the target has them; what advance queues there is waited for
    struct foreign_report *report;
    // Returns a number above 0 that the other functions get, and in *nodes the maximum nodes of a draft, the root
    // included (not with `rows`).
    int64_t (*create)(const struct foreign_setting *s, const struct foreign_value *option, int32_t *nodes);
    // One of the two is NULL. propose adds nodes. rows writes the logits behind n paths to to (n, vocab); the engine
    // draws from them, or takes the most probable ones, as the options of trees (drafters/trees/tree_builder.h) say,
    // which the drafter has besides its own. declined (n), all 0 before: 1 if there is nothing behind the path, whose
    // row is not read then.
    int32_t (*propose)(int64_t drafter, const struct foreign_request *r, int32_t n);
    int32_t (*rows)(int64_t drafter, const struct foreign_path *path, int32_t n, float *to, uint8_t *declined);
    int32_t (*advance)(int64_t drafter, const struct foreign_advance *a, int32_t n); // NULL: it keeps no state
    int32_t (*forget)(int64_t drafter, int32_t slot);                                // NULL likewise
    int32_t (*destroy)(int64_t drafter);
};

// Adds a draft token below node `parent` and returns its node; -1: it is too deep, or the draft is full; -2: it is
// wrong, and report.why says in what. q (vocab): the distribution that the token was drawn from, independently of its
// siblings; NULL: it is DETERMINISTIC. All tokens below one node that have a q have the same.
int32_t speclab_foreign_add(void *draft, int32_t parent, int32_t token, const float *q);
// Draws the token from q by the request's random numbers, and adds it in the same way.
int32_t speclab_foreign_sample(void *draft, int32_t parent, const float *q);
int32_t speclab_foreign_token(void *draft, int32_t node); // token of a node; -1: there is none

// ---- rules

struct foreign_decision {
    int32_t n, vocab;              // nodes of the draft
    const int32_t *token, *parent; // (n)
    const uint8_t *proposal;       // (n) enum proposal
    void *self;                    // argument of the functions below
    int32_t last, chosen;          // set by verify: the last accepted node, and the target's token after it
};

struct foreign_rule { // it and all that it points to stay for the rest of the process
    int32_t version;  // FOREIGN_VERSION
    int32_t options;
    const char *name, *summary;
    const struct foreign_option *option; // (options)
    int32_t lossless;                    // declared; `speclab exact --rules` shows
    uint32_t takes;                      // enum takes
    struct foreign_report *report;
    int32_t (*verify)(struct foreign_decision *d, const struct foreign_value *option);
};

// Write a row (vocab), which sums to 1: of the target after a node, and of the distribution that a node's token was
// drawn from.
void speclab_foreign_p(void *self, int32_t node, double *to);
void speclab_foreign_q(void *self, int32_t node, double *to);
// The trial of a node, once at most: true with probability min(1, num / den). -1: it was tried before, and report.why
// says so.
int32_t speclab_foreign_accept(void *self, int32_t node, double num, double den);
// The token after a node, once at most: x with probability weight[x] / sum. -1: it was drawn before, or the weights are
// no distribution, and report.why says in what.
int32_t speclab_foreign_pick(void *self, int32_t node, const double *weight);

// ---- registration, as speclab_register_drafter and speclab_register_rule. Return 0, with a sentence in report.why, if
// it is refused.
int32_t speclab_register_foreign_drafter(const struct foreign_drafter *d);
int32_t speclab_register_foreign_rule(const struct foreign_rule *r);
struct rule;
bool rule_is_foreign(const struct rule *r); // it was registered so
