// report_text.c - words and figures that the tables share.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/prose.h"
#include "results/tally.h"
#include "results/tables/tables.h"

// Three digits or more, at most seven characters; NAN: "-".
static const char *report_figure(char to[FIGURE], double x)
{
    if (isnan(x))
        snprintf(to, FIGURE, "-");
    else if (x >= 9999999.5)
        snprintf(to, FIGURE, "%.2g", x);
    else
        snprintf(to, FIGURE, "%.*f", x < 9.995 ? 2 : x < 999.95 ? 1 : 0, x);
    return to;
}

void report_put_figure(struct text *out, int width, double x)
{
    char s[FIGURE];
    text_printf(out, "%*s", width, report_figure(s, x));
}

void report_put_percent(struct text *out, int width, double share)
{
    char s[32] = "-";
    if (share > 0 && share < 0.005)
        snprintf(s, sizeof(s), "<1");
    else if (fabs(share) > 9.99)
        snprintf(s, sizeof(s), "?"); // the clocks are inconsistent
    else if (!isnan(share))
        snprintf(s, sizeof(s), "%.0f", fabs(share) < 0.005 ? 0 : 100 * share);
    text_printf(out, "%*s", width, s);
}

void report_put_rate(struct text *out, int width, double rate)
{
    char s[32] = "-";
    if (rate >= 0.995)
        snprintf(s, sizeof(s), rate < 1 ? ">.99" : "1.0");
    else if (rate > 0 && rate < 0.005)
        snprintf(s, sizeof(s), "+0");
    else if (!isnan(rate)) {
        snprintf(s, sizeof(s), "%.2f", rate);
        memmove(s, s + 1, strlen(s));
    }
    text_printf(out, "%*s", width, s);
}

const char *report_short_figure(char to[FIGURE], double x)
{
    if (isnan(x))
        snprintf(to, FIGURE, "-");
    else if (x >= 9999.5)
        snprintf(to, FIGURE, ">1e4");
    else
        snprintf(to, FIGURE, "%.*f", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x);
    return to;
}

void report_put_number(struct text *out, const struct comparison *c, int i)
{
    text_printf(out, "%3lld%s", (long long)c->run[i].run, c->run[i].lossless ? " " : "*");
}

void report_put_line(struct text *out, const struct comparison *c, int i, int width, const char *words)
{
    char label[24];
    snprintf(label, sizeof(label), "%3lld%s", (long long)c->run[i].run, c->run[i].lossless ? "" : "*");
    prose_paragraph(out, 5, width, label, words);
}

void report_put_interval(struct text *out, int width, const struct interval *x)
{
    char s[2 * FIGURE + 8] = "", low[FIGURE], high[FIGURE];
    if (!isnan(x->low))
        snprintf(s, sizeof(s), "[%s, %s]", report_figure(low, x->low), report_figure(high, x->high));
    else if (!isnan(x->value))
        snprintf(s, sizeof(s), "one prompt");
    text_printf(out, "%*s", width, s);
}

// "48.0 [39.2, 57.0]": at most five characters a number. free() it.
static char *report_value(struct interval x, double factor)
{
    const double all[] = { x.value, x.low, x.high };
    char part[3][24];
    for (int k = 0; k < 3; k++) {
        const double y = factor * all[k], size = fabs(y);
        snprintf(part[k], sizeof(part[k]), "%.*f", size < 9.995 ? 2 : size < 99.95 ? 1 : 0, size < 0.005 ? 0 : y);
        if (size >= 99999.5)
            snprintf(part[k], sizeof(part[k]), "%.0e", y);
    }
    if (!isnan(x.low))
        return xformat("%s [%s, %s]", part[0], part[1], part[2]);
    return xstrdup(isnan(x.value) ? "-" : part[0]);
}

void report_put_value(struct text *out, int width, struct interval x, double factor)
{
    char *s = report_value(x, factor);
    text_printf(out, "%*s", width, s);
    free(s);
}
