// small_model.h - little Llama models of seeded random weights, written as real checkpoints.
//
// Both formats hold the same function (to the bit for F32): the GGUF file with q and k rows permuted, as
// llama.cpp's converter does it. The weights can be made again elsewhere (tests/cases has a Python script): for tensor
// number t of the sorted Hugging Face names, element i is a splitmix64 of (seed, t, i); see small_model.c.
//
//     struct tiny t = tiny_usual;
//     t.seed = 7;
//     tiny_write_hf("/tmp/x/model", &t);
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/config.h"

struct tiny {
    int vocab, width, hidden, layers, heads, kv_heads, head_dim;
    int context;            // 0: 512
    bool tied, bias;        // bias: of q, k, v and o
    bool sharp;             // the last norm times four, so that the predictions are not flat
    double theta, eps;      // 0: 10000 and 1e-5
    enum rope_scaling rope; // ROPE_LLAMA3 becomes a table in GGUF
    double factor, low, high;
    int original;
    enum type type;    // of matrices; GGUF keeps vectors, and rows that are no whole number of blocks, as F32
    bool tokenizer;    // bytes and a few merges: needs vocab >= TINY_TOKENS
    bool new_spelling; // config.json as transformers 5 writes it
    int shards;        // files of the Hugging Face checkpoint; 0: one
    uint64_t seed;
};

enum { TINY_TOKENS = 270 };          // 3 special ones (ChatML's), 256 bytes (byte b is token 3 + b), 11 merges
extern const struct tiny tiny_usual; // vocab 288, width 64, 3 layers, 4 heads on 2; with tokenizer, sharp, F32
// Small enough that every length of its files can be tried; rows are a multiple of GGUF\'s alignment.
extern const struct tiny tiny_small;
// With tokenizer, sharp, F32: rows of 256 and of 64 are whole blocks of 32, those of down, 80, are none.
extern const struct tiny tiny_blocks;

// Directories are made where they are missing. A failure ends the test program with a sentence.
void tiny_write_hf(const char *directory, const struct tiny *t);
void tiny_write_gguf(const char *path, const struct tiny *t);

// One tensor by its Hugging Face name: (rows, width), rows 1 for vectors; free() it. NULL: there is no such tensor.
float *tiny_tensor(const struct tiny *t, const char *name, int64_t *rows, int64_t *width);

// A fresh directory for a test's files, removed with all that is in it by tiny_clean(); borrowed.
const char *tiny_directory(void);
void tiny_clean(void);
char *tiny_path(const char *name); // of a file in it; free() it
