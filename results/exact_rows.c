#include "results/exact_rows.h"

#include <string.h>

#include "core/error.h"

#include "results/query.h"
#include "results/store.h"
#include "results/store/store_schema.h"

bool store_exact_rule(struct store *s, const struct exact_rule_row *r, struct error *err)
{
    return row_insert(s, "exact_rule", NULL, err, COLUMN("rule", r->rule), COLUMN("declared_exact", r->declared_exact),
                      COLUMN("instances", r->instances), COLUMN("outcomes", r->outcomes),
                      COLUMN("distance", r->distance), COLUMN("formula_error", r->formula_error),
                      COLUMN("verdict", r->verdict), COLUMN("revision", r->revision),
                      { "started", sql_expression(SQL_NOW) });
}

bool store_exact_bits(struct store *s, const struct exact_bits_row *r, struct error *err)
{
    const struct shown_settings shown = { r->experiment, r->settings, NULL, r->sampling, r->drafter, r->rule };
    return schema_fits(&shown, err) &&
           row_insert(s, "exact_bits", NULL, err, COLUMN("experiment", r->experiment), COLUMN("cell", r->cell),
                      COLUMN("settings", r->settings), COLUMN("target", r->target), COLUMN("drafter", r->drafter),
                      COLUMN("rule", r->rule), COLUMN("sampling", r->sampling), COLUMN("machine", r->machine),
                      COLUMN("revision", r->revision), COLUMN("verdict", r->verdict), COLUMN("compared", r->rows),
                      COLUMN("different", r->different), COLUMN("ties", r->ties),
                      COLUMN("argmax_changed", r->argmax_changed), COLUMN("bugs", r->bugs),
                      COLUMN("largest", r->largest), { "started", sql_expression(SQL_NOW) });
}

// ---- sums

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

// ---- the end

static bool put_end(struct store *s, int64_t id, const struct exact_end_row *r, struct error *err)
{
    static const char sql[] = "UPDATE exact SET level = ?, accepted = ?, expected = ?, z_accepted = ?, detectable = ?,"
                              " verdict = ?, finished = " SQL_NOW " WHERE id = ?";
    bool ok = query_perform(query_with(s, sql, SQL(r->level), SQL(r->accepted), SQL(r->expected), SQL(r->z_accepted),
                                       SQL(r->detectable), SQL(r->verdict), SQL(id)),
                            err) &&
              query_perform(query_with(s, "DELETE FROM exact_stream WHERE exact = ?", SQL(id)), err) &&
              query_perform(query_with(s, "DELETE FROM exact_test WHERE exact = ?", SQL(id)), err);
    for (int i = 0; i < r->streams && ok; i++) {
        const struct exact_stream_row *x = &r->stream[i];
        ok = row_insert(s, "exact_stream", NULL, err, COLUMN("exact", id), COLUMN("stream", x->stream),
                        COLUMN("tokens", x->tokens), COLUMN("log_e", x->log_e), COLUMN("alarm", x->alarm));
    }
    for (int i = 0; i < r->tests && ok; i++) {
        const struct exact_test_row *x = &r->test[i];
        ok = row_insert(s, "exact_test", NULL, err, COLUMN("exact", id), COLUMN("stream", x->stream),
                        COLUMN("kind", x->kind), COLUMN("of", x->of), COLUMN("part", x->part),
                        COLUMN("tokens", x->tokens), COLUMN("statistic", x->statistic), COLUMN("log10_p", x->log10_p),
                        COLUMN("log10_adjusted", x->log10_adjusted));
    }
    return ok;
}

bool store_exact_end(struct store *s, int64_t id, const struct exact_end_row *r, struct error *err)
{
    return transaction_begin(s, err) && transaction_end(s, put_end(s, id, r, err), err);
}
