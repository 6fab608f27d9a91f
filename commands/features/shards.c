#include "commands/features/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/features/states.h"
#include "commands/features/target_file.h"
#include "commands/features/texts.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/file.h"
#include "formats/safetensors.h"

bool shard_writer_open(struct shard_writer *w, const char *folder, struct json *settings, struct error *err)
{
    *w = (struct shard_writer){ .folder = folder, .settings = settings };
    if (folder == NULL) {
        w->stream = part_onto(stdout, "stdout");
        return true;
    }
    char *inside = xformat("%s/", folder);
    const bool ok = file_make_folders(inside);
    free(inside);
    return ok || fail(err, "%s: the folder cannot be created", folder);
}

void shard_writer_abandon(struct shard_writer *w)
{
    part_abandon(w->stream);
    json_free(w->settings);
    *w = (struct shard_writer){ 0 };
}

bool shard_writer_close(struct shard_writer *w, struct error *err)
{
    bool ok = true;
    if (w->stream != NULL) {
        part_zeros(w->stream, sizeof(uint64_t));
        ok = part_end(w->stream, err);
        w->stream = NULL;
    }
    shard_writer_abandon(w);
    return ok;
}

// ---- continuing

// Opens a file that an earlier run wrote. Sets *metadata.
static bool open_earlier(const char *path, struct mapping *file, struct tensor_list *tensors, struct json **metadata,
                         struct error *err)
{
    if (!file_map(path, file, err))
        return false;
    if (!safetensors_read(path, file, 0, tensors, err))
        return false;
    *metadata = safetensors_metadata(file);
    return true;
}

// All settings must be equal, but for the path of the model, which is known by its hash.
static bool same_settings(const char *path, const struct json *wanted, const struct json *found, struct error *err)
{
    for (void *at = json_first(wanted); at != NULL; at = json_next(wanted, at)) {
        const char *key = json_key(at), *want = json_text(json_value(at));
        const struct json *have = json_get(found, key);
        if (strcmp(key, "model") != 0 && (have == NULL || strcmp(json_text(have), want) != 0))
            return fail(err, "%s: made with %s \"%s\", not \"%s\"; use another folder, or remove this one", path, key,
                        json_text(have), want);
    }
    return true;
}

static bool read_conversations(const char *path, const struct tensor_list *tensors, int64_t *n, struct error *err)
{
    for (size_t i = 0; i < tensors->n; i++) {
        const struct safetensor *t = &tensors->at[i];
        if (strcmp(t->name, "offsets") == 0 && strcmp(t->dtype, "I64") == 0 && t->dims == 1 && t->dim[0] > 1) {
            *n = t->dim[0] - 1;
            return true;
        }
    }
    return fail(err, "%s: expected a tensor offsets of 64-bit integers, found none", path);
}

static char *shard_path(const struct shard_writer *w)
{
    return xformat("%s/features-%05d.safetensors", w->folder, w->number);
}

bool shard_kept(struct shard_writer *w, int64_t first, int64_t *n, struct error *err)
{
    *n = 0;
    if (w->folder == NULL)
        return true;
    char *path = shard_path(w);
    bool ok = true;
    if (file_exists(path)) {
        struct mapping file = { 0 };
        struct tensor_list tensors = { 0 };
        struct json *metadata = NULL;
        ok = open_earlier(path, &file, &tensors, &metadata, err) && same_settings(path, w->settings, metadata, err) &&
             read_conversations(path, &tensors, n, err);
        if (ok && strtoll(json_text(json_get(metadata, "first")), NULL, 10) != first)
            ok = fail(err, "%s: expected a shard that begins with conversation %lld, found %s; remove it", path,
                      (long long)first, json_text(json_get(metadata, "first")));
        w->number += ok;
        json_free(metadata);
        tensor_list_free(&tensors);
        file_unmap(&file);
    }
    free(path);
    return ok;
}

// ---- writing

