// print.c - a comparison as a table for the terminal, and as Markdown.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/compare/compare.h"
#include "core/memory.h"
#include "core/prose.h"
#include "core/utf8.h"

enum { FIGURES = 54 }; // columns of a line that are not its method

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void put_fact(struct text *out, int width, const char *name, const char *value)
{
    if (value == NULL)
        return;
    char *line = xformat("%s: %s", name, value);
    prose_paragraph(out, 2, width, "", line);
    free(line);
}

static bool begins_group(const struct compared_rows *rows, int i)
{
    const struct compared *a = &rows->row[i], *b = a - 1;
    return i == 0 || !same(a->file, b->file) || !same(a->model, b->model) || !same(a->machine, b->machine) ||
           !same(a->sampling, b->sampling) || (!a->prompts_in_row && !same(a->prompts, b->prompts));
}

static void put_group(struct text *out, int width, const struct compared *row)
{
    char *line = xformat("%s (%s)", row->file, row->tool);
    text_puts(out, "\n");
    prose_paragraph(out, 0, width, "", line);
    put_fact(out, width, "model", row->model);
    put_fact(out, width, "machine", row->machine);
    put_fact(out, width, "sampling", row->sampling);
    put_fact(out, width, "prompts", row->prompts_in_row ? NULL : row->prompts);
    free(line);
}

static void put_figure(struct text *out, int width, double x)
{
    if (isnan(x))
        text_printf(out, " %*s", width - 1, "-");
    else
        text_printf(out, " %*.*f", width - 1, fabs(x) < 10 ? 3 : fabs(x) < 100 ? 2 : fabs(x) < 1e5 ? 1 : 0, x);
}

static void put_count(struct text *out, int width, int64_t n)
{
    if (n == 0)
        text_printf(out, "%*s", width, "-");
    else
        text_printf(out, "%*lld", width, (long long)n);
}

static const char *mark(const struct compared *row)
{
    return row->lossy || row->inflated ? "*" : "";
}

static char *speedup_of(const struct compared_rows *rows, int i, int baseline)
{
    const struct compared *row = &rows->row[i];
    if (i == baseline)
        return xstrdup("base");
    return isnan(row->speedup) ? xstrdup("-")
                               : xformat("%.3f%s", row->speedup, !row->paired && row->not_stated != NULL ? "?" : "");
}

static const char *method_of(const struct compared *row)
{
    return row->method != NULL ? row->method : "(not stated)";
}

static void put_row(struct text *out, const struct compared_rows *rows, int i, int baseline, int width)
{
    const struct compared *row = &rows->row[i];
    const int names = width - 5 - FIGURES + (baseline < 0 ? 8 : 0);
    char *method = xformat("%s%s", method_of(row), mark(row)), *speedup = speedup_of(rows, i, baseline);
    const int left = names - (int)utf8_count(method, strlen(method));
    if (left >= 0)
        text_printf(out, "%3d  %s%*s", i + 1, method, left, "");
    else {
        char number[16];
        snprintf(number, sizeof(number), "%3d", i + 1);
        prose_paragraph(out, 5, width, number, method);
        text_printf(out, "%*s", 5 + names, "");
    }
    put_count(out, 5, row->batch);
    put_figure(out, 10, row->tokens_per_s);
    put_figure(out, 7, row->length);
    put_figure(out, 7, row->rate);
    put_figure(out, 9, row->ttft_ms);
    put_figure(out, 8, row->tpot_ms);
    if (baseline >= 0)
        text_printf(out, " %7s", speedup);
    text_puts(out, "\n");
    free(speedup);
    free(method);
}

static void put_positions(struct text *out, const struct compared_rows *rows)
{
    bool some = false;
    for (int i = 0; i < rows->n; i++) {
        const struct compared *row = &rows->row[i];
        if (row->positions == 0)
            continue;
        text_puts(out, some ? "" : "\naccepted by position, at least 1, 2, .. tokens\n");
        some = true;
        text_printf(out, "%3d  ", i + 1);
        for (int k = 0; k < row->positions; k++)
            text_printf(out, " %6.3f", row->position[k]);
        text_puts(out, "\n");
    }
}

void compared_sentence(struct text *out, int width, const char *s)
{
    if (width > 0)
        prose_paragraph(out, 0, width, "", s);
    else
        text_printf(out, "- %s\n", s);
}

void compared_table(const struct compared_rows *rows, int baseline, int width, struct text *out)
{
    const int names = width - 5 - FIGURES + (baseline < 0 ? 8 : 0);
    text_printf(out, "     %-*s%5s%10s%7s%7s%9s%8s%s\n", names, "method", "batch", "tokens/s", "length", "rate",
                "TTFT ms", "TPOT ms", baseline >= 0 ? " speedup" : "");
    for (int i = 0; i < rows->n; i++) {
        if (begins_group(rows, i))
            put_group(out, width, &rows->row[i]);
        put_row(out, rows, i, baseline, width);
    }
    put_positions(out, rows);
    text_puts(out, "\n");
    compared_notes(rows, baseline, width, out);
}

// ---- Markdown

static void put_cell(struct text *out, const char *s)
{
    text_puts(out, " ");
    prose_markdown(out, s);
    text_puts(out, " |");
}

static void put_number_cell(struct text *out, double x)
{
    struct text cell = { 0 };
    put_figure(&cell, 1, x);
    put_cell(out, cell.s + strspn(cell.s, " "));
    free(cell.s);
}

void compared_markdown(const struct compared_rows *rows, int baseline, struct text *out)
{
    text_printf(out, "| # | file | tool | model | method | batch | tokens/s | length | rate | TTFT ms | TPOT ms |%s\n",
                baseline >= 0 ? " speedup |" : "");
    text_printf(out, "|--:|---|---|---|---|--:|--:|--:|--:|--:|--:|%s\n", baseline >= 0 ? "--:|" : "");
    for (int i = 0; i < rows->n; i++) {
        const struct compared *row = &rows->row[i];
        char *method = xformat("%s%s", method_of(row), mark(row)), *speedup = speedup_of(rows, i, baseline),
             *batch = row->batch > 0 ? xformat("%lld", (long long)row->batch) : xstrdup("-");
        text_printf(out, "| %d |", i + 1);
        put_cell(out, row->file);
        put_cell(out, row->tool);
        put_cell(out, row->model != NULL ? row->model : "-");
        put_cell(out, method);
        put_cell(out, batch);
        put_number_cell(out, row->tokens_per_s);
        put_number_cell(out, row->length);
        put_number_cell(out, row->rate);
        put_number_cell(out, row->ttft_ms);
        put_number_cell(out, row->tpot_ms);
        if (baseline >= 0)
            put_cell(out, speedup);
        text_puts(out, "\n");
        free(batch);
        free(speedup);
        free(method);
    }
    text_puts(out, "\n");
    compared_notes(rows, baseline, 0, out);
}
