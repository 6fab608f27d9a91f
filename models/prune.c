#include "models/prune.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "models/files.h"
#include "models/gguf.h"
#include "models/safetensors.h"
#include "models/weights.h"

// A layer's number at *s, which moves on; -1: there is none. So large that it is out of any range: still a number.
static int number(const char **s)
{
    int v = -1;
    for (; isdigit((unsigned char)**s); (*s)++)
        v = v < 0 ? **s - '0' : v < 100000 ? v * 10 + (**s - '0') : v;
    return v;
}

int *prune_parse(const char *list, int layers, int *n, struct error *err)
{
    int *keep = xcalloc((size_t)layers, sizeof(*keep));
    int last = -1;
    *n = 0;
    for (const char *s = list;; s++) {
        int from = number(&s), to = from;
        if (from >= 0 && *s == '-') {
            s++;
            to = number(&s);
        }
        if (from < 0 || to < 0 || (*s != ',' && *s != '\0'))
            fail(err, "layers \"%s\": expected numbers and ranges such as 0-3,26-29", list);
        else if (from >= layers || to >= layers)
            fail(err, "layers \"%s\": the model has layers 0 to %d", list, layers - 1);
        else if (to < from || from <= last)
            fail(err, "layers \"%s\": expected ascending numbers, found %d after %d", list, to < from ? to : from,
                 to < from ? from : last);
        else {
            while (from <= to)
                keep[(*n)++] = from++;
            last = to;
            if (*s == '\0')
                return keep;
            continue;
        }
        free(keep);
        return NULL;
    }
}

// The numbers as prune_parse reads them.
static char *as_ranges(const int *keep, int n)
{
    struct text t = { 0 };
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && keep[end] == keep[end - 1] + 1;)
            end++;
        text_printf(&t, "%s%d", i != 0 ? "," : "", keep[i]);
        if (end - i > 1)
            text_printf(&t, "-%d", keep[end - 1]);
    }
    return t.s;
}

// The name after the layers that stay were numbered anew: "blk.26.ffn_up.weight" with "blk." is blk.4.ffn_up.weight.
// A name of no layer stays; NULL: the layer does not. free() it.
static char *renumbered(const char *name, const char *before, const int *keep, int n)
{
    size_t length = strlen(before);
    const char *s = name + length;
    if (strncmp(name, before, length) != 0 || !isdigit((unsigned char)*s))
        return xstrdup(name);
    int layer = number(&s);
    for (int i = 0; i < n; i++)
        if (keep[i] == layer)
            return xformat("%s%d%s", before, i, s);
    return NULL;
}

// GGUF.

static bool is_key(const struct gguf_value *v, const char *key)
{
    return v->key.n == strlen(key) && memcmp(v->key.s, key, v->key.n) == 0;
}

// A list with one number for each layer, such as the key-value heads in some files.
static void copy_of_layers(struct gguf_writer *w, const struct gguf_value *v, const int *keep, int n)
{
    size_t size = v->raw_bytes / (size_t)v->n;
    uint8_t *raw = xmalloc((size_t)n * size);
    for (int i = 0; i < n; i++)
        memcpy(raw + (size_t)i * size, v->raw + (size_t)keep[i] * size, size);
    struct gguf_value kept = *v;
    kept.n = (uint64_t)n;
    kept.raw = raw;
    kept.raw_bytes = (size_t)n * size;
    gguf_write_copy(w, &kept);
    free(raw);
}

static bool is_of_layers(const struct gguf_value *v, const struct model_config *c)
{
    static const char *const keys[] = { "attention.head_count", "attention.head_count_kv", "feed_forward_length" };
    bool found = false;
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && !found; i++) {
        char *key = xformat("%s.%s", c->architecture, keys[i]);
        found = is_key(v, key) && v->type == GGUF_ARRAY && v->n == (uint64_t)c->layers;
        free(key);
    }
    return found;
}

