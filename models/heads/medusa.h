// medusa.h - Medusa heads (Cai et al. 2024, arXiv 2401.10774, section 2.1.1): head h reads the hidden state that predicted
// a token and predicts the token h + 1 positions after that one.
//
//     z = state;  for each of its layers: z = z + silu(W z + b);  logits of head h = W_out z
//
// W_out is a head's own, or the target's.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/quantize.h"
#include "core/tensor.h"
#include "models/heads/head.h"

struct backend;
struct error;
struct medusa;
struct model;

// path: as head_open's. rows: maximum rows of medusa_logits. target, b: borrowed. Returns NULL and sets err on failure;
// heads for another width or vocabulary than the target's are an error that gives both numbers.
struct medusa *medusa_open(const char *path, const struct model *target, struct backend *b, enum activations a,
                           enum quantize quantize, int rows, struct error *err);
// Whether medusa_open would accept the heads for a target of this shape. Reads no numbers (head_fits).
bool medusa_fits(const char *path, const struct model_shape *target, struct head_facts *facts, struct error *err);
void medusa_close(struct medusa *m); // NULL is allowed
int medusa_heads(const struct medusa *m);
int medusa_vocab(const struct medusa *m); // of its logits
// (vocab) target ids of a reduced vocabulary, in any order; NULL: the ids are the target's.
const int32_t *medusa_target_id(const struct medusa *m);
struct hash medusa_hash(const struct medusa *m);             // of its weights and configuration
enum activations medusa_activations(const struct medusa *m); // never ACTIVATIONS_DEFAULT
size_t medusa_bytes(const struct medusa *m);                 // of its weights and workspace

// out (n, vocab) = logits of head `head` for states (n, width): FINAL_STATE of the target.
void medusa_logits(struct medusa *m, int head, struct tensor out, struct tensor states);
