// test_drafter_creation.c - drafters as they are created: what memory they say they take and what they do take, what they give back,
// what they are refused for, and what became of their defaults.
//
// A backend that keeps books stands between the drafter and the CPU: what is allocated is in them until it is released, and one
// allocation of all can be refused.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "drafters/draft_batch.h"
#include "drafters/tree.h"
#include "kernels/backend.h"
#include "tokenizers/tokenizer.h"
#include "tests/support/check.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { SLOTS = 3, LENGTH = 70, MOST = 400 };

static struct {
    struct backend real;
    struct {
        void *data;
        size_t bytes;
    } held[MOST];
    size_t bytes, packed;       // held now; of matrices, as their files have them
    int n, allocations, refuse; // refuse: the allocation of this number, from 0
} book;

static struct backend real; // as it was opened

static void *book_alloc(struct backend *b, size_t bytes)
{
    if (book.allocations++ == book.refuse)
        return NULL;
    assert_true(book.n < MOST);
    book.held[book.n].data = book.real.alloc(b, bytes);
    book.held[book.n].bytes = bytes;
    book.bytes += bytes;
    return book.held[book.n++].data;
}

static void book_release(struct backend *b, void *data)
{
    for (int i = 0; data != NULL && i < book.n; i++)
        if (book.held[i].data == data) {
            book.bytes -= book.held[i].bytes;
            book.held[i] = book.held[--book.n];
            break;
        }
    book.real.release(b, data);
}

static struct tensor book_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err)
{
    book.packed += tensor_bytes(w);
    return book.real.prepare(b, w, a, err);
}

static void book_unprepare(struct backend *b, struct tensor w)
{
    book.packed -= tensor_bytes(w);
    book.real.unprepare(b, w);
}

static void book_open(struct backend *b)
{
    memset(&book, 0, sizeof(book));
    book.refuse = -1;
    book.real = real;
    b->alloc = book_alloc;
    b->release = book_release;
    b->prepare = book_prepare;
    b->unprepare = book_unprepare;
}

static void book_close(struct backend *b)
{
    b->alloc = real.alloc;
    b->release = real.release;
    b->prepare = real.prepare;
    b->unprepare = real.unprepare;
}

// ---- drafters

static struct pair *target; // and what a drafter borrows of it; its own drafter is `none`

static int open_target(void **state)
{
    if (pair_models_make(state) != 0)
        return -1;
    target = pair_open(pair_target, pair_draft, "none", "{temperature: 1}", rule_named("rejection"), SLOTS, LENGTH);
    real = *target->backend;
    return 0;
}

static int close_target(void **state)
{
    pair_close(target);
    return pair_models_remove(state);
}

static struct drafter_env usual_env(void)
{
    return (struct drafter_env){ .backend = target->backend,
                                 .target_backend = target->backend,
                                 .target = target->target,
                                 .tokenizer = target->tokenizer,
                                 .sampling = &target->sampling,
                                 .slots = SLOTS,
                                 .length = LENGTH,
                                 .used_vocab = tokenizer_size(target->tokenizer) };
}

// line: as pair_drafter's, with a path for its hole.
static struct drafter *create(const char *line, const char *path, const struct drafter_env *env, struct error *err)
{
    const char *hole = strstr(line, "%s");
    char *text = hole != NULL ? xformat("%.*s%s%s", (int)(hole - line), line, path, hole + 2) : xstrdup(line);
    struct settings *s = settings_inline(text, "drafter", err);
    assert_non_null(s);
    const struct drafter_type *type = drafter_named(settings_get(s, "kind")->text);
    void *options = xcalloc(1, type->options_size + 1);
    assert_true(type->options == NULL || options_read(s, "drafter", type->options, options, err));
    *err = (struct error){ "" };
    struct drafter *d = drafter_create(type, env, options, err);
    // What is in its options it may borrow no longer than this.
    if (type->options != NULL)
        options_free(type->options, options);
    free(options);
    settings_free(s);
    free(text);
    return d;
}

static bool is(const char *drafter, const char *kind)
{
    return strncmp(drafter, kind, strlen(kind)) == 0;
}

static bool has(const char *drafter, const char *option)
{
    return strstr(drafter, option) != NULL;
}

// ---- memory

// What is not counted: frequencies of rope.
static size_t uncounted(const char *drafter)
{
    return is(drafter, "small") || is(drafter, "eagle") ? (size_t)tiny_usual.head_dim / 2 * sizeof(float) : 0;
}

