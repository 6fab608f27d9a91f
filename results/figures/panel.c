// panel.c - a panel as a script for gnuplot. Names are in single quotes, where gnuplot substitutes nothing, and `noenhanced`, so that no character
// of them is markup; gnuplot escapes them for SVG. Numbers are data.
//
// Every series has a colour (Okabe and Ito's, so that colour-blind readers can tell them), a point and a dash of its own. figure.css gives the
// colours of a dark page by their names in this file.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/utf8.h"
#include "results/figures/figures.h"

enum { WIDTH = 480, KEY_LINE = 22, MAX_PLACES = 30, TICK = 30, TITLE = 58, TITLE_LINE = 21, BATCH = 5 };

static const struct {
    const char *colour;
    int point, dash;
} styles[] = { { "#0072b2", 7, 1 },  { "#d55e00", 5, 2 }, { "#009e73", 9, 4 }, { "#cc79a7", 11, 3 },
               { "#c28500", 13, 5 }, { "#6f6f6f", 4, 1 }, { "#56b4e9", 6, 2 } };
enum { STYLES = sizeof(styles) / sizeof(styles[0]) };

static const char next[] = ", \\\n  "; // another series of `plot`

struct plot {
    const struct figure *f;
    const struct panel *p;
    struct text *out;
    int n_x;
    const char **x; // (n_x) of names: the places on an axis
    double high;    // the largest end of a range that is shown
};

static void put_name(struct text *out, const char *name, int most)
{
    char *plain = plain_text(name, most);
    struct text label = { 0 };
    text_puts(&label, "");
    for (const char *s = plain; *s != '\0'; s++) {
        text_add(&label, s, 1);
        text_add(&label, s, *s == '%' && most == TICK); // a tick's label is a format
    }
    quoted_put(out, label.s);
    free(label.s);
    free(plain);
}

static bool in_panel(const struct plot *p, const struct figure_row *row, const char *series)
{
    return row->cell[0] != NULL && row->cell[1] != NULL && row->cell[2] != NULL && row->cell[3] != NULL &&
           strcmp(row->cell[0], p->p->group) == 0 && strcmp(row->cell[1], p->p->measure) == 0 && isfinite(row->value) &&
           (series == NULL || strcmp(row->cell[2], series) == 0);
}

static void find_places(struct plot *p)
{
    double value = 0, end = 0;
    p->x = xcalloc(MAX_PLACES, sizeof(*p->x));
    for (int i = 0; i < p->f->n; i++) {
        const struct figure_row *row = &p->f->row[i];
        if (!in_panel(p, row, NULL))
            continue;
        value = fmax(value, row->value);
        end = fmax(end, isfinite(row->high) ? row->high : row->value);
        if (p->n_x < MAX_PLACES && place_of_name(p->x, p->n_x, row->cell[3]) == p->n_x)
            p->x[p->n_x++] = row->cell[3];
    }
    // An interval of two or three prompts may be wider than the figure: it is cut.
    p->high = p->f->kind->rates ? 1 : 1.06 * fmin(fmax(end, value), 2 * value);
    p->high = p->high > 1e-300 && p->high < 1e300 ? p->high : 1;
}

static void put_low_high(struct text *out, const struct figure_row *row)
{
    const bool known = isfinite(row->low) && isfinite(row->high);
    text_printf(out, " %.9g %.9g %.9g", row->value, known ? row->low : row->value, known ? row->high : row->value);
}

// Series of the same x stand side by side, so that no interval hides another.
static double moved(const struct plot *p, double x, int series)
{
    const enum figure_choice of = p->f->kind->choice;
    const double places = series - (p->p->n_series - 1) / 2.0;
    if (of != CHOOSE_DRAFTING && of != CHOOSE_LENGTHS && of != CHOOSE_BATCHES)
        return x;
    return p->f->kind->doubling ? x * pow(1.03, places) : x + 0.08 * places;
}

// Points of a line that joins batches bear their numbers.
static bool at_points(const struct plot *p)
{
    return p->f->kind->choice == CHOOSE_THROUGHPUT && p->f->columns > BATCH;
}

