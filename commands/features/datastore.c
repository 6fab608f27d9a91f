// datastore.c - texts become tokens, sorted by their suffixes.
//
// Texts of evaluation files can be excluded: no document may share 13 words in a row with one of them, the overlap by
// which GPT-3's authors looked for their test sets in its training data (Brown et al. 2020, arXiv 2005.14165, appendix
// C).
#include <divsufsort.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/features/datastore.h"
#include "core/files/json_lines.h"
#include "core/error.h"
#include "core/files/input.h"
#include "core/files/mapped.h"
#include "core/files/part.h"
#include "core/hash_map.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/formats/datastore.h"
#include "models/paths.h"
#include "models/tokenizers/tokenizer.h"

enum { EXCLUDED_WORDS = 13 };

// ---- words

// Returns the bytes of the separator at s; 0: a letter or digit is there.
static size_t separator(const char *s)
{
    const unsigned char c = (unsigned char)*s;
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
    if (!word)
        return 1;
    const bool general = c == 0xE2 && ((unsigned char)s[1] == 0x80 || (unsigned char)s[1] == 0x81) && s[2] != '\0';
    return general                                    ? 3
           : c == 0xC2 && (unsigned char)s[1] == 0xA0 ? 2
                                                      : 0; // U+2000 to U+207F; a space that does not break
}

void words_read(struct text *to, const char *text)
{
    bool within = false;
    text_puts(to, "");
    for (const char *s = text; *s != '\0';) {
        const size_t skipped = separator(s);
        if (skipped == 0 && !within && to->n > 0)
            text_puts(to, " ");
        within = skipped == 0;
        const char letter = *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;
        if (within)
            text_add(to, &letter, 1);
        s += within ? 1 : skipped;
    }
}

// Calls `visit` with the hash of each 13 words in a row, or of all words if there are fewer. Returns how many calls
// returned true.
static size_t count_runs(const char *text, bool (*visit)(struct hash_map *m, struct hash run), struct hash_map *m)
{
    struct text words = { 0 };
    size_t count = 0;
    words_read(&words, text);
    const char *from = words.s, *end = words.s;
    for (int n = 1; *from != '\0'; n++) {
        end += strcspn(end, " ");
        if (n >= EXCLUDED_WORDS || *end == '\0') {
            count += visit(m, hash_of(from, (size_t)(end - from)));
            from = *end != '\0' ? from + strcspn(from, " ") + 1 : end;
        }
        end += *end != '\0';
    }
    free(words.s);
    return count;
}

static bool add_run(struct hash_map *m, struct hash run)
{
    return hash_map_add(m, run, 0) != NULL;
}

static bool has_run(struct hash_map *m, struct hash run)
{
    return hash_map_find(m, run) != NULL;
}

// ---- texts of lines

static bool is_text_key(const char *key)
{
    static const char *const names[] = { "id", "question_id", "task_id", "category", "role", "entry_point", "import" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(key, names[i]) == 0)
            return false;
    return true;
}

// Calls `visit` for every text within a value, whatever its key, except ids, roles and categories. key: of the nearest
// member; NULL: none. Ends with the first call that returns false, and returns whether none did.
typedef bool visit_text(void *self, const char *key, const struct json *text);

static bool each_text(const struct json *j, const char *key, visit_text *visit, void *self)
{
    bool ok = !json_is_text(j) || visit(self, key, j);
    for (size_t i = 0; ok && json_is_array(j) && i < json_count(j); i++)
        ok = each_text(json_at(j, i), key, visit, self);
    for (void *at = json_is_object(j) ? json_first(j) : NULL; ok && at != NULL; at = json_next(j, at))
        ok = !is_text_key(json_key(at)) || each_text(json_value(at), json_key(at), visit, self);
    return ok;
}

struct exclusion {
    struct hash_map *to;
    size_t runs;
};

static bool exclude_text(void *self, const char *key, const struct json *text)
{
    (void)key;
    struct exclusion *e = self;
    e->runs += count_runs(json_text(text), add_run, e->to);
    return true;
}