static void a_drafter_says_what_memory_it_takes(void **unused)
{
    (void)unused;
    const struct drafter_env env = usual_env();
    for (int i = 0; i < pair_count(); i++) {
        const char *drafter = pair_drafter(i);
        struct error err;
        book_open(target->backend);
        struct drafter *d = create(drafter, pair_draft, &env, &err);
        assert_non_null(d);
        if (d->bytes + uncounted(drafter) != book.bytes + book.packed)
            fail_msg("%s: it says %zu bytes and %zu that are not counted, and took %zu", drafter, d->bytes,
                     uncounted(drafter), book.bytes + book.packed);
        // Rows of q, one after each node: as long as the target's.
        const bool reads = !is(drafter, "n"), rows = reads && !has(drafter, "greedy");
        const size_t q = (size_t)SLOTS * (size_t)d->nodes * (size_t)tiny_usual.vocab * sizeof(float);
        assert_int_equal(d->host_bytes, rows ? q : 0);
        assert_true((d->bytes > 0) == reads);
        drafter_destroy(d);
        assert_int_equal(book.bytes + book.packed, 0);
        book_close(target->backend);
    }
}

static void what_finds_no_room_is_an_error_and_gives_back_what_it_took(void **unused)
{
    (void)unused;
    static const char *const drafters[] = {
        "small:model=%s,tokens=2",
        "medusa:weights=%s.medusa,tokens=3",
        "eagle:weights=%s.eagle,tree=eagle_25,pick=greedy",
        "eagle3:weights=%s.eagle3,tokens=3",
    };
    const struct drafter_env env = usual_env();
    for (size_t i = 0; i < sizeof(drafters) / sizeof(*drafters); i++) {
        int refused = 0;
        for (bool made = false; !made; refused++) {
            struct error err;
            book_open(target->backend);
            book.refuse = refused;
            struct drafter *d = create(drafters[i], pair_draft, &env, &err);
            made = d != NULL;
            if (made != (book.allocations <= refused))
                fail_msg("%s: it was made without allocation %d of %d", drafters[i], refused, book.allocations);
            if (!made && !has(err.text, "no room"))
                fail_msg("%s without allocation %d: \"%s\"", drafters[i], refused, err.text);
            drafter_destroy(d);
            if (book.bytes + book.packed > 0)
                fail_msg("%s without allocation %d: %zu bytes are never given back", drafters[i], refused,
                         book.bytes + book.packed);
            book_close(target->backend);
        }
        assert_true(refused > 4);
    }
}

// ---- the likeliest tokens

// As many as the widest family has, and as many more as may be no tokens, but at most 16, and not more than there are ids: each
// costs a device its time.
static void no_more_likeliest_tokens_are_asked_for_than_may_be_wanted(void **unused)
{
    (void)unused;
    enum { IDS = 60 };
    static int32_t every_fourth[IDS];
    static const struct {
        int vocab, used_vocab, k;
        bool own_ids;
    } cases[] = {
        { 288, 288, 5, false },  { 288, 287, 6, false },  { 288, 280, 13, false },
        { 288, 272, 21, false }, { 288, 200, 21, false }, { 6, 3, 6, false },
        { IDS, 240, 5, true },   { IDS, 236, 6, true },   { IDS, 229, 7, true },
    };
    const struct drafter_env env = usual_env();
    const struct tree_options o = { .widths = { 2, { 2, 5 } }, .pick = PICK_GREEDY };
    struct tree_shape shape;
    struct error err;
    assert_true(tree_shape(&shape, &o, "test", NULL, &err));
    for (int x = 0; x < IDS; x++)
        every_fourth[x] = 4 * x;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct draft_batch g;
        assert_true(draft_batch_create(&g, &shape, &env, cases[i].vocab, cases[i].own_ids ? every_fourth : NULL,
                                       cases[i].used_vocab, &err));
        assert_int_equal(g.k, cases[i].k);
        draft_batch_destroy(&g);
    }
}

// ---- what is refused

static void refused(const char *line, const char *path, const struct drafter_env *env, const char *says)
{
    struct error err;
    struct drafter *d = create(line, path, env, &err);
    if (d != NULL || !has(err.text, says))
        fail_msg("%s: \"%s\", not \"%s\"", line, d != NULL ? "" : err.text, says);
}

static void weights_that_are_not_there_are_an_error(void **unused)
{
    (void)unused;
    const struct drafter_env env = usual_env();
    refused("small:model=%s", "/nowhere/draft", &env, "/nowhere/draft");
    refused("medusa:weights=%s", "/nowhere/heads", &env, "/nowhere/heads");
    refused("eagle:weights=%s", "/nowhere/heads", &env, "/nowhere/heads");
    refused("eagle3:weights=%s", "/nowhere/heads", &env, "/nowhere/heads");
}