// x, value, low, high and batch; of places: the place instead of x, those of the series side by side.
static void put_points(const struct plot *p, int series)
{
    text_printf(p->out, "$s%d << END\n", series);
    for (int i = 0; i < p->f->n; i++) {
        const struct figure_row *row = &p->f->row[i];
        if (!in_panel(p, row, p->p->series[series]))
            continue;
        if (p->f->kind->style == STYLE_DOTS) {
            const int place = place_of_name(p->x, p->n_x, row->cell[3]);
            if (place == p->n_x)
                continue;
            text_printf(p->out, "%.9g", place + (series + 1.0) / (p->p->n_series + 1) - 0.5);
        } else {
            text_printf(p->out, "%.9g", moved(p, strtod(row->cell[3], NULL), series));
        }
        put_low_high(p->out, row);
        text_printf(p->out, " %.9g\n",
                    at_points(p) ? strtod(row->cell[BATCH] != NULL ? row->cell[BATCH] : "", NULL) : 0);
    }
    text_puts(p->out, "END\n");
}

static void put_ticks(const struct plot *p, const char *axis)
{
    text_printf(p->out, "set %stics (", axis);
    for (int i = 0; i < p->n_x; i++) {
        text_puts(p->out, i > 0 ? ", " : "");
        put_name(p->out, p->x[i], TICK);
        text_printf(p->out, " %d", i);
    }
    text_puts(p->out, ") scale 0\n");
}

// Intervals are solid lines; dashes are those of the line that joins the points.
static void put_series(const struct plot *p, const char *before, int series, const char *as, int style)
{
    text_printf(p->out, "%s$s%d %s lc rgb '%s' lw 1.5 pt %d dt %d ps 0.8 title ", before, series, as,
                styles[style % STYLES].colour, styles[style % STYLES].point,
                strstr(as, "bars") != NULL ? 1 : styles[style % STYLES].dash);
    put_name(p->out, p->p->series[series], 0);
}

// ---- the styles ----

// Ticks at the numbers that occur, where these are few.
static void put_numbers(const struct plot *p)
{
    const bool doubling = p->f->kind->doubling;
    double low = INFINITY, high = -INFINITY;
    text_puts(p->out, doubling ? "set logscale x 2\nset xtics (" : "set xtics (");
    for (int i = 0; i < p->n_x; i++) {
        const double x = strtod(p->x[i], NULL);
        text_printf(p->out, "%s%.9g", i > 0 ? ", " : "", x);
        low = fmin(low, x);
        high = fmax(high, x);
    }
    text_printf(p->out, ")\nset xrange [%.9g:%.9g]\n", doubling ? low * 0.8 : low - 0.5,
                doubling ? high * 1.25 : high + 0.5);
}

// From 0 on, with few ticks.
static void put_x(const struct plot *p, double high)
{
    const double least = high / 4.5, ten = pow(10, floor(log10(least))), times = least / ten;
    text_printf(p->out, "set xrange [0:%.9g]\nset xtics 0, %.9g\n", high,
                (times <= 1   ? 1
                 : times <= 2 ? 2
                 : times <= 5 ? 5
                              : 10) *
                    ten);
}

static void put_range(const struct plot *p)
{
    double high = 0;
    for (int i = 0; i < p->f->n; i++)
        if (in_panel(p, &p->f->row[i], NULL))
            high = fmax(high, strtod(p->f->row[i].cell[3], NULL));
    put_x(p, high > 1e-300 && high < 1e300 ? 1.08 * high : 1);
}

static void put_lines(const struct plot *p)
{
    const enum figure_choice of = p->f->kind->choice;
    if (p->n_x > 0 && (p->f->kind->doubling || (p->n_x <= 16 && (of == CHOOSE_DRAFTING || of == CHOOSE_LENGTHS))))
        put_numbers(p);
    else
        put_range(p);
    text_printf(p->out, "set yrange [0:%.9g]\n", p->high);
    if (strncmp(p->p->measure, "speedup", 7) == 0)
        text_puts(p->out, "set arrow 1 from graph 0, first 1 to graph 1, first 1 nohead lc rgb 'black' lw 1 dt 3\n");
    for (int i = 0; i < p->p->n_series; i++)
        put_points(p, i);
    for (int i = 0; i < p->p->n_series; i++) // first: a point's surroundings are cleared
        text_printf(p->out, "%s$s%d using 1:2:3:4 with yerrorbars lc rgb '%s' lw 1.2 pt 0 ps 0 notitle",
                    i > 0 ? next : "plot ", i, styles[i % STYLES].colour);
    for (int i = 0; i < p->p->n_series; i++)
        put_series(p, next, i, "using 1:2 with linespoints", i);
    for (int i = 0; i < p->p->n_series && at_points(p); i++)
        text_printf(p->out, "%s$s%d using 1:2:5 with labels offset 0.9,-0.5 font ',11' tc rgb '%s' notitle", next, i,
                    styles[i % STYLES].colour);
}

