// test_identity.c - another model, head, tokenizer, template, draft tree or prompt file makes another cell: every key of every file
// of a checkpoint is changed, one at a time.
#include "tests/support/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/memory.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "formats/file.h"
#include "formats/gguf.h"
#include "formats/identity.h"
#include "models/weights.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/file_write.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"

// ---- the cell's hash

static char target[64] = "target.gguf", drafter[200] = "none";

enum outcome { REFUSED, SAME, OTHER };
static int count[3];
static struct error why; // of the last REFUSED

// Computes the hash of the last cell. Returns false if the checkpoint is refused.
static bool cell(char to[HASH_TEXT])
{
    char *text = xformat("name: x\ntarget: {model: %s}\nthreads: 1\nprompts: {file: p.jsonl, chat: %s}\n"
                         "cells: {drafter: [%s]}\n",
                         target, strstr(target, "mute") != NULL ? "none" : "auto", drafter);
    struct experiment *e = load(text);
    struct loaded_experiment o;
    struct group g = { 0 };
    bool ok = loaded_experiment_open(&o, e, TARGET_ROWS, &why);
    if (ok) {
        ok = group_open(&g, 0, &o, &why);
        if (ok)
            memcpy(to, g.cell_runner[g.n - 1].identity.hash, HASH_TEXT);
        group_close(&g);
        loaded_experiment_close(&o);
    }
    experiment_free(e);
    free(text);
    return ok;
}

static enum outcome now(const char before[HASH_TEXT])
{
    char hash[HASH_TEXT];
    enum outcome found = !cell(hash) ? REFUSED : strcmp(hash, before) == 0 ? SAME : OTHER;
    count[found]++;
    return found;
}

static void base_hash(char to[HASH_TEXT])
{
    memset(count, 0, sizeof(count));
    if (!cell(to))
        fail_msg("%s", why.text);
}

static void check_outcome(enum outcome found, bool ignored, const char *what)
{
    if (ignored ? found != SAME : found == SAME)
        fail_msg("%s: %s", what,
                 found == REFUSED ? why.text
                 : found == SAME  ? "changed, but the same cell"
                                  : "ignored, but another cell");
}

static void print_counts(const char *what)
{
    print_message("%s: %d changes make other cells, %d are refused, %d are ignored\n", what, count[OTHER],
                  count[REFUSED], count[SAME]);
}

// ---- GGUF

struct change {       // of one key
    size_t key;       // index in the file; SIZE_MAX: none
    int by;           // added to integers; texts get one more letter, booleans are negated
    const char *text; // replaces a text; NULL: one more letter
};