// They read its states where they are. A model of its own needs none of them.
static void a_head_is_on_the_targets_device(void **unused)
{
    (void)unused;
    struct error err;
    struct drafter_env env = usual_env();
    env.backend = backend_cpu(1, &err);
    assert_non_null(env.backend);
    refused("medusa:weights=%s.medusa,tokens=3", pair_draft, &env,
            "drafter medusa: its heads read the target's states, and must be on the target's device");
    refused("eagle:weights=%s.eagle", pair_draft, &env,
            "drafter eagle: its head reads the target's states, and must be on the target's device");
    refused("eagle3:weights=%s.eagle3", pair_draft, &env,
            "drafter eagle3: its head reads the target's states, and must be on the target's device");
    struct drafter *d = create("small:model=%s", pair_draft, &env, &err);
    assert_non_null(d);
    drafter_destroy(d);
    env.backend->destroy(env.backend);
}

// Without a tokenizer a draft model's vocabulary is the target's if it is as large. Its context is as long as the texts.
static void a_draft_model_fits_the_target(void **unused)
{
    (void)unused;
    struct error err;
    struct drafter_env env = usual_env();
    struct tiny other = tiny_usual;
    char *path = tiny_path("other.gguf");
    other.layers = 1;
    other.context = LENGTH - 1;
    tiny_write_gguf(path, &other);
    refused("small:model=%s", path, &env, "other.gguf has a context of 69 tokens; 70 are asked for (limits: context)");
    env.tokenizer = NULL;
    other.context = LENGTH;
    tiny_write_gguf(path, &other);
    assert_int_not_equal(model_shape(env.target)->vocab, model_shape(env.target)->context);
    struct drafter *d = create("small:model=%s", path, &env, &err);
    if (d == NULL)
        fail_msg("%s", err.text);
    drafter_destroy(d);
    other.vocab -= 8;
    tiny_write_gguf(path, &other);
    refused("small:model=%s", path, &env,
            "other.gguf has another vocabulary than the target: without a tokenizer to compare by, both must have as "
            "many ids; the target has 288 and it 280");
    free(path);
}

static void options_of_a_lookup_fit_together(void **unused)
{
    (void)unused;
    const struct drafter_env env = usual_env();
    struct error err;
    refused("ngram:longest=2,shortest=3", "", &env, "drafter ngram: shortest (3) is more than longest (2)");
    struct drafter *d = create("ngram:longest=3,shortest=3", "", &env, &err);
    assert_non_null(d);
    drafter_destroy(d);
}

// ---- defaults

static void presets_are_settled_and_trees_written_out(void **unused)
{
    (void)unused;
    const struct drafter_env env = usual_env();
    for (int i = 0; i < pair_count(); i++) {
        const char *drafter = pair_drafter(i), *name = strstr(drafter, "tree=");
        struct error err;
        struct settings *s = settings_inline("any", "drafter", &err);
        struct drafter *d = create(drafter, pair_draft, &env, &err);
        assert_true(s != NULL && d != NULL);
        drafter_resolve(d, s);
        const struct settings *activations = settings_get(s, "activations"), *cache = settings_get(s, "cache"),
                              *tree = settings_get(s, "tree");
        assert_true((activations != NULL) == !is(drafter, "n"));
        assert_true((cache != NULL) == (is(drafter, "small") || is(drafter, "eagle")));
        assert_true((tree != NULL) == (name != NULL));
        if (activations != NULL)
            assert_string_equal(activations->text, "f32");
        if (cache != NULL)
            assert_string_equal(cache->text, "f32");
        if (tree != NULL) {
            static struct tree t;
            char *published = xstrndup(name + 5, strcspn(name + 5, ","));
            assert_true(tree_read(published, NULL, &t, &err));
            char *written = tree_write(&t);
            assert_string_equal(tree->text, written);
            free(written);
            free(published);
        }
        settings_free(s);
        drafter_destroy(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drafter_says_what_memory_it_takes),
        cmocka_unit_test(what_finds_no_room_is_an_error_and_gives_back_what_it_took),
        cmocka_unit_test(no_more_likeliest_tokens_are_asked_for_than_may_be_wanted),
        cmocka_unit_test(weights_that_are_not_there_are_an_error),
        cmocka_unit_test(a_head_is_on_the_targets_device),
        cmocka_unit_test(a_draft_model_fits_the_target),
        cmocka_unit_test(options_of_a_lookup_fit_together),
        cmocka_unit_test(presets_are_settled_and_trees_written_out),
    };
    return cmocka_run_group_tests(tests, open_target, close_target);
}
