#include "tests/formats/editable_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/readers.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"

static struct error err;

struct json *editable_json(void)
{
    struct json *j = json_of("{'version': '1.0', 'added_tokens': [], 'normalizer': null,"
                             "'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': false, 'use_regex': true},"
                             "'decoder': {'type': 'ByteLevel'},"
                             "'model': {'type': 'BPE', 'merges': ['t h', 'th e', 'Ġ the', 'a a']}}");
    struct json *vocab = json_new_object();
    for (int b = 0; b < 256; b++) {
        char letter[3] = "";
        byte_to_letter((unsigned char)b, letter);
        json_set(vocab, letter, json_new_int(b));
    }
    static const char *const merged[] = { "th", "the", "Ġthe", "aa" };
    for (int i = 0; i < 4; i++)
        json_set(vocab, merged[i], json_new_int(256 + i));
    json_set(json_get(j, "model"), "vocab", vocab);
    return j;
}

void editable_set(struct json *j, const char *path, const char *value)
{
    for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        char *key = xstrndup(path, (size_t)(dot - path));
        j = json_get(j, key);
        free(key);
    }
    json_set(j, path, json_of(value));
}

struct tokenizer *editable_tokenizer(struct json *j)
{
    struct tokenizer *t = tokenizer_from_json(j, "made.json", &err);
    json_free(j);
    assert_ok(t != NULL, err);
    return t;
}

struct tokenizer *editable_tokenizer_with(const char *path, const char *value)
{
    struct json *j = editable_json();
    editable_set(j, path, value);
    return editable_tokenizer(j);
}

char *editable_pieces(const struct tokenizer *t, const char *text, size_t n, bool special)
{
    struct ids ids = { 0 };
    struct text out = { 0 };
    assert_ok(tokenizer_encode(t, text, n, special, &ids, &err), err);
    text_add(&out, "", 0);
    for (size_t i = 0; i < ids.n; i++) {
        size_t length;
        const char *bytes = tokenizer_token(t, ids.id[i], &length);
        assert_non_null(bytes);
        if (i > 0)
            text_puts(&out, "|");
        text_add(&out, bytes, length);
    }
    free(ids.id);
    return out.s;
}

void editable_expect(const struct tokenizer *t, const char *text, bool special, const char *pieces)
{
    char *got = editable_pieces(t, text, strlen(text), special);
    assert_string_equal(got, pieces);
    free(got);
}
