// bench_turns.c - a bench in turns with other engines: python/speclab/words/bench.py listens at the other end of a socket.
//
// A line announces what comes next; the other engines take their turn, and a line answers. The first lines are those that open an engine
// (python/speclab/peer_llama.py documents them), the last of them is "open". Then follow "round", "pass N C S", "prompt" and "draft" (which no
// other engine takes), and "end" of the round.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "commands/bench/bench.h"
#include "models/config.h"
#include "models/model.h"

// After its work an engine's threads may spin for some milliseconds before they sleep (libgomp's for about 15).
enum { PAUSE_NS = 25 * 1000 * 1000 };

bool turns_next(struct bench *b, double *used, struct error *err, const char *format, ...)
{
    char line[64] = "";
    va_list args;
    *used = 0;
    if (b->turns == NULL)
        return true;
    va_start(args, format);
    bool ok = vdprintf(b->plan.turns, format, args) > 0 && dprintf(b->plan.turns, "\n") > 0;
    va_end(args);
    ok = ok && fgets(line, sizeof(line), b->turns) != NULL;
    *used = strtod(line, NULL);
    nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    return ok || fail(err, "--turns %d: expected an answer, found the end", b->plan.turns);
}

static void put_list(int to, const char *name, const int *value, int n)
{
    dprintf(to, "%s", name);
    for (int i = 0; i < n; i++)
        dprintf(to, " %d", value[i]);
    dprintf(to, "\n");
}

bool turns_open(struct bench *b, struct error *err)
{
    const struct bench_plan *p = &b->plan;
    const struct model_config *c = model_config(b->target.model);
    double used;
    if (p->turns == 0)
        return true;
    if (!c->gguf)
        return fail(err, "%s is a Hugging Face directory; a comparison with other engines requires a GGUF file",
                    b->target.path);
    b->turns = fdopen(p->turns, "r");
    if (b->turns == NULL)
        return fail(err, "--turns %d: expected an open socket", p->turns);
    dprintf(p->turns, "model %s\nthreads %d\nrows %d\nprompt_tokens %d\n", c->path, p->threads, p->rows[p->n_rows - 1],
            p->prompt);
    put_list(p->turns, "contexts", p->context, p->n_contexts);
    if (p->slots[p->n_slots - 1] > 1)
        put_list(p->turns, "slots", p->slots, p->n_slots);
    return turns_next(b, &used, err, "open");
}
