// medusa.h - Medusa's heads (Cai et al. 2024, arXiv 2401.10774, section 2.1.1): each looks at the state that predicted a
// token and guesses the one that comes so many places after that.
//
//     z = state;  for each of its layers: z = z + silu(W z + b);  logits of head h = W_out z
//
// Head 0 guesses the token after the one that the state predicted. W_out is a head's own, or the target's.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/head.h"

struct backend;
struct error;
struct medusa;
struct model;

// path: models/head.h. rows: most of one call. target and b: borrowed. A head of another width or vocabulary than the
// target's is an error that says both.
struct medusa *medusa_open(const char *path, const struct model *target, struct backend *b, enum activations a,
                           int rows, struct error *err);
bool medusa_fits(const char *path, const struct model_shape *target, struct head_facts *facts, struct error *err);
void medusa_close(struct medusa *m); // NULL is fine
int medusa_heads(const struct medusa *m);
int medusa_vocab(const struct medusa *m); // of its rows of logits
const int32_t *medusa_target_id(
    const struct medusa *m); // (vocab) of a shortened vocabulary, in any order; NULL: ids are the target's
struct hash medusa_hash(const struct medusa *m);             // which weights these are
enum activations medusa_activations(const struct medusa *m); // never DEFAULT
size_t medusa_bytes(const struct medusa *m);

// out (n, vocab) = logits of head h for states (n, width): FINAL_STATE of the target.
void medusa_logits(struct medusa *m, int head, struct tensor out, struct tensor states);