static bool exclude_line(void *self, const struct json *line, struct error *err)
{
    (void)err;
    return each_text(line, NULL, exclude_text, self);
}

// Lines that are no objects are errors, and a file without any words is one.
static bool read_exclusions(struct hash_map *to, const char *path, struct error *err)
{
    struct exclusion e = { .to = to };
    return json_lines_each(path, exclude_line, &e, err) &&
           (e.runs > 0 || fail(err, "%s: expected texts to exclude, found none", path));
}

// ---- the corpus

struct corpus {
    struct tokenizer *tokenizer;
    struct hash_map exclude; // runs of words
    struct ids ids;          // documents, each ended by the id after the vocabulary
    uint64_t documents, excluded;
    struct error *err; // where the error of a line is reported
};

static void end_document(struct corpus *c, size_t begin)
{
    if (c->ids.n == begin)
        return;
    ids_add(&c->ids, tokenizer_size(c->tokenizer));
    c->documents++;
}

static bool add_text(struct corpus *c, const char *text, size_t n, struct error *err)
{
    const size_t begin = c->ids.n;
    if (strlen(text) != n)
        return fail(err, "a NUL character, at byte %zu, is no text", strlen(text));
    if (count_runs(text, has_run, &c->exclude) > 0) {
        c->excluded++;
        return true;
    }
    if (!tokenizer_encode(c->tokenizer, text, n, false, &c->ids, err))
        return false;
    end_document(c, begin);
    return true;
}

static bool is_speaker(const char *key) // the speaker, in conversations of {from, value}
{
    return key != NULL && strcmp(key, "from") == 0;
}

static bool add_document(void *self, const char *key, const struct json *text)
{
    struct corpus *c = self;
    return is_speaker(key) || add_text(c, json_text(text), json_text_length(text), c->err);
}

static bool is_allowed(void *self, const char *key, const struct json *text)
{
    struct corpus *c = self;
    return is_speaker(key) || count_runs(json_text(text), has_run, &c->exclude) == 0;
}

// A line with token ids is one document, of exactly these tokens; the line's texts tell whether it is excluded.
static bool add_line(void *self, const struct json *line, struct error *err)
{
    struct corpus *c = self;
    const struct json *ids = json_get(line, "input_ids");
    const size_t begin = c->ids.n;
    c->err = err;
    if (ids == NULL) // each text is one
        return each_text(line, NULL, add_document, c);
    if (!each_text(line, NULL, is_allowed, c)) {
        c->excluded++;
        return true;
    }
    if (!json_read_ids(ids, "\"input_ids\"", tokenizer_size(c->tokenizer), &c->ids, err))
        return false;
    end_document(c, begin);
    return true;
}

static bool add_file(struct corpus *c, const char *path, struct error *err)
{
    const size_t n = strlen(path);
    if ((n > 6 && strcmp(path + n - 6, ".jsonl") == 0) || strcmp(path, "-") == 0)
        return json_lines_each(path, add_line, c, err);
    struct mapping m = { 0 };
    struct error why;
    if (!file_map(path, &m, err))
        return false;
    char *text = xmalloc(m.n + 1); // the exclusions read up to a NUL
    memcpy(text, m.at, m.n);
    text[m.n] = '\0';
    const bool ok = add_text(c, text, m.n, &why) || fail(err, "%s: %s", path, why.text);
    free(text);
    file_unmap(&m);
    return ok;
}

// ---- the file

