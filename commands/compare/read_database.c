// read_database.c - the runs of a database of speclab.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/compare/compare.h"
#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"

// With a batch, as in the report: steps in steady state only (view steady).
static const char runs_sql[] =
    "WITH l AS (SELECT run, max(mean_ns) FILTER (WHERE what = 'ttft') / 1e6 AS ttft, max(mean_ns) FILTER (WHERE what = 'tpot') / 1e6 AS tpot"
    " FROM latency GROUP BY run),"
    " n AS (SELECT p.run, CASE WHEN min(q.run) = max(q.run) THEN min(q.run) END AS none FROM paired AS p JOIN sequence AS q ON q.id = p.none"
    " GROUP BY p.run)"
    " SELECT s.run, s.target, s.drafter || CASE s.rule WHEN 'rejection' THEN '' ELSE '; ' || s.rule END, s.prompt_file, s.machine, s.sampling,"
    " s.peers, s.drafter_kind = 'none', NOT s.lossless, s.marked_inflated, s.sequences, s.batch,"
    " CASE s.batch WHEN 1 THEN s.tokens_per_s ELSE s.steady_tokens_per_s END,"
    " CASE WHEN s.drafter_kind <> 'none' THEN s.tokens_per_step END, s.acceptance_rate, l.ttft, l.tpot, CASE s.batch WHEN 1 THEN s.speedup ELSE s.steady_speedup END, m.mean_e2e_latency_ms,"
    " n.none"
    " FROM run_summary AS s LEFT JOIN l ON l.run = s.run LEFT JOIN n ON n.run = s.run LEFT JOIN sglang_metrics AS m ON m.run = s.run"
    " WHERE s.sequences > 0 ORDER BY s.run";

static bool read_positions(struct store *s, int64_t run, struct compared *row, struct error *err)
{
    struct query *q = query_again(s, "SELECT rate FROM acceptance WHERE run = ? ORDER BY depth LIMIT 8");
    query_put_int(q, run);
    row->position_is = "of drafts";
    while (query_next(q))
        row->position[row->positions++] = query_real(q, 0);
    return query_close(q, err);
}

static char *text_of(const struct query *q, int at)
{
    return query_is_null(q, at) ? NULL : xstrdup(query_text(q, at));
}

static bool read_run(struct store *s, const struct query *q, struct compared *row, struct error *err)
{
    row->run = query_int(q, 0);
    row->model = text_of(q, 1);
    row->method = text_of(q, 2);
    row->prompts = text_of(q, 3);
    row->machine = text_of(q, 4);
    row->sampling = text_of(q, 5);
    row->peers = text_of(q, 6);
    row->baseline = query_int(q, 7) != 0;
    row->lossy = query_int(q, 8) != 0;
    row->inflated = query_int(q, 9) != 0;
    row->requests = query_int(q, 10);
    row->batch = query_int(q, 11);
    row->tokens_per_s = query_real(q, 12);
    row->speed_is =
        row->batch == 1
            ? "new tokens / time of decoding, prefill excluded"
            : "new tokens / time of decoding, prefill excluded, in steps with a text in every slot (steady state)";
    row->length = query_real(q, 13);
    row->length_is = isnan(row->length) ? NULL : "tokens / steps";
    row->rate = query_real(q, 14);
    row->ttft_ms = query_real(q, 15);
    row->tpot_ms = query_real(q, 16);
    row->paired_speedup = query_real(q, 17);
    row->latency_ms = query_real(q, 18);
    row->none = query_int(q, 19);
    return row->baseline || read_positions(s, row->run, row, err);
}

bool compared_read_database(struct compared_rows *to, const char *path, struct error *err)
{
    struct store *s = store_open(path, err);
    if (s == NULL)
        return false;
    struct query *q = query_open(s, runs_sql);
    const int before = to->n;
    bool ok = true;
    while (ok && query_next(q))
        ok = read_run(s, q, compared_add(to, path, 0, "speclab"), err);
    ok = query_close(q, err) && ok;
    store_close(s);
    return ok && (to->n > before || fail(err, "%s: no run has texts", path));
}