// Measured points with quartiles, and the fitted line in the same colour: series are `fitted, ..` first, then `measured, ..`.
static void put_cost(const struct plot *p)
{
    int fitted = 0;
    put_range(p);
    text_printf(p->out, "set yrange [0:%.9g]\n", p->high);
    for (int i = 0; i < p->p->n_series; i++) {
        put_points(p, i);
        fitted += strncmp(p->p->series[i], "fitted", 6) == 0;
    }
    for (int i = 0; i < p->p->n_series; i++)
        put_series(p, i > 0 ? next : "plot ", i, i < fitted ? "using 1:2 with lines" : "using 1:2:3:4 with yerrorbars",
                   i < fitted ? i : i - fitted);
}

static void put_places(const struct plot *p)
{
    put_ticks(p, "y");
    text_printf(p->out, "set yrange [%g:-0.5] noextend\n", p->n_x - 0.5);
    put_x(p, p->high);
    for (int i = 1; i < p->n_x && p->f->kind->style == STYLE_DOTS; i++)
        text_printf(p->out, "set arrow %d from graph 0, first %g to graph 1, first %g nohead lc rgb '#c8c8c8' lw 1\n",
                    i + 1, i - 0.5, i - 0.5);
}

static void put_dots(const struct plot *p)
{
    put_places(p);
    text_puts(p->out, "set arrow 1 from first 1, graph 0 to first 1, graph 1 nohead lc rgb 'black' lw 1 dt 3\n");
    for (int i = 0; i < p->p->n_series; i++)
        put_points(p, i);
    for (int i = 0; i < p->p->n_series; i++)
        put_series(p, i > 0 ? next : "plot ", i, "using 2:1:3:4 with xerrorbars", i);
}

// Series are the bars, one below the other, and x their parts.
static void put_bars(struct plot *p)
{
    struct plot bars = *p;
    const char **parts = p->x;
    const int n = p->n_x;
    double most = 0;
    bars.x = p->p->series;
    bars.n_x = p->p->n_series;
    double *from = xcalloc((size_t)bars.n_x + 1, sizeof(*from));
    for (int part = 0; part < n; part++) {
        text_printf(p->out, "$s%d << END\n", part);
        for (int i = 0; i < p->f->n; i++) {
            const struct figure_row *row = &p->f->row[i];
            const int at = in_panel(p, row, NULL) && strcmp(row->cell[3], parts[part]) == 0
                               ? place_of_name(bars.x, bars.n_x, row->cell[2])
                               : bars.n_x;
            if (at == bars.n_x)
                continue;
            text_printf(p->out, "%.9g %d %.9g %.9g %.9g %.9g\n", from[at] + row->value / 2, at, from[at],
                        from[at] + row->value, at - 0.36, at + 0.36);
            from[at] += row->value;
            most = fmax(most, from[at]);
        }
        text_puts(p->out, "END\n");
    }
    free(from);
    bars.high = most > 0 ? 1.04 * most : 1;
    put_places(&bars);
    for (int part = 0; part < n; part++) {
        text_printf(p->out, "%s$s%d using 1:2:3:4:5:6 with boxxyerror fs solid noborder lc rgb '%s' title ",
                    part > 0 ? next : "plot ", part, styles[part % STYLES].colour);
        put_name(p->out, parts[part], 0);
    }
}

// Space below the axis: its numbers and name, and the key.
static int below(const struct plot *p)
{
    return 70 + KEY_LINE * (p->f->kind->style == STYLE_BARS ? p->n_x : p->p->n_series);
}

