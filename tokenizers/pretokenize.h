// pretokenize.h - splits text into the pieces within which BPE merges.
//
// A pre-tokenizer is a list of stages. Each splits every piece of the previous stage and sees only that piece: after the
// digits of "a 12" are split off, the piece "a " ends before them, so that its space becomes a piece of its own.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;
struct pattern;

enum keep { KEEP_ALL, KEEP_MATCHES, KEEP_GAPS }; // matches of a pattern, the gaps between them, or both

struct stage {
    struct pattern *pattern; // NULL: no split
    enum keep keep;
    bool space_first; // prepends a space to a piece that does not begin with one
};

enum { MAX_STAGES = 8 };
struct pretokenizer { // start with { 0 }
    int n;
    struct stage stage[MAX_STAGES];
};

// Each appends a stage. They return false and set err if there are too many or the pattern is invalid.
bool pretokenizer_split(struct pretokenizer *p, const char *pattern, size_t n, enum keep keep, struct error *err);
bool pretokenizer_split_literal(struct pretokenizer *p, const char *text, size_t n, enum keep keep, struct error *err);
bool pretokenizer_digits(struct pretokenizer *p, bool individually, struct error *err);
bool pretokenizer_byte_level(struct pretokenizer *p, bool space_first, bool gpt2, struct error *err);
// Appends all stages of a family as named by GGUF's `tokenizer.ggml.pre`. *ignore_merges: whether pieces that are tokens
// are taken without merging.
bool pretokenizer_family(struct pretokenizer *p, const char *name, size_t n, bool *ignore_merges, struct error *err);
// The family with this behaviour: optionally single digits first, then a pattern (NULL: GPT-2's). NULL if there is none.
const char *pretokenizer_family_of(bool digits, const char *pattern, bool ignore_merges);
void pretokenizer_free(struct pretokenizer *p);

// Splitting: passes the pieces of UTF-8 text to `piece` in order; none is empty.
struct splitter;
struct splitter *splitter_begin(const struct pretokenizer *p, void (*piece)(void *to, const char *s, size_t n),
                                void *to);
bool splitter_text(struct splitter *c, const char *s, size_t n, struct error *err);
void splitter_end(struct splitter *c);
