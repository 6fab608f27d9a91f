// text_stream.h - streams a text while it is decoded; bytes are printed as soon as they are final.
//
// An incomplete UTF-8 character and a possible beginning of a stop string are held back. On a terminal, text from
// accepted draft tokens is coloured.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "core/memory.h"
#include "engine/stop_strings.h"
#include "models/tokenizers/tokenizer.h"

struct printer { // the caller sets the first three fields, the others start at 0
    FILE *to;    // NULL: only collect the text
    bool colour;
    struct stop_strings stops; // tokenizer NULL: print ids instead of text
    struct decoding hold;
    struct text raw;        // the tokens' bytes, in which stop strings are searched
    struct text from_draft; // (raw.n) 'y' for each byte of an accepted draft token, else 'n'
    size_t decoded;         // number of these bytes that are in text
    struct text text;       // the text up to the first stop string, or what may become one
    int tokens;
};

bool printer_wants_colour(FILE *to); // a colour terminal, and NO_COLOR (no-color.org) is not set
void printer_add(struct printer *p, const int32_t *token, int n, int n_accepted); // the first n_accepted were drafted
// at_stop_string: a stop string has ended the sequence; text from it on is left out.
void printer_end(struct printer *p, bool at_stop_string); // prints the held-back bytes and ends the line
void printer_free(struct printer *p);
