// pretokenize.h - cutting text into the pieces within which a tokenizer merges.
//
// A list of stages. Each cuts every piece that the one before it made, and sees nothing beyond that piece: after the
// digits of "a 12" were set apart, "a " ends where they begin, so that its space stands alone.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;
struct pattern;

enum keep { KEEP_ALL, KEEP_MATCHES, KEEP_GAPS }; // of what a pattern finds and what lies between

struct stage {
    struct pattern *pattern; // NULL: cuts nothing
    enum keep keep;
    bool space_first; // a piece that does not begin with a space is given one
};

enum { STAGES = 8 };
struct pretokenizer { // start with { 0 }
    int n;
    struct stage stage[STAGES];
};

// A stage at the end of the list; false if there are too many or the pattern is none.
bool pretokenizer_split(struct pretokenizer *p, const char *pattern, size_t n, enum keep keep, struct error *err);
bool pretokenizer_split_literal(struct pretokenizer *p, const char *text, size_t n, enum keep keep, struct error *err);
bool pretokenizer_digits(struct pretokenizer *p, bool individually, struct error *err);
bool pretokenizer_byte_level(struct pretokenizer *p, bool space_first, bool gpt2, struct error *err);
// All of them, as GGUF's `tokenizer.ggml.pre` names a family; whether it also takes whole pieces that are tokens.
bool pretokenizer_family(struct pretokenizer *p, const char *name, size_t n, bool *whole_pieces, struct error *err);
// The family that cuts like this: digits one by one first, then by a pattern (NULL: GPT-2's). NULL: none does.
const char *pretokenizer_family_of(bool digits, const char *pattern, bool whole_pieces);
void pretokenizer_free(struct pretokenizer *p);

// Cutting: the pieces of a text that is UTF-8 go to `piece`, in order; none is empty.
struct cutting;
struct cutting *cutting_begin(const struct pretokenizer *p, void (*piece)(void *to, const char *s, size_t n), void *to);
bool cutting_text(struct cutting *c, const char *s, size_t n, struct error *err);
void cutting_end(struct cutting *c);
