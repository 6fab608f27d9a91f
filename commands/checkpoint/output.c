#include "commands/checkpoint/output.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "models/config.h"
#include "commands/checkpoint/source.h"
#include "commands/checkpoint/writer.h"
#include "models/weights.h"

char *output_path(const char *given)
{
    size_t n = strlen(given);
    while (n > 1 && given[n - 1] == '/')
        n--;
    return xstrndup(given, n);
}

void output_begin(struct output *m)
{
    *m = (struct output){ .terminal = isatty(STDERR_FILENO), .began_ns = clock_ns() };
}

static void show(void *context, size_t done, size_t total)
{
    struct output *m = context;
    int64_t at = clock_ns();
    if (!m->terminal || at - m->shown_ns < 100000000) // ten times a second
        return;
    m->shown_ns = at;
    fprintf(stderr, "\r\033[K%.0f of %.0f MB written", (double)done / 1e6, (double)total / 1e6);
}

struct progress_observer output_observer(struct output *m)
{
    return (struct progress_observer){ show, m };
}

double output_end(struct output *m)
{
    if (m->shown_ns != 0)
        fprintf(stderr, "\r\033[K");
    return (double)(clock_ns() - m->began_ns) / 1e9;
}

void output_print_left_out(const struct left_out *t)
{
    if (t->n > 0)
        printf("left out: %zu tensors that the model does not use: %s%s\n", t->n, t->first.s, t->n > 1 ? ", ..." : "");
}

bool output_read_back(const char *path, struct output_summary *to, struct error *err)
{
    struct model_config c = { 0 };
    bool ok = config_read(path, &c, err);
    struct weights *w = ok ? weights_open(&c, err) : NULL;
    *to = (struct output_summary){ .layers = c.layers };
    const char *name, *type;
    int64_t rows, width;
    size_t bytes;
    for (size_t i = 0; w != NULL && weights_list(w, i, &name, &type, &rows, &width, &bytes); i++) {
        to->parameters += (double)rows * (double)width;
        to->bytes += (double)bytes;
    }
    ok = w != NULL;
    weights_close(w);
    config_free(&c);
    return ok;
}
