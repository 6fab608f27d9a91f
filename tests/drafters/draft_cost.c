// draft_cost.c - what drafters without a model cost: microseconds of propose and advance in a step, behind 512, 4,096 and 32,768 tokens.
//
//     draft_cost TEXTS.jsonl DRAFTER..        as in: draft_cost data.jsonl ngram suffix rest:datastore=chat.store
//
// The text is the input_ids of TEXTS, one after another. In each step the text's next tokens are accepted as far as the draft has them; the target's
// most probable tokens are the text's next one and random ones. Median and 90th percentile of 400 steps.
#include <stdio.h>
#include <stdlib.h>

#include "core/files/json_lines.h"
#include "core/json.h"
#include "core/clock.h"
#include "core/draft.h"
#include "core/error.h"
#include "drafters/drafter.h"
#include "tests/support/lone_drafter.h"
#include "models/tokenizers/tokenizer.h"

enum { STEPS = 400, LONGEST = 32768, SPACE = LONGEST + 16 * STEPS, NODES = 512, TOP = 64, VOCAB = 200000 };

static struct ids text;
static int32_t vocab;

static void stop(const struct error *err)
{
    fprintf(stderr, "draft_cost: %s\n", err->text);
    exit(1);
}

static void read_text(const char *path)
{
    struct json_lines l;
    struct error err;
    if (!json_lines_open(&l, path, &err))
        stop(&err);
    while (text.n < SPACE && json_lines_next(&l, &err))
        if (!json_read_ids(json_get(l.value, "input_ids"), "\"input_ids\"", VOCAB, &text, &err))
            stop(&err);
    if (l.failed || (text.n < SPACE && !fail(&err, "%s: expected %d tokens, found %zu", path, SPACE, text.n)))
        stop(&err);
    json_lines_close(&l);
    for (size_t i = 0; i < text.n; i++)
        vocab = text.id[i] >= vocab ? text.id[i] + 1 : vocab;
}

static struct drafter *open_line(const char *line)
{
    struct error err;
    const struct drafter_env env = { .slots = 1, .length = SPACE, .used_vocab = 49152 > vocab ? 49152 : vocab };
    const int64_t from = clock_ns();
    struct drafter *d = lone_drafter(line, &env, &err);
    if (d == NULL)
        stop(&err);
    printf("%s: opened in %.1f ms\n", line, (double)(clock_ns() - from) / 1e6);
    return d;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The nodes of the draft on the way of the text from position n on.
static int accept(const struct draft *d, int n, int32_t *node)
{
    int m = 1;
    node[0] = 0;
    for (int child, at = 0;; at = child) {
        child = draft_next_child(d, at, at);
        while (child >= 0 && d->token[child] != text.id[n + m - 1])
            child = draft_next_child(d, at, child);
        if (child < 0)
            return m;
        node[m++] = child;
    }
}

static void measure(struct drafter *d, int context)
{
    static int32_t token[NODES], parent[NODES], node[NODES], top[NODES * TOP];
    static uint8_t proposal[NODES];
    static double us[STEPS];
    struct error err;
    uint32_t x = 1;
    int n = context, accepted = 0, drafted = 0;
    const struct advance prompt = { .n = n - 1, .token = text.id + 1, .sequence = text.id, .length = n };
    if (d->type->advance != NULL && !d->type->advance(d, &prompt, 1, &err))
        stop(&err);
    for (int step = 0; step < STEPS; step++) {
        struct draft draft = { .n = 1, .capacity = d->nodes, .token = token, .parent = parent, .proposal = proposal };
        token[0] = text.id[n - 1];
        parent[0] = -1;
        proposal[0] = DETERMINISTIC;
        struct request r = { .n = n, .token = text.id, .draft = &draft, .depth = 64 };
        int64_t from = clock_ns();
        if (!d->type->propose(d, &r, 1, &err))
            stop(&err);
        int64_t took = clock_ns() - from;
        const int m = accept(&draft, n, node);
        for (int i = 0; i < draft.n * d->top; i++) {
            x = x * 1664525 + 1013904223;
            top[i] = i % d->top == 0 ? text.id[(size_t)(n + i) % text.n] : (int32_t)(x >> 8) % vocab;
        }
        struct advance a = { .n = m,
                             .token = text.id + n,
                             .node = node,
                             .draft = &draft,
                             .top = top,
                             .top_k = d->top,
                             .sequence = text.id,
                             .length = n + m };
        from = clock_ns();
        if (d->type->advance != NULL && !d->type->advance(d, &a, 1, &err))
            stop(&err);
        us[step] = (double)(took + clock_ns() - from) / 1e3;
        n += m;
        accepted += m - 1;
        drafted += draft.n - 1;
    }
    if (d->type->forget != NULL)
        d->type->forget(d, 0);
    qsort(us, STEPS, sizeof(*us), ascending);
    printf("  %5d tokens: %6.1f us a step (90th percentile %.1f), %.1f draft tokens, %.2f accepted\n", context,
           us[STEPS / 2], us[STEPS * 9 / 10], (double)drafted / STEPS, (double)accepted / STEPS);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "Usage: draft_cost TEXTS.jsonl DRAFTER..\n");
        return 2;
    }
    read_text(argv[1]);
    for (int i = 2; i < argc; i++) {
        struct drafter *d = open_line(argv[i]);
        for (int context = 512; context <= LONGEST; context *= 8)
            measure(d, context);
        drafter_destroy(d);
    }
    free(text.id);
    return 0;
}