static int64_t integer_of(const struct gguf_value *v)
{
    int64_t to = 0;
    const size_t bytes[] = { [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
                             [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_U64] = 8, [GGUF_I64] = 8 };
    memcpy(&to, v->raw, bytes[v->type]);
    return to;
}

static char *text_of(const struct gguf_value *v)
{
    uint64_t n;
    memcpy(&n, v->raw, sizeof(n));
    return xstrndup((const char *)v->raw + sizeof(n), (size_t)n);
}

// Changes the last element.
static void write_changed_array(struct gguf_writer *w, const char *key, const struct gguf_value *v, int by)
{
    if (v->element == GGUF_STRING) {
        char **text = xcalloc((size_t)v->n, sizeof(*text));
        struct gguf_string s;
        size_t at = 0, i = 0;
        for (; gguf_next_string(v, &at, &s); i++)
            text[i] = xformat("%.*s%s", (int)s.n, s.s, i + 1 == v->n ? "x" : "");
        gguf_write_texts(w, key, (const char *const *)text, i);
        while (i > 0)
            free(text[--i]);
        free(text);
        return;
    }
    assert_int_equal(v->element, GGUF_I32);
    int32_t *id = xcalloc((size_t)v->n, sizeof(*id));
    for (uint64_t i = 0; i < v->n; i++)
        id[i] = (int32_t)gguf_array_int(v, i) + (i + 1 == v->n ? by : 0);
    gguf_write_ints(w, key, id, (size_t)v->n);
    free(id);
}

static void write_changed(struct gguf_writer *w, const struct gguf_value *v, const struct change *c)
{
    char *key = xstrndup(v->key.s, v->key.n);
    float real;
    if (v->type == GGUF_ARRAY)
        write_changed_array(w, key, v, c->by);
    else if (v->type == GGUF_STRING) {
        char *text = text_of(v), *more = c->text != NULL ? xstrdup(c->text) : xformat("%sx", text);
        gguf_write_text(w, key, more);
        free(text);
        free(more);
    } else if (v->type == GGUF_BOOL)
        gguf_write_bool(w, key, *v->raw == 0);
    else if (v->type == GGUF_F32) {
        memcpy(&real, v->raw, sizeof(real));
        gguf_write_real(w, key, c->by > 0 ? real * 1.5f : real * 0.75f);
    } else
        gguf_write_int(w, key, v->type, integer_of(v) + c->by);
    free(key);
}

// Keys that small_model.c does not write. Keys with only one supported value have that value.
static void write_more_keys(struct gguf_writer *w)
{
    gguf_write_text(w, "general.author", "unknown");
    gguf_write_int(w, "general.file_type", GGUF_U32, 0);
    gguf_write_int(w, "general.alignment", GGUF_U32, 32);
    gguf_write_int(w, "quantize.imatrix.chunks_count", GGUF_I32, 7);
    gguf_write_text(w, "llama.rope.scaling.type", "linear");
    gguf_write_real(w, "llama.rope.scaling.factor", 2);
    gguf_write_real(w, "llama.rope.scaling.attn_factor", 1);
    gguf_write_int(w, "llama.expert_count", GGUF_U32, 0);
    gguf_write_real(w, "llama.logit_scale", 1);
    gguf_write_int(w, "tokenizer.ggml.eot_token_id", GGUF_U32, 2);
    gguf_write_int(w, "tokenizer.ggml.padding_token_id", GGUF_U32, 0);
    gguf_write_text(w, "speclab.inflated_from", "another");
    gguf_write_text(w, "speclab.quantised_from", "another");
    gguf_write_text(w, "llama.unknown_key", "x");
}

static void copy_gguf(const char *from, const char *to, const struct change *c, bool more)
{
    struct error err = { "" };
    struct gguf *g = gguf_open(from, &err);
    struct gguf_writer *w = g != NULL ? gguf_write_begin(to, &err) : NULL;
    if (w == NULL)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < gguf_values(g); i++)
        if (i == c->key)
            write_changed(w, gguf_value_at(g, i), c);
        else
            gguf_write_copy(w, gguf_value_at(g, i));
    if (more)
        write_more_keys(w);
    for (size_t i = 0; i < gguf_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char *name = xstrndup(t->name.s, t->name.n);
        gguf_write_tensor(w, name, t->dims, t->dim, t->ggml_type, t->tensor.data, t->bytes);
        free(name);
    }
    if (!gguf_write_end(w, &err))
        fail_msg("%s", err.text);
    gguf_close(g);
}

static void flip_gguf(const char *name)
{
    static const struct change ways[] = { { 0, 1, NULL }, { 0, -1, NULL }, { 0, 1, "gpt-2" } };
    char *path = test_path(name), *whole = test_path("whole.gguf"), before[HASH_TEXT];
    const struct change nothing = { SIZE_MAX, 0, NULL };
    struct error err = { "" };
    copy_gguf(path, whole, &nothing, true);
    copy_gguf(whole, path, &nothing, false);
    base_hash(before);
    struct gguf *g = gguf_open(whole, &err);
    assert_non_null(g);
    for (size_t i = 0; i < gguf_values(g); i++) {
        char *key = xstrndup(gguf_value_at(g, i)->key.s, gguf_value_at(g, i)->key.n);
        enum outcome found = REFUSED;
        for (size_t k = 0; k < sizeof(ways) / sizeof(*ways) && found == REFUSED; k++) {
            count[REFUSED] -= k > 0;
            struct change c = ways[k];
            c.key = i;
            copy_gguf(whole, path, &c, false);
            found = now(before);
            check_outcome(found, identity_ignores(NULL, key), key);
        }
        free(key);
    }
    copy_gguf(whole, path, &nothing, false);
    assert_int_equal(now(before), SAME); // the content decides, not the file's time
    count[SAME]--;
    assert_int_equal(count[REFUSED] + count[OTHER] + count[SAME], gguf_values(g));
    gguf_close(g);
    free(path);
    free(whole);
}

