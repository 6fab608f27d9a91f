// change.c - structure-aware mutations.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/fuzz/fuzz.h"

static uint64_t state;

void fuzz_seed(unsigned seed)
{
    state = seed;
}

size_t fuzz_below(size_t n)
{
    uint64_t z = state += 0x9e3779b97f4a7c15; // splitmix64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (size_t)((z ^ z >> 31) % n);
}

// ---- words

struct words {
    const char *list;
    size_t n;
    const char *word[512];
};

static const struct words *words_of(const char *list)
{
    static struct words known[4];
    struct words *w = known;
    while (w->list != NULL && w->list != list)
        insist(++w < known + 4);
    if (w->list != NULL)
        return w;
    w->list = list;
    for (char *at = xstrdup(list), *next; at != NULL; at = next) {
        if ((next = strstr(at, "  ")) != NULL) {
            *next = '\0';
            next += 2;
        }
        insist(w->n < 512);
        w->word[w->n++] = at;
    }
    return w;
}

const char *fuzz_word(const char *words)
{
    const struct words *w = words_of(words);
    return w->word[fuzz_below(w->n)];
}

// ---- JSON: copied with one change

enum what { REPLACE, REMOVE, DUPLICATE, RENAME, ANOTHER, TEXT, NUMBER, KINDS };

struct change {
    enum what what;
    size_t node, at;         // the value to change and the current one, in preorder; the root is 0
    const struct json *root; // source of replacement values
    const char *words;
};

static size_t nodes(const struct json *j)
{
    size_t n = 1;
    for (size_t i = 0; json_is_array(j) && i < json_count(j); i++)
        n += nodes(json_at(j, i));
    for (void *at = json_first(j); at != NULL; at = json_next(j, at))
        n += nodes(json_value(at));
    return n;
}

static const struct json *node_at(const struct json *j, size_t *n)
{
    const struct json *found = *n == 0 ? j : NULL;
    if (found == NULL)
        --*n;
    for (size_t i = 0; found == NULL && json_is_array(j) && i < json_count(j); i++)
        found = node_at(json_at(j, i), n);
    for (void *at = json_first(j); found == NULL && at != NULL; at = json_next(j, at))
        found = node_at(json_value(at), n);
    return found;
}

static const char *some_word(const struct change *c)
{
    return c->words != NULL ? fuzz_word(c->words) : "x";
}

static struct json *some_number(void)
{
    static const int64_t integer[] = { 0,         1,          -1,        2,         3,
                                       4,         7,          8,         16,        255,
                                       256,       1 << 16,    1 << 20,   INT32_MAX, (int64_t)INT32_MAX + 1,
                                       INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN };
    static const double real[] = { 0.0, 0.5, 1.0, -1.0, 1e-6, 1e12, 1e308, -1e308, 1e-320 };
    size_t i = fuzz_below(sizeof(integer) / sizeof(*integer) + sizeof(real) / sizeof(*real));
    return i < sizeof(integer) / sizeof(*integer) ? json_new_int(integer[i])
                                                  : json_new_number(real[i - sizeof(integer) / sizeof(*integer)]);
}

static struct json *some_value(const struct change *c)
{
    struct json *j;
    switch (fuzz_below(8)) {
    case 0:
        return json_new_null();
    case 1:
        return json_new_bool(fuzz_below(2) != 0);
    case 2:
        return json_new_text("");
    case 3:
        j = json_new_array();
        if (fuzz_below(2) != 0)
            json_push(j, some_number());
        return j;
    case 4:
        j = json_new_object();
        if (fuzz_below(2) != 0)
            json_set(j, some_word(c), some_number());
        return j;
    case 5:
        return json_new_text(some_word(c));
    default:
        return some_number();
    }
}

static struct json *changed_text(const struct json *j)
{
    size_t n = json_text_length(j), max_size = n + 64;
    uint8_t *s = xmalloc(max_size);
    memcpy(s, json_text(j), n);
    n = LLVMFuzzerMutate(s, n, max_size);
    struct json *to = json_new_text_n((const char *)s, n);
    free(s);
    return to;
}

