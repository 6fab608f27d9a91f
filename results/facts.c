// facts.c - writes runs, sequences, the environments where they were decoded, the shards that are done and the findings
// of `speclab exact`, and reads back what a resumed run needs.
//
// A sequence with its steps and trials is one transaction: a killed process leaves complete sequences and nothing else.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "results/store/store_schema.h"

extern const char run_machine_sql[], shards_complete_sql[];

// ---- runs and pairs ----

static bool new_run(struct store *s, const struct run_row *r, int64_t *id, struct error *err)
{
    return row_insert(
        s, "run", id, err, COLUMN("experiment", r->experiment), COLUMN("cell", r->cell), COLUMN("peers", r->peers),
        COLUMN("settings", r->settings), COLUMN("file", r->file), COLUMN("folder", r->folder),
        COLUMN("model_path", r->model_path), COLUMN("prompts_path", r->prompts_path),
        COLUMN("config_hash", r->config_hash), COLUMN("tokenizer_hash", r->tokenizer_hash), COLUMN("target", r->target),
        COLUMN("target_hash", r->target_hash), COLUMN("model_type", r->model_type),
        COLUMN("activations", r->activations), COLUMN("cache", r->cache), COLUMN("drafter", r->drafter),
        COLUMN("drafter_kind", r->drafter_kind),
        COLUMN("drafter_options", r->drafter_options != NULL ? r->drafter_options : "{}"),
        COLUMN("drafter_hash", r->drafter_hash), COLUMN("rule", r->rule), COLUMN("sampling", r->sampling),
        COLUMN("prompts", r->prompts), COLUMN("device", r->device), COLUMN("machine", r->machine),
        COLUMN("revision", r->revision), COLUMN("lossless", r->lossless),
        COLUMN("drafter_invariant", r->drafter_invariant), COLUMN("marked_inflated", r->marked_inflated),
        COLUMN("seed", (int64_t)r->seed), COLUMN("batch", r->batch), { "started", sql_expression(SQL_NOW) });
}

// *id: the cell's run; 0: none. A run is resumed only with equal settings, weights and prompts.
static bool find_run(struct store *s, const struct run_row *r, int64_t *id, struct error *err)
{
    static const char *const part[] = { "settings (two cells have the same hash)", "weights of the target",
                                        "weights of the drafter", "prompts" };
    const char *changed = NULL;
    struct query *q = query_with(s,
                                 "SELECT id, settings = ?3, target_hash = ?4, drafter_hash IS ?5, prompts = ?6 FROM run"
                                 " WHERE experiment = ?1 AND cell = ?2",
                                 SQL(r->experiment), SQL(r->cell), SQL(r->settings), SQL(r->target_hash),
                                 SQL(r->drafter_hash), SQL(r->prompts));
    *id = 0;
    while (query_next(q)) {
        *id = query_int(q, 0);
        for (int i = 3; i >= 0; i--)
            if (query_int(q, 1 + i) == 0)
                changed = part[i];
    }
    if (!query_close(q, err))
        return false;
    return changed == NULL ||
           fail(err, "%s: run %lld (%s, drafter %s) was made with other %s: use another database, or delete it",
                store_path(s), (long long)*id, r->experiment, r->drafter, changed);
}

static bool find_or_make_run(struct store *s, const struct run_row *r, int64_t *id, struct error *err)
{
    if (!find_run(s, r, id, err))
        return false;
    return *id != 0 || new_run(s, r, id, err);
}

bool store_run(struct store *s, const struct run_row *r, int64_t *id, struct error *err)
{
    const struct shown_settings shown = { r->experiment, r->settings, r->file, r->sampling, r->drafter, r->rule };
    return schema_fits(&shown, err) && transaction_begin(s, err) &&
           transaction_end(s, find_or_make_run(s, r, id, err), err);
}

bool store_new_pair(struct store *s, const char *experiment, int64_t *pair, struct error *err)
{
    return row_insert(s, "pair", pair, err, COLUMN("experiment", experiment), { "started", sql_expression(SQL_NOW) });
}

