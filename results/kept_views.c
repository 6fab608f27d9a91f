#include "results/kept_views.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"

bool views_keep(struct store *s, const struct kept_view *v, int n, struct error *err)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        char *sql = xformat("CREATE TEMP TABLE IF NOT EXISTS %s AS SELECT * FROM main.%s%s%s", v[i].name, v[i].name,
                            v[i].where != NULL ? " WHERE " : "", v[i].where != NULL ? v[i].where : "");
        ok = query_perform(query_open(s, sql), err);
        free(sql);
    }
    return ok;
}

void views_forget(struct store *s, const struct kept_view *v, int n)
{
    struct error err; // nothing is kept but the connection's memory
    for (int i = 0; i < n; i++) {
        char *sql = xformat("DROP TABLE IF EXISTS temp.%s", v[i].name);
        (void)query_perform(query_open(s, sql), &err);
        free(sql);
    }
}
