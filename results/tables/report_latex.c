// report_latex.c - sheets as tables of LaTeX, with the rules of booktabs (Debian: texlive-latex-recommended). pdflatex has no character for
// most of Unicode, so what is not in ASCII or a Western European letter is written as U+XXXX.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "results/report.h"
#include "results/report_parts.h"
#include "results/tally.h"
#include "results/tables/tables.h"

// Columns beside the names that fit a page, more of them being in tabulars beneath each other; rows of all tabulars.
enum { BLOCK = 8, PAGE = 30 };

static bool is_latin(unsigned code) // letters of Latin-1 that every encoding of fonts has
{
    return code >= 0xC0 && code <= 0xFF && code != 0xD0 && code != 0xDE && code != 0xF0 && code != 0xFE &&
           code != 0xD7 && code != 0xF7;
}

static const char *escape_of(char c)
{
    static const struct {
        char c;
        const char *text;
    } escape[] = { { '\\', "\\textbackslash{}" },
                   { '~', "\\textasciitilde{}" },
                   { '^', "\\textasciicircum{}" },
                   { '<', "\\textless{}" },
                   { '>', "\\textgreater{}" },
                   { '|', "\\textbar{}" },
                   { '`', "\\`{}" },
                   { '"', "{\\char34}" },
                   { '{', "\\{" },
                   { '}', "\\}" },
                   { '$', "\\$" },
                   { '&', "\\&" },
                   { '#', "\\#" },
                   { '_', "\\_" },
                   { '%', "\\%" } };
    for (size_t i = 0; i < sizeof(escape) / sizeof(escape[0]); i++)
        if (escape[i].c == c)
            return escape[i].text;
    return NULL;
}

// Lines may break behind the signs within a word.
static void put_escaped(struct text *out, const char *s)
{
    const char *const begin = s, *const end = s + strlen(s);
    for (size_t n; s < end; s += n) {
        n = utf8_character(s, (size_t)(end - s));
        const unsigned code = n > 0 ? utf8_code(s) : (unsigned char)*s; // a byte that is no character
        if (n != 1 && !(n == 2 && is_latin(code)))
            text_printf(out, n > 0 ? "U+%04X" : "0x%02X", code);
        else if (escape_of(*s) != NULL)
            text_puts(out, escape_of(*s));
        else
            text_add(out, code < ' ' || code == 0x7F ? " " : s, n);
        const bool within = s > begin && s[-1] != ' ' && s[1] != ' ' && s[1] != '\0';
        text_puts(out, n == 1 && within && strchr("=,(/_:", *s) != NULL ? "\\allowbreak{}" : "");
        n = n > 0 ? n : 1;
    }
}

// Columns [from, to) as one tabular.
static void put_heads(struct text *out, const struct sheet *s, int from, int to)
{
    if (s->column[from].group[0] != '\0') {
        struct text rules = { 0 };
        for (int k = from, n; k < to; k += n) {
            for (n = 1; k + n < to && strcmp(s->column[k].group, s->column[k + n].group) == 0;)
                n++;
            text_printf(out, " & \\multicolumn{%d}{c}{", n);
            put_escaped(out, s->column[k].group);
            text_puts(out, "}");
            text_printf(&rules, "\\cmidrule(lr){%d-%d}", k - from + 2, k - from + 1 + n);
        }
        text_printf(out, " \\\\\n%s\n", rules.s);
        free(rules.s);
    }
    text_puts(out, "Drafter");
    for (int k = from; k < to; k++) {
        text_puts(out, " & ");
        put_escaped(out, s->column[k].head);
    }
    text_puts(out, " \\\\\n\\midrule\n");
}

static void put_block(struct text *out, const struct sheet *s, int from, int to)
{
    text_puts(out, "\\begin{tabular}{p{0.25\\linewidth}");
    for (int k = from; k < to; k++)
        text_puts(out, "r");
    text_puts(out, "}\n\\toprule\n");
    put_heads(out, s, from, to);
    for (int i = 0; i < s->rows; i++) {
        text_puts(out, "\\raggedright\\texttt{");
        put_escaped(out, s->name[i]);
        text_puts(out, s->lossy[i] ? "}$^{*}$" : "}");
        for (int k = from; k < to; k++) {
            const struct sheet_cell *x = &s->cell[(size_t)i * (size_t)s->columns + (size_t)k];
            text_printf(out, x->best ? " & \\textbf{%s}" : " & %s", x->text);
        }
        text_puts(out, " \\\\\n");
    }
    text_puts(out, "\\bottomrule\n\\end{tabular}\n");
}

// A name for \label: letters, digits and single '-'.
static void put_label(struct text *out, const char *title, const char *form)
{
    text_puts(out, "\\label{tab:");
    for (; *title != '\0'; title++)
        if (isalnum((unsigned char)*title))
            text_add(out, title, 1);
        else if (out->s[out->n - 1] != '-')
            text_puts(out, "-");
    text_printf(out, "%s%s}\n", out->s[out->n - 1] == '-' ? "" : "-", form);
}

static void put_sheet(struct text *out, const struct sheet *s, const char *label, const char *form)
{
    text_puts(out, "\\begin{table*}[tp]\n\\centering\\footnotesize\n\\setlength{\\tabcolsep}{3pt}\n\\caption{");
    put_escaped(out, s->title);
    text_puts(out, ". ");
    put_escaped(out, s->definition);
    text_puts(out, " ");
    put_escaped(out, s->facts);
    text_puts(out, "}\n");
    put_label(out, label, form);
    for (int from = 0; from < s->columns; from += BLOCK) {
        text_puts(out, from > 0 ? "\n\\medskip\n" : "");
        put_block(out, s, from, from + BLOCK < s->columns ? from + BLOCK : s->columns);
    }
    text_puts(out, "\\end{table*}\n");
}

static int rows_that_fit(const struct comparison *c, const struct report_options *o)
{
    const int blocks = o->by_category ? (2 * (c->n_categories + 1) + BLOCK - 1) / BLOCK : 1;
    return blocks < PAGE ? PAGE / blocks : 1;
}

void report_latex(const struct comparisons *all, const struct report_options *o, struct text *out)
{
    text_puts(out, "% by speclab report --latex; needs \\usepackage{booktabs}\n");
    for (int i = 0; i < all->n; i++) {
        struct sheet s;
        char *title = report_title(all, i);
        const int top = o->top != 0 ? o->top : rows_that_fit(&all->comparison[i], o);
        (o->by_category ? sheet_by_category : sheet_of_cells)(all, i, top, &s);
        put_sheet(out, &s, title, o->by_category ? "categories" : "cells");
        sheet_free(&s);
        free(title);
    }
}
