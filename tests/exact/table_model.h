// table_model.h - a target model that is a table of rows, and that checks what its rows attend to.
//
// It replaces models/model.c: a program that links it runs the real verifier and the real cache (models/kv_cache.c) on
// it. A "key" is the token of its row, the number of the text up to it, its position and slot; a "value" is the same.
// What a row of a pass attends to, by the cache's own layout, must be exactly the text of that row, each token at its
// place. The hidden state is the number of the text that was attended to, and the logits are the table's row for that
// number, so that a faulty cache also shows in the output.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct model;

enum { TABLE_VOCAB = 3, TABLE_TEXT = 16, TABLE_SLOTS = 2 };

// Texts are numbered: 0 is the empty one.
static inline uint64_t text_then(uint64_t text, int vocab, int32_t token)
{
    return text * (uint64_t)vocab + 1 + (uint64_t)token;
}
uint64_t text_number(int vocab, const int32_t *token, int n);

struct table {
    uint64_t seed;
    int vocab;
};

uint64_t table_hash(uint64_t seed, uint64_t of); // a hash of the pair
// The distribution after a text: even, peaked, or with zeros, depending on the seed.
void table_weights(const struct table *t, uint64_t text, double *weight); // (vocab) sum to 1
void table_logits(const struct table *t, uint64_t text, float *logit);    // (vocab)

enum flaw { // M49 to M58: numbers in docs/notes/mutants.md
    FLAWLESS,
    END_CHECKED_AT_THE_END_OF_STEPS,  // M49
    PENALTY_AS_AT_THE_ROOT,           // M50
    PENALTY_TWICE_FOR_THE_LAST_TOKEN, // M51
    PENALTY_FOR_REJECTED,             // M52
    PENALTY_FOR_THE_PROMPT,
    REJECTED_ROWS_ARE_KEPT,              // M54
    ONE_ROW_TOO_FEW_IS_KEPT,             // M55
    POSITIONS_BY_ROW,                    // M56
    POSITIONS_SHIFTED_AFTER_A_REJECTION, // M56
    PATHS_GATHERED_BACKWARDS,            // M57
    PATHS_GATHERED_AS_IF_CHAINS,         // M57
    SIBLINGS_ARE_SEEN,                   // M58
    SLOTS_ARE_NOT_EMPTIED,
    FLAWS,
};
extern const char *const flaw_names[FLAWS];

// rows: maximum of a pass. on_device: the host cannot read its memory, so that everything is downloaded. One model at a
// time.
struct model *table_model_create(struct table t, int rows, bool on_device, enum flaw flaw);
void table_model_destroy(struct model *m);

// Sets the expected text of a slot: the first row of its next pass is token[from], after token[0..from).
void table_model_expect(struct model *m, int slot, const int32_t *token, int n, int from);
void table_model_start(struct model *m, const int32_t *token, int n); // the same for every free slot
void table_model_free_slot(struct model *m, int slot);

// Reports a violation; the first message is kept.
void table_model_violation(struct model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t table_model_violations(const struct model *m);
const char *table_model_message(const struct model *m);  // the first message; "" if there is none
int64_t table_model_rows_checked(const struct model *m); // rows of passes
