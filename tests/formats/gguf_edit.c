#include "tests/formats/gguf_edit.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"

static void write_list(struct gguf_writer *w, const char *key, const struct json *list)
{
    int32_t number[64];
    const char *text[64];
    const size_t n = json_count(list);
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++) {
        number[i] = (int32_t)json_int(json_at(list, i));
        text[i] = json_text(json_at(list, i));
    }
    if (json_is_text(json_at(list, 0)))
        gguf_write_texts(w, key, text, n);
    else
        gguf_write_ints(w, key, number, n);
}

void gguf_write_json(struct gguf_writer *w, const char *key, const struct json *value)
{
    if (json_is_bool(value))
        gguf_write_bool(w, key, json_bool(value));
    else if (json_is_text(value))
        gguf_write_text(w, key, json_text(value));
    else if (json_is_array(value))
        write_list(w, key, value);
    else if (json_is_int(value))
        gguf_write_int(w, key, GGUF_U32, json_int(value));
    else if (json_is_number(value))
        gguf_write_real(w, key, (float)json_number(value));
}

void gguf_edit(const char *from, const char *to, const char *values, const struct gguf_vector *more)
{
    struct error err;
    struct json *set = json_of(values);
    struct gguf *g = gguf_open(from, &err);
    assert_ok(g != NULL, err);
    struct gguf_writer *w = gguf_write_begin(to, &err);
    assert_ok(w != NULL, err);
    for (size_t i = 0; i < gguf_values(g); i++) {
        const struct gguf_value *v = gguf_value_at(g, i);
        char *key = xstrndup(v->key.s, v->key.n);
        if (json_get(set, key) == NULL)
            gguf_write_copy(w, v);
        free(key);
    }
    for (void *at = json_first(set); at != NULL; at = json_next(set, at))
        gguf_write_json(w, json_key(at), json_value(at));
    for (size_t i = 0; i < gguf_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char *name = xstrndup(t->name.s, t->name.n);
        gguf_write_tensor(w, name, t->dims, t->dim, t->ggml_type, t->tensor.data, t->bytes);
        free(name);
    }
    if (more != NULL)
        gguf_write_tensor(w, more->name, 1, &more->n, more->ggml_type, more->data, more->bytes);
    assert_ok(gguf_write_end(w, &err), err);
    gguf_close(g);
    json_free(set);
}
