#include "results/store/shards.h"

#include "results/query.h"

// query_again compares statements by address.
extern const char shards_complete_sql[];
static const char find_sql[] =
    "INSERT INTO shard (run, shards, shard, work, parts) VALUES (?1, ?2, ?3, ?4, ?5)"
    " ON CONFLICT DO UPDATE SET work = excluded.work, parts = excluded.parts,"
    " finished = CASE WHEN (work, parts) = (excluded.work, excluded.parts) THEN finished END";
static const char finish_sql[] =
    "UPDATE shard SET finished = " QUERY_NOW " WHERE (run, shards, shard) = (?1, ?2, ?3) AND (?4 OR finished IS NULL)";
static const char finish_run_sql[] =
    "UPDATE run SET finished = " QUERY_NOW " WHERE id = ?1 AND (?4 OR finished IS NULL)";
static const char unfinish_sql[] =
    "UPDATE shard SET finished = NULL WHERE (run, shards, shard) = (?1, ?2, ?3) AND finished IS NOT NULL";
static const char unfinish_run_sql[] = "UPDATE run SET finished = NULL WHERE id = ?1 AND finished IS NOT NULL";
static const char forget_sql[] = "DELETE FROM shard WHERE run = ?1";
static const char other_sql[] =
    "SELECT shard, shards FROM shard JOIN run ON run.id = run WHERE experiment = ?1 AND (shard, shards) <> (?2, ?3)"
    " AND NOT EXISTS (SELECT 1 FROM shard AS own JOIN run ON run.id = own.run WHERE experiment = ?1"
    " AND (own.shard, own.shards) = (?2, ?3)) LIMIT 1";

static struct query *query_of(struct store *s, const char *sql, int64_t run, const struct shard_row *r)
{
    struct query *q = query_again(s, sql);
    query_put_int(q, run);
    query_put_int(q, r->shards);
    query_put_int(q, r->shard);
    return q;
}

static bool is_whole(const struct shard_row *r)
{
    return r->shards <= 1;
}

static bool perform_on_run(struct store *s, const char *sql, int64_t run, struct error *err)
{
    struct query *q = query_again(s, sql);
    query_put_int(q, run);
    return query_perform(q, err);
}

bool store_shard(struct store *s, int64_t run, const struct shard_row *r, struct error *err)
{
    if (is_whole(r))
        return true;
    struct query *q = query_of(s, find_sql, run, r);
    query_put_text(q, r->work);
    query_put_int(q, r->parts);
    return query_perform(q, err);
}

bool store_shard_finished(struct store *s, int64_t run, const struct shard_row *r, bool again, struct error *err)
{
    struct query *q = query_of(s, is_whole(r) ? finish_run_sql : finish_sql, run, r);
    query_put_int(q, again);
    return query_perform(q, err) && (is_whole(r) || perform_on_run(s, shards_complete_sql, run, err));
}

bool store_shard_unfinished(struct store *s, int64_t run, const struct shard_row *r, struct error *err)
{
    return (is_whole(r) ? perform_on_run(s, forget_sql, run, err)
                        : query_perform(query_of(s, unfinish_sql, run, r), err)) &&
           perform_on_run(s, unfinish_run_sql, run, err);
}

bool store_other_shard(struct store *s, const char *experiment, int shard, int shards, struct shard_row *other,
                       struct error *err)
{
    struct query *q = query_again(s, other_sql);
    query_put_text(q, experiment);
    query_put_int(q, shard);
    query_put_int(q, shards);
    *other = (struct shard_row){ 0 };
    if (query_next(q))
        *other = (struct shard_row){ .shard = (int)query_int(q, 0), .shards = (int)query_int(q, 1) };
    return query_close(q, err);
}
