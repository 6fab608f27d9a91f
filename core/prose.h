// prose.h - UTF-8 text laid out in lines.
#pragma once

struct text;

// Appends a label and words from column `indent` to `width`, at least 8 columns, counted in characters. A word longer
// than a line is cut. Blanks are kept except at the end of a line.
void prose_paragraph(struct text *to, int indent, int width, const char *label, const char *words);
