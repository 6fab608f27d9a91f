// page.c - the page: one file without requests, by a policy that it states itself. Every text of the database goes through html_put.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "results/figures/figures.h"
#include "results/query.h"
#include "results/tables/tables.h"
#include "results/tally.h"

extern const char page_css[], page_js[], figure_css[];

enum { OPEN_ROWS = 12 }; // of a table that is shown at once; longer ones are opened by the reader

static void put_head(struct text *out, const char *const *names, int n, const char *numbers)
{
    text_puts(out, "<thead><tr>");
    for (int i = 0; i < n; i++) {
        text_printf(out, "<th scope=\"col\"%s><button type=\"button\">", numbers[i] == 'n' ? " class=\"n\"" : "");
        html_put(out, names[i]);
        text_puts(out, "</button></th>");
    }
    text_puts(out, "</tr></thead>\n<tbody>\n");
}

static void open_table(struct text *out, const char *label, const char *const *names, int n, const char *numbers)
{
    text_puts(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"");
    html_put(out, label);
    text_puts(out, "\"><table class=\"sortable\">");
    put_head(out, names, n, numbers);
}

static void put_cell(struct text *out, const char *s, const char *kind)
{
    text_printf(out, "<td%s>", kind);
    html_put(out, s);
    text_puts(out, "</td>");
}

// exact: the number to sort by and to compare, as SQLite or C writes it.
static void put_number(struct text *out, double x, const char *exact)
{
    if (isnan(x)) {
        text_puts(out, "<td class=\"n\" data-v=\"\">\u2013</td>");
        return;
    }
    text_puts(out, "<td class=\"n\" data-v=\"");
    html_put(out, exact);
    text_printf(out, fabs(x) >= 1000 || x == floor(x) ? "\">%.0f</td>" : "\">%.4g</td>", x);
}

static void put_real(struct text *out, double x)
{
    char *exact = xformat("%.17g", x);
    put_number(out, x, exact);
    free(exact);
}

static void put_interval(struct text *out, const struct interval *x)
{
    put_real(out, x->value);
    if (isnan(x->low) || isnan(x->high))
        text_puts(out, "<td class=\"n\" data-v=\"\">\u2013</td>");
    else
        text_printf(out, "<td class=\"n\" data-v=\"%.17g\">%.3g to %.3g</td>", x->low, x->low, x->high);
}

// ---- where the numbers are from ----

// Each row of the statement is a line; ?1 is the experiment, NULL: all.
static bool put_lines(struct text *out, struct store *s, const char *experiment, const char *label, const char *sql,
                      struct error *err)
{
    text_printf(out, "<dt>%s</dt><dd>", label);
    struct query *q = query_open(s, sql);
    query_put_text(q, experiment);
    for (int i = 0; query_next(q); i++) {
        text_puts(out, i > 0 ? "<br>" : "");
        html_put(out, query_text(q, 0));
    }
    text_puts(out, "</dd>\n");
    return query_close(q, err);
}

#define OF_EXPERIMENT " FROM run WHERE ?1 IS NULL OR experiment = ?1 GROUP BY 1 ORDER BY min(id)"

static bool put_origin(struct text *out, struct store *s, const char *experiment, struct error *err)
{
    text_puts(out, "<dl>\n");
    const bool ok =
        put_lines(out, s, experiment, "Machine", "SELECT machine || ' (' || device || ')'" OF_EXPERIMENT, err) &&
        put_lines(out, s, experiment, "Revision of speclab", "SELECT revision" OF_EXPERIMENT, err) &&
        put_lines(out, s, experiment, "Target",
                  "SELECT target || ' (weights ' || target_hash || '), ' || model_type || ', activations ' ||"
                  " activations || ', cache ' || cache" OF_EXPERIMENT,
                  err) &&
        put_lines(out, s, experiment, "Prompts (file and hash)", "SELECT prompts" OF_EXPERIMENT, err) &&
        put_lines(out, s, experiment, "Sampling", "SELECT sampling" OF_EXPERIMENT, err) &&
        put_lines(out, s, experiment, "Decoded",
                  "SELECT min(started) || ' to ' || coalesce(max(finished), '(not finished)') FROM run"
                  " WHERE ?1 IS NULL OR experiment = ?1",
                  err);
    text_puts(out, "</dl>\n");
    return ok;
}