static void every_key_of_a_gguf_file_makes_another_cell_or_is_ignored(void **state)
{
    (void)state;
    flip_gguf("target.gguf");
    print_counts("target, GGUF");
    assert_true(count[OTHER] >= 17 && count[REFUSED] <= 16 && count[SAME] == 5);

    snprintf(drafter, sizeof(drafter), "{kind: small, model: draft.gguf}");
    flip_gguf("draft.gguf");
    print_counts("draft model, GGUF");
    assert_true(count[OTHER] >= 17 && count[REFUSED] <= 16 && count[SAME] == 5);

    snprintf(drafter, sizeof(drafter), "none");
}

static void ignored_keys_are_hidden_from_readers(void **state)
{
    (void)state;
    struct error err = { "" };
    char *path = test_path("whole.gguf");
    struct gguf *g = gguf_open(path, &err);
    struct gguf_string text;
    assert_true(g != NULL && gguf_text(g, "general.name", &text) && gguf_find(g, "general.author") != NULL);
    const size_t values = gguf_values(g);
    struct digest *d = digest_begin();
    identity_gguf(g, d);
    digest_end(d);
    assert_false(gguf_text(g, "general.name", &text));
    assert_null(gguf_find(g, "general.author"));
    assert_true(gguf_text(g, "general.architecture", &text));
    assert_int_equal(gguf_values(g), values); // copying a file still sees all
    gguf_close(g);
    free(path);
}

// ---- JSON, changed as text, independently of core/json.c

struct scalar { // a value in a JSON text that is not an object or list
    size_t at, n;
    char top[64]; // the outermost key that contains it
};

static size_t end_of_string(const char *s, size_t at)
{
    for (at++; s[at] != '"'; at++)
        at += s[at] == '\\';
    return at + 1;
}

// The next scalar from *at on.
static bool next_scalar(const char *s, size_t *at, int *depth, struct scalar *to)
{
    for (; s[*at] != '\0'; ++*at) {
        const char c = s[*at];
        *depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (c == '"') {
            const size_t begin = *at, end = end_of_string(s, begin), behind = end + strspn(s + end, " \n");
            *at = end;
            if (s[behind] != ':') {
                to->at = begin;
                to->n = end - begin;
                return true;
            }
            if (*depth == 1)
                snprintf(to->top, sizeof(to->top), "%.*s", (int)(end - begin - 2), s + begin + 1);
        } else if (strchr("-0123456789tfn", c) != NULL) {
            to->at = *at;
            to->n = strcspn(s + *at, ",]} \n");
            *at += to->n;
            return true;
        }
    }
    return false;
}

static char *changed(const char *scalar)
{
    if (*scalar == '"')
        return xformat("%.*sx\"", (int)strlen(scalar) - 1, scalar);
    if (*scalar == 't' || *scalar == 'f')
        return xstrdup(*scalar == 't' ? "false" : "true");
    if (*scalar == 'n')
        return xstrdup("\"x\"");
    return strpbrk(scalar, ".eE") != NULL ? xformat("%.17g", atof(scalar) * 1.5) : xformat("%ld", atol(scalar) + 1);
}

// Changes every `every`-th scalar of the file.
static void flip_json(const char *folder, const char *name, int every)
{
    char *path = xformat("%s/%s/%s", test_directory(), folder, name), before[HASH_TEXT];
    struct error err = { "" };
    struct scalar v = { 0 };
    size_t at = 0, n;
    int depth = 0, number = 0;
    char *text = file_text(path, &n, &err);
    assert_non_null(text);
    base_hash(before);
    while (next_scalar(text, &at, &depth, &v)) {
        if (number++ % every != 0)
            continue;
        char *old = xstrndup(text + v.at, v.n), *new = changed(old);
        char *all = xformat("%.*s%s%s", (int)v.at, text, new, text + v.at + v.n);
        char *what = xformat("%s: %s in place of %s, in %s", name, new, old, v.top);
        file_write_bytes(path, all, strlen(all));
        check_outcome(now(before), identity_ignores(name, v.top), what);
        free(what);
        free(all);
        free(new);
        free(old);
    }
    assert_int_equal(count[REFUSED] + count[OTHER] + count[SAME], (number + every - 1) / every);
    // an unknown key
    char *more = xformat("{\"unknown_key\":1,%s", text + 1);
    file_write_bytes(path, more, strlen(more));
    assert_int_equal(now(before), OTHER);
    free(more);
    file_write_bytes(path, text, n);
    assert_int_equal(now(before), SAME);
    count[SAME]--;
    free(text);
    free(path);
    char *where = xformat("%s/%s", folder, name);
    print_counts(where);
    free(where);
}