static struct json *copy(const struct json *j, struct change *c);

static struct json *changed_value(const struct json *j, struct change *c)
{
    struct change none = { .node = SIZE_MAX };
    size_t n;
    switch (c->what) {
    case ANOTHER:
        n = fuzz_below(nodes(c->root));
        return copy(node_at(c->root, &n), &none);
    case TEXT:
        return json_is_text(j) ? changed_text(j) : some_value(c);
    case NUMBER:
        return json_is_int(j) ? json_new_int((int64_t)((uint64_t)json_int(j) + fuzz_below(5) - 2))
                              : json_new_number(json_number(j) * (double)fuzz_below(5) / 2);
    default:
        return some_value(c);
    }
}

// How often to repeat a duplicated item: sizes at which fixed-size arrays may overflow.
static size_t some_count(void)
{
    static const size_t some[] = { 2, 3, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65 };
    return fuzz_below(2) == 0 ? 1 : some[fuzz_below(sizeof(some) / sizeof(*some))];
}

static void copy_items(const struct json *j, struct change *c, struct json *to)
{
    for (size_t i = 0; i < json_count(j); i++) {
        struct change none = { .node = SIZE_MAX };
        const bool here = c->at == c->node;
        if (here && c->what == REMOVE) {
            c->at++; // later indices are shifted, and none matches again
            c->node = SIZE_MAX;
            continue;
        }
        if (here && c->what == DUPLICATE)
            for (size_t k = some_count(); k > 0; k--)
                json_push(to, copy(json_at(j, i), &none));
        json_push(to, copy(json_at(j, i), c));
    }
}

static void copy_members(const struct json *j, struct change *c, struct json *to)
{
    for (void *at = json_first(j); at != NULL; at = json_next(j, at)) {
        struct change none = { .node = SIZE_MAX };
        const bool here = c->at == c->node;
        if (here && c->what == REMOVE) {
            c->node = SIZE_MAX;
            continue;
        }
        if (here && (c->what == RENAME || c->what == DUPLICATE)) {
            json_set(to, some_word(c), copy(json_value(at), &none));
            c->node = SIZE_MAX;
            if (c->what == RENAME)
                continue;
        }
        json_set(to, json_key(at), copy(json_value(at), c));
    }
}

static struct json *copy(const struct json *j, struct change *c)
{
    const bool here = c->at++ == c->node;
    if (here && (c->what == REPLACE || c->what >= ANOTHER))
        return changed_value(j, c);
    if (json_is_array(j) || json_is_object(j)) {
        struct json *to = json_is_array(j) ? json_new_array() : json_new_object();
        json_is_array(j) ? copy_items(j, c, to) : copy_members(j, c, to);
        if (here && c->what == DUPLICATE && json_is_array(j))
            json_push(to, some_value(c));
        if (here && c->what == DUPLICATE && json_is_object(j))
            json_set(to, some_word(c), some_value(c));
        return to;
    }
    return json_is_text(j)   ? json_new_text_n(json_text(j), json_text_length(j))
           : json_is_int(j)  ? json_new_int(json_int(j))
           : json_is_bool(j) ? json_new_bool(json_bool(j))
           : json_is_null(j) ? json_new_null()
                             : json_new_number(json_number(j));
}

static struct json *changed_json(const struct json *j, const char *words)
{
    struct change c = { .what = (enum what)fuzz_below(KINDS), .root = j, .words = words };
    c.node = fuzz_below(nodes(j));
    return copy(j, &c);
}

// NULL: it is no JSON.
static char *json_changed(const uint8_t *s, size_t n, const char *words)
{
    struct error err;
    struct json *j = json_parse((const char *)s, n, "input", &err);
    if (j == NULL)
        return NULL;
    for (size_t times = 1 + fuzz_below(3) / 2; times > 0; times--) {
        struct json *other = changed_json(j, words);
        json_free(j);
        j = other;
    }
    char *text = json_write(j);
    json_free(j);
    return text;
}

