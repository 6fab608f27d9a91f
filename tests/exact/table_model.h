// table_model.h - a target model that is a table of rows, and that checks what it is shown.
//
// It stands in for models/model.c: a program that links it and asks for nothing else of the models runs the real
// verifier and the real cache (models/kv_cache.c) on it. A "key" is the token of its row, the whole text up to it, its
// position and slot; a "value" is the same again. What a row of a pass attends to, by the cache's own layout, must
// spell the text that the row stands for: no more, no less, each token at its place. The hidden state is the number of
// the text that was seen, and the logits are the table's row for that number, so that a cache which errs also shows in
// what is said.
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

uint64_t table_dice(uint64_t seed, uint64_t of); // the same number for the same pair, without any pattern
// What may follow a text: even, peaked, or with zeros, as the seed has it.
void table_weights(const struct table *t, uint64_t text, double *weight); // (vocab) sum to 1
void table_logits(const struct table *t, uint64_t text, float *logit);    // (vocab)

enum flaw { // what can be wrong; M49 to M58 are their numbers in the list that the tests are held against
    FLAWLESS,
    END_LOOKED_FOR_AT_THE_END_OF_STEPS, // M49
    PENALTY_AS_AT_THE_ROOT,             // M50
    PENALTY_TWICE_FOR_THE_LAST_TOKEN,   // M51
    PENALTY_FOR_REJECTED,               // M52
    REJECTED_ROWS_ARE_KEPT,             // M54
    ONE_ROW_TOO_FEW_IS_KEPT,            // M55
    POSITIONS_BY_ROW,                   // M56
    POSITIONS_ONE_ON_AFTER_A_REFUSAL,   // M56
    PATHS_GATHERED_BACKWARDS,           // M57
    PATHS_GATHERED_AS_IF_CHAINS,        // M57
    SIBLINGS_ARE_SEEN,                  // M58
    SLOTS_ARE_NOT_EMPTIED,
    FLAWS,
};
extern const char *const flaw_words[FLAWS];

// rows: of a pass, at most. on_device: the host does not see its memory, so that everything has to be downloaded. One
// model at a time.
struct model *table_model_create(struct table t, int rows, bool on_device, enum flaw flaw);
void table_model_destroy(struct model *m);

// What is true of a slot, from whoever knows: the first row of its next pass is token[from], behind token[0..from).
void table_model_expect(struct model *m, int slot, const int32_t *token, int n, int from);
void table_model_start(struct model *m, const int32_t *token, int n); // the same of every slot that is free
void table_model_free_slot(struct model *m, int slot);

// Something is not as it should be; the first such sentence is kept.
void table_model_object(struct model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t table_model_objections(const struct model *m);
const char *table_model_words(const struct model *m); // the first; ""
int64_t table_model_looked_at(const struct model *m); // rows of passes
