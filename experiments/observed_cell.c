#include "experiments/observed_cell.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "engine/prompts.h"

bool observed_cell_open(struct observed_cell *c, struct speclab_listener listener, struct error *err)
{
    c->slots = experiment_batch(c->e, c->cell.batch);
    c->decoder = cell_read(c->e, c->cell, err);
    if (c->decoder == NULL)
        return false;
    c->decoder->listener = listener;
    if (!cell_open(c->decoder, c->loaded, c->cell, err))
        return false;
    if (listener.decided != NULL && decoder_shares_randomness(c->decoder))
        return fail(
            err, "rule match with `pick: coupled`: draft tokens share the rule's random numbers, so these tests do not "
                 "apply; instead compare its texts with those of none");
    return true;
}

bool observed_cell_start(const struct observed_cell *c, int64_t number, int *slot, struct ids *ids, struct error *err)
{
    const struct prompt *p = &c->e->prompts.prompt[number % c->e->prompts.n];
    struct ids own = { 0 }, *to = ids != NULL ? ids : &own;
    bool ok = prompt_token_ids(c->loaded->target, p, NULL, 0, to, err);
    const struct speclab_request r = cell_request(c->e, number, to);
    ok = ok && speclab_decoder_start(c->decoder, &r, err);
    *slot = ok ? speclab_decoder_slot(c->decoder, number) : -1;
    free(own.id);
    return ok;
}

char *observed_cell_label(const struct observed_cell *c)
{
    return xformat("%s, %s, %s", c->e->drafter.entry[c->cell.drafter].shown, c->e->rule.entry[c->cell.rule].shown,
                   c->e->sampling.entry[c->cell.sampling].shown);
}

bool error_ends_cell(const struct error *why, const volatile int *stop)
{
    struct error ignored;
    return error_is_plugin(why) && interrupt_check(stop, &ignored);
}

static bool cell_failed(const struct observed_cells *all, const struct observed_cell *c, const struct error *why)
{
    if (!error_ends_cell(why, all->stop))
        return false;
    char *label = observed_cell_label(c);
    fprintf(all->out, "%s: failed\n", label);
    fflush(all->out);
    fprintf(stderr, "speclab %s: %s: %s; the cell ends here\n", all->command, label, why->text);
    free(label);
    return true;
}

bool each_observed_cell(const struct observed_cells *all,
                        bool (*each)(void *self, struct observed_cell *c, struct error *err), void *self,
                        struct error *err)
{
    const struct experiment *e = all->e;
    bool ok = true;
    int cells = 0, failed = 0;
    for (int t = 0; t < e->target.n && ok; t++) {
        struct loaded_experiment loaded;
        if (!loaded_experiment_open(&loaded, e, t, err))
            return false;
        for (int g = t * target_groups(e); g < (t + 1) * target_groups(e) && ok; g++)
            for (int k = 0; k < e->rule.n * e->drafter.n && ok; k++) {
                struct cell cell = group_cell(e, g);
                cell.rule = k / e->drafter.n;
                cell.drafter = k % e->drafter.n;
                if (!experiment_has(e, cell) || cell.drafter == e->none)
                    continue;
                struct observed_cell c = { .e = e, .loaded = &loaded, .cell = cell };
                if (!each(self, &c, err)) {
                    ok = cell_failed(all, &c, err);
                    failed++;
                }
                speclab_decoder_destroy(c.decoder);
                cells++;
            }
        loaded_experiment_close(&loaded);
    }
    return ok &&
           (cells > 0 || fail(err, "%s: expected a drafter other than `none`, found none: nothing to test", e->path)) &&
           (failed == 0 ||
            fail(err, "%d of the cells ended with an error of a plugin%s%s", failed,
                 all->kept != NULL ? "; what was finished is in " : "", all->kept != NULL ? all->kept : ""));
}
