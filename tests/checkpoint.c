#include "tests/checkpoint.h"

#include "core/error.h"
#include "tests/check.h"

struct checkpoint checkpoint_open(const char *path)
{
    struct checkpoint o = { .weights = NULL };
    struct error err;
    if (!config_read(path, &o.config, &err) || (o.weights = weights_open(&o.config, &err)) == NULL)
        fail_msg("%s", err.text);
    return o;
}

void checkpoint_close(struct checkpoint *o)
{
    weights_close(o->weights);
    config_free(&o->config);
}

struct tensor checkpoint_tensor(const struct checkpoint *o, const char *name, int64_t rows, int64_t width)
{
    struct tensor t = { 0 };
    struct error err;
    if (!weights_get(o->weights, name, rows, width, &t, &err))
        fail_msg("%s", err.text);
    return t;
}
