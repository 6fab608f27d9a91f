// test_family_pairs.c - every family with every kind of head and draft model: a chat prompt decoded end to end gives the greedy text of drafter
// `none`, where draft tokens are refused, where they are accepted, and behind the windows of caches that keep them only.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "engine/speclab.h"
#include "kernels/backend.h"
#include "models/architectures.h"
#include "tests/device/emulated.h"
#include "tests/device/host_memory_device.h"
#include "tests/models/golden_model.h"
#include "tests/support/tests.h"
#include "tests/support/decode_prompts.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"
#include "verifier/target_cache.h"
#include "verifier/verifier.h"

enum { MOST = 1200, TOKENS = 40, LONG = 1150, LONG_LENGTH = 1250, EMULATED = 12 };

// One model for each row of the table, besides small_default for Llama's.
static const char *const names[] = { "mistral-window", "ministral", "ministral3",     "mixtral-one",  "qwen2-window",
                                     "qwen3-heads",    "gemma2",    "qwen3moe-mixed", "gemma3-types", "olmo2",
                                     "granite",        "phi3",      "smollm3-window", "mistral3",     "gemma3-images" };
enum { FAMILIES = 1 + sizeof(names) / sizeof(*names) };

// %s: the target. Those of the target itself as its draft model, and of the oracle, accept.
static const struct {
    const char *drafter;
    bool accepts;
} drafters[] = {
    { "ngram:longest=2,tokens=3", false },
    { "medusa:weights=%s.medusa,tokens=3", false },
    { "medusa:weights=%s.medusa,widths=[2,2,1],pick=greedy", false },
    { "blockwise:weights=%s.medusa", false },
    { "eagle:weights=%s.eagle,tokens=3", false },
    { "eagle:weights=%s.eagle,nodes=12,top=4,tokens=4,pick=greedy", false },
    { "eagle3:weights=%s.eagle3,tokens=3", false },
    { "eagle3:weights=%s.eagle3,nodes=12,top=4,tokens=4,pick=greedy", false },
    { "small:model=%s.small,tokens=3", false },
    { "early_exit:exit_layer=1,nodes=9,top=3,tokens=4,pick=greedy", false },
    { "layer_skip:keep=0,tokens=3", false },
    { "small:model=%s,tokens=4", true },
    { "small:model=%s,widths=[3,2,1],pick=greedy", true },
    { "small:model=%s,nodes=9,top=3,tokens=4,pick=greedy", true },
    { "oracle:tokens=3,wrong=[0.5, 0.1]", true },
    { "union:of=[{kind: medusa, weights: %s.medusa, tokens: 3, pick: greedy},{kind: small, model: %s, widths: [3, 2, 1], pick: greedy}]",
      true },
};
enum { DRAFTERS = sizeof(drafters) / sizeof(*drafters) };

struct decoded {
    int32_t token[MOST];
    int n, accepted, steps;
};

static char *family[FAMILIES]; // paths
static struct speclab_tokens prompt[FAMILIES];

// ---- the pairs

static void write_heads(const char *target)
{
    static const struct {
        const char *name;
        void (*write)(const char *, const struct head_shape *);
    } kinds[] = { { "medusa", heads_write_medusa }, { "eagle", heads_write_eagle }, { "eagle3", heads_write_eagle3 } };
    const struct head_shape s = head_shape_of(target);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char *directory = xformat("%s.%s", target, kinds[i].name);
        kinds[i].write(directory, &s);
        free(directory);
    }
    struct small_model draft = small_default;
    draft.layers = 1;
    draft.context = CHAT_CONTEXT;
    char *small = xformat("%s.small", target);
    small_write_hf(small, &draft);
    free(small);
}

static struct speclab_target *opened(int f)
{
    struct speclab_error error;
    const struct speclab_target_options o = { .threads = 1, .activations = "f32" };
    struct speclab_target *t = speclab_target_open(family[f], &o, &error);
    assert_ok(t != NULL, error);
    return t;
}

