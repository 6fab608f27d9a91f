// prune.h - a smaller model from some of a larger one's own layers: the cheapest drafter there is.
//
// The layers are copied bit for bit, in the model's own format (a GGUF file, or a directory with one safetensors file),
// and numbered anew; embedding, head, tokenizer and everything else stay as they are. Self-speculation by
// skipped layers: Zhang et al., "Draft & Verify" (2023).
#pragma once
#include <stdbool.h>

struct error;

// "0-3,26-29" as layer numbers, ascending, of a model with so many layers: (*n), free() it. NULL: refused.
int *prune_parse(const char *list, int layers, int *n, struct error *err);

// keep: (n) ascending. `to`, without a slash at its end, must not exist yet; after a failure it does not exist either.
bool prune_model(const char *from, const int *keep, int n, const char *to, struct error *err);
