// figures.h - the figures of a report: which runs are drawn, the numbers of a database, gnuplot's picture, and the page that shows them.
//
// A figure is one SQL file (results/figures/NAME.sql). Its line WITH chosen(..) names every run; here it becomes the list of those that are drawn,
// and the text that is run is the text that is shown. Columns 0 to 4 of its rows are group, measure, series, x and the value. A group and a
// measure are one picture (a panel). The value is a function of sums over prompts of columns a, b, c, d of its table `sums`; of these
// statistics/intervals.h makes the interval of the row with the same group, measure, series, x and run.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/memory.h"

struct comparison;
struct comparisons;
struct error;
struct store;
struct tally;

enum figure_choice {   // which runs are chosen, what is a group, and what is a series
    CHOOSE_NO_RUNS,    // the SQL reads no runs
    CHOOSE_EVERY,      // none too; of these and the next three a group is a comparison, and a series a run
    CHOOSE_DRAFTING,   // runs with draft tokens
    CHOOSE_PAIRED,     // runs with a speedup
    CHOOSE_CATEGORIES, // the same, on prompts with categories
    CHOOSE_LENGTHS,    // chains; a series: drafters that differ in `tokens` alone
    CHOOSE_TREES,      // a group: one drafter of a comparison; a series: its chains, fixed trees or best-first trees
    CHOOSE_BATCHES,    // a group: what differs in drafter, rule and batch alone; a series: a drafter and a rule
    CHOOSE_THROUGHPUT, // the same, and none
};

enum figure_style { STYLE_LINES, STYLE_DOTS, STYLE_BARS, STYLE_COST };

struct figure_kind {
    const char *name, *title, *about, *needs; // needs: what a database lacks that has no such figure
    const char *sql;
    const char *x, *y; // labels of the axes; y NULL: the measure
    enum figure_choice choice;
    enum figure_style style;
    bool rates;    // a / b is from 0 to 1
    bool doubling; // x is drawn on a logarithmic scale
};
extern const struct figure_kind figure_kinds[];
extern const int figure_kinds_n;

enum { MAX_GROUPS = 4, MAX_SERIES = 6, MAX_RUNS_OF_SERIES = 24 };

struct chosen {
    char *group, *series;
    int64_t run;
};
struct choice {
    int n;
    struct chosen *of; // (n) groups in order, and in each the series in order
    char *note;        // what is not drawn; "": nothing
};
struct choice choice_make(const struct figure_kind *k, struct store *s, const struct comparisons *all);
void choice_free(struct choice *c);

struct figure_row {
    char **cell;  // (columns) as SQLite writes it; NULL: NULL
    bool *number; // (columns) whether it is one
    double value, low, high;
};
struct figure {
    const struct figure_kind *kind;
    struct choice choice;
    char *sql; // as run
    int columns, n;
    char **column;          // (columns) their names
    bool intervals;         // low and high are of statistics/intervals.h; otherwise columns of the SQL, or NAN
    struct figure_row *row; // (n); 0: the database lacks what it needs
};
bool figure_read(const struct figure_kind *k, struct store *s, const struct comparisons *all, struct figure *to,
                 struct error *err);
void figure_free(struct figure *f);

struct panel { // rows of one group and measure
    const char *group, *measure;
    int n_series;
    const char **series; // (n_series) in the order of colours
};
struct panel *figure_panels(const struct figure *f, int *n); // free with panels_free
void panels_free(struct panel *p, int n);

// Draws a panel by gnuplot. to: SVG without its XML declaration, or PDF.
enum picture { PICTURE_SVG, PICTURE_PDF };
bool panel_draw(const struct figure *f, const struct panel *p, enum picture as, struct text *to, struct error *err);
void panel_script(const struct figure *f, const struct panel *p, enum picture as, struct text *out);
bool gnuplot_run(const struct text *script, struct text *to, struct error *err);

// Text as people wrote it, without control characters, malformed UTF-8 replaced, cut to `most` characters (0: not cut).
char *plain_text(const char *s, int most);
void html_put(struct text *out, const char *s);
// In single quotes, those in it doubled, as SQL and gnuplot have it.
void quoted_put(struct text *out, const char *s);
int place_of_name(const char *const *names, int n, const char *name); // n: it is not among them

// A figure with a picture of each panel.
struct drawing {
    const struct figure *figure;
    struct panel *panel;
    int n;
    struct text *svg; // (n)
};
// One page with every figure, without requests (page.c). experiment NULL: all.
bool page_write(struct store *s, const char *experiment, const struct comparisons *all, const struct drawing *drawing,
                int n, struct text *out, struct error *err);