// ---- kinds of files. Each appends the changed file; false: it is not what it should be.

static bool change_json(const struct fuzz_slice *s, const char *words, struct text *to)
{
    char *text = json_changed(s->at, s->n, words);
    if (text != NULL)
        text_puts(to, text);
    free(text);
    return text != NULL;
}

// Mutates one line as JSON; or removes or duplicates a line.
static bool change_lines(const struct fuzz_slice *s, const char *words, struct text *to)
{
    size_t lines = 0, at = 0;
    for (size_t i = 0; i < s->n; i++)
        lines += s->at[i] == '\n';
    size_t which = fuzz_below(lines + 1), what = fuzz_below(8);
    for (size_t line = 0; at < s->n; line++) {
        const uint8_t *end = memchr(s->at + at, '\n', s->n - at);
        size_t n = end != NULL ? (size_t)(end - s->at) - at : s->n - at, line_bytes = n + (end != NULL);
        struct fuzz_slice one = { s->at + at, n };
        at += line_bytes;
        if (line == which && what == 0)
            continue;
        if (line == which && what == 1)
            text_add(to, (const char *)one.at, line_bytes);
        if (line != which || !change_json(&one, words, to))
            text_add(to, (const char *)one.at, n);
        if (end != NULL)
            text_puts(to, "\n");
    }
    return s->n > 0;
}

static bool is_word_character(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("_.-", c) != NULL;
}

// Replaces a word by another one of the text or of the list; or removes, duplicates or moves a line.
static bool change_words(const struct fuzz_slice *s, const char *words, struct text *to)
{
    struct fuzz_slice word[512], line[512];
    size_t n = 0, lines = 0, begin = 0;
    for (size_t i = 0, from = 0; i <= s->n; i++) {
        const bool in = i < s->n && s->at[i] != '\0' && is_word_character(s->at[i]);
        if (!in && from < i && n < 512)
            word[n++] = (struct fuzz_slice){ s->at + from, i - from };
        if (!in)
            from = i + 1;
        if ((i == s->n || s->at[i] == '\n') && lines < 512) {
            line[lines++] = (struct fuzz_slice){ s->at + begin, i - begin };
            begin = i + 1;
        }
    }
    const struct words *known = words_of(words);
    if (n == 0 || lines == 512)
        return false;
    if (fuzz_below(3) > 0) {
        const struct fuzz_slice *old = &word[fuzz_below(n)];
        const size_t which = fuzz_below(n + 2 * known->n);
        const char *new = which < n ? (const char *)word[which].at : known->word[(which - n) / 2];
        text_add(to, (const char *)s->at, (size_t)(old->at - s->at));
        text_add(to, new, which < n ? word[which].n : strlen(new));
        text_add(to, (const char *)old->at + old->n, s->n - (size_t)(old->at + old->n - s->at));
        return true;
    }
    const size_t which = fuzz_below(lines), what = fuzz_below(3), where = fuzz_below(lines);
    for (size_t i = 0; i < lines; i++) {
        if (what > 0 && i == where && which != where) {
            text_add(to, (const char *)line[which].at, line[which].n);
            text_puts(to, "\n");
        }
        if (i == which && what < 2)
            continue;
        text_add(to, (const char *)line[i].at, line[i].n);
        if (i + 1 < lines)
            text_puts(to, "\n");
    }
    return true;
}

static size_t bits_of(const char *dtype)
{
    static const struct {
        const char *end;
        size_t bits;
    } sizes[] = { { "64", 64 }, { "32", 32 }, { "16", 16 }, { "F4", 4 }, { "F6_E2M3", 6 }, { "F6_E3M2", 6 } };
    const size_t n = strlen(dtype);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (n >= strlen(sizes[i].end) && strcmp(dtype + n - strlen(sizes[i].end), sizes[i].end) == 0)
            return sizes[i].bits;
    return 8;
}

