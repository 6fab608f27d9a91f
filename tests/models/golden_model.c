#include "tests/models/golden_model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "core/files/input.h"
#include "tests/formats/safetensors_write.h"
#include "tests/support/check.h"
#include "tests/formats/head_edit.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "tests/support/small_tokenizer.h"

struct json **golden_models(size_t *n)
{
    struct error err;
    char *path = xformat("%s/architectures.jsonl", CASES);
    size_t length;
    char *text = file_text(path, &length, &err);
    struct json **models = NULL;
    assert_non_null(text);
    *n = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        models = xrealloc(models, (*n + 1) * sizeof(struct json *));
        models[*n] = json_parse(line, strlen(line), path, &err);
        assert_non_null(models[(*n)++]);
    }
    free(text);
    free(path);
    return models;
}

void golden_models_free(struct json **models, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_free(models[i]);
    free(models);
}

// A tensor of a model of images, whose numbers are not finite: nothing reads them.
static struct safetensor of_images(const char *name, const struct json *shape)
{
    struct safetensor t = { .name = name, .dtype = "F32", .dims = (int)json_count(shape), .bytes = sizeof(float) };
    for (int d = 0; d < t.dims; d++) {
        t.dim[d] = json_int(json_at(shape, (size_t)d));
        t.bytes *= (size_t)t.dim[d];
    }
    t.data = memset(xmalloc(t.bytes), 0xff, t.bytes);
    return t;
}

// The configuration with these sizes; of a model of images, in its text model's.
static char *config_of(const struct json *model, int vocab, int context)
{
    struct error err;
    char *text = json_write(json_get(model, "config"));
    struct json *whole = json_parse(text, strlen(text), "config", &err), *own = whole;
    free(text);
    if (json_get(whole, "text_config") != NULL) {
        text = json_write(json_get(whole, "text_config"));
        json_set(whole, "text_config", own = json_parse(text, strlen(text), "text_config", &err));
        free(text);
    }
    if (vocab > 0) {
        json_set(own, "vocab_size", json_new_int(vocab));
        json_set(own, "max_position_embeddings", json_new_int(context));
    }
    text = json_write(whole);
    json_free(whole);
    return text;
}

// vocab 0: the configuration is written as it is.
static char *write_model(const struct json *model, enum type type, const char *ending, int vocab, int context)
{
    const struct json *shapes = json_get(model, "shapes"), *first = json_get(model, "first"),
                      *images = json_get(model, "images");
    const char *name = json_text(json_get(model, "name"));
    char *named = xformat("%s-%s", name, ending), *folder = test_path(named),
         *config = xformat("%s/config.json", folder), *weights = xformat("%s/model.safetensors", folder),
         *text = config_of(model, vocab, context);
    mkdir(folder, 0777);
    file_write(config, text);
    struct safetensor *tensor = xcalloc(json_count(shapes) + json_count(images), sizeof(*tensor));
    int n = 0;
    for (void *at = json_first(shapes); at != NULL; at = json_next(shapes, at), n++) {
        const struct json *shape = json_value(at);
        const size_t dims = json_count(shape);
        const int64_t width = json_int(json_at(shape, dims - 1));
        int64_t own = 1;
        for (size_t d = 0; d + 1 < dims; d++)
            own *= json_int(json_at(shape, d));
        const bool of_tokens =
            ends_with(json_key(at), "embed_tokens.weight") || ends_with(json_key(at), "lm_head.weight");
        const int64_t rows = of_tokens && vocab > 0 ? vocab : own;
        float *v = small_numbers((uint64_t)json_int(json_get(model, "seed")), n, json_key(at), rows, width);
        if (v[0] != (float)json_number(json_get(first, json_key(at))))
            fail_msg("%s: %s begins with %.9g, expected %.9g: not the numbers of the golden case", name, json_key(at),
                     (double)v[0], json_number(json_get(first, json_key(at))));
        if (type == BF16)
            for (int64_t i = 0; i < rows; i++) // in place: a row ends before it began
                assert_true(quantize_floats(BF16, v + i * width, width, (uint16_t *)(void *)v + i * width));
        tensor[n] = (struct safetensor){ .name = (char *)(uintptr_t)json_key(at), .data = v };
        tensor[n].dtype = type == BF16 ? "BF16" : "F32";
        tensor[n].dims = (int)dims;
        for (size_t d = 0; d < dims; d++)
            tensor[n].dim[d] = d == 0 && dims == 2 ? rows : json_int(json_at(shape, d));
        tensor[n].bytes = (size_t)rows * type_row_bytes(type, width);
    }
    for (void *at = images != NULL ? json_first(images) : NULL; at != NULL; at = json_next(images, at))
        tensor[n++] = of_images(json_key(at), json_value(at));
    struct error err;
    if (!safetensors_write(weights, tensor, (size_t)n, json_object_of(JSON("format", "pt")), &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < n; i++)
        free((void *)(uintptr_t)tensor[i].data);
    free(tensor);
    free(named);
    free(text);
    free(config);
    free(weights);
    return folder;
}

char *golden_model_write(const struct json *model, enum type type)
{
    return write_model(model, type, type_facts[type].name, 0, 0);
}

char *golden_model_write_chat(const struct json *model)
{
    char *folder = write_model(model, F32, "chat", CHAT_VOCAB, CHAT_CONTEXT);
    small_write_tokenizer_hf(folder, false);
    return folder;
}

void golden_model_tie(const char *directory)
{
    head_change(directory, "-lm_head.weight; tie_word_embeddings=true");
}