static void copy_metadata(struct gguf_writer *w, const struct gguf *g, const struct model_config *c, const int *keep,
                          int n)
{
    char *blocks = xformat("%s.block_count", c->architecture);
    char *ranges = as_ranges(keep, n);
    struct gguf_string name = { "model", 5 };
    gguf_text(g, "general.name", &name);
    char *renamed = xformat("%.*s (layers %s)", (int)(name.n < 4096 ? name.n : 4096), name.s, ranges);
    if (gguf_find(g, "general.name") == NULL)
        gguf_write_text(w, "general.name", renamed);
    for (size_t i = 0; i < gguf_values(g); i++) {
        const struct gguf_value *v = gguf_value_at(g, i);
        if (is_key(v, blocks))
            gguf_write_int(w, blocks, v->type, n);
        else if (is_key(v, "general.name"))
            gguf_write_text(w, "general.name", renamed);
        else if (is_of_layers(v, c))
            copy_of_layers(w, v, keep, n);
        else
            gguf_write_copy(w, v);
    }
    free(renamed);
    free(ranges);
    free(blocks);
}

static bool prune_gguf(const struct model_config *c, const int *keep, int n, const char *to, struct error *err)
{
    struct gguf *g = gguf_open(c->path, err);
    if (g == NULL)
        return false;
    bool ok = true;
    for (size_t i = 0; i < gguf_tensors(g) && ok; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (!t->known)
            ok = fail(err, "%s: tensor %.*s: its type, %s (%d), is not one that can be copied", c->path, (int)t->name.n,
                      t->name.s, gguf_type_name(t->ggml_type), t->ggml_type);
    }
    struct gguf_writer *w = ok ? gguf_write_begin(to, err) : NULL;
    if (w == NULL) {
        gguf_close(g);
        return false;
    }
    copy_metadata(w, g, c, keep, n);
    for (size_t i = 0; i < gguf_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char *stored = xstrndup(t->name.s, t->name.n), *name = renumbered(stored, "blk.", keep, n);
        if (name != NULL)
            gguf_write_tensor(w, name, t->dims, t->dim, t->ggml_type, t->tensor.data, t->bytes);
        free(name);
        free(stored);
    }
    ok = gguf_write_end(w, err);
    gguf_close(g);
    return ok;
}

// Hugging Face.

static bool write_tensors(const char *from, const int *keep, int n, const char *directory, struct error *err)
{
    struct safetensors *s = safetensors_open(from, err);
    if (s == NULL)
        return false;
    struct safetensor *kept = xcalloc(safetensors_count(s), sizeof(*kept));
    size_t count = 0;
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const struct safetensor *t = safetensors_at(s, i);
        char *name = renumbered(t->name, "model.layers.", keep, n);
        if (name == NULL)
            continue;
        kept[count] = *t;
        kept[count++].name = name;
    }
    char *path = xformat("%s/model.safetensors", directory);
    bool ok = safetensors_write(path, kept, count, "{\"format\":\"pt\"}", err);
    free(path);
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)kept[i].name);
    free(kept);
    safetensors_close(s);
    return ok;
}

// Lists with one entry for each layer; json.h can only build, so the kept entries are parsed from their text.
static void keep_entries(struct json *config, const char *key, int layers, const int *keep, int n)
{
    const struct json *list = json_get(config, key);
    if (!json_is_array(list) || json_count(list) != (size_t)layers)
        return;
    struct json *kept = json_new_array();
    for (int i = 0; i < n; i++) {
        char *text = json_write(json_at(list, (size_t)keep[i]));
        struct error ignored;
        json_push(kept, json_parse(text, strlen(text), key, &ignored));
        free(text);
    }
    json_set(config, key, kept);
}

static bool write_whole(const char *directory, const char *name, const void *bytes, size_t n, struct error *err)
{
    char *path = xformat("%s/%s", directory, name);
    struct part *part = part_begin(path, err);
    free(path);
    if (part == NULL)
        return false;
    part_write(part, bytes, n);
    return part_end(part, err);
}

static bool write_config(const struct model_config *c, const int *keep, int n, const char *directory, struct error *err)
{
    static const char *const of_layers[] = { "layer_types", "mlp_layer_types", "no_rope_layers" };
    char *path = xformat("%s/config.json", c->path);
    struct json *j = json_read(path, err);
    free(path);
    if (j == NULL)
        return false;
    json_set(j, "num_hidden_layers", json_new_int(n));
    for (size_t i = 0; i < sizeof(of_layers) / sizeof(*of_layers); i++)
        keep_entries(j, of_layers[i], c->layers, keep, n);
    char *text = json_write(j);
    bool ok = write_whole(directory, "config.json", text, strlen(text), err);
    free(text);
    json_free(j);
    return ok;
}

