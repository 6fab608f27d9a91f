// small_heads.h - little speculators of seeded random weights that fit a target, written as they are published: a directory with
// config.json and model.safetensors.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct head_shape {
    int width, vocab, layers;              // the target's
    int heads, kv_heads, head_dim, hidden; // its own; a Medusa head has none
    int draft_vocab;                       // EAGLE-3's, and of a Medusa head with a token_map; 0: the target's
    int medusa_heads;
    bool shared;      // Medusa's heads have the target's output
    bool speculators; // EAGLE's: in the form of that library
    uint64_t seed;
};
struct head_shape head_shape_of(
    const char *target); // what fits this model: four Medusa heads, a vocabulary a third as large

void heads_write_medusa(const char *directory, const struct head_shape *s);
void heads_write_eagle(const char *directory, const struct head_shape *s);
void heads_write_eagle3(const char *directory, const struct head_shape *s);
// An EAGLE head that is a little model's own layer, reading the token alone: of a model of one layer nearly the model itself
// (the norms before attention and head, which EAGLE has not, are a factor that is about the same for every token).
struct tiny;
void heads_write_eagle_of(const char *directory, const struct tiny *target);
