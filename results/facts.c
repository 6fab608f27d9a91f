// facts.c - writes runs and sequences to the database, and reads back what a resumed run needs.
//
// A sequence with its steps and trials is one transaction: a killed process leaves complete sequences and nothing else.
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/environment.h"
#include "results/query.h"
#include "results/store.h"
#include "results/store/store_schema.h"

// query_again compares statements by address.
static const char begin_sql[] = "BEGIN IMMEDIATE";
static const char commit_sql[] = "COMMIT";
static const char rollback_sql[] = "ROLLBACK";
static const char find_run_sql[] =
    "SELECT id, settings = ?3, target_hash = ?4, drafter_hash IS ?5, prompts = ?6 FROM run WHERE experiment = ?1 AND cell = ?2";
static const char new_run_sql[] =
    "INSERT INTO run (experiment, cell, peers, settings, file, folder, model_path, prompts_path, config_hash, tokenizer_hash, target, target_hash, model_type, activations, cache, drafter, drafter_kind,"
    " drafter_hash, rule, sampling, prompts, device, machine, revision, lossless, drafter_invariant, marked_inflated, seed, batch, started)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?," QUERY_NOW ") RETURNING id";
static const char new_pair_sql[] = "INSERT INTO pair (experiment, started) VALUES (?, " QUERY_NOW ") RETURNING id";
static const char new_sequence_sql[] =
    "INSERT INTO sequence (run, pair, prompt, prompt_id, category, turn, repeat, prompt_tokens, new_tokens, steps,"
    " shared_tokens, prefill_ns, decode_ns, wall_ns, tokens, text_hash, text, stop, environment)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?, (SELECT max(id) FROM environment WHERE run = ?1)) RETURNING id";
static const char new_step_sql[] =
    "INSERT INTO step (sequence, step, drafted, depth, accepted, tokens, expected, variance, accepted_uncut, propose_ns,"
    " verify_ns, advance_ns, at_ns, batch, round, experts) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,nullif(?,0))";
static const char new_slice_sql[] =
    "INSERT INTO slice (pair, run, round, ns, foreign_load, disturbed) VALUES (?,?,?,?,?,?)";
static const char new_trial_sql[] =
    "INSERT INTO trial (sequence, step, node, depth, rank, token, proposal, p, q, accepted, source) VALUES (?,?,?,?,?,?,?,?,?,?,?)";
static const char new_source_sql[] =
    "INSERT INTO step_source (sequence, step, source, drafted, accepted) VALUES (?,?,?,?,?)";
static const char new_expected_sql[] =
    "INSERT INTO step_rule (sequence, step, rule, lossless, accepted, first) VALUES (?,?,?,?,?,?)";
static const char new_draft_sql[] =
    "INSERT INTO draft (sequence, step, position, tokens, parents, proposals, out, entries, rows) VALUES (?,?,?,?,?,?,?,nullif(?,0),?)";
static const char turn_sql[] =
    "SELECT pair, tokens FROM sequence WHERE run = ? AND prompt = ? AND turn = ? AND repeat = ?"
    " ORDER BY id DESC LIMIT 1";
static const char has_pair_sql[] =
    "SELECT EXISTS (SELECT 1 FROM sequence AS q JOIN sequence AS n"
    " ON n.pair = q.pair AND n.prompt = q.prompt AND n.turn = q.turn AND n.repeat = q.repeat"
    " WHERE q.run = ?1 AND n.run = ?2 AND q.prompt = ?3 AND q.turn = ?4 AND q.repeat = ?5)";
static const char ns_per_token_sql[] =
    "WITH per_token AS (SELECT decode_ns / new_tokens AS ns FROM sequence JOIN run ON run.id = run"
    " WHERE target_hash = ? AND activations = ? AND cache = ? AND drafter = ? AND new_tokens > 0)"
    " SELECT ns FROM per_token ORDER BY ns LIMIT 1 OFFSET (SELECT count(*) / 2 FROM per_token)";

// Performs an INSERT ... RETURNING id.
static bool perform_new(struct query *q, int64_t *id, struct error *err)
{
    *id = 0;
    while (query_next(q))
        *id = query_int(q, 0);
    return query_close(q, err);
}

static bool begin(struct store *s, struct error *err)
{
    return query_perform(query_again(s, begin_sql), err);
}

// Ends a transaction: commits if ok, else rolls back and keeps the first error. The ROLLBACK may fail because SQLite may
// have rolled back by itself.
static bool end(struct store *s, bool ok, struct error *err)
{
    struct error ignored;
    if (ok && query_perform(query_again(s, commit_sql), err))
        return true;
    query_perform(query_again(s, rollback_sql), &ignored);
    return false;
}

