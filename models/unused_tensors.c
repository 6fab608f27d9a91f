#include "models/unused_tensors.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/printable.h"
#include "models/config.h"
#include "models/layer_tensors.h"
#include "models/weights.h"

enum { NAMED = 3 }; // how many tensors a message names

// transformers stored RoPE's frequencies before version 4.32. They follow from the configuration, which all readers
// use.
static bool is_rope_buffer(const char *name)
{
    return ends_with(name, ".rotary_emb.inv_freq");
}

static bool is_ignored(const struct loaded *l, const char *name)
{
    for (const char *const *own = l->ignored; own != NULL && *own != NULL; own++) {
        const size_t n = strlen(*own);
        if ((*own)[n - 1] == '.' ? strncmp(name, *own, n) == 0 : strcmp(name, *own) == 0)
            return true;
    }
    return false;
}

const char *weights_unused(const struct weights *w, size_t i)
{
    for (size_t k = 0; k < w->n; k++)
        if (!w->weight[k].requested && !is_rope_buffer(w->weight[k].name) && i-- == 0)
            return w->weight[k].name;
    return NULL;
}

static bool is_refused(const struct weight *t, const struct loaded *l)
{
    return !t->requested && !is_ignored(l, t->name) && !is_rope_buffer(t->name);
}

// Returns the layer of a tensor if the configuration has no such layer; otherwise -1.
static int layer_beyond(const struct weight *t, const struct loaded *l)
{
    static const char *const prefixes[] = { "model.layers.", "layers.", "blk." };
    int layer = -1;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes) && layer < 0; i++) {
        const char *rest = weights_layer(t->name, prefixes[i], &layer);
        if (rest == NULL || *rest != '.')
            layer = -1;
    }
    return l->layers_key != NULL && layer >= l->layers && layer < LIMIT_LAYERS ? layer : -1;
}

struct found {
    const struct weight *first;  // NULL: no tensor is refused
    int n, of_layers;            // number of tensors; of these, number in layers that the configuration does not have
    int lowest, highest, layers; // numbers of such layers, and how many there are
};

static struct found find(const struct weights *w, const struct loaded *l)
{
    struct found f = { .lowest = LIMIT_LAYERS, .highest = -1 };
    bool seen[LIMIT_LAYERS] = { false };
    for (size_t i = 0; i < w->n; i++) {
        if (!is_refused(&w->weight[i], l))
            continue;
        const int layer = layer_beyond(&w->weight[i], l);
        if (f.n++ == 0)
            f.first = &w->weight[i];
        f.of_layers += layer >= 0;
        f.layers += layer >= 0 && !seen[layer];
        seen[layer >= 0 ? layer : 0] = true; // layer 0 is never beyond
        f.lowest = layer >= 0 && layer < f.lowest ? layer : f.lowest;
        f.highest = layer > f.highest ? layer : f.highest;
    }
    return f;
}

// Returns "a, b, c and 6 more": names of all refused tensors, or only of those in missing layers, beginning with the
// lowest one.
static char *names(const struct weights *w, const struct loaded *l, const struct found *f)
{
    const int all = f->of_layers > 0 ? f->of_layers : f->n;
    int n = 0;
    struct text t = { 0 };
    for (size_t i = 0; i < w->n && n < NAMED; i++)
        if (is_refused(&w->weight[i], l) && (f->of_layers == 0 || layer_beyond(&w->weight[i], l) == f->lowest)) {
            text_puts(&t, n++ > 0 ? ", " : "");
            printable_put(&t, w->weight[i].stored, strnlen(w->weight[i].stored, 80), ""); // shown in one line
        }
    if (n < all)
        text_printf(&t, " and %d more", all - n);
    return t.s;
}

bool unused_tensors_refuse(const struct weights *w, const struct loaded *l, struct error *err)
{
    const struct found f = find(w, l);
    if (f.n == 0)
        return true;
    char *list = names(w, l, &f);
    if (f.of_layers > 0 && f.layers < f.highest + 1 - l->layers) // layers between are missing
        fail(err, "%s: %s is %d, but the file has %s of layer %d: %s would not be used", l->config, l->layers_key,
             l->layers, f.of_layers > 1 ? "tensors" : "a tensor", f.lowest, list);
    else if (f.of_layers > 0)
        fail(err, "%s: %s is %d, but the file has tensors of %d layers: %s would not be used", l->config, l->layers_key,
             l->layers, f.highest + 1, list);
    else
        fail(err, "%s: tensor%s %s: %s", f.first->file, f.n > 1 ? "s" : "", list, l->reason);
    free(list);
    return false;
}
