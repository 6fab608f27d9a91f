#include "experiments/pairs/slice_load.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"

void slice_load_begin(struct slice_load *l)
{
    if (l->n == 0)
        l->begun = load_begin(0);
}

static bool store_rows(struct slice_load *l, struct store *s, double foreign, struct error *err)
{
    bool ok = true;
    for (size_t i = 0; i < l->n && ok; i++) {
        l->row[i].foreign_load = foreign;
        l->row[i].disturbed = l->disturbed;
        ok = store_slice(s, &l->row[i], err);
    }
    l->n = 0;
    return ok;
}

bool slice_load_end(struct slice_load *l, struct store *s, const struct slice_row *row, struct error *err)
{
    array_reserve(l->row, l->capacity, l->n + 1);
    l->row[l->n++] = *row;
    const double foreign = load_foreign(&l->begun, 0);
    if (isnan(foreign))
        return true;
    l->disturbed = foreign > MAX_FOREIGN_LOAD;
    return store_rows(l, s, foreign, err);
}

bool slice_load_close(struct slice_load *l, struct store *s, struct error *err)
{
    const bool ok = store_rows(l, s, NAN, err);
    free(l->row);
    *l = (struct slice_load){ 0 };
    return ok;
}
