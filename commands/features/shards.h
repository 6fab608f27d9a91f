// shards.h - writes features and the target's ends as safetensors, to a folder or to standard output (docs/training.md).
//
// A shard has its final name once it is complete on the disk. A folder with shards of the same settings is continued.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct error;
struct json;
struct part;
struct states_setup;
struct target;
struct text_states;
struct texts;

struct shard_writer {
    const char *folder;    // NULL: standard output
    struct part *stream;   // NULL: a folder
    struct json *settings; // metadata of all shards: keys and texts; owned
    int number;            // of the next shard
};

// Adds a text to metadata.
void metadata_set(struct json *j, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));

// settings: taken over. folder NULL: standard output. Creates the folder. Returns false and sets err on failure.
bool shard_writer_open(struct shard_writer *w, const char *folder, struct json *settings, struct error *err);
// Ends a stream. Returns false and sets err if not everything could be written.
bool shard_writer_close(struct shard_writer *w, struct error *err);
void shard_writer_abandon(struct shard_writer *w); // { 0 }, or closed: no effect

// Writes target.safetensors: embedding, LM head and final norm as floats, and the configuration. One of the same target is
// kept. model: its name, as given. layers: with those of the decoder.
bool shard_write_target(struct shard_writer *w, const struct target *t, const char *model, bool layers,
                        struct error *err);
// If the folder has the next shard, passes over it and sets *n to its number of conversations; otherwise *n is 0. One of other
// settings, or that does not begin with conversation `first`, is an error.
bool shard_kept(struct shard_writer *w, int64_t first, int64_t *n, struct error *err);
bool shard_write(struct shard_writer *w, const struct texts *t, const struct text_states *s,
                 const struct states_setup *setup, struct error *err);
