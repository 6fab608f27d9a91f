// medusa.h - Medusa heads (Cai et al. 2024, arXiv 2401.10774, section 2.1.1): head h reads the hidden state that
// predicted a token and predicts the token h + 1 positions after that one.
//
//     z = state;  for each of its layers: z = z + silu(W z + b);  logits of head h = W_out z
//
// W_out belongs to the head, or is the target's.
#pragma once
#include <stdbool.h>
#include "core/quantize.h"
#include "core/tensor.h"
#include "models/heads/head.h"

struct backend;
struct error;
struct medusa;
struct model;

// path: as head_open's. rows: maximum rows of medusa_logits. target, b: borrowed. Returns NULL and sets err on failure.
// Heads whose width or vocabulary differs from the target's are an error that gives both numbers.
struct medusa *medusa_open(const char *path, const struct model *target, struct backend *b, enum activations a,
                           enum quantize quantize, int rows, struct error *err);
// Returns whether medusa_open would accept the heads h, which it closes, for a target of this shape. It reads no
// numbers (head_fits).
bool medusa_fits(struct head h, const struct model_shape *target, struct head_facts *facts, struct error *err);
void medusa_close(struct medusa *m); // NULL is allowed

const struct head_facts *medusa_facts(const struct medusa *m);

// Computes out (n, vocab), the logits of head `head` for states (n, width): FINAL_STATE of the target.
void medusa_logits(struct medusa *m, int head, struct tensor out, struct tensor states);