static size_t offset_of(const char *in, const char *what)
{
    const char *at = strstr(in, what);
    if (at == NULL)
        fail_msg("%s not found", what);
    return (size_t)(at - in);
}

// Replaces two texts of a file, each by another of the same length.
static void exchange(const char *folder, const char *name, const char *a, const char *for_a, const char *b,
                     const char *for_b)
{
    char *path = xformat("%s/%s/%s", test_directory(), folder, name), before[HASH_TEXT];
    struct error err = { "" };
    size_t n;
    char *text = file_text(path, &n, &err), *new = xstrndup(text, n);
    memcpy(new + offset_of(text, a), for_a, strlen(for_a));
    memcpy(new + offset_of(text, b), for_b, strlen(for_b));
    base_hash(before);
    file_write_bytes(path, new, n);
    assert_int_equal(now(before), OTHER);
    file_write_bytes(path, text, n);
    free(text);
    free(new);
    free(path);
}

static void every_key_of_a_directory_makes_another_cell_or_is_ignored(void **state)
{
    (void)state;
    char *directory = test_path("hf");
    struct small_model t = small_default;
    t.rope = ROPE_LLAMA3;
    t.factor = 8;
    t.low = 1;
    t.high = 4;
    t.original = 128;
    small_write_hf(directory, &t);
    snprintf(target, sizeof(target), "hf");
    flip_json("hf", "config.json", 1);
    assert_true(count[OTHER] >= 10 && count[SAME] == 1);

    flip_json("hf", "generation_config.json", 1);
    assert_true(count[OTHER] >= 1);
    flip_json("hf", "tokenizer_config.json", 1);
    assert_true(count[OTHER] >= 4 && count[SAME] == 1);
    flip_json("hf", "tokenizer.json", 5);
    assert_true(count[OTHER] >= 6 && count[SAME] == 1); // most changed ids and merges are refused as duplicates
    exchange("hf", "tokenizer.json", "\"!\":36", "\"!\":37", "\"\\\"\":37", "\"\\\"\":36");
    exchange("hf", "tokenizer.json", "\"h e\"", "\"i n\"", "\"i n\"", "\"h e\"");

    // A separate template file overrides the other.
    char before[HASH_TEXT], *template = xformat("%s/chat_template.jinja", directory);
    base_hash(before);
    file_write_bytes(template, "<|im_start|>a", 13);
    assert_int_equal(now(before), OTHER);
    base_hash(before);
    file_write_bytes(template, "<|im_start|>b", 13);
    assert_int_equal(now(before), OTHER);
    snprintf(target, sizeof(target), "target.gguf");
    free(template);
    free(directory);
}