static void put_settings(struct text *out, const struct comparisons *all)
{
    static const char *const names[] = { "settings",          "experiment", "target",  "sampling", "batch", "prompts",
                                         "number of prompts", "turns",      "repeats", "limits",   "seed" };
    text_printf(out, "<details%s><summary>%d group%s of settings, whose cells are compared with each other</summary>\n",
                all->n <= OPEN_ROWS ? " open" : "", all->n, all->n > 1 ? "s" : "");
    open_table(out, "settings", names, 11, "ntttntnnntt");
    for (int i = 0; i < all->n; i++) {
        const struct comparison *c = &all->comparison[i];
        char *seed = xformat("%llu", (unsigned long long)c->seed);
        text_puts(out, "<tr>");
        put_real(out, i + 1);
        put_cell(out, c->experiment, "");
        put_cell(out, c->target, "");
        put_cell(out, c->sampling, "");
        put_real(out, (double)c->batch);
        put_cell(out, c->prompts, "");
        put_real(out, (double)c->n_prompts);
        put_real(out, (double)c->turns);
        put_real(out, (double)c->repeats);
        put_cell(out, c->limits, "");
        put_cell(out, seed, "");
        text_puts(out, "</tr>\n");
        free(seed);
    }
    text_puts(out, "</tbody></table></div></details>\n");
}

// ---- all cells ----

static void put_texts(struct text *out, const struct comparison *c, const struct tally *t)
{
    char *equal = report_equal(c, t);
    text_puts(out, "<td class=\"n\" data-v=\"");
    if (!t->baseline && texts_comparable(c, t) && t->compared > 0)
        text_printf(out, "%.17g", (double)t->equal / (double)t->compared);
    text_printf(out, "\">%s</td>", equal);
    free(equal);
}

static void put_marks(struct text *out, const struct tally *t)
{
    text_puts(out, "<td>");
    text_puts(out, t->lossless ? "" : "<span class=\"mark\">LOSSY</span> ");
    text_puts(out, t->finished ? "" : "<span class=\"mark\">UNFINISHED</span> ");
    text_puts(out, t->inflated ? "<span class=\"mark\">INFLATED TARGET</span>" : "");
    text_puts(out, "</td>");
}

static void put_cells(struct text *out, const struct comparisons *all)
{
    static const char *const names[] = {
        "run",         "drafter", "speedup", "95 % interval", "tokens per step", "tokens/s", "acceptance rate",
        "texts equal", "marks",   "rule",    "sampling",      "batch",           "settings"
    };
    int n = 0;
    for (int i = 0; i < all->n; i++)
        n += all->comparison[i].n;
    text_printf(
        out,
        "<h2 id=\"cells\">All cells: %d</h2>\n<p class=\"muted\">A click on a column's name sorts. Speedups are over none in the same"
        " paired runs; with a batch, tokens/s and speedup are of steps in steady state. <span class=\"mark\">LOSSY</span>: the rule"
        " changes the target's distribution, so its tokens/s are for another task.</p>\n",
        n);
    open_table(out, "all cells", names, 13, "ntnnnnnntttnn");
    for (int i = 0; i < all->n; i++)
        for (int r = 0; r < all->comparison[i].n; r++) {
            const struct comparison *c = &all->comparison[i];
            const struct tally *t = &c->run[r];
            text_puts(out, "<tr>");
            put_real(out, (double)t->run);
            put_cell(out, t->drafter, " class=\"name\"");
            put_interval(out, t->baseline ? &no_interval : tally_speedup(c, t));
            put_real(out, t->tokens_per_step.value);
            put_real(out, tally_speed(c, t)->value);
            put_real(out, t->acceptance_rate.value);
            put_texts(out, c, t);
            put_marks(out, t);
            put_cell(out, t->rule, "");
            put_cell(out, c->sampling, "");
            put_real(out, (double)c->batch);
            put_real(out, i + 1);
            text_puts(out, "</tr>\n");
        }
    text_puts(out, "</tbody></table></div>\n");
}

