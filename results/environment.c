#include "results/environment.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"

// query_again compares statements by address.
static const char last_sql[] =
    "SELECT processor, arithmetic, environment.revision, (SELECT count(*) FROM sequence WHERE run = ?1), drafter, rule"
    " FROM environment JOIN run ON run.id = run WHERE run = ?1 ORDER BY environment.id DESC LIMIT 1";
static const char delete_sql[] =
    "DELETE FROM environment WHERE run = ?1 AND NOT EXISTS (SELECT 1 FROM sequence WHERE run = ?1)";
static const char insert_sql[] =
    "INSERT INTO environment (run, since, processor, arithmetic, revision, read_bytes_per_s, read_one_bytes_per_s, round_trip_ns, mhz)"
    " SELECT ?1, (SELECT started FROM pair WHERE id = ?2), ?3, ?4, ?5, nullif(?6, 0), nullif(?7, 0), nullif(?8, 0), nullif(?9, 0) WHERE (?3, ?4, ?5) IS NOT"
    " (SELECT processor, arithmetic, revision FROM environment WHERE run = ?1 ORDER BY id DESC LIMIT 1)";
// run.machine and run.revision list each value once, in order of first use.
extern const char run_machine_sql[]; // query_again compares statements by address

struct last { // the run's last environment; texts: of the run
    char *processor, *arithmetic, *revision, *drafter, *rule;
    int64_t texts;
};

static bool read_last(struct store *s, int64_t run, struct last *to, struct error *err)
{
    struct query *q = query_again(s, last_sql);
    query_put_int(q, run);
    while (query_next(q)) {
        char **const text[] = { &to->processor, &to->arithmetic, &to->revision };
        for (int i = 0; i < 3; i++)
            *text[i] = xstrdup(query_text(q, i));
        to->texts = query_int(q, 3);
        to->drafter = xstrdup(query_text(q, 4));
        to->rule = xstrdup(query_text(q, 5));
    }
    return query_close(q, err);
}

static void free_last(struct last *l)
{
    free(l->processor);
    free(l->arithmetic);
    free(l->revision);
    free(l->drafter);
    free(l->rule);
}

bool store_add_environment(struct store *s, int64_t run, int64_t pair, const struct environment *e, struct error *err)
{
    struct query *q = query_again(s, delete_sql);
    query_put_int(q, run);
    if (!query_perform(q, err))
        return false;
    q = query_again(s, insert_sql);
    query_put_int(q, run);
    query_put_int(q, pair);
    query_put_text(q, e->processor);
    query_put_text(q, e->arithmetic);
    query_put_text(q, e->revision);
    query_put_real(q, e->read);
    query_put_real(q, e->read_one);
    query_put_real(q, e->round_trip);
    query_put_real(q, e->mhz);
    if (!query_perform(q, err))
        return false;
    q = query_again(s, run_machine_sql);
    query_put_int(q, run);
    return query_perform(q, err);
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
    free_last(&l);
    return ok;
}
