// text_stream.h - a text shown while it is being decoded: bytes come out as soon as they are certain to stay.
//
// A character that is not complete, and what may be the beginning of a stop string, is held back. On a terminal, text
// that the drafter had guessed is coloured, so that one can see what was guessed.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "core/memory.h"
#include "engine/stop_strings.h"
#include "tokenizers/tokenizer.h"

struct printer { // start with the first three fields set, the others 0
    FILE *to;    // NULL: only collect the text
    bool colour;
    struct stop_strings stops; // tokenizer NULL: ids are shown instead of text
    struct decoding hold;
    struct text text;          // all of it so far; may hold a stop string, which printer_end cuts off
    struct text drafted_right; // (text.n) 'y' where a byte was guessed
    size_t shown;
    int tokens;
};

bool printer_wants_colour(FILE *to); // a terminal that can, and no NO_COLOR (no-color.org)
void printer_add(struct printer *p, const int32_t *token, int n, int drafted_right); // the first `guessed` of them were
void printer_end(struct printer *p); // the rest, and the end of the line
void printer_free(struct printer *p);