// Keys that transformers (4.39 to 5) and training tools add when they save a loaded model.
static void a_resaved_model_is_the_same_cell(void **state)
{
    (void)state;
    static const struct {
        const char *file, *more;
    } saved[] = {
        { "config.json", "\"_name_or_path\":\"a\",\"transformers_version\":\"4.51.3\",\"use_cache\":true,"
                         "\"_attn_implementation_autoset\":true,\"_commit_hash\":null,\"dtype\":\"bfloat16\","
                         "\"transformers.js_config\":{\"dtype\":\"q4\"},\"unsloth_fixed\":true,"
                         "\"unsloth_version\":\"2025.3.19\"" },
        { "generation_config.json", "\"_from_model_config\":true,\"transformers_version\":\"5.0.0\",\"top_p\":0.9" },
        { "tokenizer_config.json", "\"extra_special_tokens\":{},\"backend\":\"tokenizers\",\"is_local\":true,"
                                   "\"tokenizer_file\":null,\"padding_side\":\"right\",\"name_or_path\":\"a\"" },
    };
    struct error err = { "" };
    char before[HASH_TEXT];
    snprintf(target, sizeof(target), "hf");
    base_hash(before);
    for (size_t i = 0; i < sizeof(saved) / sizeof(*saved); i++) {
        char *path = xformat("%s/hf/%s", test_directory(), saved[i].file);
        size_t n;
        char *text = file_text(path, &n, &err), *more = xformat("{%s,%s", saved[i].more, text + 1);
        file_write_bytes(path, more, strlen(more));
        check_outcome(now(before), true, saved[i].file);
        // The order of an object's keys does not matter.
        char *first = xformat("{\"own\":{\"a\":1,\"b\":2},%s", text + 1),
             *last = xformat("%.*s,\"own\":{\"b\":2,\"a\":1}}", (int)(strrchr(text, '}') - text), text);
        char own[HASH_TEXT];
        file_write_bytes(path, first, strlen(first));
        base_hash(own);
        file_write_bytes(path, last, strlen(last));
        check_outcome(now(own), true, saved[i].file);
        file_write_bytes(path, text, n);
        free(first);
        free(last);
        free(more);
        free(text);
        free(path);
    }
    snprintf(target, sizeof(target), "target.gguf");
}

static void every_key_of_a_head_makes_another_cell_or_is_ignored(void **state)
{
    (void)state;
    char *model = test_path("target.gguf"), before[HASH_TEXT];
    struct head_shape s = head_shape_of(model);
    static void (*const write[])(const char *, const struct head_shape *) = { heads_write_eagle, heads_write_eagle3 };
    static const char *const kind[] = { "eagle", "eagle3" };
    for (int i = 0; i < 2; i++) {
        char *head = test_path(kind[i]);
        write[i](head, &s);
        snprintf(drafter, sizeof(drafter), "{kind: %s, weights: %s}", kind[i], kind[i]);
        flip_json(kind[i], "config.json", 1);
        free(head);
    }
    // Nothing of Medusa's config is read; a changed one makes another cell all the same.
    char *head = test_path("medusa");
    heads_write_medusa(head, &s);
    snprintf(drafter, sizeof(drafter), "{kind: medusa, weights: medusa, tree: tree.json}");
    write_file("tree.json", "[[0], [0, 0], [1]]");
    flip_json("medusa", "config.json", 1);
    base_hash(before);
    write_file("tree.json", "[[0], [0, 0], [0, 1]]"); // a draft tree given by file name
    assert_int_equal(now(before), OTHER);
    s.seed++;
    write_file("tree.json", "[[0], [0, 0], [1]]");
    assert_int_equal(now(before), SAME);
    heads_write_medusa(head, &s);
    assert_int_equal(now(before), OTHER);
    snprintf(drafter, sizeof(drafter), "none");
    free(head);
    free(model);
}

// ---- weights