// ---- the environments where texts are decoded ----

struct last { // the run's last environment; texts: number of the run's texts
    char *processor, *arithmetic, *revision, *drafter, *rule;
    int64_t texts;
};

static bool read_last(struct store *s, int64_t run, struct last *to, struct error *err)
{
    char **const text[] = { &to->processor, &to->arithmetic, &to->revision, &to->drafter, &to->rule };
    struct query *q = query_with(
        s,
        "SELECT processor, arithmetic, environment.revision, drafter, rule, (SELECT count(*) FROM sequence WHERE run = ?1)"
        " FROM environment JOIN run ON run.id = run WHERE run = ?1 ORDER BY environment.id DESC LIMIT 1",
        SQL(run));
    if (query_next(q)) {
        for (int i = 0; i < 5; i++)
            *text[i] = xstrdup(query_text(q, i));
        to->texts = query_int(q, 5);
    }
    return query_close(q, err);
}

bool store_add_environment(struct store *s, int64_t run, int64_t pair, const struct environment *e, struct error *err)
{
    static const char delete_sql[] =
        "DELETE FROM environment WHERE run = ?1 AND NOT EXISTS (SELECT 1 FROM sequence WHERE run = ?1)";
    static const char insert_sql[] =
        "INSERT INTO environment (run, since, processor, arithmetic, revision, read_bytes_per_s, read_one_bytes_per_s, round_trip_ns, mhz)"
        " SELECT ?1, (SELECT started FROM pair WHERE id = ?2), ?3, ?4, ?5, nullif(?6, 0), nullif(?7, 0), nullif(?8, 0), nullif(?9, 0)"
        " WHERE (?3, ?4, ?5) IS NOT (SELECT processor, arithmetic, revision FROM environment WHERE run = ?1 ORDER BY id DESC LIMIT 1)";
    return query_perform(query_with(s, delete_sql, SQL(run)), err) &&
           query_perform(query_with(s, insert_sql, SQL(run), SQL(pair), SQL(e->processor), SQL(e->arithmetic),
                                    SQL(e->revision), SQL(e->read), SQL(e->read_one), SQL(e->round_trip), SQL(e->mhz)),
                         err) &&
           query_perform(query_with(s, run_machine_sql, SQL(run)), err);
}

bool store_environment(struct store *s, int64_t run, const struct environment *e, bool mix, char **changed,
                       struct error *err)
{
    struct last l = { 0 };
    *changed = NULL;
    bool ok = read_last(s, run, &l, err);
    const bool first = l.texts == 0, processor = !first && strcmp(l.processor, e->processor) != 0;
    const bool bits = !first && (strcmp(l.arithmetic, e->arithmetic) != 0 || strcmp(l.revision, e->revision) != 0);
    if (ok && bits && !mix)
        ok = fail(err,
                  "%s: run %lld (%s, %s) has %lld %s of revision %s with %s; this is revision %s with %s, and bits may "
                  "differ: --mix resumes and records both, another --db starts anew",
                  store_path(s), (long long)run, l.drafter, l.rule, (long long)l.texts, l.texts == 1 ? "text" : "texts",
                  l.revision, l.arithmetic, e->revision, e->arithmetic);
    if (ok && (bits || processor))
        *changed =
            xformat("run %lld (%s, %s) resumes with revision %s, %s, %s; before: %s, %s, %s", (long long)run, l.drafter,
                    l.rule, e->revision, e->processor, e->arithmetic, l.revision, l.processor, l.arithmetic);
    char *const text[] = { l.processor, l.arithmetic, l.revision, l.drafter, l.rule };
    for (int i = 0; i < 5; i++)
        free(text[i]);
    return ok;
}

// ---- sequences ----

static char *ids_text(const int32_t *id, int n)
{
    struct json *ids = json_new_ids(id, (size_t)n);
    char *text = json_write(ids);
    json_free(ids);
    return text;
}

