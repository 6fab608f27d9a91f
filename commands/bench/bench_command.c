// bench_command.c - `speclab bench`: what passes of a model cost on this machine.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "commands/bench/bench.h"
#include "commands/bench/bench_parts.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "results/store.h"

extern const char peer_llama_py[]; // commands/bench/peer_llama.py

// "1,2,4" ascending, each once.
static bool read_list(const char *text, int least, int most, int *to, int capacity, int *n, struct error *err)
{
    char *copy = xstrdup(text);
    bool ok = true;
    *n = 0;
    for (char *word = copy, *next; ok && word != NULL; word = next) {
        long long v;
        next = strchr(word, ',');
        if (next != NULL)
            *next++ = '\0';
        if (!parse_int(word, least, most, &v))
            ok = fail(err, "expected integers from %d to %d with commas between them, found \"%s\"", least, most, word);
        else if (*n == capacity)
            ok = fail(err, "%d numbers are the most", capacity);
        else if (*n > 0 && v <= to[*n - 1])
            ok = fail(err, "expected ascending numbers, found %lld after %d", v, to[*n - 1]);
        else
            to[(*n)++] = (int)v;
    }
    free(copy);
    return ok;
}

// The database is opened first: what cannot be kept should not be measured for minutes.
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
    "Measures what a pass of n rows costs behind so many cached tokens, with the logits of every row, as verification\n"
    "runs it; the time of a prompt, by operation, and of the loop around the passes. It does so in rounds that visit\n"
    "everything once; memory, compute and placement are probed in between, and rounds in which those changed, or others\n"
    "used the machine, do not count (docs/performance.md).\n";

static const char examples[] =
    "  speclab bench smollm2-135m-instruct\n"
    "  speclab bench smollm2-135m-instruct --draft smollm2-135m-pruned --contexts 128 --db bench.db\n"
    "  ./run bench smollm2-135m-instruct --compare        (which sets llama-cpp-python up)\n";

int command_bench(int argc, char **argv)
{
    struct bench_plan p = { 0 };
    struct flag_texts peer_option = { 0 }, peer_command = { 0 };
    const char *rows = "1,2,3,4,5,6,7,8,10,12,16,24,32,48,64", *contexts = NULL, *db = NULL;
    long long threads = 0, prompt = 512, repeats = 9;
    bool csv = false, json = false, compare = false, no_probe = false;
    const struct flag flags[] = {
        { "rows", FLAG_TEXT, &rows, "LIST", "rows of a pass; default: 1 to 64 in 15 steps", 0, 0 },
        { "contexts", FLAG_TEXT, &contexts, "LIST", "cached tokens; default: 128,512,2048, as far as the model goes", 0,
          0 },
        { "prefill", FLAG_INT, &prompt, "N", "tokens of a prompt; default: 512; 0: none", 0, 1 << 20 },
        { "repeats", FLAG_INT, &repeats, "N", "rounds that count; default: 9. At most twice as many are run", 1, 1000 },
        { "draft", FLAG_TEXT, &p.draft, "MODEL", "a draft model, whose steps are measured in the same rounds", 0, 0 },
        { "compare", FLAG_ON, &compare, NULL,
          "run llama.cpp on the same file in the same rounds; needs python3 with\nllama-cpp-python, or that of SPECLAB_PYTHON",
          0, 0 },
        { "peer-option", FLAG_TEXTS, &peer_option, "KEY=VALUE",
          "told that llama.cpp: a number in llama_context_params or\nllama_model_params, as in flash_attn_type=0; may be given again",
          0, 0 },
        { "peer-command", FLAG_TEXTS, &peer_command, "COMMAND",
          "compare with this program, which speaks the protocol of\nexperiments/peer_llama.py; may be given again", 0,
          0 },
        { "threads", FLAG_INT, &threads, "N", "default: one for each processor", 1, 1024 },
        PRECISION_FLAGS(p.precision),
        PACKED_FLAG(p.packed),
        { "no-probe", FLAG_ON, &no_probe, NULL,
          "measure neither memory nor compute; every placement is one\n(so it is on a GPU, which has its own)", 0, 0 },
        { "db", FLAG_TEXT, &db, "FILE", "put it into this database, too", 0, 0 },
        { "csv", FLAG_ON, &csv, NULL, "one row a measurement, placement and engine (peer 0: ours)", 0, 0 },
        { "json", FLAG_ON, &json, NULL, "one object, everything that was measured", 0, 0 },
        { 0 },
    };
    const struct usage u = { "bench", "MODEL", about, flags, examples, 1, 1 };
    struct error err;
    char **operand;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != GO_ON)
        return status;
    if (!read_list(rows, 1, MOST_ROWS, p.rows, MAX_ROWS, &p.n_rows, &err))
        return usage_fail(&u, "--rows: %s", err.text);
    p.contexts_given = contexts != NULL;
    if (!read_list(contexts != NULL ? contexts : "128,512,2048", 0, 1 << 20, p.context, MAX_CONTEXTS, &p.n_contexts,
                   &err))
        return usage_fail(&u, "--contexts: %s", err.text);
    if (csv && json)
        return usage_fail(&u, "--csv and --json: one at a time");
    if (compare + peer_command.n > MAX_PEERS)
        return usage_fail(&u, "%d engines to compare with are the most", MAX_PEERS);
    if (peer_option.n > 0 && !compare)
        return usage_fail(&u, "--peer-option is for the llama.cpp of --compare");
    for (int i = 0; i < peer_option.n; i++)
        if (strchr(peer_option.text[i], '=') == NULL || strpbrk(peer_option.text[i], " \n") != NULL)
            return usage_fail(&u, "--peer-option: expected KEY=VALUE, found \"%s\"", peer_option.text[i]);

    const char *python = getenv("SPECLAB_PYTHON"), *shell[MAX_PEERS][4];
    const char *const llama[] = { python != NULL && *python != '\0' ? python : "python3", "-c", peer_llama_py, NULL };
    if (compare)
        p.peer[p.n_peers++] = (struct peer_call){ llama, llama[0], peer_option };
    for (int i = 0; i < peer_command.n; i++) {
        const char *const words[] = { "sh", "-c", peer_command.text[i], NULL };
        memcpy(shell[i], words, sizeof(words));
        p.peer[p.n_peers++] = (struct peer_call){ .words = shell[i], .called = peer_command.text[i] };
    }
    p.model = operand[0];
    p.threads = (int)threads;
    p.prompt = (int)prompt;
    p.repeats = (int)repeats;
    p.probe = !no_probe;

    struct bench b = { 0 };
    bool ok = run(&b, &p, db, &err);
    if (!ok)
        status = command_fail(&u, &err);
    else if (csv)
        bench_csv(&b, stdout);
    else if (json)
        bench_json(&b, stdout);
    else
        bench_table(&b, stdout);
    bench_close(&b);
    return ok ? command_done(&u) : status;
}