// ---- runs and pairs ----

static bool new_run(struct store *s, const struct run_row *r, int64_t *id, struct error *err)
{
    const char *const text[] = { r->experiment, r->cell,         r->peers,        r->settings,    r->file,
                                 r->folder,     r->model_path,   r->prompts_path, r->config_hash, r->tokenizer_hash,
                                 r->target,     r->target_hash,  r->model_type,   r->activations, r->cache,
                                 r->drafter,    r->drafter_kind, r->drafter_hash, r->rule,        r->sampling,
                                 r->prompts,    r->device,       r->machine,      r->revision };
    struct query *q = query_again(s, new_run_sql);
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++)
        query_put_text(q, text[i]);
    query_put_int(q, r->lossless);
    query_put_int(q, r->drafter_invariant);
    query_put_int(q, r->marked_inflated);
    query_put_int(q, (int64_t)r->seed);
    query_put_int(q, r->batch);
    return perform_new(q, id, err);
}

// *id: the cell's run; 0: none. A run is resumed only with the same settings, weights and prompts.
static bool find_run(struct store *s, const struct run_row *r, int64_t *id, struct error *err)
{
    static const char *const part[] = { "settings (two cells have the same hash)", "weights of the target",
                                        "weights of the drafter", "prompts" };
    const char *const key[] = { r->experiment, r->cell, r->settings, r->target_hash, r->drafter_hash, r->prompts };
    const char *changed = NULL;
    struct query *q = query_again(s, find_run_sql);
    for (size_t i = 0; i < sizeof(key) / sizeof(key[0]); i++)
        query_put_text(q, key[i]);
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
    return schema_fits(&shown, err) && begin(s, err) && end(s, find_or_make_run(s, r, id, err), err);
}

bool store_new_pair(struct store *s, const char *experiment, int64_t *pair, struct error *err)
{
    struct query *q = query_again(s, new_pair_sql);
    query_put_text(q, experiment);
    return perform_new(q, pair, err);
}

// ---- sequences ----

static uint64_t hash_of(const int32_t *token, int n) // FNV-1a
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++)
        for (int byte = 0; byte < 4; byte++)
            h = (h ^ (((uint32_t)token[i] >> (8 * byte)) & 0xff)) * 0x100000001b3u;
    return h;
}

static bool new_sequence(struct store *s, int64_t run, const struct sequence_row *r, int64_t *id, struct error *err)
{
    struct json *ids = json_new_ids(r->token, (size_t)r->new_tokens);
    struct json *text =
        json_new_text(r->text != NULL ? r->text : ""); // makes it valid UTF-8: it may end within a character
    char *tokens = json_write(ids), *hash = xformat("%016llx", (unsigned long long)hash_of(r->token, r->new_tokens));
    struct query *q = query_again(s, new_sequence_sql);
    query_put_int(q, run);
    query_put_int(q, r->pair);
    query_put_int(q, r->prompt);
    query_put_text(q, r->prompt_id);
    query_put_text(q, r->category);
    query_put_int(q, r->turn);
    query_put_int(q, r->repeat);
    query_put_int(q, r->prompt_tokens);
    query_put_int(q, r->new_tokens);
    query_put_int(q, r->n_steps);
    query_put_int(q, r->shared_tokens);
    query_put_int(q, r->prefill_ns);
    query_put_int(q, r->decode_ns);
    query_put_int(q, r->wall_ns);
    query_put_text(q, tokens);
    query_put_text(q, hash);
    query_put_text(q, r->text != NULL ? json_text(text) : NULL);
    query_put_text(q, r->stop);
    free(tokens);
    free(hash);
    json_free(ids);
    json_free(text);
    return perform_new(q, id, err);
}

static bool new_trial(struct store *s, int64_t sequence, int step, const struct trial_row *t, struct error *err)
{
    struct query *q = query_again(s, new_trial_sql);
    query_put_int(q, sequence);
    query_put_int(q, step);
    query_put_int(q, t->node);
    query_put_int(q, t->depth);
    query_put_int(q, t->rank);
    query_put_int(q, t->token);
    query_put_int(q, t->proposal);
    query_put_real(q, t->p);
    query_put_real(q, t->q);
    query_put_int(q, t->accepted);
    query_put_text(q, t->source);
    return query_perform(q, err);
}

static bool new_expected(struct store *s, int64_t sequence, int step, const struct expected_row *r, struct error *err)
{
    struct query *q = query_again(s, new_expected_sql);
    query_put_int(q, sequence);
    query_put_int(q, step);
    query_put_text(q, r->rule);
    query_put_int(q, r->lossless);
    query_put_real(q, r->accepted);
    query_put_real(q, r->first);
    return query_perform(q, err);
}

