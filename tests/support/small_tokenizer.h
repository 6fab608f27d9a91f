// small_tokenizer.h - the tokenizer of the little models: bytes, a few merges and ChatML's special tokens.
//
// In SmolLM2's shape: special tokens first, digits one by one, GPT-2's pattern, no normaliser.
#pragma once

struct gguf_writer;

enum { TINY_ENDOFTEXT, TINY_IM_START, TINY_IM_END, TINY_FIRST_BYTE };

void tiny_write_tokenizer_hf(const char *directory); // tokenizer{,_config}.json, generation_config.json
void tiny_write_tokenizer_gguf(struct gguf_writer *w);
