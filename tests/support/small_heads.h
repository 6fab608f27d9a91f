// small_heads.h - writes small heads (Medusa, EAGLE, EAGLE-3) of seeded random weights for a target, in their published form: a
// directory with config.json and model.safetensors.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct head_shape {
    int width, vocab, layers;              // of the target
    int heads, kv_heads, head_dim, hidden; // of the head's layer; not used by Medusa
    int draft_vocab;                       // of EAGLE-3, and of Medusa with a token_map; 0: as the target
    int medusa_heads;
    bool shared;      // Medusa heads share the target's output matrix
    bool speculators; // EAGLE in the format of the speculators library
    uint64_t seed;
};
// For this model: four Medusa heads, a draft vocabulary a third as large.
struct head_shape head_shape_of(const char *target);

void heads_write_medusa(const char *directory, const struct head_shape *s);
void heads_write_eagle(const char *directory, const struct head_shape *s);
void heads_write_eagle3(const char *directory, const struct head_shape *s);
// An EAGLE head that is the first layer of a small model and reads the token alone. For a model of one layer its predictions
// nearly equal the model's (EAGLE lacks the norms before attention and output, which scale every token about equally).
struct small_model;
void heads_write_eagle_of(const char *directory, const struct small_model *target);