static int set_up(void **unused)
{
    size_t n;
    struct json **models = golden_models(&n);
    small_write_hf(family[0] = test_path("llama-chat"), &small_default);
    for (int f = 1; f < FAMILIES; f++)
        for (size_t i = 0; i < n; i++)
            if (strcmp(json_text(json_get(models[i], "name")), names[f - 1]) == 0)
                family[f] = golden_model_write_chat(models[i]);
    golden_models_free(models, n);
    for (int f = 0; f < FAMILIES; f++) {
        static const struct speclab_message message = { "user", "Hi" };
        struct speclab_error error;
        write_heads(family[f]);
        struct speclab_target *t = opened(f);
        assert_ok(speclab_encode_chat(t, &message, 1, &prompt[f], &error), error);
        assert_true(prompt[f].n > 8 && prompt[f].n < 64 - TOKENS);
        speclab_target_close(t);
    }
    return 0;
}

static int tear_down(void **state)
{
    for (int f = 0; f < FAMILIES; f++) {
        free(family[f]);
        free(prompt[f].id);
    }
    return test_directory_tear_down(state);
}

static void on_step(void *self, const struct speclab_step *s)
{
    struct decoded *to = self;
    to->accepted += s->accepted;
    to->steps++;
}

static void on_end(void *self, const struct speclab_end *e)
{
    struct decoded *to = self;
    assert_true(e->n <= MOST);
    memcpy(to->token, e->token, (size_t)e->n * sizeof(int32_t));
    to->n = e->n;
    assert_non_null(e->text);
}

static struct decoded *decode(struct speclab_target *t, int f, const char *drafter, int length, int tokens)
{
    struct speclab_error error;
    struct decoded *to = xcalloc(1, sizeof(*to));
    char *line = pair_line(drafter, family[f]);
    const struct speclab_decoder_options o = {
        .drafter = line, .sampling = "temperature=0", .length = length, .listener = { on_step, on_end, to }
    };
    const struct speclab_request r = {
        .prompt = prompt[f].id, .n = (int)prompt[f].n, .max_tokens = tokens, .ignore_end = true
    };
    struct speclab_decoder *d = speclab_decoder_create(t, &o, &error);
    if (d == NULL || !speclab_decoder_start(d, &r, &error))
        fail_msg("%s, %s: %s", family[f], drafter, error.text);
    while (speclab_decoder_active(d) > 0)
        assert_ok(speclab_decoder_step(d, &error), error);
    speclab_decoder_destroy(d);
    free(line);
    return to;
}

static void check_same(const struct decoded *none, const struct decoded *t, int f, int drafter)
{
    const char *line = drafters[drafter].drafter;
    if (t->n != none->n)
        fail_msg("%s, %s: %d tokens instead of %d", family[f], line, t->n, none->n);
    for (int i = 0; i < t->n; i++)
        if (t->token[i] != none->token[i])
            fail_msg("%s, %s: token %d is %d instead of %d", family[f], line, i, t->token[i], none->token[i]);
    if (drafters[drafter].accepts && t->accepted == 0)
        fail_msg("%s, %s: no draft token was accepted", family[f], line);
}

TEST(each_row_of_the_table_has_a_model)
{
    size_t n;
    struct json **models = golden_models(&n);
    char *rows = architectures_supported(NAMES_OF_ALL);
    int found = 0;
    for (char *row = strtok(rows, "\""); row != NULL; row = strtok(NULL, "\"")) {
        bool tested = strcmp(row, "llama") == 0;
        for (size_t i = 0; i < n; i++)
            for (int f = 1; f < FAMILIES; f++)
                tested = tested || (strcmp(json_text(json_get(models[i], "name")), names[f - 1]) == 0 &&
                                    strcmp(json_text(json_get(json_get(models[i], "config"), "model_type")), row) == 0);
        if (strpbrk(row, " ") == NULL && !tested)
            fail_msg("no model of %s", row);
        found += tested;
    }
    assert_int_equal(found, FAMILIES);
    free(rows);
    golden_models_free(models, n);
}

