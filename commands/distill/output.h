// output.h - the files of `speclab distill`, which an interrupted run leaves so that the next one continues.
//
//     FILE                 a JSON line for each conversation, written by one write as it ends
//     FILE.dropped         {"id", "reason", "user"}: conversations that are not written, and why; likewise
//     FILE.settings.json   what decides their texts; another run must agree
//
// A line that a killed run left incomplete is cut.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "commands/distill/hash_map.h"

struct error;
struct json;

// Why a conversation is dropped; each has a name in drop_names.
enum drop {
    DROP_NOT,
    DROP_EXCLUDED,
    DROP_REPEATED,
    DROP_SHORT,
    DROP_UNENDED,
    DROP_SPECIAL,
    DROP_EMPTY,
    DROP_LONG,
    DROPS
};
extern const char *const drop_names[DROPS]; // "excluded", ..
extern const char *const drop_means[DROPS]; // in words

struct output { // start with { 0 }
    char *path, *dropped_path;
    int fd, dropped_fd;
    struct hash_map done; // ids that are in one of the files; n: conversations that are written or dropped
    int64_t conversations, answer_tokens;
    int64_t dropped[DROPS];
};

// Opens or begins the files. Calls each() for each conversation in them, with the user's first message, or what a dropped one has of it ("": nothing).
// Settings that differ from those of the file, a line that is no conversation, and a file that another process writes are errors.
bool output_open(struct output *o, const char *path, const struct json *settings,
                 void (*each)(void *self, const char *id, const char *user), void *self, struct error *err);
bool output_has(const struct output *o, const char *id);
bool output_write(struct output *o, const struct json *conversation, int answer_tokens, struct error *err);
bool output_drop(struct output *o, const char *id, enum drop reason, const char *user, struct error *err);
void output_close(struct output *o);
