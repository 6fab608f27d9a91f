// rows.c - rows of `speclab compare`, and which of them can be compared with which.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/compare/compare.h"
#include "core/error.h"
#include "core/memory.h"

struct compared *compared_add(struct compared_rows *to, const char *file, int line, const char *tool)
{
    if (to->n == to->capacity) {
        to->capacity = (int)next_capacity((size_t)to->capacity, (size_t)to->n + 1);
        to->row = xrealloc(to->row, (size_t)to->capacity * sizeof(*to->row));
    }
    struct compared *row = &to->row[to->n++];
    *row = (struct compared){ .file = xstrdup(file), .line = line, .tool = tool };
    double *const unknown[] = { &row->tokens_per_s, &row->length,     &row->rate,           &row->ttft_ms,
                                &row->tpot_ms,      &row->latency_ms, &row->paired_speedup, &row->speedup };
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        *unknown[i] = NAN;
    return row;
}

void compared_free(struct compared_rows *rows)
{
    for (int i = 0; i < rows->n; i++) {
        struct compared *row = &rows->row[i];
        char *const owned[] = { row->file,     row->model, row->method,  row->prompts,   row->machine,
                                row->sampling, row->peers, row->differs, row->not_stated };
        for (size_t k = 0; k < sizeof(owned) / sizeof(owned[0]); k++)
            free(owned[k]);
    }
    free(rows->row);
}

int compared_find(const struct compared_rows *rows, const char *name, struct error *err)
{
    long long number;
    if (parse_int(name, 1, rows->n, &number))
        return (int)number - 1;
    int found = -1, n = 0;
    for (int i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].file, name) == 0 ||
            (rows->row[i].method != NULL && strstr(rows->row[i].method, name) != NULL)) {
            found = i;
            n++;
        }
    if (n == 1)
        return found;
    fail(err, "--baseline %s: expected the number of a row (1 to %d), a file with one row, or a part of one method: %s",
         name, rows->n, n == 0 ? "no row has this" : "several rows have this");
    return -1;
}

// ---- comparing two rows

static void list(char **to, const char *what)
{
    char *longer = xformat("%s%s%s", *to != NULL ? *to : "", *to != NULL ? ", " : "", what);
    free(*to);
    *to = longer;
}

static void compare_text(struct compared *row, const char *what, const char *mine, const char *other)
{
    if (mine == NULL || other == NULL)
        list(&row->not_stated, what);
    else if (strcmp(mine, other) != 0)
        list(&row->differs, what);
}

static void compare(struct compared *row, const struct compared *base)
{
    compare_text(row, "definition of tokens/s", row->speed_is, base->speed_is);
    compare_text(row, "model", row->model, base->model);
    compare_text(row, "prompts", row->prompts, base->prompts);
    compare_text(row, "machine", row->machine, base->machine);
    compare_text(row, "sampling", row->sampling, base->sampling);
    if (row->batch == 0 || base->batch == 0)
        list(&row->not_stated, "batch");
    else if (row->batch != base->batch)
        list(&row->differs, "batch");
    if (row->prompts != NULL && base->prompts != NULL && row->prompts_counted)
        list(&row->not_stated, "which prompts");
    if (row->peers != NULL &&
        base->peers != NULL) // `speclab report --against` compares these within pairs, where it can
        list(&row->not_stated, "the machine's state (not in pairs)");
}

void compared_with(struct compared_rows *rows, int baseline)
{
    const struct compared *base = &rows->row[baseline];
    for (int i = 0; i < rows->n; i++) {
        struct compared *row = &rows->row[i];
        if (i == baseline)
            continue;
        row->paired = row->none != 0 && row->none == base->run && strcmp(row->file, base->file) == 0 &&
                      !isnan(row->paired_speedup);
        if (row->paired) {
            row->speedup = row->paired_speedup;
            continue;
        }
        if (row->speed_is == NULL || base->speed_is == NULL)
            continue;
        compare(row, base);
        if (row->differs == NULL && base->tokens_per_s > 0)
            row->speedup = row->tokens_per_s / base->tokens_per_s;
    }
}
