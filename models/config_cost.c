// config_cost.c - what a row of a pass costs, from the configuration alone.
#include "models/config.h"

double config_products(const struct model_config *c)
{
    const double heads = (double)c->heads * c->head_dim, kv = (double)c->kv_heads * c->head_dim, width = c->width;
    const int mixed = c->experts > 0 ? c->layers - layer_set_count(&c->dense) : 0;
    const double attention = width * (heads + 2 * kv) + heads * width, network = 3 * width * c->hidden,
                 experts = 3 * width * c->expert_hidden * c->experts_used + width * c->experts;
    return c->layers * attention + (c->layers - mixed) * network + mixed * experts;
}

double config_positions_seen(const struct model_config *c, double positions)
{
    const int windowed = layer_set_count(&c->windowed);
    return positions * (c->layers - windowed) + (positions < c->window ? positions : c->window) * windowed;
}
