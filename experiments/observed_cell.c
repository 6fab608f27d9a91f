#include "experiments/observed_cell.h"

#include <stdlib.h>

#include "core/error.h"
#include "engine/decode.h"
#include "engine/prompts.h"

bool observed_cell_open(struct observed_cell *c, struct step_observer observer, struct error *err)
{
    c->slots = experiment_batch(c->e, c->cell.batch);
    if (!cell_read(&c->pairing, c->e, c->cell, err))
        return false;
    c->pairing.observer = observer;
    if (!cell_open(&c->pairing, c->loaded, c->cell, err))
        return false;
    if (observer.verified != NULL && pairing_shares_randomness(&c->pairing))
        return fail(
            err, "rule match with `pick: coupled`: draft tokens share the rule's random numbers, so these tests do not "
                 "apply; instead compare its texts with those of none");
    return true;
}

bool observed_cell_start(const struct observed_cell *c, struct decoder *d, int64_t number, int *slot, struct ids *ids,
                         struct error *err)
{
    const struct prompt *p = &c->e->prompts.prompt[number % c->e->prompts.n];
    struct ids own = { 0 }, *to = ids != NULL ? ids : &own;
    bool ok = prompt_token_ids(&c->loaded->target, &c->loaded->chat, p, NULL, 0, to, err);
    const struct assignment a = { .sequence = number,
                                  .prompt = to->id,
                                  .n = (int)to->n,
                                  .limit = c->e->new_tokens,
                                  .stops = &c->loaded->ends.stops };
    ok = ok && decoder_start(d, &a, err);
    *slot = ok ? decoder_slot(d, number) : -1;
    free(own.id);
    return ok;
}

bool each_observed_cell(const struct experiment *e,
                        bool (*each)(void *self, struct observed_cell *c, struct error *err), void *self,
                        struct error *err)
{
    bool ok = true;
    int cells = 0;
    for (int t = 0; t < e->target.n && ok; t++) {
        struct loaded_experiment loaded;
        if (!loaded_experiment_open(&loaded, e, t, err))
            return false;
        for (int g = t * target_groups(e); g < (t + 1) * target_groups(e) && ok; g++)
            for (int k = 0; k < e->rule.n * e->drafter.n && ok; k++) {
                struct cell cell = group_cell(e, g);
                cell.rule = k / e->drafter.n;
                cell.drafter = k % e->drafter.n;
                if (!experiment_has(e, cell) || experiment_is_none(e, cell.drafter))
                    continue;
                struct observed_cell c = { .e = e, .loaded = &loaded, .cell = cell };
                ok = each(self, &c, err);
                pairing_close(&c.pairing);
                cells++;
            }
        loaded_experiment_close(&loaded);
    }
    return ok &&
           (cells > 0 || fail(err, "%s: expected a drafter other than `none`, found none: nothing to test", e->path));
}