// To the stream, or to a file of the folder. metadata: taken over.
static bool write_tensors(struct shard_writer *w, const char *path, const struct safetensor *t, size_t n,
                          struct json *metadata, part_put *put, void *context, struct error *err)
{
    char *text = json_write(metadata);
    bool ok;
    json_free(metadata);
    if (w->stream == NULL)
        ok = safetensors_write(path, t, n, text, put, context, err);
    else {
        ok = safetensors_stream(w->stream, t, n, text, put, context, err) &&
             (!part_failed(w->stream) || fail(err, "stdout: cannot be written"));
        ok = ok && (fflush(stdout) == 0 || fail(err, "stdout: cannot be written"));
    }
    free(text);
    return ok;
}

bool shard_write_target(struct shard_writer *w, const struct target *t, const char *model, bool layers,
                        struct error *err)
{
    struct target_file f;
    char *path = w->folder != NULL ? xformat("%s/target.safetensors", w->folder) : NULL;
    struct json *metadata = target_file_metadata(t, model);
    bool ok = true, write = true;
    if (path != NULL && file_exists(path)) {
        struct mapping file = { 0 };
        struct tensor_list tensors = { 0 };
        struct json *found = NULL;
        ok = open_earlier(path, &file, &tensors, &found, err) && same_settings(path, metadata, found, err) &&
             (layers == (tensors.n > TARGET_FILE_ENDS) ||
              fail(err, "%s: %s; use another folder, or remove this one", path,
                   layers ? "there are no layers, which --kind small needs" : "made with --kind small"));
        write = false;
        json_free(found);
        tensor_list_free(&tensors);
        file_unmap(&file);
    }
    if (ok && write && target_file_begin(&f, t, layers, err)) {
        ok = write_tensors(w, path, f.tensor, f.n, metadata, target_file_put, &f, err);
        metadata = NULL;
        target_file_end(&f);
    } else if (write)
        ok = false;
    json_free(metadata);
    free(path);
    return ok;
}

static struct safetensor vector(const char *name, const char *dtype, int64_t n, const void *data, size_t element)
{
    return (struct safetensor){
        .name = name, .dtype = dtype, .dims = 1, .dim = { n }, .data = data, .bytes = (size_t)n * element
    };
}

static struct safetensor matrix(const char *name, const char *dtype, int64_t rows, int64_t width, const void *data,
                                size_t element)
{
    return (struct safetensor){ .name = name,
                                .dtype = dtype,
                                .dims = 2,
                                .dim = { rows, width },
                                .data = data,
                                .bytes = (size_t)(rows * width) * element };
}

bool shard_write(struct shard_writer *w, const struct texts *t, const struct text_states *s,
                 const struct states_setup *setup, struct error *err)
{
    const int64_t n = t->offset[t->n];
    const size_t element = setup->type == BF16 ? sizeof(uint16_t) : sizeof(float);
    const int64_t width = (int64_t)(states_row_bytes(setup) / element);
    struct safetensor tensors[] = {
        vector("offsets", "I64", t->n + 1, t->offset, sizeof(*t->offset)), // in the order of their alignment
        matrix("top_ids", "I32", n, setup->top_k, s->top_id, sizeof(*s->top_id)),
        matrix("top_p", "F32", n, setup->top_k, s->top_p, sizeof(*s->top_p)),
        vector("input_ids", "I32", n, t->id, sizeof(*t->id)),
        matrix("states", setup->type == BF16 ? "BF16" : "F32", n, width, s->state, element),
        vector("loss_mask", "U8", n, t->mask, sizeof(*t->mask)),
    };
    size_t n_tensors = sizeof(tensors) / sizeof(*tensors);
    if (width == 0) { // no states
        tensors[n_tensors - 2] = tensors[n_tensors - 1];
        n_tensors--;
    }
    struct json *metadata = json_new_object();
    for (void *at = json_first(w->settings); at != NULL; at = json_next(w->settings, at))
        json_set(metadata, json_key(at), json_new_text(json_text(json_value(at))));
    char *first = xformat("%lld", (long long)t->first), *path = w->folder != NULL ? shard_path(w) : NULL;
    json_set(metadata, "first", json_new_text(first));
    const bool ok = write_tensors(w, path, tensors, n_tensors, metadata, NULL, NULL, err);
    w->number += ok;
    free(first);
    free(path);
    return ok;
}
