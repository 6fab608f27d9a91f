// fits.c - whether a head of any kind can run on a target.
#include "models/heads/eagle.h"
#include "models/heads/head.h"
#include "models/heads/medusa.h"

bool head_fits(const char *path, const struct model_shape *target, enum head_kind *kind, struct head_facts *facts,
               struct error *err)
{
    struct head h;
    if (!head_open(&h, path, HEAD_MEDUSA, NULL, err))
        return false;
    *kind = h.kind;
    if (*kind == HEAD_MEDUSA)
        return medusa_fits(h, target, facts, err);
    // A missing norm_before_residual does not make a head unfit: either value runs, and only the accuracy shows which
    // one is right.
    const struct eagle_setup setup = { .kind = *kind, .norm_before_residual = TRI_TRUE };
    return eagle_fits(h, target, &setup, facts, err);
}
