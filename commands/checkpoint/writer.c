#include "commands/checkpoint/writer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "commands/checkpoint/source.h"
#include "formats/file.h"
#include "formats/safetensors.h"

struct new_tensor rewrite_copy_tensor(const struct source_checkpoint *o, size_t i, char *name)
{
    const struct source_tensor *t = &o->tensor[i];
    struct new_tensor f = { .name = name, .dims = t->dims, .ggml = t->ggml, .dtype = t->dtype, .bytes = t->bytes };
    memcpy(f.dim, t->dim, sizeof(f.dim));
    f.data = t->tensor.data;
    return f;
}

void rewrite_free(struct rewrite *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->tensor[i].name);
    free(r->tensor);
}

bool rewrite_check_output(const char *from, const char *to, struct error *err)
{
    struct stat st;
    if (file_is_same(from, to))
        return fail(err, "%s: a model cannot be written onto itself", to);
    if (lstat(to, &st) == 0)
        return fail(err, "%s: exists already; it is not overwritten", to);
    return true;
}

const char *path_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

// ---- tensors

// State of put(), which writes every tensor, copied ones as well, so that the observer sees each of them.
struct tensor_writer {
    const struct rewrite *r;
    size_t done, total;
};

static bool put(void *context, size_t i, struct part *to, struct error *err)
{
    struct tensor_writer *p = context;
    const struct new_tensor *t = &p->r->tensor[i];
    bool ok = true;
    if (t->data != NULL)
        part_write(to, t->data, t->bytes);
    else
        ok = p->r->put(p->r->context, i, to, err);
    p->done += t->bytes;
    if (p->r->observer != NULL)
        p->r->observer->progress(p->r->observer->context, p->done, p->total);
    return ok;
}

static struct tensor_writer tensor_writer_of(const struct rewrite *r)
{
    struct tensor_writer p = { .r = r };
    for (size_t i = 0; i < r->n; i++)
        p.total += r->tensor[i].bytes;
    return p;
}

// ---- GGUF

bool gguf_key_is(const struct gguf_value *v, const char *key)
{
    return v->key.n == strlen(key) && memcmp(v->key.s, key, v->key.n) == 0;
}

static void write_setting(struct gguf_writer *w, const struct setting *s, const struct gguf_value *before)
{
    bool integer = before != NULL && before->type != GGUF_ARRAY && before->type != GGUF_STRING &&
                   before->type != GGUF_F32 && before->type != GGUF_F64 && before->type != GGUF_BOOL;
    if (s->type == GGUF_STRING)
        gguf_write_text(w, s->key, s->text);
    else if (s->type == GGUF_F32)
        gguf_write_real(w, s->key, s->real);
    else
        gguf_write_int(w, s->key, integer && before->type > GGUF_I16 ? before->type : s->type, s->number);
}

void rewrite_settings(struct gguf_writer *w, const struct gguf *g, const struct setting *s, size_t n)
{
    for (size_t i = 0; i < gguf_values(g); i++) {
        const struct gguf_value *v = gguf_value_at(g, i);
        size_t k = 0;
        while (k < n && !gguf_key_is(v, s[k].key))
            k++;
        if (k < n)
            write_setting(w, &s[k], v);
        else
            gguf_write_copy(w, v);
    }
    for (size_t k = 0; k < n; k++)
        if (gguf_find(g, s[k].key) == NULL)
            write_setting(w, &s[k], NULL);
}

// GGUF stores dimensions in the reverse order.
static bool write_gguf(const struct rewrite *r, const char *to, struct error *err)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->tensor[i].bytes == 0)
            return fail(err, "%s: tensor %s: its type, %s (%d), cannot be copied", r->from->config->path,
                        r->tensor[i].name, gguf_type_name(r->tensor[i].ggml), r->tensor[i].ggml);
    struct gguf_writer *w = gguf_write_begin(to, err);
    if (w == NULL)
        return false;
    r->metadata(r->context, w);
    for (size_t i = 0; i < r->n; i++) {
        const struct new_tensor *t = &r->tensor[i];
        uint64_t dim[4] = { 0 };
        for (int d = 0; d < t->dims; d++)
            dim[d] = (uint64_t)t->dim[t->dims - 1 - d];
        gguf_write_tensor(w, t->name, t->dims, dim, t->ggml, NULL, t->bytes);
    }
    struct tensor_writer p = tensor_writer_of(r);
    return gguf_write_end(w, put, &p, err);
}

// ---- Hugging Face

