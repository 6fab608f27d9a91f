#include "results/exact_rows.h"

#include <string.h>

#include "core/error.h"

#include "results/query.h"
#include "results/store.h"
#include "results/store/store_schema.h"

bool store_exact_rule(struct store *s, const struct exact_rule_row *r, struct error *err)
{
    struct query *q = query_open(
        s,
        "INSERT INTO exact_rule (rule, declared_exact, instances, outcomes, distance, formula_error, verdict, revision, started)"
        " VALUES (?,?,?,?,?,?,?,?," QUERY_NOW ")");
    query_put_text(q, r->rule);
    query_put_int(q, r->declared_exact);
    query_put_int(q, r->instances);
    query_put_int(q, r->outcomes);
    query_put_real(q, r->distance);
    query_put_real(q, r->formula_error);
    query_put_text(q, r->verdict);
    query_put_text(q, r->revision);
    return query_perform(q, err);
}

bool store_exact_bits(struct store *s, const struct exact_bits_row *r, struct error *err)
{
    const struct shown_settings shown = { r->experiment, r->settings, NULL, r->sampling, r->drafter, r->rule };
    if (!schema_fits(&shown, err))
        return false;
    const char *const text[] = { r->experiment, r->cell,     r->settings, r->target,   r->drafter,
                                 r->rule,       r->sampling, r->machine,  r->revision, r->verdict };
    const int64_t count[] = { r->rows, r->different, r->ties, r->argmax_changed, r->bugs };
    struct query *q = query_open(
        s, "INSERT INTO exact_bits (experiment, cell, settings, target, drafter, rule, sampling, machine, revision,"
           " verdict, compared, different, ties, argmax_changed, bugs, largest, started)"
           " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?," QUERY_NOW ")");
    for (size_t i = 0; i < sizeof(text) / sizeof(*text); i++)
        query_put_text(q, text[i]);
    for (size_t i = 0; i < sizeof(count) / sizeof(*count); i++)
        query_put_int(q, count[i]);
    query_put_real(q, r->largest);
    return query_perform(q, err);
}

// ---- sums

static bool insert_row(struct store *s, const struct exact_row *r, struct error *err)
{
    struct query *q = query_open(
        s,
        "INSERT INTO exact (experiment, cell, settings, target, drafter, rule, sampling, machine, revision, lossless,"
        " batch, seed, sequences, tokens, steps, sums, started)"
        " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,0,0,0,x''," QUERY_NOW
        ") ON CONFLICT (experiment, cell, revision) DO NOTHING");
    const char *const text[] = { r->experiment, r->cell,     r->settings, r->target,  r->drafter,
                                 r->rule,       r->sampling, r->machine,  r->revision };
    for (size_t i = 0; i < sizeof(text) / sizeof(*text); i++)
        query_put_text(q, text[i]);
    query_put_int(q, r->lossless);
    query_put_int(q, r->batch);
    query_put_int(q, (int64_t)r->seed);
    return query_perform(q, err);
}

bool store_exact(struct store *s, const struct exact_row *r, int64_t *id, struct exact_sums *sums, struct error *err)
{
    const struct shown_settings shown = { r->experiment, r->settings, NULL, r->sampling, r->drafter, r->rule };
    if (!schema_fits(&shown, err) || !insert_row(s, r, err))
        return false;
    struct query *q = query_open(s, "SELECT id, sequences, tokens, steps, max_log_e, sums FROM exact"
                                    " WHERE experiment = ? AND cell = ? AND revision = ?");
    query_put_text(q, r->experiment);
    query_put_text(q, r->cell);
    query_put_text(q, r->revision);
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
    struct query *q = query_again(s, "UPDATE exact SET sequences = ?, tokens = ?, steps = ?, max_log_e = ?, sums = ?,"
                                     " finished = NULL, verdict = NULL WHERE id = ?");
    query_put_int(q, sums->sequences);
    query_put_int(q, sums->tokens);
    query_put_int(q, sums->steps);
    query_put_real(q, sums->max_log_e);
    query_put_blob(q, sums->sum, sums->n * sizeof(*sums->sum));
    query_put_int(q, id);
    return query_perform(q, err);
}

// ---- the end

static bool put_stream(struct store *s, int64_t id, const struct exact_stream_row *r, struct error *err)
{
    struct query *q =
        query_open(s, "INSERT INTO exact_stream (exact, stream, tokens, log_e, alarm) VALUES (?,?,?,?,?)");
    query_put_int(q, id);
    query_put_text(q, r->stream);
    query_put_int(q, r->tokens);
    query_put_real(q, r->log_e);
    query_put_int(q, r->alarm);
    return query_perform(q, err);
}

static bool put_test(struct store *s, int64_t id, const struct exact_test_row *r, struct error *err)
{
    struct query *q = query_again(s, "INSERT INTO exact_test (exact, stream, kind, \"of\", part, tokens, statistic,"
                                     " log10_p, log10_adjusted) VALUES (?,?,?,?,?,?,?,?,?)");
    query_put_int(q, id);
    query_put_text(q, r->stream);
    query_put_text(q, r->kind);
    query_put_text(q, r->of);
    query_put_text(q, r->part);
    query_put_int(q, r->tokens);
    query_put_real(q, r->statistic);
    query_put_real(q, r->log10_p);
    query_put_real(q, r->log10_adjusted);
    return query_perform(q, err);
}

static bool delete_rows(struct store *s, const char *sql, int64_t id, struct error *err)
{
    struct query *q = query_open(s, sql);
    query_put_int(q, id);
    return query_perform(q, err);
}

static bool put_end(struct store *s, int64_t id, const struct exact_end_row *r, struct error *err)
{
    struct query *q =
        query_open(s, "UPDATE exact SET level = ?, accepted = ?, expected = ?, z_accepted = ?, detectable = ?,"
                      " verdict = ?, finished = " QUERY_NOW " WHERE id = ?");
    const double real[] = { r->level, r->accepted, r->expected, r->z_accepted, r->detectable };
    for (size_t i = 0; i < sizeof(real) / sizeof(*real); i++)
        query_put_real(q, real[i]);
    query_put_text(q, r->verdict);
    query_put_int(q, id);
    bool ok = query_perform(q, err) && delete_rows(s, "DELETE FROM exact_stream WHERE exact = ?", id, err) &&
              delete_rows(s, "DELETE FROM exact_test WHERE exact = ?", id, err);
    for (int i = 0; i < r->streams && ok; i++)
        ok = put_stream(s, id, &r->stream[i], err);
    for (int i = 0; i < r->tests && ok; i++)
        ok = put_test(s, id, &r->test[i], err);
    return ok;
}

bool store_exact_end(struct store *s, int64_t id, const struct exact_end_row *r, struct error *err)
{
    if (!query_perform(query_open(s, "BEGIN IMMEDIATE"), err))
        return false;
    if (put_end(s, id, r, err) && query_perform(query_open(s, "COMMIT"), err))
        return true;
    struct error ignored;
    query_perform(query_open(s, "ROLLBACK"), &ignored);
    return false;
}
