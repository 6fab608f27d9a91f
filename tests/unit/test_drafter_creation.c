// test_drafter_creation.c - creating drafters: reported and actual memory, release of memory, errors, resolved defaults.
//
// The CPU backend is wrapped by one that records allocations until they are released and can refuse any one of them.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "drafters/trees/draft_batch.h"
#include "drafters/trees/tree.h"
#include "kernels/backend.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/support/tests.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/file_write.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { SLOTS = 3, LENGTH = 70, MAX_HELD = 400 };

static struct {
    struct backend real;
    struct {
        void *data;
        size_t bytes;
    } held[MAX_HELD];
    size_t bytes, packed;       // currently held; of matrices, in the size of their files
    int n, allocations, refuse; // refuse: number of the allocation that fails, from 0
} book;

static struct backend real; // the table of the CPU backend

static void *book_alloc(struct backend *b, size_t bytes)
{
    if (book.allocations++ == book.refuse)
        return NULL;
    assert_true(book.n < MAX_HELD);
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

static struct pair *target; // with everything that a drafter borrows; its own drafter is `none`

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

// line: as from pair_drafter(); path replaces its %s.
static struct drafter *create(const char *line, const char *path, const struct drafter_env *env, struct error *err)
{
    char *text = pair_line(line, path);
    *err = (struct error){ "" };
    struct drafter *d = lone_drafter(text, env, err);
    free(text);
    return d;
}

static bool has(const char *drafter, const char *option)
{
    return strstr(drafter, option) != NULL;
}

// ---- memory

// Memory that is not counted: the frequencies of rope, for each cache.
static size_t uncounted(const char *drafter)
{
    size_t caches = pair_declares(drafter, "cache");
    if (pair_is_of_drafters(drafter))
        for (const char *at = drafter; (at = strstr(at, "kind: ")) != NULL; at++)
            caches += strncmp(at + 6, "small", 5) == 0 || strncmp(at + 6, "eagle", 5) == 0;
    return caches * (size_t)small_default.head_dim / 2 * sizeof(float);
}

TEST(a_drafter_reports_the_memory_it_takes)
{
    const struct drafter_env env = usual_env();
    for (int i = 0; i < pair_count(); i++) {
        const char *drafter = pair_drafter(i);
        struct error err;
        book_open(target->backend);
        struct drafter *d = create(drafter, pair_draft, &env, &err);
        assert_non_null(d);
        if (d->bytes + uncounted(drafter) != book.bytes + book.packed)
            fail_msg("%s: reports %zu bytes (and %zu that are not counted), allocated %zu", drafter, d->bytes,
                     uncounted(drafter), book.bytes + book.packed);
        // One row of q per node, of the target's vocabulary.
        const bool reads = has(drafter, "%s") && !has(drafter, "store"),
                   rows = reads && !has(drafter, "greedy") && !has(drafter, "blockwise"); // of weights
        const size_t q = (size_t)SLOTS * (size_t)d->nodes * (size_t)small_default.vocab * sizeof(float);
        if (!pair_is_of_drafters(drafter) && !pair_uses_target(drafter)) // the sum of its drafters'; other memory
            assert_int_equal(d->host_bytes, rows ? q : 0);
        assert_true((d->bytes > 0) == reads || pair_uses_target(drafter));
        drafter_destroy(d);
        assert_int_equal(book.bytes + book.packed, 0);
        book_close(target->backend);
    }
}

// ---- the environment

// A drafter, as somebody might write one, that keeps the pointer to its environment.
struct keeper {
    struct drafter drafter; // first
    const struct drafter_env *env;
};

static struct drafter *keeper_create(const struct drafter_env *env, const void *options, struct error *err)
{
    struct keeper *g = xcalloc(1, sizeof(*g));
    g->env = env;
    g->drafter.nodes = 2;
    return &g->drafter;
}

static bool keeper_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    const struct drafter_env *env = ((const struct keeper *)d)->env;
    assert_true(env->slots == SLOTS && env->length == LENGTH && env->target == target->target);
    assert_string_equal(env->beside, "folder");
    for (int i = 0; i < n; i++)
        draft_add(r[i].draft, 0, env->used_vocab - 1, DETERMINISTIC);
    return true;
}

static void keeper_destroy(struct drafter *d)
{
    assert_string_equal(((struct keeper *)d)->env->beside, "folder");
    free(d);
}

TEST(an_environment_lives_as_long_as_its_drafter)
{
    static const struct drafter_type type = {
        .name = "keeper", .create = keeper_create, .propose = keeper_propose, .destroy = keeper_destroy
    };
    struct error err;
    struct drafter_env *env = xmalloc(sizeof(*env));
    char *folder = xstrdup("folder");
    *env = usual_env();
    env->beside = folder;
    const int last = env->used_vocab - 1;
    struct drafter *d = drafter_create(&type, env, NULL, &err);
    memset(env, 0x5a, sizeof(*env));
    memset(folder, 'x', strlen(folder));
    free(env);
    free(folder);
    struct own_draft own;
    struct request r = { .draft = own_draft_begin(&own, 1, 2), .depth = 1 };
    assert_true(d->type->propose(d, &r, 1, &err));
    assert_true(own.draft.n == 2 && own.token[1] == last);
    drafter_destroy(d);
}

