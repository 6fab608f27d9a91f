// tokenizer_open.c - finds the file of a tokenizer, and the reader of its form.
#include "models/tokenizers/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/input.h"
#include "core/files/mapped.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/formats/directory/declared_tokens.h"
#include "models/formats/gguf.h"
#include "models/formats/identity.h"
#include "models/tokenizers/readers.h"

static struct tokenizer *read_with(tokenizer_reader *read, const struct tokenizer_source *s, const char *name,
                                   struct hash hash, struct error *err)
{
    struct tokenizer *t = xcalloc(1, sizeof(*t));
    struct error why;
    t->name = xstrdup(name);
    t->hash = hash;
    if (read(t, s, &why) && added_finish(&t->raw, &why) && added_finish(&t->normal, &why))
        return t;
    fail(err, "%s: %s", name, why.text);
    tokenizer_close(t);
    return NULL;
}

struct tokenizer *tokenizer_from_json(struct json *j, const char *name, struct error *err)
{
    const struct tokenizer_source s = { .json = j };
    return read_with(tokenizer_read_json, &s, name, (struct hash){ 0 }, err);
}

// tiktoken's files begin with a line of base64, a space and a number. SentencePiece's begin with a piece: 0x0A and a
// length.
static bool looks_like_tiktoken(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] != ' ' && s[i] != '\n')
        i++;
    return i > 0 && i + 1 < n && s[i] == ' ' && s[i + 1] == '0';
}

// directory: the directory in which other files may declare tokens of a tokenizer.json; NULL: only the file counts.
static struct tokenizer *open_file(const char *path, const char *directory, struct error *err)
{
    struct mapping file;
    if (!file_map(path, &file, err)) // a regular file
        return NULL;
    struct tokenizer_source s = { .bytes = (const char *)file.at, .n = file.n };
    struct digest *d = digest_begin();
    tokenizer_reader *read = NULL;
    if (ends_with(path, ".json")) {
        s.json = identity_json(path, d, err);
        const bool tekken = !json_is_null(json_get(json_get(s.json, "config"), "default_num_special_tokens"));
        if (s.json != NULL && (tekken || directory == NULL || declared_tokens_complete(directory, s.json, d, err)))
            read = tekken ? tokenizer_read_tekken : tokenizer_read_json;
    } else if (ends_with(path, ".gguf") || (s.n >= 4 && memcmp(s.bytes, "GGUF", 4) == 0)) {
        s.gguf = gguf_open(path, err);
        if (s.gguf != NULL) {
            identity_gguf(s.gguf, d);
            read = tokenizer_read_gguf;
        }
    } else {
        digest_bytes(d, s.bytes, s.n);
        read = looks_like_tiktoken(s.bytes, s.n) ? tokenizer_read_tiktoken : tokenizer_read_sentencepiece;
    }
    const struct hash hash = digest_end(d);
    struct tokenizer *t = read != NULL ? read_with(read, &s, path, hash, err) : NULL;
    json_free(s.json);
    gguf_close(s.gguf);
    file_unmap(&file);
    return t;
}

// ---- tokens that transformers adds to a tokenizer.model: no file says what it does with them, so they must be in the
// model

static bool has_token(const struct tokenizer *t, const struct declared_token *declared, struct error *err)
{
    const size_t n = strlen(declared->text);
    const int32_t id = vocabulary_find(&t->vocabulary, declared->text, n);
    if (id >= 0 && (declared->id < 0 || declared->id == id))
        return true;
    char *number = declared->id >= 0 ? xformat(" with id %lld", (long long)declared->id) : xstrdup("");
    fail(
        err,
        "%s: %s does not have this token%s; expected tokenizer.json beside them (transformers' save_pretrained of a fast "
        "tokenizer writes it)",
        declared->key, t->name, number);
    free(number);
    return false;
}

static bool has_declared_tokens(const struct tokenizer *t, const char *directory, struct error *err)
{
    struct declared_tokens declared;
    bool ok = declared_tokens_of(directory, &declared, err);
    for (int i = 0; i < declared.n && ok; i++)
        ok = has_token(t, &declared.token[i], err);
    declared_tokens_free(&declared);
    return ok;
}

// Returns the tokenizer's file in a directory; free() it. NULL: none.
static char *file_in(const char *directory)
{
    static const char *const names[] = { "tokenizer.json", "tekken.json", "tokenizer.model", "tokenizer.model.v3" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char *file = xformat("%s/%s", directory, names[i]);
        if (file_exists(file))
            return file;
        free(file);
    }
    return NULL;
}

bool tokenizer_present(const char *path)
{
    struct error ignored;
    if (file_is_directory(path)) {
        char *file = file_in(path);
        const bool has_file = file != NULL;
        free(file);
        return has_file;
    }
    struct gguf *g = ends_with(path, ".gguf") ? gguf_open(path, &ignored) : NULL;
    const bool found = g != NULL ? tokenizer_in_gguf(g) : file_exists(path);
    gguf_close(g);
    return found;
}

static struct tokenizer *open_directory(const char *path, struct error *err)
{
    char *file = file_in(path);
    if (file == NULL) {
        fail(
            err,
            "%s: expected tokenizer.json, tekken.json or tokenizer.model, found none (vocab.json is not read; transformers' save_pretrained "
            "writes tokenizer.json)",
            path);
        return NULL;
    }
    const bool is_json = ends_with(file, "/tokenizer.json");
    struct tokenizer *t = open_file(file, is_json ? path : NULL, err);
    if (t != NULL && !is_json && !has_declared_tokens(t, path, err)) {
        tokenizer_close(t);
        t = NULL;
    }
    free(file);
    return t;
}

struct tokenizer *tokenizer_open(const char *path, struct error *err)
{
    return file_is_directory(path) ? open_directory(path, err) : open_file(path, NULL, err);
}
