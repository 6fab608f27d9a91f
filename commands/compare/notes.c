// notes.c - what the numbers of a comparison mean, and why rows cannot be compared.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/compare/compare.h"
#include "core/memory.h"

typedef const char *words(const struct compared *row);

static const char *speed_words(const struct compared *row)
{
    return row->speed_is;
}

static const char *length_words(const struct compared *row)
{
    return row->length_is;
}

static const char *position_words(const struct compared *row)
{
    return row->positions > 0 ? row->position_is : NULL;
}

static const char *differs_words(const struct compared *row)
{
    return row->differs;
}

static const char *not_stated_words(const struct compared *row)
{
    return row->differs == NULL ? row->not_stated : NULL;
}

static bool same(words *of, const struct compared_rows *rows, int i, int k)
{
    const char *a = of(&rows->row[i]), *b = of(&rows->row[k]);
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

// "1 to 3, 5": the rows from i on that have the words of row i.
static void put_rows(struct text *out, words *of, const struct compared_rows *rows, int i)
{
    for (int k = i; k < rows->n; k++) {
        int last = k;
        if (!same(of, rows, i, k))
            continue;
        while (last + 1 < rows->n && same(of, rows, i, last + 1))
            last++;
        text_printf(out, "%s%d", k == i ? "" : ", ", k + 1);
        if (last > k)
            text_printf(out, "%s%d", last == k + 1 ? ", " : " to ", last + 1);
        k = last;
    }
}

// "WHAT: 1 to 3: words; 4: other words"; nothing, if no row has words.
static void put(const struct compared_rows *rows, const char *what, words *of, int width, struct text *out)
{
    struct text line = { 0 };
    text_printf(&line, "%s: ", what);
    const size_t begin = line.n;
    for (int i = 0; i < rows->n; i++) {
        bool before = false;
        for (int k = 0; k < i && !before; k++)
            before = same(of, rows, k, i);
        if (of(&rows->row[i]) == NULL || before)
            continue;
        text_puts(&line, line.n > begin ? "; " : "");
        put_rows(&line, of, rows, i);
        text_printf(&line, ": %s", of(&rows->row[i]));
    }
    if (line.n > begin) {
        text_puts(&line, ".");
        compared_sentence(out, width, line.s);
    }
    free(line.s);
}

// The rows that have nothing but the latency of whole requests.
static void put_latencies(const struct compared_rows *rows, int width, struct text *out)
{
    for (int i = 0; i < rows->n; i++)
        if (rows->row[i].speed_is == NULL && !isnan(rows->row[i].latency_ms)) {
            char *s = xformat("Row %d states the mean latency of a batch of requests only: %.1f ms.", i + 1,
                              rows->row[i].latency_ms);
            compared_sentence(out, width, s);
            free(s);
        }
}

void compared_notes(const struct compared_rows *rows, int baseline, int width, struct text *out)
{
    bool lossy = false, paired = false;
    put_latencies(rows, width, out);
    put(rows, "tokens/s, by row", speed_words, width, out);
    put(rows, "length, by row", length_words, width, out);
    put(rows, "accepted by position, by row", position_words, width, out);
    for (int i = 0; i < rows->n; i++) {
        lossy = lossy || rows->row[i].lossy || rows->row[i].inflated;
        paired = paired || rows->row[i].paired;
    }
    if (lossy)
        compared_sentence(
            out, width,
            "*: the rule changes the output distribution (LOSSY), or the target was made slower on purpose.");
    if (baseline < 0)
        return;
    if (paired)
        compared_sentence(
            out, width,
            "Speedups over `none` of the same database are within paired runs, as `speclab report` has them.");
    put(rows, "No speedup over the baseline where these differ, by row", differs_words, width, out);
    put(rows, "?: not known to be the same as the baseline's, as a file does not state it, by row", not_stated_words,
        width, out);
}
