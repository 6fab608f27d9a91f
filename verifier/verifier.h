// verifier.h - the target model, its cache, and the rule that decides drafts.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "models/kv_cache.h"
#include "models/model.h"

struct kv_cache;
struct target_cache;
struct verification;
struct rule;
struct sampling;
struct verifier;

// An observer gets this after a draft was decided and before anything else happens. The rows of p and q are those that
// the rule read; a row of p that was not read is made when the observer reads it.
struct verified {
    const struct request *request;
    struct rows *p;
    const struct verification *verification;
};
struct step_observer {
    // Is called before the decision with the logits of the draft's nodes, (nodes, vocab) on the backend. May be NULL.
    void (*scored)(void *self, const struct request *r, struct tensor logits);
    void (*verified)(void *self, const struct verified *j); // may be NULL
    void *self;
};

struct verifier_setup {
    struct model *target;
    const struct rule *rule;
    const void *rule_options;
    const struct sampling *sampling;
    struct taps taps;              // taps that the drafter reads
    int top;                       // number of tokens of advance.top for the drafter
    int cache_rows;                // pending rows that the drafter needs
    int slots, length, nodes;      // nodes: maximum of a draft, the root included
    int used_vocab;                // ids from this one on are padding: they get probability 0
    enum type cache;               // element type of the target's keys and values
    struct target_cache *shared;   // a cache that other verifiers use as well, one after another; NULL: its own
    struct step_observer observer; // { 0 }: none
};

struct verifier *verifier_create(const struct verifier_setup *s, struct error *err); // borrows what s points to
void verifier_destroy(struct verifier *v);
const struct verifier_setup *verifier_setup(const struct verifier *v);
void verifier_observe(struct verifier *v, struct step_observer o); // replaces the setup's observer

// Runs the next chunk of a prompt and reports it in a. a->n is 0 when only the last token remains, which is the first
// root.
bool verifier_prefill(struct verifier *v, int slot, const int32_t *token, int n, struct advance *a, struct error *err);

// Queues one pass over all drafts, and their decisions if the device makes them.
bool verifier_score(struct verifier *v, const struct request *r, int n, struct error *err);
// Waits for the pass, decides each draft, and keeps the accepted rows of the cache. a[i] is the result of r[i]; the
// requests are those that were scored.
bool verifier_accept(struct verifier *v, const struct request *r, int n, struct advance *a, struct error *err);

struct verifier_counts {
    int shared_tokens;   // tokens of the prompt since verifier_forget whose rows a shared cache had already
    int64_t shared_ns;   // nanoseconds that computing those rows took
    int64_t experts;     // experts of a mixture that the last pass read, over all layers
    int64_t observer_ns; // time that the observer took during the last step
};
const struct verifier_counts *verifier_counts(const struct verifier *v);
// Returns the decision of request i of the last step, borrowed until the next step. Its arrays may be exchanged for
// others of as many nodes.
struct verification *verifier_verification(struct verifier *v, int i);

void verifier_forget(struct verifier *v, int slot);
struct kv_cache *verifier_cache(struct verifier *v);   // the cache that drafter_type.attach gets
size_t verifier_bytes(const struct verifier_setup *s); // device memory that create allocates
size_t verifier_verify_bytes(
    const struct verifier_setup *s); // maximum of a draft if the device decides: one shared workspace
size_t verifier_cache_bytes(const struct verifier_setup *s); // the cache's part of verifier_bytes; 0: it is shared
struct kv_shape verifier_cache_shape(const struct verifier_setup *s); // shape of a cache that suffices
