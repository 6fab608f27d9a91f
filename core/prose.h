// prose.h - UTF-8 text laid out in lines and for Markdown.
#pragma once

struct text;

// A label and words from column `indent` to `width`, at least 8 columns, counted in characters; a word longer than a line is cut. Blanks are
// kept, but where a line ends.
void prose_paragraph(struct text *to, int indent, int width, const char *label, const char *words);
// A text in Markdown (GFM), in a table's cell or a paragraph: signs that may mean something have a backslash before them, a control character is a
// space, and bytes that are not UTF-8 are U+FFFD, as a line that has them would end a table.
void prose_markdown(struct text *to, const char *s);
// The same as code. In a table's code a bar is escaped, but a backslash before it cannot be; such a name, or one with a backquote, is plain text.
void prose_markdown_code(struct text *to, const char *s);
