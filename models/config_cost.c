// config_cost.c - what a pass and a row of it cost, from the configuration alone.
#include <math.h>

#include "models/config.h"

int config_mixed_layers(const struct model_config *c)
{
    return c->experts > 0 ? c->layers - layer_set_count(&c->dense) : 0;
}

double config_experts_expected(const struct model_config *c, double n)
{
    return c->experts > 0 ? c->experts * (1 - pow(1 - (double)c->experts_used / c->experts, n)) : 0;
}

double config_products(const struct model_config *c)
{
    const double heads = (double)c->heads * c->head_dim, kv = (double)c->kv_heads * c->head_dim, width = c->width;
    const int mixed = config_mixed_layers(c);
    const double attention = width * (heads + 2 * kv) + heads * width, network = 3 * width * c->hidden,
                 experts = 3 * width * c->expert_hidden * c->experts_used + width * c->experts;
    return c->layers * attention + (c->layers - mixed) * network + mixed * experts;
}

double config_positions_seen(const struct model_config *c, double positions)
{
    const int windowed = layer_set_count(&c->windowed);
    return positions * (c->layers - windowed) + (positions < c->window ? positions : c->window) * windowed;
}