static void poke(const char *path, long at, int with)
{
    int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= (unsigned char)with;
    assert_true(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

static long offset_of_tensor(const char *path, const char *name, size_t *bytes)
{
    struct error err = { "" };
    struct gguf *g = gguf_open(path, &err);
    struct mapping m;
    assert_true(g != NULL && file_map(path, &m, &err));
    const struct gguf_tensor *t = gguf_tensor(g, name);
    long at = -1;
    for (size_t i = 0; at < 0; i++) // two mappings of one file: found by content
        if (memcmp(m.at + i, t->tensor.data, t->bytes) == 0)
            at = (long)i;
    *bytes = t->bytes;
    file_unmap(&m);
    gguf_close(g);
    return at;
}

// One bit anywhere, not only at sampled offsets.
static void every_byte_of_the_weights_counts(void **state)
{
    (void)state;
    char *path = test_path("target.gguf"), before[HASH_TEXT];
    static const char *const names[] = { "token_embd.weight", "blk.1.ffn_down.weight", "blk.2.attn_norm.weight" };
    base_hash(before);
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        const long at = offset_of_tensor(path, names[i], &bytes);
        for (int k = 0; k < 24; k++) {
            const long offset = at + (long)(bytes / 4 * (size_t)k / 24) * 4; // the lowest bits of a float
            poke(path, offset, 1);
            check_outcome(now(before), false, names[i]);
            poke(path, offset, 1);
        }
    }
    assert_int_equal(count[OTHER], 72);
    assert_int_equal(now(before), SAME);
    free(path);
}

// Regression: revision 48af27e did not decode again after such a change.
static void a_model_with_changed_rope_is_another_cell(void **state)
{
    (void)state;
    static const char text[] =
        "name: x\ntarget: {model: patched.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
        "limits: {new_tokens: 8}\n";
    struct small_model t = small_default;
    char *path = test_path("patched.gguf");
    struct store *s = open_store("patched.db");
    small_write_gguf(path, &t);
    run(text, s);
    run(text, s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run"), 1);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), 1);
    t.theta = 500;
    small_write_gguf(path, &t);
    run(text, s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run"), 2);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), 2);
    assert_int_equal(query_first_int(s, "SELECT count(DISTINCT tokens) FROM sequence"), 2);
    assert_int_equal(query_first_int(s, "SELECT count(DISTINCT target_hash) FROM run"), 1);
    store_close(s);
    free(path);
}

// ---- large checkpoints: hashes are cached

enum { LARGE = 80 << 20 };

// A sparse file: a header, then zeros.
static void write_hollow(const char *path, const char *head, off_t bytes)
{
    const uint64_t n = strlen(head);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0 && write(fd, &n, 8) == 8 && write(fd, head, n) == (ssize_t)n);
    assert_int_equal(ftruncate(fd, 8 + (off_t)n + bytes), 0);
    assert_int_equal(close(fd), 0);
}

static void write_large(const char *path)
{
    write_hollow(path, "{\"a\":{\"dtype\":\"F32\",\"shape\":[20971520],\"data_offsets\":[0,83886080]}}", LARGE);
}

static struct hash hash_now(const char *path)
{
    struct error err = { "" };
    struct weights *w = weights_open_files(path, NULL, &err);
    if (w == NULL)
        fail_msg("%s", err.text);
    struct hash h = weights_hash(w);
    weights_close(w);
    return h;
}

// Number of cached hashes; *one: the path of one of them.
static int cached_hashes(char **one)
{
    char line[400];
    int n = 0;
    char *command = xformat("ls -d %s/cache/speclab/weights/* 2>/dev/null", test_directory());
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        free(*one);
        *one = xstrdup(line);
        n++;
    }
    pclose(f);
    free(command);
    return n;
}

// Sets the file's times as if nothing had written to the model for a while.
static void age_file(const char *path)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += 100;
    const struct timespec times[2] = { now, now };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void a_hash_is_cached_until_the_file_changes(void **state)
{
    (void)state;
    char *path = test_path("large.safetensors"), *cache = test_path("cache"), *place = NULL;
    static const char fake[] = "0123456789abcdef0123456789abcdef";
    struct hash fake_hash;
    assert_true(hash_read(fake, 32, &fake_hash));
    setenv("XDG_CACHE_HOME", cache, 1);
    write_large(path);
    const struct hash first = hash_now(path);
    assert_int_equal(cached_hashes(&place), 1);
    assert_true(hash_equal(hash_now(path), first));
    assert_int_equal(cached_hashes(&place), 1);
    file_write_bytes(place, fake, 32);
    age_file(place); // the cached hash is used
    assert_true(hash_equal(hash_now(path), fake_hash));
    file_write_bytes(place, fake, 31); // unless it is not a hash
    age_file(place);
    assert_true(hash_equal(hash_now(path), first));
    assert_true(hash_equal(hash_now(path), first));

    // One changed byte, with the old time restored: another hash.
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    poke(path, 5000003, 1);
    const struct timespec times[2] = { st.st_atim, st.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    const struct hash second = hash_now(path);
    assert_false(hash_equal(first, second));
    assert_int_equal(cached_hashes(&place), 2);
    poke(path, 5000003, 1);
    assert_true(hash_equal(hash_now(path), first));

    // Without a writable cache nothing is cached.
    char *none = test_path("large.safetensors/none");
    setenv("XDG_CACHE_HOME", none, 1);
    assert_true(hash_equal(hash_now(path), first));
    unsetenv("XDG_CACHE_HOME");
    free(none);
    free(place);
    free(cache);
    free(path);
}

// A file's times do not change for a second write within one tick, or through a mapping whose page was dirty already.
static void a_hash_of_a_file_just_written_is_not_cached(void **state)
{
    (void)state;
    char *path = test_path("large.safetensors"), *cache = test_path("cache");
    setenv("XDG_CACHE_HOME", cache, 1);
    write_large(path);
    int fd = open(path, O_RDWR);
    unsigned char *at = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    at[5000003] = 1;
    const struct hash first = hash_now(path);
    at[5000003] = 2;
    assert_false(hash_equal(hash_now(path), first));
    munmap(at, LARGE);
    close(fd);
    unsetenv("XDG_CACHE_HOME");
    free(cache);
    free(path);
}

// Two shards have a tensor of the same name and differ in one byte of it: the index selects one of them.
static void a_hash_is_of_the_tensors_that_the_index_names(void **state)
{
    (void)state;
    static const char index[] =
        "{\"weight_map\":{\"a\":\"1.safetensors\",\"x\":\"%d.safetensors\",\"y\":\"2.safetensors\"}}";
    char *folder = test_path("sharded"), *one = test_path("sharded/1.safetensors"),
         *two = test_path("sharded/2.safetensors"), *map = test_path("sharded/model.safetensors.index.json"),
         *cache = test_path("cache"), *place = NULL;
    struct hash of[2];
    setenv("XDG_CACHE_HOME", cache, 1);
    while (cached_hashes(&place) > 0)
        assert_int_equal(unlink(place), 0);
    assert_int_equal(mkdir(folder, 0777), 0);
    write_hollow(one,
                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                 "\"x\":{\"dtype\":\"F32\",\"shape\":[20971520],\"data_offsets\":[4,83886084]}}",
                 LARGE + 4);
    write_hollow(two,
                 "{\"x\":{\"dtype\":\"F32\",\"shape\":[20971520],\"data_offsets\":[0,83886080]},"
                 "\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[83886080,83886084]}}",
                 LARGE + 4);
    poke(two, 5000003, 1);
    for (int i = 0; i < 2; i++) {
        char *text = xformat(index, i + 1);
        file_write_bytes(map, text, strlen(text));
        of[i] = hash_now(folder);
        free(text);
        assert_int_equal(cached_hashes(&place), i + 1);
        age_file(place);
    }
    assert_false(hash_equal(of[0], of[1]));
    unsetenv("XDG_CACHE_HOME");
    free(place);
    free(folder);
    free(one);
    free(two);
    free(map);
    free(cache);
}

// A second call does not read gigabytes again, whether the hash can be cached or not.
static void an_opened_file_is_hashed_once(void **state)
{
    (void)state;
    struct error err = { "" };
    char *path = test_path("large.safetensors"), *none = test_path("large.safetensors/none");
    setenv("XDG_CACHE_HOME", none, 1);
    write_large(path);
    struct weights *w = weights_open_files(path, NULL, &err);
    assert_non_null(w);
    const struct hash first = weights_hash(w);
    poke(path, 5000003, 1);
    assert_true(hash_equal(weights_hash(w), first));
    weights_close(w);
    assert_false(hash_equal(hash_now(path), first));
    unsetenv("XDG_CACHE_HOME");
    free(none);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_a_gguf_file_makes_another_cell_or_is_ignored),
        cmocka_unit_test(ignored_keys_are_hidden_from_readers),
        cmocka_unit_test(every_key_of_a_directory_makes_another_cell_or_is_ignored),
        cmocka_unit_test(a_resaved_model_is_the_same_cell),
        cmocka_unit_test(every_key_of_a_head_makes_another_cell_or_is_ignored),
        cmocka_unit_test(every_byte_of_the_weights_counts),
        cmocka_unit_test(a_model_with_changed_rope_is_another_cell),
        cmocka_unit_test(a_hash_is_cached_until_the_file_changes),
        cmocka_unit_test(a_hash_of_a_file_just_written_is_not_cached),
        cmocka_unit_test(a_hash_is_of_the_tensors_that_the_index_names),
        cmocka_unit_test(an_opened_file_is_hashed_once),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