// ---- figures ----

static void put_data(struct text *out, const struct figure *f)
{
    const int n = f->columns + (f->intervals ? 2 : 0);
    const char **names = xcalloc((size_t)n, sizeof(*names));
    char *numbers = xcalloc((size_t)n + 1, 1);
    for (int i = 0; i < f->columns; i++) {
        names[i] = f->column[i];
        numbers[i] = 'n';
        for (int r = 0; r < f->n; r++)
            if (f->row[r].cell[i] != NULL && f->row[r].number[i] == false)
                numbers[i] = 't';
    }
    for (int i = f->columns; i < n; i++) {
        names[i] = i == f->columns ? "95 % low" : "95 % high";
        numbers[i] = 'n';
    }
    text_printf(out, "<details><summary>Numbers (%d rows)</summary>\n", f->n);
    open_table(out, f->kind->title, names, n, numbers);
    for (int r = 0; r < f->n; r++) {
        text_puts(out, "<tr>");
        for (int i = 0; i < f->columns; i++) {
            const char *cell = f->row[r].cell[i];
            if (numbers[i] == 'n')
                put_number(out, cell != NULL ? strtod(cell, NULL) : NAN, cell);
            else
                put_cell(out, cell != NULL ? cell : "\u2013", "");
        }
        if (f->intervals) {
            put_real(out, f->row[r].low);
            put_real(out, f->row[r].high);
        }
        text_puts(out, "</tr>\n");
    }
    text_puts(out, "</tbody></table></div></details>\n");
    free(names);
    free(numbers);
}

// gnuplot names its parts alike in each picture; the names of a page are unique.
static void put_svg(struct text *out, const struct text *svg, int number)
{
    static const char *const own[] = { "gpPt", "gpDot", "gnuplot_canvas", "gnuplot_plot_", "textbox", "greybox" };
    for (const char *at = svg->s; *at != '\0';) {
        int which = -1;
        for (int i = 0; i < 6 && which < 0; i++)
            which = strncmp(at, own[i], strlen(own[i])) == 0 && at > svg->s && strchr("'\"#", at[-1]) != NULL ? i : -1;
        if (which >= 0)
            text_printf(out, "f%d_", number);
        const size_t n = which >= 0 ? strlen(own[which]) : 1;
        text_add(out, at, n);
        at += n;
    }
}

static void put_figure(struct text *out, const struct drawing *d, const char *database, int *number)
{
    const struct figure *f = d->figure;
    text_printf(out, "<section id=\"%s\"><h2>%s</h2>\n<p>", f->kind->name, f->kind->title);
    html_put(out, f->kind->about);
    text_puts(out, "</p>\n");
    if (f->choice.note[0] != '\0') {
        text_puts(out, "<p class=\"muted\">");
        html_put(out, f->choice.note);
        text_puts(out, "</p>\n");
    }
    text_puts(out, "<div class=\"panels\">\n");
    for (int i = 0; i < d->n; i++) {
        text_puts(out, "<figure role=\"img\" aria-label=\"");
        char *label = xformat("%s: %s, %s", f->kind->title, d->panel[i].measure, d->panel[i].group);
        html_put(out, label);
        text_puts(out, "\">");
        put_svg(out, &d->svg[i], ++*number);
        text_puts(out, "</figure>\n");
        free(label);
    }
    text_puts(out, "</div>\n");
    put_data(out, f);
    text_puts(out, "<details><summary>SQL</summary>\n<p class=\"muted\">For <code>sqlite3 ");
    html_put(out, database);
    text_printf(
        out, "</code>.%s</p>\n<pre tabindex=\"0\"><code>",
        f->intervals
            ? " The intervals are of its table <code>sums</code>, with prompts as the sample (docs/results.md, Intervals)."
            : "");
    html_put(out, f->sql);
    text_puts(out, "</code></pre></details></section>\n");
}

