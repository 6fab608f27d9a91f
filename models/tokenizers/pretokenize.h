// pretokenize.h - splits text into the pieces within which BPE merges.
//
// A pre-tokenizer is a list of stages. Each splits every piece of the previous stage and sees only that piece: after
// the digits of "a 12" are split off, the piece "a " ends before them, so that its space becomes a piece of its own.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "models/tokenizers/vocabulary.h"

struct error;
struct pattern;

// What happens to the matches of a pattern and the gaps between them, as in Hugging Face's behaviors: Isolated, Removed
// (the gaps, the matches), MergedWithPrevious, MergedWithNext, Contiguous.
enum keep { KEEP_ALL, KEEP_MATCHES, KEEP_GAPS, KEEP_WITH_PREVIOUS, KEEP_WITH_NEXT, KEEP_RUNS };
enum prefix { PREFIX_NEVER, PREFIX_FIRST, PREFIX_ALWAYS };

// Patterns of Hugging Face's pre-tokenizers: ByteLevel's own, Digits one at a time, runs of them, and Punctuation.
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
// Digits and Punctuation use Rust's Unicode 17, which has thirteen more numbers than Oniguruma's 16.
#define DIGIT "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]"
#define DIGITS DIGIT "+"
// Punctuation uses an older Unicode, in which these are not punctuation. They were found by comparing both on every
// code point.
#define NOT_YET_PUNCTUATION \
    "\\x{61d}\\x{9fd}\\x{a76}\\x{c77}\\x{c84}\\x{1b4e}-\\x{1b4f}\\x{1b7d}-\\x{1b7f}\\x{2e43}-\\x{2e4f}" \
    "\\x{2e52}-\\x{2e5d}\\x{10d6e}\\x{10ead}\\x{10f55}-\\x{10f59}\\x{10f86}-\\x{10f89}\\x{113d4}-\\x{113d5}" \
    "\\x{113d7}-\\x{113d8}\\x{1144b}-\\x{1144f}\\x{1145a}-\\x{1145b}\\x{1145d}\\x{11660}-\\x{1166c}\\x{116b9}\\x{1183b}" \
    "\\x{11944}-\\x{11946}\\x{119e2}\\x{11a3f}-\\x{11a46}\\x{11a9a}-\\x{11a9c}\\x{11a9e}-\\x{11aa2}\\x{11b00}-\\x{11b09}" \
    "\\x{11be1}\\x{11c41}-\\x{11c45}\\x{11c70}-\\x{11c71}\\x{11ef7}-\\x{11ef8}\\x{11f43}-\\x{11f4f}\\x{11fff}" \
    "\\x{12ff1}-\\x{12ff2}\\x{16d6d}-\\x{16d6f}\\x{16e97}-\\x{16e9a}\\x{16fe2}\\x{1e5ff}\\x{1e95e}-\\x{1e95f}"
// Punctuation: Unicode's, two former ones, and ASCII's.
#define PUNCTUATION "(?![" NOT_YET_PUNCTUATION "])[\\p{P}\\x{166d}\\x{111c9}$+<=>^`|~]"

struct stage {
    struct pattern *pattern; // NULL: no split
    enum keep keep;
    enum prefix prefix; // a space is put before a piece that does not begin with one; FIRST: only where the text begins
    bool metaspace;     // spaces become U+2581, the added one as well
    bool letters;       // pieces become byte letters for the stages that follow
};

enum { MAX_STAGES = 8 };
struct pretokenizer { // start with { 0 }
    int n;
    struct stage stage[MAX_STAGES];
    bool letters; // its pieces are in byte letters
};

// Each appends a stage. They return false and set err if there are too many or the pattern is invalid.
bool pretokenizer_add(struct pretokenizer *p, struct stage stage, struct error *err); // takes its pattern over
bool pretokenizer_split(struct pretokenizer *p, const char *pattern, size_t n, enum keep keep, struct error *err);
void pretokenizer_letters(struct pretokenizer *p); // stages that follow the last one see byte letters
// Appends all stages of a family under its name in GGUF's `tokenizer.ggml.pre`. *ignore_merges: whether pieces that are
// tokens are taken without merging. (pretokenize_families.c)
bool pretokenizer_family(struct pretokenizer *p, const char *name, size_t n, bool *ignore_merges, struct error *err);
// Returns the family with this behaviour: optionally single digits first, then a pattern (NULL: GPT-2's). Returns NULL
// if there is none.
const char *pretokenizer_family_of(bool digits, const char *pattern, bool ignore_merges);
void pretokenizer_free(struct pretokenizer *p);

// Passes the pieces of UTF-8 text to `piece` in order; none is empty.
struct splitter;
struct splitter *splitter_begin(const struct pretokenizer *p, void (*piece)(void *to, const char *s, size_t n),
                                void *to);
bool splitter_text(struct splitter *c, const char *s, size_t n, bool first,
                   struct error *err); // first: the text begins here
void splitter_end(struct splitter *c);
