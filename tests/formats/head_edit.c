#include "tests/formats/head_edit.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "verifier/exact/instance.h"
#include "tests/formats/safetensors_write.h"
#include "models/formats/shards.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"

enum { MAX_TENSORS = 128, SEED = 5 };

struct head_edit {
    char *weights, *config_path;
    struct json *config;
    int n;
    struct safetensor tensor[MAX_TENSORS]; // names and data are owned
};

static void put(struct head_edit *e, const struct safetensor *t, const void *data)
{
    assert_true(e->n < MAX_TENSORS);
    struct safetensor *to = &e->tensor[e->n++];
    *to = *t;
    to->name = xstrdup(t->name);
    to->data = xmalloc(t->bytes);
    memcpy((void *)(uintptr_t)to->data, data, t->bytes);
}

static void drop(struct head_edit *e, int i)
{
    free((void *)(uintptr_t)e->tensor[i].name);
    free((void *)(uintptr_t)e->tensor[i].data);
    e->tensor[i] = e->tensor[--e->n];
}

static int find(const struct head_edit *e, const char *name)
{
    for (int i = 0; i < e->n; i++)
        if (strcmp(e->tensor[i].name, name) == 0)
            return i;
    return -1;
}

struct head_edit *head_edit_open(const char *directory)
{
    struct head_edit *e = xcalloc(1, sizeof(*e));
    struct error err;
    e->weights = xformat("%s/model.safetensors", directory);
    e->config_path = xformat("%s/config.json", directory);
    e->config = json_read(e->config_path, &err);
    struct shards *file = shards_open(e->weights, &err);
    assert_ok(e->config != NULL && file != NULL, err);
    for (size_t i = 0; i < shards_count(file); i++)
        put(e, shards_at(file, i), shards_at(file, i)->data);
    shards_close(file);
    return e;
}

void head_edit_close(struct head_edit *e)
{
    struct error err;
    char *text = json_write(e->config);
    assert_ok(safetensors_write(e->weights, e->tensor, (size_t)e->n, NULL, &err), err);
    file_write(e->config_path, text);
    while (e->n > 0)
        drop(e, 0);
    json_free(e->config);
    free(text);
    free(e->weights);
    free(e->config_path);
    free(e);
}

struct json *head_edit_config(struct head_edit *e)
{
    return e->config;
}

void head_edit_drop(struct head_edit *e, const char *name)
{
    const int i = find(e, name);
    if (i < 0)
        fail_msg("%s: there is no tensor %s", e->weights, name);
    drop(e, i);
}

// The same derivation as `floats` in small_heads.c.
void head_numbers(float *to, size_t n, uint64_t seed, const char *name)
{
    uint64_t state = seed * 1000003;
    for (const char *at = name; *at != '\0'; at++)
        state = state * 31 + (unsigned char)*at;
    for (size_t i = 0; i < n; i++)
        to[i] = (float)(splitmix(&state) >> 40) * 0x1p-23f - 1;
}

void head_edit_floats(struct head_edit *e, int64_t rows, int64_t width, float mean, const char *form, ...)
{
    char name[96];
    va_list args;
    va_start(args, form);
    vsnprintf(name, sizeof(name), form, args);
    va_end(args);
    const size_t n = (size_t)((rows > 0 ? rows : 1) * width);
    const float size = rows > 0 ? 1.7f / sqrtf((float)width) : 0.2f;
    float *number = xmalloc(n * sizeof(*number));
    head_numbers(number, n, SEED, name);
    for (size_t i = 0; i < n; i++)
        number[i] = mean + size * number[i];
    struct safetensor t = { .name = name, .dtype = "F32", .dims = rows > 0 ? 2 : 1, .bytes = n * sizeof(float) };
    t.dim[0] = rows > 0 ? rows : width;
    t.dim[1] = width;
    if (find(e, name) >= 0)
        drop(e, find(e, name));
    put(e, &t, number);
    free(number);
}

void *head_edit_data(struct head_edit *e, const char *name)
{
    const int i = find(e, name);
    if (i < 0)
        fail_msg("%s: there is no tensor %s", e->weights, name);
    return (void *)(uintptr_t)e->tensor[i].data;
}

static void add_integers(struct head_edit *e, const char *name, int n, int factor, int below)
{
    int64_t id[1024];
    assert_true(n <= 1024);
    for (int i = 0; i < n; i++)
        id[i] = (int64_t)i * factor % below;
    put(e, &(struct safetensor){ .name = name, .dtype = "I64", .dims = 1, .dim = { n }, .bytes = (size_t)n * 8 }, id);
}

static void change(struct head_edit *e, const char *text)
{
    char name[96], dtype[12];
    int n, factor, below, rows, width;
    float mean;
    if (sscanf(text, "-%95s", name) == 1)
        head_edit_drop(e, name);
    else if (sscanf(text, "+%95s %d %d %f", name, &rows, &width, &mean) == 4)
        head_edit_floats(e, rows, width, mean, "%s", name);
    else if (sscanf(text, "@%95s %d %d %d", name, &n, &factor, &below) == 4)
        add_integers(e, name, n, factor, below);
    else if (sscanf(text, "~%95s %11s %d %d", name, dtype, &rows, &width) == 4) {
        static const char *const dtypes[] = { "F32", "I32", "U8", "F8_E4M3", "F8_E5M2" };
        struct safetensor *t = &e->tensor[find(e, name)];
        for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
            t->dtype = strcmp(dtypes[i], dtype) == 0 ? dtypes[i] : t->dtype;
        t->dim[0] = rows;
        t->dim[1] = width;
    } else if (sscanf(text, "%95[^[=][%d]=%d", name, &n, &below) == 3) {
        void *data = head_edit_data(e, name);
        if (strcmp(e->tensor[find(e, name)].dtype, "I64") == 0)
            ((int64_t *)data)[n] = below;
        else
            ((uint8_t *)data)[n] = (uint8_t)below;
    } else {
        const size_t key = strcspn(text, "=");
        if (text[key] == '\0' || key >= sizeof(name))
            fail_msg("%s: no change of a head", text);
        memcpy(name, text, key);
        name[key] = '\0';
        json_set(e->config, name, json_of(text + key + 1));
    }
}

void head_change(const char *directory, const char *changes)
{
    struct head_edit *e = head_edit_open(directory);
    char *all = xstrdup(changes), *state = NULL;
    for (char *one = strtok_r(all, ";", &state); one != NULL; one = strtok_r(NULL, ";", &state)) {
        one += strspn(one, " ");
        char *star = strchr(one, '*');
        for (char h = '0'; h < (star != NULL ? '4' : '1'); h++) {
            if (star != NULL)
                *star = h;
            change(e, one);
        }
    }
    free(all);
    head_edit_close(e);
}
