// printed_tables.h - reads the rows of a report's tables back from each form: field 0 is the name, or in the terminal its number.
#pragma once

enum { FIELDS = 40 };

struct printed_row {
    int n;
    char *field[FIELDS];
};

struct printed_rows {
    int n;
    struct printed_row *row;
};

// The lines of the terminal's table of cells: number, tokens/s, speedup and interval, tokens/step, accepted, equal, prompts.
struct printed_rows printed_rows_of_summary(const char *text);
void printed_rows_free(struct printed_rows *t);
const char *line_end(const char *s); // the next '\n' or the end