TEST(every_pair_decodes_the_text_of_none)
{
    for (int f = 0; f < FAMILIES; f++) {
        struct speclab_target *t = opened(f);
        struct decoded *none = decode(t, f, "none", 0, TOKENS);
        int accepting = 0;
        assert_int_equal(none->n, TOKENS);
        for (int i = 0; i < DRAFTERS; i++) {
            struct decoded *own = decode(t, f, drafters[i].drafter, 0, TOKENS);
            check_same(none, own, f, i);
            accepting += own->accepted > 0;
            free(own);
        }
        printf("    %-40s %d of %d drafters had draft tokens accepted\n", strrchr(family[f], '/') + 1, accepting,
               DRAFTERS);
        free(none);
        speclab_target_close(t);
    }
}

static int family_named(const char *name)
{
    for (int f = 1; f < FAMILIES; f++)
        if (strcmp(names[f - 1], name) == 0)
            return f;
    fail_msg("no family %s", name);
    return 0;
}

// Texts so long that layers with a window give up rows: the target's and the draft model's, at steps that keep some rows of a tree.
TEST(pairs_behind_the_windows_of_their_caches)
{
    static const char *const windowed[] = { "mistral-window", "ministral", "qwen2-window" };
    static const int some[] = { 12, 14 };
    // The rows of such a cache (kv_cache.c): the largest window, pending ones, and three units. Then some move.
    assert_true(12 + TARGET_CHUNK + 3 * SHORT_UNIT < LONG);
    for (size_t i = 0; i < sizeof(windowed) / sizeof(*windowed); i++) {
        const int f = family_named(windowed[i]);
        struct speclab_target *t = opened(f);
        struct decoded *none = decode(t, f, "none", LONG_LENGTH, LONG);
        int changes = 0;
        for (int at = LONG - 100; at < LONG; at++)
            changes += none->token[at] != none->token[at - 1];
        assert_true(changes > 50); // a text of one token repeated would show little
        assert_int_equal(none->n, LONG);
        for (size_t k = 0; k < sizeof(some) / sizeof(*some); k++) {
            struct decoded *own = decode(t, f, drafters[some[k]].drafter, LONG_LENGTH, LONG);
            check_same(none, own, f, some[k]);
            assert_true(own->accepted > LONG / 4);
            free(own);
        }
        free(none);
        speclab_target_close(t);
    }
}

#if defined(EMULATED_DEVICE)
static struct backend *emulated(struct error *err)
{
    return backend_host_memory(backend_emulated(0, err));
}

TEST(pairs_on_an_emulated_gpu)
{
    static const struct {
        const char *name;
        int drafter;
    } some[] = { { "gemma3-types", 12 }, { "mixtral-one", 12 }, { "phi3", 7 },      { "smollm3-window", 13 },
                 { "gemma2", 2 },        { "qwen3-heads", 14 }, { "ministral3", 5 } };
    struct prompt_set *prompts = xcalloc(1, sizeof(*prompts));
    for (size_t i = 0; i < sizeof(some) / sizeof(*some); i++) {
        const int f = family_named(some[i].name);
        prompts->n = 1;
        prompts->length[0] = (int)prompt[f].n;
        memcpy(prompts->token[0], prompt[f].id, prompt[f].n * sizeof(int32_t));
        const struct stops never = { 0 };
        struct decode_setup s = { .target = family[f], .draft = family[f], .prompts = prompts, .drafter = "none" };
        s.sampling = "{temperature: 0}";
        s.rule = "rejection";
        s.stops = &never;
        s.slots = 1;
        s.limit = EMULATED;
        s.length = 64;
        s.device = emulated;
        struct decode_result *none = decode_prompts(&s);
        s.drafter = drafters[some[i].drafter].drafter;
        struct decode_result *own = decode_prompts(&s);
        assert_same_texts(none, own, &s);
        assert_true(!drafters[some[i].drafter].accepts || own->accepted > 0);
        free(none);
        free(own);
    }
    free(prompts);
}
#endif

RUN_TESTS(set_up, tear_down)
