// small_model.h - small Llama models of seeded random weights, written as real checkpoints.
//
// Both formats hold the same function (to the bit for F32): the GGUF file has permuted rows of q and k, as llama.cpp's converter
// writes them. The weights can be reproduced (tests/cases has a Python script): for tensor number t of the sorted Hugging Face
// names, element i is a splitmix64 of (seed, t, i); see small_model.c.
//
//     struct small_model t = small_default;
//     t.seed = 7;
//     small_write_hf("/tmp/x/model", &t);
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/config.h"

struct small_model {
    int vocab, width, hidden, layers, heads, kv_heads, head_dim;
    int context;            // 0: 512
    bool tied, bias;        // bias: of q, k, v and o
    bool sharp;             // the last norm is multiplied by four, so that the predictions are not flat
    double theta, eps;      // 0: 10000 and 1e-5
    enum rope_scaling rope; // ROPE_LLAMA3 becomes a table in GGUF
    double factor, low, high;
    int original;
    enum type type;    // of matrices; in GGUF vectors, and rows that are no multiple of the block, are F32
    bool tokenizer;    // bytes and a few merges; needs vocab >= SMALL_TOKENS
    bool other_tokens; // another tokenizer of as many tokens (small_tokenizer.h); Hugging Face's files only
    bool new_spelling; // config.json as written by transformers 5
    int shards;        // files of the Hugging Face checkpoint; 0: one
    uint64_t seed;
};

#define SMALL_SIZES(VOCAB, WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM) \
    .vocab = VOCAB, .width = WIDTH, .hidden = HIDDEN, .layers = LAYERS, .heads = HEADS, .kv_heads = KV_HEADS, \
    .head_dim = HEAD_DIM

enum { SMALL_TOKENS = 270 }; // 3 special ones (ChatML's), 256 bytes (byte b is token 3 + b), 11 merges
// vocab 288, width 64, 3 layers, 4 heads and 2 KV heads; with tokenizer, sharp, F32
extern const struct small_model small_default;
// Small enough to test its files truncated at every length; rows are a multiple of GGUF's alignment.
extern const struct small_model small_minimal;
// With tokenizer, sharp, F32: rows of 256 and 64 are multiples of the block of 32, rows of down (80) are not.
extern const struct small_model small_blocks;

// Missing directories are created. A failure ends the test program with a message.
void small_write_hf(const char *directory, const struct small_model *t);
void small_write_gguf(const char *path, const struct small_model *t);

struct json;
void small_write_json(const char *directory, const char *name, struct json *j); // a file of it; frees j

// One tensor by its Hugging Face name: (rows, width), rows 1 for vectors; free() it. NULL: no such tensor.
float *small_tensor(const struct small_model *t, const char *name, int64_t *rows, int64_t *width);

// The numbers of tensor `number` of a checkpoint's sorted names (rows, width), as tests/cases/make_logits.py makes them; free() them.
float *small_numbers(uint64_t seed, int number, const char *name, int64_t rows, int64_t width);

// A temporary directory for the files of a test, removed with its contents by test_directory_remove(); borrowed.
const char *test_directory(void);
void test_directory_remove(void);
int test_directory_tear_down(void **state); // the same, as the tear-down of a test or group
char *test_path(const char *name);          // path of a file in it; free() it
