#include "models/heads/head.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/files/input.h"
#include "models/formats/identity.h"
#include "models/weights.h"

const char *const head_kinds[] = { "a Medusa head", "an EAGLE head", "an EAGLE-3 head" };
const char *const head_drafters[] = { "medusa", "eagle", "eagle3" };

// Strips or translates the prefixes that training programs put before the names of a head's tensors.
static char *own_name(const char *stored)
{
    static const struct {
        const char *from, *to;
    } begins[] = {
        { "medusa_head.", "" },
        { "medusa_heads.", "" },
        { "model.midlayer.", "layers.0." },
        { "midlayer.", "layers.0." },
        { "fusion_fc.", "fc." },
        { "transformer.", "layers.0." },
        { "model.", "" },
    };
    for (size_t i = 0; i < sizeof(begins) / sizeof(*begins); i++) {
        const size_t n = strlen(begins[i].from);
        if (strncmp(stored, begins[i].from, n) == 0)
            return xformat("%s%s", begins[i].to, stored + n);
    }
    return xstrdup(stored);
}

static bool read_config(struct head *h, struct error *err)
{
    const char *slash = strrchr(h->path, '/');
    h->config_path = file_is_directory(h->path) ? xformat("%s/config.json", h->path)
                     : slash != NULL            ? xformat("%.*s/config.json", (int)(slash - h->path), h->path)
                                                : xstrdup("config.json");
    if (!file_exists(h->config_path)) {
        free(h->config_path);
        h->config_path = NULL;
        return true;
    }
    struct digest *d = digest_begin();
    h->config = identity_json(h->config_path, d, err);
    h->config_hash = digest_end(d);
    return h->config != NULL;
}

// Returns the file of the tensors: Medusa's file of a directory, if it exists; otherwise the path itself.
static char *file_of(const char *path)
{
    static const char *const names[] = { "medusa_lm_head.safetensors", "medusa_lm_head.pt" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && file_is_directory(path); i++) {
        char *file = xformat("%s/%s", path, names[i]);
        if (file_exists(file))
            return file;
        free(file);
    }
    return xstrdup(path);
}

// Rejects kinds that are not supported and can be recognized by their configuration only.
static bool reject_other_kinds(const struct head *h, struct error *err)
{
    const struct json *type = json_get(h->config, "speculators_model_type");
    if (!json_is_null(type) && strcmp(json_text(type), "eagle") != 0 && strcmp(json_text(type), "eagle3") != 0)
        return fail(err, "%s: speculators_model_type: expected eagle or eagle3, found %.100s", h->config_path,
                    json_is_text(type) ? json_text(type) : "no text");
    if (json_get(h->config, "dflash_config") != NULL)
        return fail(err, "%s: a DFlash head; expected Medusa's, EAGLE's or EAGLE-3's", h->config_path);
    return true;
}

static bool detect_kind(struct head *h, struct error *err)
{
    const struct weights *w = h->weights;
    if (weights_has(w, "0.0.linear.weight") || weights_has(w, "blocks.0.layers.0.weight"))
        h->kind = HEAD_MEDUSA;
    else if (weights_has(w, "fc.weight") && weights_has(w, "layers.0.hidden_norm.weight"))
        h->kind = HEAD_EAGLE3;
    else if (weights_has(w, "fc.weight") && weights_has(w, "layers.0.self_attn.q_proj.weight"))
        h->kind = HEAD_EAGLE;
    else
        return fail(
            err,
            "%s: neither a Medusa head (there is no tensor 0.0.linear.weight or blocks.0.layers.0.weight) nor an "
            "EAGLE head (no fc.weight with layers.0.* or midlayer.*)",
            h->path);
    return true;
}

bool head_open(struct head *h, const char *path, enum head_kind wanted, const char *what, struct error *err)
{
    *h = (struct head){ .path = xstrdup(path) };
    char *file = file_of(path);
    bool ok = read_config(h, err) && reject_other_kinds(h, err) &&
              (h->weights = weights_open_files(file, own_name, err)) != NULL && detect_kind(h, err);
    free(file);
    const char *type = json_text(json_get(h->config, "speculators_model_type"));
    h->speculators = *type != '\0';
    if (ok && h->speculators && h->kind != (strcmp(type, "eagle3") == 0 ? HEAD_EAGLE3 : HEAD_EAGLE))
        ok = fail(err, "%s: speculators_model_type: found %s, but the tensors are those of %s", h->config_path, type,
                  head_kinds[h->kind]);
    if (ok && what != NULL && h->kind != wanted)
        ok = fail(err, "%s: expected %s, found %s in %s", what, head_kinds[wanted], head_kinds[h->kind], path);
    if (!ok)
        head_close(h);
    return ok;
}

bool head_target_ids(const struct head *h, const char *tensor, bool offsets, int n, int all, int32_t *id,
                     struct error *err)
{
    int64_t *stored = xcalloc((size_t)n, sizeof(*stored));
    int32_t *number_of = xcalloc((size_t)all, sizeof(*number_of)); // plus one; 0: no number has this id
    bool ok = weights_integers(h->weights, tensor, n, INT32_MIN, INT32_MAX, stored, err);
    for (int i = 0; i < n && ok; i++) {
        const int64_t x = stored[i] + (offsets ? i : 0);
        if (x < 0 || x >= all)
            ok = fail(err, "%s: tensor %s: number %d: expected an id from 0 to %d, found %lld", h->path, tensor, i,
                      all - 1, (long long)x);
        else if (number_of[x] != 0)
            ok = fail(err, "%s: tensor %s: number %d: expected another id than number %d, found %lld as well", h->path,
                      tensor, i, number_of[x] - 1, (long long)x);
        else {
            number_of[x] = i + 1;
            id[i] = (int32_t)x;
        }
    }
    free(number_of);
    free(stored);
    return ok;
}

struct hash head_hash(const struct head *h)
{
    struct digest *d = digest_begin();
    digest_hash(d, weights_hash(h->weights));
    digest_hash(d, h->config_hash);
    return digest_end(d);
}

void head_close(struct head *h)
{
    weights_close(h->weights);
    json_free(h->config);
    free(h->config_path);
    free(h->path);
    *h = (struct head){ 0 };
}
