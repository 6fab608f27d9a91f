// small_tokenizer.h - the tokenizer of the small models: bytes, a few merges and the special tokens of ChatML.
//
// As in SmolLM2: special tokens first, single digits, the pattern of GPT-2, no normalizer.
#pragma once
#include <stdbool.h>

struct gguf_writer;

enum { SMALL_ENDOFTEXT, SMALL_IM_START, SMALL_IM_END, SMALL_FIRST_BYTE };

// tokenizer{,_config}.json, generation_config.json. other: the same tokens have other ids, and six of the merged ones are others.
void small_write_tokenizer_hf(const char *directory, bool other);
void small_write_tokenizer_gguf(struct gguf_writer *w);