// Lays out the tensors consecutively with the sizes of their types and shapes. Returns the total bytes, at most max_size.
static size_t lay_out(struct json *header, size_t max_size)
{
    size_t at = 0;
    for (void *m = json_first(header); m != NULL; m = json_next(header, m)) {
        struct json *t = json_value(m), *shape = json_get(t, "shape"), *place;
        size_t bytes = bits_of(json_text(json_get(t, "dtype")));
        if (!json_is_object(t) || !json_is_array(shape))
            continue;
        for (size_t i = 0; i < json_count(shape); i++)
            if (__builtin_mul_overflow(bytes, (size_t)json_int(json_at(shape, i)), &bytes))
                bytes = 0;
        bytes /= 8;
        if (bytes > max_size - at)
            continue;
        place = json_new_array();
        json_push(place, json_new_int((int64_t)at));
        json_push(place, json_new_int((int64_t)(at + bytes)));
        json_set(t, "data_offsets", place);
        at += bytes;
    }
    return at;
}

static bool change_safetensors(const struct fuzz_slice *s, const char *words, size_t max_size, struct text *to)
{
    uint64_t length = 0;
    if (s->n >= 8)
        memcpy(&length, s->at, 8);
    if (s->n < 8 || length > s->n - 8)
        return false;
    char *header = json_changed(s->at + 8, (size_t)length, words);
    if (header == NULL)
        return false;
    const uint8_t *data = s->at + 8 + length;
    size_t n = s->n - 8 - (size_t)length, required = n;
    struct error err;
    struct json *j = fuzz_below(2) == 0 ? json_parse(header, strlen(header), "header", &err) : NULL;
    if (json_is_object(j)) {
        required = lay_out(j, max_size);
        free(header);
        header = json_write(j);
    }
    json_free(j);
    length = strlen(header);
    text_add(to, (const char *)&length, 8);
    text_puts(to, header);
    text_add(to, (const char *)data, required < n ? required : n);
    for (; n < required; n++)
        text_add(to, "\x3d", 1); // a small number as a float
    free(header);
    return true;
}

size_t fuzz_change(uint8_t *data, size_t n, size_t max_size, unsigned seed, const struct fuzz_file *file,
                   const char *words)
{
    struct fuzz_slice slice[FUZZ_FILES];
    struct text to = { 0 };
    int files = 0;
    fuzz_seed(seed);
    while (file[files].name != NULL)
        files++;
    if (fuzz_below(6) == 0)
        return LLVMFuzzerMutate(data, n, max_size);
    fuzz_split(data, n, slice, files);
    const int which = (int)fuzz_below((size_t)files);
    bool changed = false;
    for (int i = 0; i < files; i++) {
        const struct fuzz_slice *s = &slice[i];
        if (i > 0)
            text_add(&to, "", 1);
        if (i == which && file[i].kind == FUZZ_JSON)
            changed = change_json(s, words, &to);
        else if (i == which && file[i].kind == FUZZ_WORDS)
            changed = change_words(s, words, &to);
        else if (i == which && file[i].kind == FUZZ_JSON_LINES)
            changed = change_lines(s, words, &to);
        else if (i == which && file[i].kind == FUZZ_SAFETENSORS)
            changed = change_safetensors(s, words, max_size, &to);
        if (i != which || !changed) {
            uint8_t *own = xmalloc(s->n + 256);
            size_t length = s->n;
            if (s->n > 0)
                memcpy(own, s->at, s->n);
            if (i == which) // rarely empties the file
                length = fuzz_below(16) == 0 ? 0 : LLVMFuzzerMutate(own, s->n, s->n + 256);
            text_add(&to, (const char *)own, length);
            free(own);
        }
    }
    const size_t length = to.n < max_size ? to.n : max_size;
    if (length > 0)
        memcpy(data, to.s, length);
    free(to.s);
    return length;
}