// Sorts by libdivsufsort, which sorts suffixes of bytes (Yuta Mori; algorithm: Fischer, Kurpicz 2017, arXiv
// 1710.01896). A token, at most `most`, is 2 or 3 bytes, the most significant first, so that the order of bytes is that
// of tokens. Suffixes that begin within a token are dropped afterwards. It takes memory for 10 or 15 additional bytes a
// token.
static bool suffix_array(const int32_t *token, size_t n, int32_t most, uint32_t *to, struct error *err)
{
    const size_t width = most <= UINT16_MAX ? 2 : 3;
    if (n > (size_t)INT32_MAX / width)
        return fail(err, "%zu tokens are more than a datastore can have, %zu", n, (size_t)INT32_MAX / width);
    unsigned char *bytes = xmalloc(n * width);
    saidx_t *order = xmalloc(n * width * sizeof(*order));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < width; k++)
            bytes[i * width + k] = (unsigned char)((uint32_t)token[i] >> 8 * (width - 1 - k));
    const bool ok = divsufsort(bytes, order, (saidx_t)(n * width)) == 0 ||
                    fail(err, "the suffix array cannot be made: not enough memory");
    for (size_t i = 0, at = 0; ok && i < n * width; i++)
        if ((size_t)order[i] % width == 0)
            to[at++] = (uint32_t)((size_t)order[i] / width);
    free(bytes);
    free(order);
    return ok;
}

// Returns whether the file is a datastore or does not exist: another file is not replaced.
static bool check_output(const char *path, struct error *err)
{
    struct datastore s = { 0 };
    struct error ignored;
    if (!file_exists(path))
        return true;
    const bool ok = datastore_open(&s, path, &ignored);
    datastore_close(&s);
    return ok || fail(err, "--datastore: %s exists, and is no datastore; it is not replaced", path);
}

static bool write_store(const struct corpus *c, const char *path, struct error *err)
{
    const int32_t vocab = tokenizer_size(c->tokenizer);
    struct datastore_header h = { .magic = DATASTORE_MAGIC,
                                  .token_bytes = vocab <= UINT16_MAX ? 2 : 4,
                                  .vocab = (uint32_t)vocab,
                                  .tokens = c->ids.n,
                                  .documents = c->documents,
                                  .vocabulary = tokenizer_tokens_hash(c->tokenizer) };
    uint32_t *suffix = xmalloc(c->ids.n * sizeof(*suffix));
    bool ok = suffix_array(c->ids.id, c->ids.n, vocab, suffix, err);
    struct digest *d = digest_begin();
    digest_bytes(d, c->ids.id, c->ids.n * sizeof(*c->ids.id));
    h.text = digest_end(d);
    struct part *to = ok ? part_begin(path, err) : NULL;
    if (to != NULL) {
        part_write(to, &h, sizeof(h));
        for (size_t i = 0; i < c->ids.n && h.token_bytes == 2; i++)
            part_write(to, &(const uint16_t){ (uint16_t)c->ids.id[i] }, 2);
        if (h.token_bytes == 4)
            part_write(to, c->ids.id, c->ids.n * 4);
        part_pad(to, 8);
        part_write(to, suffix, c->ids.n * sizeof(*suffix));
    }
    ok = to != NULL && part_end(to, err);
    free(suffix);
    return ok;
}

static bool read_all(struct corpus *c, char **file, int n, const char *const *exclude, int n_exclude, const char *out,
                     struct error *err)
{
    char *path = model_path(file[0], NULL, err);
    c->tokenizer = path != NULL ? tokenizer_open(path, err) : NULL;
    free(path);
    bool ok = c->tokenizer != NULL && check_output(out, err);
    for (int i = 0; i < n_exclude && ok; i++)
        ok = read_exclusions(&c->exclude, exclude[i], err);
    for (int i = 1; i < n && ok; i++)
        ok = add_file(c, file[i], err);
    return ok && (c->ids.n > 0 || fail(err, "expected texts, found none"));
}

bool datastore_make(char **file, int n, const char *const *exclude, int n_exclude, const char *out, struct error *err)
{
    struct corpus c = { 0 };
    const bool ok = read_all(&c, file, n, exclude, n_exclude, out, err) && write_store(&c, out, err);
    if (ok)
        fprintf(stderr, "%s: %zu tokens in %llu documents, %llu excluded\n", out, c.ids.n - (size_t)c.documents,
                (unsigned long long)c.documents, (unsigned long long)c.excluded);
    free(c.ids.id);
    hash_map_free(&c.exclude);
    tokenizer_close(c.tokenizer);
    return ok;
}