static bool new_sequence(struct store *s, int64_t run, const struct sequence_row *r, int64_t *id, struct error *err)
{
    struct json *text =
        json_new_text(r->text != NULL ? r->text : ""); // makes it valid UTF-8, since it may end within a character
    char *tokens = ids_text(r->token, r->new_tokens),
         *hash = xformat("%016llx", (unsigned long long)fnv(FNV_EMPTY, r->token, 4 * (size_t)r->new_tokens));
    const bool ok = row_insert(
        s, "sequence", id, err, COLUMN("run", run), COLUMN("pair", r->pair), COLUMN("prompt", r->prompt),
        COLUMN("prompt_id", r->prompt_id), COLUMN("category", r->category), COLUMN("turn", r->turn),
        COLUMN("repeat", r->repeat), COLUMN("prompt_tokens", r->prompt_tokens), COLUMN("new_tokens", r->new_tokens),
        COLUMN("steps", r->n_steps), COLUMN("shared_tokens", r->shared_tokens), COLUMN("prefill_ns", r->prefill_ns),
        COLUMN("decode_ns", r->decode_ns), COLUMN("wall_ns", r->wall_ns), COLUMN("tokens", tokens),
        COLUMN("text_hash", hash), COLUMN("text", r->text != NULL ? json_text(text) : NULL), COLUMN("stop", r->stop),
        { "environment", sql_expression("(SELECT max(id) FROM environment WHERE run = ?1)") });
    free(tokens);
    free(hash);
    json_free(text);
    return ok;
}

static bool new_draft(struct store *s, int64_t sequence, int step, const struct draft_row *r, struct error *err)
{
    int32_t *proposal = xmalloc(((size_t)r->n + 1) * sizeof(*proposal));
    for (int i = 0; i < r->n; i++)
        proposal[i] = r->proposal[i];
    char *const ids[] = { ids_text(r->token, r->n), ids_text(r->parent, r->n), ids_text(proposal, r->n),
                          ids_text(r->out, r->n_out) };
    const bool ok = row_insert(s, "draft", NULL, err, COLUMN("sequence", sequence), COLUMN("step", step),
                               COLUMN("position", r->position), COLUMN("tokens", ids[0]), COLUMN("parents", ids[1]),
                               COLUMN("proposals", ids[2]), COLUMN("out", ids[3]),
                               { "entries", SQL_UNLESS_0(r->entries) }, { "rows", sql_blob(r->rows, r->bytes) });
    for (int i = 0; i < 4; i++)
        free(ids[i]);
    free(proposal);
    return ok;
}

// Inserts the rows that belong to a step.
static bool new_parts(struct store *s, int64_t sequence, int step, const struct step_row *r, struct error *err)
{
    const struct sql_column of[] = { COLUMN("sequence", sequence), COLUMN("step", step) };
    bool ok = true;
    for (int i = 0; i < r->n_trials && ok; i++) {
        const struct trial_row *t = &r->trial[i];
        ok = row_insert(s, "trial", NULL, err, of[0], of[1], COLUMN("node", t->node), COLUMN("depth", t->depth),
                        COLUMN("rank", t->rank), COLUMN("token", t->token), COLUMN("proposal", t->proposal),
                        COLUMN("p", t->p), COLUMN("q", t->q), COLUMN("accepted", t->accepted),
                        COLUMN("source", t->source));
    }
    for (int i = 0; i < r->n_by_rule && ok; i++) {
        const struct expected_row *x = &r->by_rule[i];
        ok = row_insert(s, "step_rule", NULL, err, of[0], of[1], COLUMN("rule", x->rule),
                        COLUMN("lossless", x->lossless), COLUMN("accepted", x->accepted), COLUMN("first", x->first));
    }
    for (int i = 0; i < r->n_by_source && ok; i++) {
        const struct source_row *x = &r->by_source[i];
        ok = row_insert(s, "step_source", NULL, err, of[0], of[1], COLUMN("source", x->source),
                        COLUMN("drafted", x->drafted), COLUMN("accepted", x->accepted));
    }
    return ok && (r->draft == NULL || new_draft(s, sequence, step, r->draft, err));
}

