// bench_command.c - `speclab bench`: the cost of a model's passes on this machine.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/draft.h"
#include "core/memory.h"
#include "commands/bench/bench.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "results/store.h"

// Parses "1,2,4": strictly ascending.
static bool read_list(const char *text, int min, int max, int *to, int capacity, int *n, struct error *err)
{
    char *copy = xstrdup(text);
    bool ok = true;
    *n = 0;
    for (char *word = copy, *next; ok && word != NULL; word = next) {
        long long v;
        next = strchr(word, ',');
        if (next != NULL)
            *next++ = '\0';
        if (!parse_int(word, min, max, &v))
            ok = fail(err, "expected integers from %d to %d separated by commas, found \"%s\"", min, max, word);
        else if (*n == capacity)
            ok = fail(err, "expected at most %d numbers", capacity);
        else if (*n > 0 && v <= to[*n - 1])
            ok = fail(err, "expected ascending numbers, found %lld after %d", v, to[*n - 1]);
        else
            to[(*n)++] = (int)v;
    }
    free(copy);
    return ok;
}

// The database is opened first, so that a failure does not cost minutes of measurements.
static bool run(struct bench *b, const struct bench_plan *plan, const char *db, struct error *err)
{
    struct store *s = db != NULL ? store_open(db, err) : NULL;
    bool ok = db == NULL || s != NULL;
    if (ok && s != NULL && store_read_only(s))
        ok = fail(err, "%s: the file or its folder is read-only", db);
    ok = ok && bench_open(b, plan, err) && bench_run(b, err) && (s == NULL || bench_store(b, s, err));
    store_close(s);
    return ok;
}

static const char about[] =
    "Times passes of n rows after a given number of cached tokens, with the logits of every row, as in verification; a\n"
    "prompt; and the decoding loop outside its passes. Each round takes every measurement once. Memory, compute and\n"
    "placement are probed between rounds; rounds in which these changed, or in which other processes used the machine, do\n"
    "not count (docs/performance.md). ./run bench --compare runs llama.cpp in the same rounds.\n";

static const char examples[] =
    "  speclab bench smollm2-135m-instruct\n"
    "  speclab bench shape:llama-1b,type=q8_0,layers=4    (random weights: docs/commands.md)\n"
    "  speclab bench smollm2-135m-instruct --draft smollm2-135m-pruned --contexts 128 --db bench.db\n"
    "  ./run bench smollm2-135m-instruct --compare        (beside llama.cpp, which it sets up)\n";

int command_bench(int argc, char **argv)
{
    struct bench_plan p = { 0 };
    const char *rows = NULL, *slots = "1", *contexts = NULL, *db = NULL;
    long long threads = 0, prompt = 512, repeats = 9, turns = 0;
    bool json = false, no_probe = false;
    const struct flag flags[] = {
        { "rows", FLAG_TEXT, &rows, "LIST",
          "rows of a slot in a pass; default: 1 to 64 in 15 steps;\nwith several slots: 1", 0, 0 },
        { "slots", FLAG_TEXT, &slots, "LIST", "slots of a pass, each with a sequence of its own; default: 1", 0, 0 },
        { "contexts", FLAG_TEXT, &contexts, "LIST", "cached tokens; default: 128,512,2048, as far as the model goes", 0,
          0 },
        { "prefill", FLAG_INT, &prompt, "N", "tokens of a prompt; default: 512; 0: none", 0, 1 << 20 },
        { "repeats", FLAG_INT, &repeats, "N", "rounds that count, at most twice as many are run; default: 9", 1, 1000 },
        { "text", FLAG_TEXT, &p.text, "FILE",
          "a text whose tokens the passes have, again and again; default: random\ntokens. It matters for mixtures of experts",
          0, 0 },
        { "draft", FLAG_TEXT, &p.draft, "MODEL", "a draft model; its steps are timed in the same rounds", 0, 0 },
        { "threads", FLAG_INT, &threads, "N", "number of threads; default: one for each processor", 1, 1024 },
        PRECISION_FLAGS(p.options),
        PACKED_FLAG(p.packed),
        { "no-probe", FLAG_ON, &no_probe, NULL,
          "do not probe memory and compute; all rounds count as one\nplacement (always so on a GPU)", 0, 0 },
        { "db", FLAG_TEXT, &db, "FILE", "also store the results in this database", 0, 0 },
        { "json", FLAG_ON, &json, NULL,
          "print one JSON object with all measurements; without it, ./run bench\nprints tables of them", 0, 0 },
        { "turns", FLAG_INT, &turns, "FD",
          "for ./run bench --compare: a socket, on which each measurement is\nannounced, and answered after other engines have taken it",
          3, 1 << 20 },
        { 0 },
    };
    const struct usage u = { "bench", "MODEL", about, flags, examples, 1, 1 };
    struct error err;
    char **operand;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    if (!read_list(slots, 1, MAX_SLOTS, p.slots, SLOT_COUNTS, &p.n_slots, &err))
        return usage_fail(&u, "--slots: %s", err.text);
    const int most_slots = p.slots[p.n_slots - 1];
    if (rows == NULL)
        rows = most_slots > 1 ? "1" : "1,2,3,4,5,6,7,8,10,12,16,24,32,48,64";
    if (!read_list(rows, 1, MAX_PASS_ROWS, p.rows, MAX_ROWS, &p.n_rows, &err))
        return usage_fail(&u, "--rows: %s", err.text);
    const int most_rows = p.rows[p.n_rows - 1];
    if (most_slots * most_rows > MAX_PASS_ROWS)
        return usage_fail(&u, "--slots: %d slots of %d rows are %d rows; expected at most %d in a pass", most_slots,
                          most_rows, most_slots * most_rows, MAX_PASS_ROWS);
    p.contexts_given = contexts != NULL;
    if (!read_list(contexts != NULL ? contexts : "128,512,2048", 0, 1 << 20, p.context, MAX_CONTEXTS, &p.n_contexts,
                   &err))
        return usage_fail(&u, "--contexts: %s", err.text);
    p.model = operand[0];
    p.threads = (int)threads;
    p.prompt = (int)prompt;
    p.repeats = (int)repeats;
    p.probe = !no_probe;
    p.turns = (int)turns;

    struct bench b = { 0 };
    bool ok = run(&b, &p, db, &err);
    if (!ok)
        status = command_fail(&u, &err);
    else
        bench_json(&b, stdout);
    bench_close(&b);
    return ok ? command_done(&u) : status;
}