static void put_missing(struct text *out, const struct drawing *d, int n)
{
    int missing = 0;
    for (int i = 0; i < n; i++)
        missing += d[i].n == 0;
    if (missing == 0)
        return;
    text_puts(out, "<h2 id=\"missing\">Not drawn</h2>\n<dl>\n");
    for (int i = 0; i < n; i++)
        if (d[i].n == 0) {
            text_printf(out, "<dt>%s</dt><dd>needs ", d[i].figure->kind->title);
            html_put(out, d[i].figure->kind->needs);
            text_puts(out, ".</dd>\n");
        }
    text_puts(out, "</dl>\n");
}

// ---- the page ----

static const char definitions[] =
    "<h2 id=\"terms\">What the numbers are</h2>\n<dl>\n"
    "<dt>tokens/s</dt><dd>New tokens / decode time, prefill excluded; with a batch, of all texts together (throughput).</dd>\n"
    "<dt>speedup</dt><dd>Tokens/s of a run / tokens/s of none on the same prompts in the same paired runs (speedup ratio of EAGLE and Medusa,"
    " wall-time improvement of Leviathan et al.).</dd>\n"
    "<dt>tokens per step</dt><dd>New tokens / passes of the target, its own token included (mean accepted length; \u03c4 of EAGLE, #MAT of"
    " Spec-Bench, block efficiency of Sun et al.).</dd>\n"
    "<dt>acceptance rate</dt><dd>Accepted / drafted tokens (vLLM's draft acceptance rate; all nodes of a tree are drafted, so that of trees is"
    " small).</dd>\n"
    "<dt>acceptance by depth</dt><dd>Drafts with at least <i>d</i> accepted tokens / all drafts (vLLM's acceptance rate per position), or / those that"
    " had <i>d</i> \u2212 1 and went on (n-\u03b1 of EAGLE).</dd>\n"
    "<dt>c(n)</dt><dd>Time of a target's pass of <i>n</i> rows / of one row (cost of verification).</dd>\n"
    "<dt>time per output token</dt><dd>Of one text: from its first tokens to its last / tokens after the first (TPOT of vLLM).</dd>\n"
    "<dt>texts equal</dt><dd>Texts that equal none's, token by token, where they must: at temperature 0 and under rule match.</dd>\n"
    "<dt>95 % interval</dt><dd>With prompts as the sample: what other prompts of this kind would give on this machine.</dd>\n"
    "</dl>\n";

static void put_links(struct text *out, const struct drawing *d, int n)
{
    text_puts(out, "<nav><a href=\"#cells\">All cells</a>");
    for (int i = 0; i < n; i++)
        if (d[i].n > 0)
            text_printf(out, "<a href=\"#%s\">%s</a>", d[i].figure->kind->name, d[i].figure->kind->title);
    text_puts(out, "<a href=\"#terms\">What the numbers are</a></nav>\n");
}

static const char *file_name(const char *path)
{
    const char *last = strrchr(path, '/');
    return last != NULL ? last + 1 : path;
}

bool page_write(struct store *s, const char *experiment, const struct comparisons *all, const struct drawing *d, int n,
                struct text *out, struct error *err)
{
    const char *name = file_name(store_path(s));
    int number = 0;
    text_puts(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
        " img-src data:\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    html_put(out, experiment != NULL ? experiment : name);
    text_printf(out, " - speclab</title>\n<style>\n%s%s</style></head>\n<body><main>\n<h1>Speculative decoding: ",
                figure_css, page_css);
    html_put(out, experiment != NULL ? experiment : name);
    text_puts(out, "</h1>\n");
    if (!put_origin(out, s, experiment, err))
        return false;
    put_settings(out, all);
    put_links(out, d, n);
    put_cells(out, all);
    for (int i = 0; i < n; i++)
        if (d[i].n > 0)
            put_figure(out, &d[i], name, &number);
    put_missing(out, d, n);
    text_printf(out, "%s</main>\n<script>\n%s</script></body></html>\n", definitions, page_js);
    return true;
}