// left: number of the text's tokens that earlier steps did not add. A stop string may remove more than the last step's
// tokens.
static bool new_step(struct store *s, int64_t sequence, int step, const struct step_row *r, int left, struct error *err)
{
    struct step_row cut = *r;
    cut.accepted = r->accepted < left ? r->accepted : left;
#define BOUND(type, name, bound) { #name, bound(cut.name) },
    const struct sql_column column[] = { COLUMN("sequence", sequence), COLUMN("step", step),
                                         COLUMN("tokens", r->accepted < left ? r->accepted + 1 : left),
                                         STEP_COLUMNS(BOUND) };
#undef BOUND
    return row_insert_columns(s, "step", column, sizeof(column) / sizeof(*column), NULL, err) &&
           new_parts(s, sequence, step, r, err);
}

static bool insert_sequence(struct store *s, int64_t run, const struct sequence_row *r, struct error *err)
{
    int64_t id;
    int left = r->new_tokens;
    if (r->under != NULL && !store_add_environment(s, run, r->pair, r->under, err))
        return false;
    if (!new_sequence(s, run, r, &id, err))
        return false;
    for (int i = 0; i < r->n_steps; i++) {
        if (!new_step(s, id, i, &r->step[i], left, err))
            return false;
        left -= r->step[i].accepted < left ? r->step[i].accepted + 1 : left;
    }
    return left == 0 || fail(err, "%s: prompt %s: %d of its %d new tokens belong to no step", store_path(s),
                             r->prompt_id, left, r->new_tokens);
}

bool store_sequence(struct store *s, int64_t run, const struct sequence_row *r, struct error *err)
{
    return transaction_begin(s, err) && transaction_end(s, insert_sequence(s, run, r, err), err);
}

bool store_slice(struct store *s, const struct slice_row *r, struct error *err)
{
    return row_insert(s, "slice", NULL, err, COLUMN("pair", r->pair), COLUMN("run", r->run), COLUMN("round", r->round),
                      COLUMN("ns", r->ns), COLUMN("foreign_load", r->foreign_load), COLUMN("disturbed", r->disturbed));
}

// ---- shards ----

static bool is_whole(const struct shard_row *r)
{
    return r->shards <= 1;
}

bool store_shard(struct store *s, int64_t run, const struct shard_row *r, struct error *err)
{
    static const char sql[] = "INSERT INTO shard (run, shards, shard, work, parts) VALUES (?1, ?2, ?3, ?4, ?5)"
                              " ON CONFLICT DO UPDATE SET work = excluded.work, parts = excluded.parts,"
                              " finished = CASE WHEN (work, parts) = (excluded.work, excluded.parts) THEN finished END";
    return is_whole(r) ||
           query_perform(query_with(s, sql, SQL(run), SQL(r->shards), SQL(r->shard), SQL(r->work), SQL(r->parts)), err);
}

bool store_shard_finished(struct store *s, int64_t run, const struct shard_row *r, bool again, struct error *err)
{
    static const char run_sql[] = "UPDATE run SET finished = " SQL_NOW " WHERE id = ?1 AND (?2 OR finished IS NULL)";
    static const char shard_sql[] = "UPDATE shard SET finished = " SQL_NOW " WHERE (run, shards, shard) = (?1, ?2, ?3)"
                                    " AND (?4 OR finished IS NULL)";
    if (is_whole(r))
        return query_perform(query_with(s, run_sql, SQL(run), SQL(again)), err);
    return query_perform(query_with(s, shard_sql, SQL(run), SQL(r->shards), SQL(r->shard), SQL(again)), err) &&
           query_perform(query_with(s, shards_complete_sql, SQL(run)), err);
}

bool store_shard_unfinished(struct store *s, int64_t run, const struct shard_row *r, struct error *err)
{
    static const char shard_sql[] =
        "UPDATE shard SET finished = NULL WHERE (run, shards, shard) = (?1, ?2, ?3) AND finished IS NOT NULL";
    static const char run_sql[] = "UPDATE run SET finished = NULL WHERE id = ?1 AND finished IS NOT NULL";
    struct query *q = is_whole(r) ? query_with(s, "DELETE FROM shard WHERE run = ?1", SQL(run))
                                  : query_with(s, shard_sql, SQL(run), SQL(r->shards), SQL(r->shard));
    return query_perform(q, err) && query_perform(query_with(s, run_sql, SQL(run)), err);
}

