// prune.h - writes a smaller model that keeps some of a larger one's layers, for use as a cheap draft model.
//
// Layers are copied bit for bit in the model's own format (a GGUF file, or a directory with one safetensors file) and
// renumbered; embedding, head, tokenizer and everything else are unchanged. Self-speculation by skipped layers: Zhang et
// al., "Draft & Verify" (2023).
#pragma once
#include <stdbool.h>

struct error;
struct left_out;

// keep: (n) ascending. `to`, without a slash at its end, must not exist yet; after a failure it does not exist either.
// left_out: set to the tensors that are not copied, on success; NULL: not wanted.
bool prune_model(const char *from, const int *keep, int n, const char *to, struct left_out *left_out,
                 struct error *err);