static int characters_of(const char *s)
{
    int n = 0;
    for (; *s != '\0'; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

// Bytes of a group's first line, up to a comma; 0: it needs no second one.
static size_t first_line(const char *group)
{
    size_t bytes = 0;
    int n = 0;
    for (const char *s = group; *s != '\0' && n < TITLE; s++) {
        n += ((unsigned char)*s & 0xC0) != 0x80;
        bytes = s > group && s[-1] == ',' && *s == ' ' ? (size_t)(s - group) + 1 : bytes;
    }
    return characters_of(group) > TITLE ? bytes : 0;
}

static int height_of(const struct plot *p)
{
    const int above = 66 + (first_line(p->p->group) > 0 ? TITLE_LINE : 0), keys = p->p->n_series;
    switch (p->f->kind->style) {
    case STYLE_DOTS:
        return above + p->n_x * (keys * 9 + 16) + below(p);
    case STYLE_BARS:
        return above + keys * 26 + below(p);
    default:
        return above + 250 + below(p);
    }
}

// Names of places stand left of the figure, which gnuplot would allow too much room.
static void put_margins(const struct plot *p, int height, enum picture as)
{
    const bool bars = p->f->kind->style == STYLE_BARS;
    int most = 0;
    for (int i = 0; i < (bars ? p->p->n_series : p->n_x); i++) {
        const char *name = bars ? p->p->series[i] : p->x[i];
        const int n = (int)utf8_count(name, strlen(name));
        most = n > most ? n : most;
    }
    if (bars || p->f->kind->style == STYLE_DOTS)
        text_printf(p->out, "set lmargin at screen %.4f\n", 0.05 + 0.0142 * (most < TICK ? most : TICK));
    text_printf(
        p->out,
        "set rmargin at screen 0.96\nset tmargin at screen %.4f\nset bmargin at screen %.4f\n"
        "set key at screen 0.06, screen %.4f left bottom Left reverse vertical maxcols 1 samplen 2.5 spacing %g noenhanced\n",
        1 - (first_line(p->p->group) > 0 ? 60.0 + TITLE_LINE : 60.0) / height, (double)below(p) / height, 6.0 / height,
        as == PICTURE_PDF ? 1.6 : 1.05);
}

void panel_script(const struct figure *f, const struct panel *panel, enum picture as, struct text *out)
{
    struct plot p = { .f = f, .p = panel, .out = out };
    const bool vertical = f->kind->style == STYLE_LINES || f->kind->style == STYLE_COST;
    find_places(&p);
    const int height = height_of(&p);
    if (as == PICTURE_SVG)
        text_printf(out, "set terminal svg noenhanced size %d,%d dynamic font 'sans-serif,14'\n", WIDTH, height);
    else
        text_printf(out, "set terminal pdfcairo noenhanced size %.3f,%.3f font 'sans,10.5'\n", WIDTH / 96.0,
                    height / 96.0);
    text_puts(out, "set label 1 ");
    put_name(out, f->kind->title, TITLE);
    if (vertical && f->kind->y != NULL) {
        text_puts(out, ".', '.");
        put_name(out, panel->measure, TITLE);
    }
    const size_t line = first_line(panel->group);
    if (line > 0) {
        char *first = xstrndup(panel->group, line - 1);
        text_puts(out, ".\"\\n\".");
        put_name(out, first, TITLE);
        free(first);
    }
    text_puts(out, ".\"\\n\".");
    put_name(out, panel->group + line, TITLE);
    text_printf(out, " at screen 0.5, screen %.4f center\n", 1 - 22.0 / height);
    text_puts(out, "set xlabel ");
    put_name(out, f->kind->x, 0);
    if (vertical) {
        text_puts(out, "\nset ylabel ");
        put_name(out, f->kind->y != NULL ? f->kind->y : panel->measure, 0);
    }
    text_puts(out, "\nset border 3\nset tics nomirror scale 0.5\nset errorbars small\nset pointintervalbox 0\n");
    put_margins(&p, height, as);
    text_printf(out, "set grid %s lc rgb '#c8c8c8' lw 0.5 dt 1\n", vertical ? "y" : "x");
    switch (f->kind->style) {
    case STYLE_LINES:
        put_lines(&p);
        break;
    case STYLE_COST:
        put_cost(&p);
        break;
    case STYLE_DOTS:
        put_dots(&p);
        break;
    case STYLE_BARS:
        put_bars(&p);
        break;
    }
    text_puts(out, "\n");
    free(p.x);
}

bool panel_draw(const struct figure *f, const struct panel *panel, enum picture as, struct text *to, struct error *err)
{
    struct text script = { 0 }, drawn = { 0 };
    panel_script(f, panel, as, &script);
    const bool ok = gnuplot_run(&script, &drawn, err);
    const char *svg = ok && as == PICTURE_SVG ? strstr(drawn.s, "<svg") : drawn.s;
    if (ok && svg != NULL)
        text_add(to, svg, drawn.n - (size_t)(svg - drawn.s));
    free(drawn.s);
    free(script.s);
    return ok && (svg != NULL || fail(err, "gnuplot, which draws the figures, has drawn no SVG"));
}
