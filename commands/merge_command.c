// merge_command.c - `speclab merge`: databases of shards, or of several machines, into one.
#include <stdio.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "core/error.h"
#include "formats/file.h"
#include "results/merge/merge.h"
#include "results/query.h"
#include "results/store.h"

static const char about[] =
    "Merges databases into OUT, which is created if there is none: of the shards of an experiment, of several machines, or later states\n"
    "of what OUT has already. A cell is the same in all of them; a text is known by its cell, prompt, turn, repeat and pair, so merging\n"
    "again adds nothing. A pair is left out if OUT has all its texts in other pairs. Each input is one transaction. Other weights,\n"
    "prompts or schema versions are an error; machines may differ, as speedups are taken within pairs.\n";

static const char examples[] = "  speclab run experiments/demo.yaml --shard 0/2 --db demo-0.db\n"
                               "  speclab run experiments/demo.yaml --shard 1/2 --db demo-1.db\n"
                               "  speclab merge demo.db demo-0.db demo-1.db\n";

static void print_merged(const char *out, const char *from, const struct merged *m)
{
    printf("%s: added: runs %lld, pairs %lld, texts %lld", from, (long long)m->runs, (long long)m->pairs,
           (long long)m->texts);
    if (m->left_out > 0)
        printf("; left out: texts %lld, which %s has in other pairs", (long long)m->left_out, out);
    printf("\n");
}

// What the database has now.
static bool print_total(struct store *s, struct error *err)
{
    struct query *q = query_open(s, "SELECT count(*), count(finished), (SELECT count(*) FROM sequence) FROM run");
    if (query_next(q))
        printf("%s: runs %lld, finished %lld, texts %lld\n", store_path(s), (long long)query_int(q, 0),
               (long long)query_int(q, 1), (long long)query_int(q, 2));
    if (!query_close(q, err))
        return false;
    q = query_open(
        s,
        "SELECT processor || ', ' || arithmetic, revision, count(*) FROM environment JOIN sequence ON environment.id ="
        " sequence.environment GROUP BY 1, 2 ORDER BY min(environment.id)");
    while (query_next(q))
        printf("  texts %lld: %s, revision %s\n", (long long)query_int(q, 2), query_text(q, 0), query_text(q, 1));
    return query_close(q, err);
}

static bool merge_all(struct store *s, char **from, int n, struct error *err)
{
    for (int i = 0; i < n; i++) {
        struct merged m;
        if (!merge(s, from[i], &m, err))
            return false;
        print_merged(store_path(s), from[i], &m);
    }
    return print_total(s, err);
}

int command_merge(int argc, char **argv)
{
    const struct flag flags[] = { { 0 } };
    const struct usage u = { .name = "merge",
                             .operands = "OUT IN...",
                             .about = about,
                             .flags = flags,
                             .examples = examples,
                             .min_operands = 2,
                             .max_operands = 1 << 16 };
    char **operand;
    int n;
    struct error err;
    const int status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    for (int i = 1; i < n; i++) {
        if (file_is_same(operand[0], operand[i]))
            return usage_fail(&u, "%s: expected other databases than OUT, found OUT itself", operand[i]);
        if (!merge_check(operand[i], &err))
            return command_fail(&u, &err);
    }
    struct store *s = store_open(operand[0], &err);
    if (s == NULL)
        return command_fail(&u, &err);
    const bool ok = merge_all(s, operand + 1, n - 1, &err);
    store_close(s);
    return ok ? command_done(&u) : command_fail(&u, &err);
}
