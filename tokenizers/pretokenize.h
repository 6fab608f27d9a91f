// pretokenize.h - splits text into the pieces within which BPE merges.
//
// A pre-tokenizer is a list of stages. Each splits every piece of the previous stage and sees only that piece: after the
// digits of "a 12" are split off, the piece "a " ends before them, so that its space becomes a piece of its own.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "tokenizers/vocabulary.h"

struct error;
struct pattern;

// What becomes of the matches of a pattern and the gaps between them, as Hugging Face's behaviors: Isolated, Removed (of the gaps,
// of the matches), MergedWithPrevious, MergedWithNext, Contiguous.
enum keep { KEEP_ALL, KEEP_MATCHES, KEEP_GAPS, KEEP_WITH_PREVIOUS, KEEP_WITH_NEXT, KEEP_RUNS };
enum prefix { PREFIX_NEVER, PREFIX_FIRST, PREFIX_ALWAYS };

#define GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+" // ByteLevel's own pattern

struct stage {
    struct pattern *pattern; // NULL: no split
    enum keep keep;
    enum prefix prefix; // a space before a piece that does not begin with one; FIRST: only where the text begins
    bool metaspace;     // spaces, that one as well, become U+2581
    bool letters;       // pieces become byte letters for the stages that follow
};

enum { MAX_STAGES = 8 };
struct pretokenizer { // start with { 0 }
    int n;
    struct stage stage[MAX_STAGES];
    bool letters; // its pieces are in byte letters
};

// Each appends a stage. They return false and set err if there are too many or the pattern is invalid.
bool pretokenizer_pattern(struct pretokenizer *p, struct pattern *pattern, enum keep keep,
                          struct error *err); // takes the pattern over
bool pretokenizer_split(struct pretokenizer *p, const char *pattern, size_t n, enum keep keep, struct error *err);
bool pretokenizer_digits(struct pretokenizer *p, bool individually, struct error *err);
bool pretokenizer_punctuation(struct pretokenizer *p, enum keep keep, struct error *err);
bool pretokenizer_byte_level(struct pretokenizer *p, bool space_first, bool gpt2, struct error *err);
void pretokenizer_letters(struct pretokenizer *p); // stages that follow the last one see byte letters
bool pretokenizer_metaspace(struct pretokenizer *p, enum prefix prefix, bool split, struct error *err);
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
bool splitter_text(struct splitter *c, const char *s, size_t n, bool first,
                   struct error *err); // first: the text begins here
void splitter_end(struct splitter *c);