TEST(a_failed_allocation_is_an_error_and_everything_is_released)
{
    static const char *const drafters[] = {
        "small:model=%s,tokens=2",
        "medusa:weights=%s.medusa,tokens=3",
        "eagle:weights=%s.eagle,tree=eagle_25,pick=greedy",
        "eagle3:weights=%s.eagle3,tokens=3",
        "ladder:of=[{kind: eagle3, weights: %s.eagle3},ngram,{kind: medusa, weights: %s.medusa, tokens: 2}]",
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
                fail_msg("%s: created without allocation %d of %d", drafters[i], refused, book.allocations);
            if (!made && !has(err.text, "not enough memory"))
                fail_msg("%s without allocation %d: \"%s\"", drafters[i], refused, err.text);
            drafter_destroy(d);
            if (book.bytes + book.packed > 0)
                fail_msg("%s without allocation %d: %zu bytes are never released", drafters[i], refused,
                         book.bytes + book.packed);
            book_close(target->backend);
        }
        assert_true(refused > 4);
    }
}

// ---- top k

// k is the width of the widest family plus the number of padding ids, of which at most 16 count, and at most the vocabulary
// size: a device takes time for each.
TEST(top_k_is_no_larger_than_needed)
{
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

static void expect_refusal(const char *line, const char *path, const struct drafter_env *env, const char *message)
{
    struct error err;
    struct drafter *d = create(line, path, env, &err);
    if (d != NULL || !has(err.text, message))
        fail_msg("%s: \"%s\", expected \"%s\"", line, d != NULL ? "" : err.text, message);
}

// Heads read the target's hidden states in its device's memory. A draft model needs none.
TEST(weights_must_exist_and_heads_be_on_the_targets_device)
{
    static const char *const heads[] = { "medusa", "eagle", "eagle3" };
    struct error err;
    struct drafter_env env = usual_env();
    expect_refusal("small:model=%s", "/nowhere/draft", &env, "/nowhere/draft");
    env.backend = backend_cpu(1, &err);
    assert_non_null(env.backend);
    for (int i = 0; i < 3; i++) {
        char *line = xformat("%s:weights=%%s", heads[i]), *made = xformat("%s.%s", line, heads[i]),
             *named = xformat("drafter %s: its head", heads[i]);
        const struct drafter_env usual = usual_env();
        expect_refusal(line, "/nowhere/heads", &usual, "/nowhere/heads");
        expect_refusal(made, pair_draft, &env, named);
        expect_refusal(made, pair_draft, &env, "must be on the target's device");
        free(line);
        free(made);
        free(named);
    }
    struct drafter *d = create("small:model=%s", pair_draft, &env, &err);
    assert_non_null(d);
    drafter_destroy(d);
    env.backend->destroy(env.backend);
}

// Without a tokenizer the vocabularies of draft model and target must have the same size. The context must hold the texts.
TEST(a_draft_model_must_fit_the_target)
{
    struct error err;
    struct drafter_env env = usual_env();
    struct small_model other = small_default;
    char *path = test_path("other.gguf");
    other.layers = 1;
    other.context = LENGTH - 1;
    small_write_gguf(path, &other);
    expect_refusal("small:model=%s", path, &env,
                   "other.gguf has a context of 69 tokens; 70 are needed (limits: context)");
    env.tokenizer = NULL;
    other.context = LENGTH;
    small_write_gguf(path, &other);
    assert_int_not_equal(model_shape(env.target)->vocab, model_shape(env.target)->context);
    struct drafter *d = create("small:model=%s", path, &env, &err);
    assert_ok(d != NULL, err);
    drafter_destroy(d);
    other.vocab -= 8;
    small_write_gguf(path, &other);
    expect_refusal("small:model=%s", path, &env, "the target has 288 ids, the draft model 280");
    free(path);
    // A tokenizer that cannot be read is not one that is missing.
    env = usual_env();
    char *folder = test_path("other"), *file = test_path("other/tokenizer.json");
    other = small_default;
    other.layers = 1;
    other.context = LENGTH;
    small_write_hf(folder, &other);
    file_write(file, "{\"model\": 5}");
    static const char *const ways[] = { "same", "common", "retokenize" };
    for (int i = 0; i < 3; i++) {
        char *drafter = xformat("small:model=%%s,vocabulary=%s", ways[i]);
        expect_refusal(drafter, folder, &env, "other/tokenizer.json: not a tokenizer.json (no model)");
        free(drafter);
    }
    free(folder);
    free(file);
}

// ---- defaults

TEST(defaults_are_resolved_and_trees_written_out)
{
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
        assert_true((activations != NULL) == pair_declares(drafter, "activations"));
        assert_true((cache != NULL) == pair_declares(drafter, "cache"));
        assert_true((tree != NULL) == (name != NULL) || pair_declares(drafter, "past")); // its tree has a default
        if (activations != NULL)
            assert_string_equal(activations->text, "f32");
        if (cache != NULL)
            assert_string_equal(cache->text, "f32");
        if (tree != NULL && name != NULL) {
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

RUN_TESTS(open_target, close_target)
