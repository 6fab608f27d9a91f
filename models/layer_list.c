#include "models/layer_list.h"

#include <ctype.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"

// Parses a layer number at *s and advances *s. Returns -1 if there is none. Large numbers saturate above any valid
// layer.
static int number(const char **s)
{
    int v = -1;
    for (; isdigit((unsigned char)**s); (*s)++)
        v = v < 0 ? **s - '0' : v < 100000 ? v * 10 + (**s - '0') : v;
    return v;
}

int *layer_list_parse(const char *list, int layers, int *n, struct error *err)
{
    int *keep = xcalloc((size_t)layers, sizeof(*keep));
    int last = -1;
    *n = 0;
    for (const char *s = list;; s++) {
        int from = number(&s), to = from;
        if (from >= 0 && *s == '-') {
            s++;
            to = number(&s);
        }
        if (from < 0 || to < 0 || (*s != ',' && *s != '\0'))
            fail(err, "layers \"%s\": expected numbers and ranges such as 0-3,26-29", list);
        else if (from >= layers || to >= layers)
            fail(err, "layers \"%s\": the model has layers 0 to %d", list, layers - 1);
        else if (to < from || from <= last)
            fail(err, "layers \"%s\": expected ascending numbers, found %d after %d", list, to < from ? to : from,
                 to < from ? from : last);
        else {
            while (from <= to)
                keep[(*n)++] = from++;
            last = to;
            if (*s == '\0')
                return keep;
            continue;
        }
        free(keep);
        return NULL;
    }
}

char *layer_list_write(const int *keep, int n)
{
    struct text t = { 0 };
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && keep[end] == keep[end - 1] + 1;)
            end++;
        text_printf(&t, "%s%d", i != 0 ? "," : "", keep[i]);
        if (end - i > 1)
            text_printf(&t, "-%d", keep[end - 1]);
    }
    return t.s;
}