static bool write_tensors(const struct rewrite *r, const char *directory, struct error *err)
{
    struct safetensor *tensor = xcalloc(r->n, sizeof(*tensor));
    for (size_t i = 0; i < r->n; i++) {
        const struct new_tensor *t = &r->tensor[i];
        tensor[i] = (struct safetensor){ .name = t->name, .dtype = t->dtype, .dims = t->dims, .bytes = t->bytes };
        memcpy(tensor[i].dim, t->dim, sizeof(t->dim));
    }
    char *path = xformat("%s/model.safetensors", directory);
    struct tensor_writer p = tensor_writer_of(r);
    bool ok = safetensors_write(path, tensor, r->n, "{\"format\":\"pt\"}", put, &p, err);
    free(path);
    free(tensor);
    return ok;
}

// json.h cannot copy a value, so the kept entries are serialized and parsed.
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

void rewrite_layer_lists(struct json *config, int layers, const int *keep, int n)
{
    static const char *const lists[] = { "layer_types", "mlp_layer_types", "no_rope_layers" };
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        keep_entries(config, lists[i], layers, keep, n);
}

static bool write_file(const char *directory, const char *name, const void *bytes, size_t n, struct error *err)
{
    char *path = xformat("%s/%s", directory, name);
    struct part *part = part_begin(path, err);
    free(path);
    if (part == NULL)
        return false;
    part_write(part, bytes, n);
    return part_end(part, err);
}

static bool write_config(const struct rewrite *r, const char *directory, struct error *err)
{
    char *path = xformat("%s/config.json", r->from->config->path);
    struct json *j = json_read(path, err);
    free(path);
    if (j == NULL)
        return false;
    r->config(r->context, j);
    char *text = json_write(j);
    bool ok = write_file(directory, "config.json", text, strlen(text), err);
    free(text);
    json_free(j);
    return ok;
}

static bool is_copied(const char *name)
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
    return strncmp(name, "tokenizer", 9) == 0 && ends_with(name, ".json");
}

static bool copy_file(const char *from, const char *name, const char *directory, struct error *err)
{
    char *path = xformat("%s/%s", from, name);
    struct mapping m = { 0 };
    struct stat st;
    bool empty = stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
    bool ok = (empty || file_map(path, &m, err)) && write_file(directory, name, m.at, m.n, err);
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
        if (is_copied(e->d_name))
            ok = copy_file(from, e->d_name, directory, err);
    closedir(d);
    return ok;
}

static void remove_directory(const char *directory)
{
    DIR *d = opendir(directory);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        char *path = xformat("%s/%s", directory, e->d_name);
        unlink(path); // fails for "." and ".."
        free(path);
    }
    if (d != NULL)
        closedir(d);
    rmdir(directory);
}

static bool write_directory(const struct rewrite *r, const char *to, struct error *err)
{
    char *part = xformat("%s.part", to);
    bool made = mkdir(part, 0777) == 0;
    bool ok = made || fail(err, "%s: cannot be created: %s%s", part, strerror(errno),
                           errno == EEXIST ? " (left by a killed run? remove it)" : "");
    ok =
        ok && write_tensors(r, part, err) && write_config(r, part, err) && copy_files(r->from->config->path, part, err);
    if (ok && rename(part, to) != 0)
        ok = fail(err, "%s: cannot be created: %s", to, strerror(errno));
    if (made && !ok)
        remove_directory(part);
    free(part);
    return ok;
}

// Checked before anything is written, so that a mistaken size does not fill the disk.
static bool has_disk_space(const struct rewrite *r, const char *to, struct error *err)
{
    const char *slash = strrchr(to, '/');
    char *directory = slash == NULL ? xstrdup(".") : slash == to ? xstrdup("/") : xstrndup(to, (size_t)(slash - to));
    struct statvfs v;
    bool known = statvfs(directory, &v) == 0 && v.f_blocks > 0; // some file systems do not report it
    free(directory);
    double required = (double)tensor_writer_of(r).total,
           available = known ? (double)v.f_bavail * (double)v.f_frsize : 0;
    return !known || required <= available ||
           fail(err, "%s: not enough disk space: %.1f MB are required, and %.1f MB are available", to, required / 1e6,
                available / 1e6);
}

bool rewrite_write(const struct rewrite *r, const char *to, struct error *err)
{
    if (!has_disk_space(r, to, err))
        return false;
    return r->gguf ? write_gguf(r, to, err) : write_directory(r, to, err);
}
