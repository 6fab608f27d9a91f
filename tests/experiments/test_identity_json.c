// test_identity_json.c - another configuration, tokenizer, template or draft tree makes another cell: every key of every JSON file of a
// checkpoint or head is changed, one at a time, as text and independently of core/json.c.
#include "tests/support/tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/files/input.h"
#include "models/formats/identity.h"
#include "tests/experiments/cell_hash.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/file_write.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"

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
    cell_hash_before(before);
    while (next_scalar(text, &at, &depth, &v)) {
        if (number++ % every != 0)
            continue;
        char *old = xstrndup(text + v.at, v.n), *new = changed(old);
        char *all = xformat("%.*s%s%s", (int)v.at, text, new, text + v.at + v.n);
        char *what = xformat("%s: %s in place of %s, in %s", name, new, old, v.top);
        file_write_bytes(path, all, strlen(all));
        outcome_check(cell_hash_now(before), identity_ignores(name, v.top), what);
        free(what);
        free(all);
        free(new);
        free(old);
    }
    assert_int_equal(outcomes[REFUSED] + outcomes[OTHER] + outcomes[SAME], (number + every - 1) / every);
    // an unknown key
    char *more = xformat("{\"unknown_key\":1,%s", text + 1);
    file_write_bytes(path, more, strlen(more));
    assert_int_equal(cell_hash_now(before), OTHER);
    free(more);
    file_write_bytes(path, text, n);
    assert_int_equal(cell_hash_now(before), SAME);
    outcomes[SAME]--;
    free(text);
    free(path);
    char *where = xformat("%s/%s", folder, name);
    outcomes_print(where);
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
    cell_hash_before(before);
    file_write_bytes(path, new, n);
    assert_int_equal(cell_hash_now(before), OTHER);
    file_write_bytes(path, text, n);
    free(text);
    free(new);
    free(path);
}

TEST(every_key_of_a_directory_makes_another_cell_or_is_ignored)
{
    char *directory = test_path("hf");
    struct small_model t = small_default;
    t.rope = ROPE_LLAMA3;
    t.factor = 8;
    t.low = 1;
    t.high = 4;
    t.original = 128;
    small_write_hf(directory, &t);
    snprintf(cell_target, sizeof(cell_target), "hf");
    flip_json("hf", "config.json", 1);
    assert_true(outcomes[OTHER] >= 10 && outcomes[SAME] == 1);

    flip_json("hf", "generation_config.json", 1);
    assert_true(outcomes[OTHER] >= 1);
    flip_json("hf", "tokenizer_config.json", 1);
    assert_true(outcomes[OTHER] >= 4 && outcomes[SAME] == 1);
    flip_json("hf", "tokenizer.json", 5);
    assert_true(outcomes[OTHER] >= 6 && outcomes[SAME] == 1); // most changed ids and merges are refused as duplicates
    exchange("hf", "tokenizer.json", "\"!\":36", "\"!\":37", "\"\\\"\":37", "\"\\\"\":36");
    exchange("hf", "tokenizer.json", "\"h e\"", "\"i n\"", "\"i n\"", "\"h e\"");

    // A separate template file overrides the other.
    char before[HASH_TEXT], *template = xformat("%s/chat_template.jinja", directory);
    cell_hash_before(before);
    file_write_bytes(template, "<|im_start|>a", 13);
    assert_int_equal(cell_hash_now(before), OTHER);
    cell_hash_before(before);
    file_write_bytes(template, "<|im_start|>b", 13);
    assert_int_equal(cell_hash_now(before), OTHER);
    snprintf(cell_target, sizeof(cell_target), "target.gguf");
    free(template);
    free(directory);
}

