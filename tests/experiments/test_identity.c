// test_identity.c - another GGUF file makes another cell: every key of a file is changed, one at a time, and bits of its weights.
#include "tests/support/tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/files/mapped.h"
#include "tests/formats/gguf_write.h"
#include "models/formats/identity.h"
#include "results/store.h"
#include "tests/experiments/cell_hash.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

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
    assert_ok(w != NULL, err);
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
    assert_ok(gguf_write_end(w, &err), err);
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
    cell_hash_before(before);
    struct gguf *g = gguf_open(whole, &err);
    assert_non_null(g);
    for (size_t i = 0; i < gguf_values(g); i++) {
        char *key = xstrndup(gguf_value_at(g, i)->key.s, gguf_value_at(g, i)->key.n);
        enum outcome found = REFUSED;
        for (size_t k = 0; k < sizeof(ways) / sizeof(*ways) && found == REFUSED; k++) {
            outcomes[REFUSED] -= k > 0;
            struct change c = ways[k];
            c.key = i;
            copy_gguf(whole, path, &c, false);
            found = cell_hash_now(before);
            outcome_check(found, identity_ignores(NULL, key), key);
        }
        free(key);
    }
    copy_gguf(whole, path, &nothing, false);
    assert_int_equal(cell_hash_now(before), SAME); // the content decides, not the file's time
    outcomes[SAME]--;
    assert_int_equal(outcomes[REFUSED] + outcomes[OTHER] + outcomes[SAME], gguf_values(g));
    gguf_close(g);
    free(path);
    free(whole);
}

TEST(every_key_of_a_gguf_file_makes_another_cell_or_is_ignored)
{
    flip_gguf("target.gguf");
    outcomes_print("target, GGUF");
    assert_true(outcomes[OTHER] >= 17 && outcomes[REFUSED] <= 16 && outcomes[SAME] == 5);

    snprintf(cell_drafter, sizeof(cell_drafter), "{kind: small, model: draft.gguf}");
    flip_gguf("draft.gguf");
    outcomes_print("draft model, GGUF");
    assert_true(outcomes[OTHER] >= 17 && outcomes[REFUSED] <= 16 && outcomes[SAME] == 5);

    snprintf(cell_drafter, sizeof(cell_drafter), "none");
}

TEST(ignored_keys_are_hidden_from_readers)
{
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

// ---- weights

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
TEST(every_byte_of_the_weights_counts)
{
    char *path = test_path("target.gguf"), before[HASH_TEXT];
    static const char *const names[] = { "token_embd.weight", "blk.1.ffn_down.weight", "blk.2.attn_norm.weight" };
    cell_hash_before(before);
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        const long at = offset_of_tensor(path, names[i], &bytes);
        for (int k = 0; k < 24; k++) {
            const long offset = at + (long)(bytes / 4 * (size_t)k / 24) * 4; // the lowest bits of a float
            file_flip(path, offset, 1);
            outcome_check(cell_hash_now(before), false, names[i]);
            file_flip(path, offset, 1);
        }
    }
    assert_int_equal(outcomes[OTHER], 72);
    assert_int_equal(cell_hash_now(before), SAME);
    free(path);
}

RUN_TESTS(make_files, test_directory_tear_down)
