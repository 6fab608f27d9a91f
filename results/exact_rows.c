#include "results/exact_rows.h"

#include <string.h>

#include "core/error.h"

#include "results/query.h"
#include "results/store/store_schema.h"

bool store_exact_rule(struct store *s, const struct exact_rule_row *r, struct error *err)
{
    return row_insert(s, "exact_rule", NULL, err, COLUMN("rule", r->rule), COLUMN("declared_exact", r->declared_exact),
                      COLUMN("instances", r->instances), COLUMN("outcomes", r->outcomes),
                      COLUMN("distance", r->distance), COLUMN("formula_error", r->formula_error),
                      COLUMN("verdict", r->verdict), COLUMN("revision", r->revision),
                      { "started", sql_expression(SQL_NOW) });
}

bool store_exact(struct store *s, const struct exact_row *r, int64_t *id, struct exact_sums *sums, struct error *err)
{
    static const char insert_sql[] =
        "INSERT INTO exact (experiment, cell, settings, target, drafter, rule, sampling, machine, revision, lossless, batch, seed,"
        " sequences, tokens, steps, sums, started) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,0,0,0,x''," SQL_NOW
        ") ON CONFLICT (experiment, cell, revision) DO NOTHING";
    static const char find_sql[] = "SELECT id, sequences, tokens, steps, max_log_e, sums FROM exact"
                                   " WHERE experiment = ? AND cell = ? AND revision = ?";
    const struct shown_settings shown = { r->experiment, r->settings, NULL, r->sampling, r->drafter, r->rule };
    if (!schema_fits(&shown, err) ||
        !query_perform(query_with(s, insert_sql, SQL(r->experiment), SQL(r->cell), SQL(r->settings), SQL(r->target),
                                  SQL(r->drafter), SQL(r->rule), SQL(r->sampling), SQL(r->machine), SQL(r->revision),
                                  SQL(r->lossless), SQL(r->batch), SQL((int64_t)r->seed)),
                       err))
        return false;
    struct query *q = query_with(s, find_sql, SQL(r->experiment), SQL(r->cell), SQL(r->revision));
    if (query_next(q)) {
        size_t bytes;
        const void *data = query_blob(q, 5, &bytes);
        *id = query_int(q, 0);
        if (bytes == sums->n * sizeof(*sums->sum)) {
            memcpy(sums->sum, data, bytes);
            sums->sequences = query_int(q, 1);
            sums->tokens = query_int(q, 2);
            sums->steps = query_int(q, 3);
            sums->max_log_e = query_is_null(q, 4) ? 0 : query_real(q, 4);
        }
    }
    return query_close(q, err);
}

bool store_exact_sums(struct store *s, int64_t id, const struct exact_sums *sums, struct error *err)
{
    static const char sql[] = "UPDATE exact SET sequences = ?, tokens = ?, steps = ?, max_log_e = ?, sums = ?,"
                              " finished = NULL, verdict = NULL WHERE id = ?";
    return query_perform(query_with(s, sql, SQL(sums->sequences), SQL(sums->tokens), SQL(sums->steps),
                                    SQL(sums->max_log_e), sql_blob(sums->sum, sums->n * sizeof(*sums->sum)), SQL(id)),
                         err);
}