// Keys that transformers (4.39 to 5) and training tools add when they save a loaded model.
TEST(a_resaved_model_is_the_same_cell)
{
    static const struct {
        const char *file, *more;
    } saved[] = {
        { "config.json", "\"_name_or_path\":\"a\",\"transformers_version\":\"4.51.3\",\"use_cache\":true,"
                         "\"_attn_implementation_autoset\":true,\"_commit_hash\":null,\"dtype\":\"bfloat16\","
                         "\"transformers.js_config\":{\"dtype\":\"q4\"},\"unsloth_fixed\":true,"
                         "\"unsloth_version\":\"2025.3.19\",\"pretraining_tp\":2,\"resid_pdrop\":0.1,"
                         "\"output_router_logits\":true" },
        { "generation_config.json", "\"_from_model_config\":true,\"transformers_version\":\"5.0.0\",\"top_p\":0.9" },
        { "tokenizer_config.json", "\"extra_special_tokens\":{},\"backend\":\"tokenizers\",\"is_local\":true,"
                                   "\"tokenizer_file\":null,\"padding_side\":\"right\",\"name_or_path\":\"a\"" },
    };
    struct error err = { "" };
    char before[HASH_TEXT];
    snprintf(cell_target, sizeof(cell_target), "hf");
    cell_hash_before(before);
    for (size_t i = 0; i < sizeof(saved) / sizeof(*saved); i++) {
        char *path = xformat("%s/hf/%s", test_directory(), saved[i].file);
        size_t n;
        char *text = file_text(path, &n, &err), *more = xformat("{%s,%s", saved[i].more, text + 1);
        file_write_bytes(path, more, strlen(more));
        outcome_check(cell_hash_now(before), true, saved[i].file);
        // The order of an object's keys does not matter.
        char *first = xformat("{\"own\":{\"a\":1,\"b\":2},%s", text + 1),
             *last = xformat("%.*s,\"own\":{\"b\":2,\"a\":1}}", (int)(strrchr(text, '}') - text), text);
        char own[HASH_TEXT];
        file_write_bytes(path, first, strlen(first));
        cell_hash_before(own);
        file_write_bytes(path, last, strlen(last));
        outcome_check(cell_hash_now(own), true, saved[i].file);
        file_write_bytes(path, text, n);
        free(first);
        free(last);
        free(more);
        free(text);
        free(path);
    }
    snprintf(cell_target, sizeof(cell_target), "target.gguf");
}

TEST(every_key_of_a_head_makes_another_cell_or_is_ignored)
{
    char *model = test_path("target.gguf"), before[HASH_TEXT];
    struct head_shape s = head_shape_of(model);
    static void (*const write[])(const char *, const struct head_shape *) = { heads_write_eagle, heads_write_eagle3 };
    static const char *const kind[] = { "eagle", "eagle3" };
    for (int i = 0; i < 2; i++) {
        char *head = test_path(kind[i]);
        write[i](head, &s);
        snprintf(cell_drafter, sizeof(cell_drafter), "{kind: %s, weights: %s}", kind[i], kind[i]);
        flip_json(kind[i], "config.json", 1);
        free(head);
    }
    // Nothing of Medusa's config is read; a changed one makes another cell all the same.
    char *head = test_path("medusa");
    heads_write_medusa(head, &s);
    snprintf(cell_drafter, sizeof(cell_drafter), "{kind: medusa, weights: medusa, tree: tree.json}");
    write_file("tree.json", "[[0], [0, 0], [1]]");
    flip_json("medusa", "config.json", 1);
    cell_hash_before(before);
    write_file("tree.json", "[[0], [0, 0], [0, 1]]"); // a draft tree given by file name
    assert_int_equal(cell_hash_now(before), OTHER);
    s.seed++;
    write_file("tree.json", "[[0], [0, 0], [1]]");
    assert_int_equal(cell_hash_now(before), SAME);
    heads_write_medusa(head, &s);
    assert_int_equal(cell_hash_now(before), OTHER);
    snprintf(cell_drafter, sizeof(cell_drafter), "none");
    free(head);
    free(model);
}

RUN_TESTS(make_files, test_directory_tear_down)