bool store_other_shard(struct store *s, const char *experiment, int shard, int shards, struct shard_row *other,
                       struct error *err)
{
    static const char sql[] =
        "SELECT shard, shards FROM shard JOIN run ON run.id = run WHERE experiment = ?1 AND (shard, shards) <> (?2, ?3)"
        " AND NOT EXISTS (SELECT 1 FROM shard AS own JOIN run ON run.id = own.run WHERE experiment = ?1"
        " AND (own.shard, own.shards) = (?2, ?3)) LIMIT 1";
    struct query *q = query_with(s, sql, SQL(experiment), SQL(shard), SQL(shards));
    *other = (struct shard_row){ 0 };
    if (query_next(q))
        *other = (struct shard_row){ .shard = (int)query_int(q, 0), .shards = (int)query_int(q, 1) };
    return query_close(q, err);
}

// ---- reading back ----

static bool read_tokens(const char *text, struct stored_turn *to, struct error *err)
{
    struct json *ids = json_parse(text, strlen(text), "tokens of a stored turn", err);
    if (ids == NULL)
        return false;
    to->n = (int)json_count(ids);
    to->token = xmalloc(((size_t)to->n + 1) * sizeof(*to->token));
    for (int i = 0; i < to->n; i++)
        to->token[i] = (int32_t)json_int(json_at(ids, (size_t)i));
    json_free(ids);
    return true;
}

bool store_turn(struct store *s, int64_t run, int64_t prompt, int turn, int repeat, struct stored_turn *to,
                struct error *err)
{
    *to = (struct stored_turn){ 0 };
    bool ok = true;
    struct query *q = query_with(s,
                                 "SELECT pair, tokens FROM sequence WHERE run = ? AND prompt = ? AND turn = ?"
                                 " AND repeat = ? ORDER BY id DESC LIMIT 1",
                                 SQL(run), SQL(prompt), SQL(turn), SQL(repeat));
    if (query_next(q)) {
        ok = read_tokens(query_text(q, 1), to, err);
        to->found = ok;
        to->pair = query_int(q, 0);
    }
    return query_close(q, err) && ok;
}

bool store_has_pair(struct store *s, int64_t run, int64_t none, int64_t prompt, int turn, int repeat, bool *paired,
                    struct error *err)
{
    static const char sql[] = "SELECT EXISTS (SELECT 1 FROM sequence AS q JOIN sequence AS n"
                              " ON n.pair = q.pair AND n.prompt = q.prompt AND n.turn = q.turn AND n.repeat = q.repeat"
                              " WHERE q.run = ?1 AND n.run = ?2 AND q.prompt = ?3 AND q.turn = ?4 AND q.repeat = ?5)";
    struct query *q = query_with(s, sql, SQL(run), SQL(none), SQL(prompt), SQL(turn), SQL(repeat));
    *paired = query_next(q) && query_int(q, 0) != 0;
    return query_close(q, err);
}

int64_t store_ns_per_token(struct store *s, const char *target_hash, const char *activations, const char *cache,
                           const char *drafter, struct error *err)
{
    static const char sql[] =
        "WITH per_token AS (SELECT decode_ns / new_tokens AS ns FROM sequence JOIN run ON run.id = run"
        " WHERE target_hash = ? AND activations = ? AND cache = ? AND drafter = ? AND new_tokens > 0)"
        " SELECT ns FROM per_token ORDER BY ns LIMIT 1 OFFSET (SELECT count(*) / 2 FROM per_token)";
    struct query *q = query_with(s, sql, SQL(target_hash), SQL(activations), SQL(cache), SQL(drafter));
    int64_t ns = query_next(q) ? query_int(q, 0) : 0;
    return query_close(q, err) ? ns : 0;
}

// ---- findings of `speclab exact` ----

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