static bool new_source(struct store *s, int64_t sequence, int step, const struct source_row *r, struct error *err)
{
    struct query *q = query_again(s, new_source_sql);
    query_put_int(q, sequence);
    query_put_int(q, step);
    query_put_text(q, r->source);
    query_put_int(q, r->drafted);
    query_put_int(q, r->accepted);
    return query_perform(q, err);
}

static void put_ids(struct query *q, const int32_t *id, int n)
{
    struct json *ids = json_new_ids(id, (size_t)n);
    char *text = json_write(ids);
    query_put_text(q, text);
    free(text);
    json_free(ids);
}

static bool new_draft(struct store *s, int64_t sequence, int step, const struct draft_row *r, struct error *err)
{
    struct query *q = query_again(s, new_draft_sql);
    int32_t *proposal = xmalloc(((size_t)r->n + 1) * sizeof(*proposal));
    for (int i = 0; i < r->n; i++)
        proposal[i] = r->proposal[i];
    query_put_int(q, sequence);
    query_put_int(q, step);
    query_put_int(q, r->position);
    put_ids(q, r->token, r->n);
    put_ids(q, r->parent, r->n);
    put_ids(q, proposal, r->n);
    put_ids(q, r->out, r->n_out);
    query_put_int(q, r->entries);
    query_put_blob(q, r->rows, r->bytes);
    free(proposal);
    return query_perform(q, err);
}

// left: tokens of the text that earlier steps did not add. A stop string may remove more than the last step's tokens.
static bool new_step(struct store *s, int64_t sequence, int step, const struct step_row *r, int left, struct error *err)
{
    struct query *q = query_again(s, new_step_sql);
    query_put_int(q, sequence);
    query_put_int(q, step);
    query_put_int(q, r->drafted);
    query_put_int(q, r->depth);
    query_put_int(q, r->accepted < left ? r->accepted : left);
    query_put_int(q, r->accepted < left ? r->accepted + 1 : left);
    query_put_real(q, r->expected);
    query_put_real(q, r->variance);
    query_put_real(q, r->accepted_uncut < 0 ? NAN : r->accepted_uncut); // NAN: NULL
    query_put_int(q, r->propose_ns);
    query_put_int(q, r->verify_ns);
    query_put_int(q, r->advance_ns);
    query_put_int(q, r->at_ns);
    query_put_int(q, r->batch);
    query_put_int(q, r->round);
    query_put_int(q, r->experts);
    bool ok = query_perform(q, err);
    for (int i = 0; i < r->n_trials && ok; i++)
        ok = new_trial(s, sequence, step, &r->trial[i], err);
    for (int i = 0; i < r->n_by_rule && ok; i++)
        ok = new_expected(s, sequence, step, &r->by_rule[i], err);
    for (int i = 0; i < r->n_by_source && ok; i++)
        ok = new_source(s, sequence, step, &r->by_source[i], err);
    if (ok && r->draft != NULL)
        ok = new_draft(s, sequence, step, r->draft, err);
    return ok;
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
    return begin(s, err) && end(s, insert_sequence(s, run, r, err), err);
}

bool store_slice(struct store *s, const struct slice_row *r, struct error *err)
{
    struct query *q = query_again(s, new_slice_sql);
    query_put_int(q, r->pair);
    query_put_int(q, r->run);
    query_put_int(q, r->round);
    query_put_int(q, r->ns);
    query_put_real(q, r->foreign_load); // NAN: NULL
    query_put_int(q, r->disturbed);
    return query_perform(q, err);
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
    struct query *q = query_again(s, turn_sql);
    query_put_int(q, run);
    query_put_int(q, prompt);
    query_put_int(q, turn);
    query_put_int(q, repeat);
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
    struct query *q = query_again(s, has_pair_sql);
    query_put_int(q, run);
    query_put_int(q, none);
    query_put_int(q, prompt);
    query_put_int(q, turn);
    query_put_int(q, repeat);
    *paired = query_next(q) && query_int(q, 0) != 0;
    return query_close(q, err);
}

int64_t store_ns_per_token(struct store *s, const char *target_hash, const char *activations, const char *cache,
                           const char *drafter, struct error *err)
{
    struct query *q = query_again(s, ns_per_token_sql);
    query_put_text(q, target_hash);
    query_put_text(q, activations);
    query_put_text(q, cache);
    query_put_text(q, drafter);
    int64_t ns = query_next(q) ? query_int(q, 0) : 0;
    return query_close(q, err) ? ns : 0;
}
