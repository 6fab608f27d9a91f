// verifier.h - the target model, its cache, and the rule that reads its answer.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "models/model.h"

struct verification;
struct rule;
struct sampling;
struct verifier;

// For whoever looks on, after a draft was judged and before anything else happens: the rows of p and q are those that
// it was judged by. p: a row that nobody has asked for yet is made when it is asked for.
struct verified {
    const struct request *request;
    struct rows *p;
    const struct verification *verification;
};
struct step_observer {
    // Before it is judged: logits of the draft's nodes as they came, (nodes, vocab) on the backend. May be NULL.
    void (*scored)(void *self, const struct request *r, struct tensor logits);
    void (*verified)(void *self, const struct verified *j); // may be NULL
    void *self;
};

enum { VERIFIER_CHUNK = 256 }; // a prompt goes in by stretches of so many tokens, if passes may have so many rows

struct verifier_setup {
    struct model *target;
    const struct rule *rule;
    const void *rule_options;
    const struct sampling *sampling;
    struct taps taps;              // the drafter's
    int slots, length, nodes;      // nodes: most that a draft may have, the root included
    int used_vocab;                // ids from here on are no tokens: they get probability 0
    enum type cache;               // element type of the target's keys and values
    struct step_observer observer; // { 0 }: nobody
};

struct verifier *verifier_create(const struct verifier_setup *s, struct error *err); // borrows what s points to
void verifier_destroy(struct verifier *v);
const struct verifier_setup *verifier_setup(const struct verifier *v);

// Takes in the next stretch of a prompt and says how far it came; a->n is 0 when only the last
// token is left, which is the first root.
bool verifier_prefill(struct verifier *v, int slot, const int32_t *token, int n, struct advance *a, struct error *err);

// Scores all drafts in one pass, which a device may still be at when this returns, and where it can do that judges them.
bool verifier_score(struct verifier *v, const struct request *r, int n, struct error *err);
// Waits for the scores, judges each draft, keeps what stood. a[i] answers r[i], which are the requests that were scored.
bool verifier_accept(struct verifier *v, const struct request *r, int n, struct advance *a, struct error *err);
// Both at once.
bool verifier_verify(struct verifier *v, const struct request *r, int n, struct advance *a, struct error *err);

// Moments of a step on the target's device, by its own clock: what was queued before is done at each. Where the device
// queues, they are known once a later wait is over: verifier_accept's, or verifier_finish.
void verifier_stamp(struct verifier *v, int number);
bool verifier_queues(const struct verifier *v);
bool verifier_finish(struct verifier *v, struct error *err);
int64_t verifier_between(struct verifier *v, int from, int to); // nanoseconds
int64_t verifier_watched_ns(const struct verifier *v);          // of the last verify: time that whoever looked on took
// What the last verify judged request i by; borrowed until the next.
const struct verification *verifier_verification(const struct verifier *v, int i);

void verifier_forget(struct verifier *v, int slot);
size_t verifier_bytes(const struct verifier_setup *s);        // that create takes, on the target's device
size_t verifier_verify_bytes(const struct verifier_setup *s); // that judging takes there, at most: all share one room
size_t verifier_cache_bytes(const struct verifier_setup *s);  // of these the cache's