static bool goes_along(const char *name)
{
    static const char *const names[] = { "generation_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "chat_template.jinja",
                                         "vocab.json",
                                         "merges.txt",
                                         "tokenizer.model" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    size_t n = strlen(name);
    return strncmp(name, "tokenizer", 9) == 0 && n > 5 && strcmp(name + n - 5, ".json") == 0;
}

static bool copy_file(const char *from, const char *name, const char *directory, struct error *err)
{
    char *path = xformat("%s/%s", from, name);
    struct mapping m = { 0 };
    struct stat st;
    bool empty = stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
    bool ok = (empty || file_map(path, &m, err)) && write_whole(directory, name, m.at, m.n, err);
    file_unmap(&m);
    free(path);
    return ok;
}

static bool copy_files(const char *from, const char *directory, struct error *err)
{
    DIR *d = opendir(from);
    if (d == NULL)
        return fail(err, "%s: %s", from, strerror(errno));
    bool ok = true;
    for (const struct dirent *e = readdir(d); e != NULL && ok; e = readdir(d))
        if (goes_along(e->d_name))
            ok = copy_file(from, e->d_name, directory, err);
    closedir(d);
    return ok;
}

static void remove_directory(const char *directory)
{
    DIR *d = opendir(directory);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        char *path = xformat("%s/%s", directory, e->d_name);
        unlink(path); // of "." and "..": refused
        free(path);
    }
    if (d != NULL)
        closedir(d);
    rmdir(directory);
}

static bool prune_directory(const struct model_config *c, const int *keep, int n, const char *to, struct error *err)
{
    char *part = xformat("%s.part", to);
    bool made = mkdir(part, 0777) == 0;
    bool ok = made || fail(err, "%s: cannot be made: %s%s", part, strerror(errno),
                           errno == EEXIST ? " (left by an earlier try that was killed? remove it)" : "");
    ok = ok && write_tensors(c->path, keep, n, part, err) && write_config(c, keep, n, part, err) &&
         copy_files(c->path, part, err);
    if (ok && rename(part, to) != 0)
        ok = fail(err, "%s: cannot be made: %s", to, strerror(errno));
    if (made && !ok)
        remove_directory(part);
    free(part);
    return ok;
}

static bool check_layers(const struct model_config *c, const int *keep, int n, struct error *err)
{
    if (n <= 0)
        return fail(err, "%s: no layer is to be kept", c->path);
    for (int i = 0; i < n; i++)
        if (keep[i] < 0 || keep[i] >= c->layers)
            return fail(err, "%s: there is no layer %d; the model has layers 0 to %d", c->path, keep[i], c->layers - 1);
        else if (i > 0 && keep[i] <= keep[i - 1])
            return fail(err, "%s: expected ascending layers, found %d after %d", c->path, keep[i], keep[i - 1]);
    return true;
}

// Else the smaller model would be as broken as the larger one, and not say so.
static bool has_layers(const struct model_config *c, const int *keep, int n, struct error *err)
{
    struct weights *w = weights_open(c, err);
    bool ok = w != NULL;
    for (int i = 0; i < n && ok; i++) {
        char *name = xformat("model.layers.%d.input_layernorm.weight", keep[i]);
        ok = weights_has(w, name) ||
             fail(err, "%s: layer %d is to be kept, and its tensors are missing", c->path, keep[i]);
        free(name);
    }
    weights_close(w);
    return ok;
}

static bool is_free(const char *from, const char *to, struct error *err)
{
    struct stat a, b;
    if (stat(from, &a) == 0 && stat(to, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return fail(err, "%s: a model cannot be written onto itself", to);
    if (lstat(to, &b) == 0)
        return fail(err, "%s: there is something of this name already; it is not overwritten", to);
    return true;
}

bool prune_model(const char *from, const int *keep, int n, const char *to, struct error *err)
{
    struct model_config c;
    if (!config_read(from, &c, err))
        return false;
    bool ok = check_layers(&c, keep, n, err) && is_free(from, to, err) && has_layers(&c, keep, n, err) &&
              (c.gguf ? prune_gguf(&c, keep, n, to, err) : prune_directory(&c, keep, n, to, err));
    config_free(&c);
    return ok;
}
