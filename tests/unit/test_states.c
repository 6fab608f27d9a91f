// test_states.c - what speclab_states says of given texts: hidden states are those that a drafter receives while the text is decoded, to
// the bit; logits and probabilities are those of passes of one token; weights are those of the target's operations.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "tests/support/tests.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"

enum { TEXTS = 12, LENGTH = 400, TOP = 8, ROWS = 96 };

// ---- what a drafter receives

static struct {
    const struct drafter_type *type;
    struct speclab_target *target;
    int n, width;  // states so far
    float *states; // (LENGTH, width) state i predicted token i + 1
} received;

static bool record_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    struct backend *b = received.target->backend;
    assert_int_equal(n, 1);
    assert_int_equal(a->features.width, received.width);
    b->download(b, received.states + received.n * received.width, a->features.data, tensor_bytes(a->features));
    received.n += a->n;
    return received.type->advance(d, a, n, err);
}

struct decoded {
    int32_t token[LENGTH];
    int n;
};

static void ended(void *self, const struct speclab_end *e)
{
    struct decoded *to = self;
    memcpy(to->token + to->n, e->token, (size_t)e->n * sizeof(*e->token));
    to->n += e->n;
}

// ---- a target of blocks, with the precisions of its defaults

static char *model_file, *heads[3];
static const char *const kinds[] = { "eagle3", "eagle", "medusa" };

static int make(void **state)
{
    struct small_model t = small_blocks;
    t.type = Q4_0;
    t.hidden = 96;
    t.layers = 7;
    small_write_gguf(model_file = test_path("target.gguf"), &t);
    const struct head_shape s = head_shape_of(model_file);
    void (*const write[])(const char *, const struct head_shape *) = { heads_write_eagle3, heads_write_eagle,
                                                                       heads_write_medusa };
    for (int i = 0; i < 3; i++)
        write[i](heads[i] = test_path(kinds[i]), &s);
    return 0;
}

static int clean_up(void **state)
{
    for (int i = 0; i < 3; i++)
        free(heads[i]);
    free(model_file);
    test_directory_remove();
    return 0;
}

static struct speclab_target *open_target(void)
{
    struct error err;
    struct speclab_target *t = speclab_target_open(
        model_file, &(struct speclab_target_options){ .chat = "none", .threads = 2, .rows = ROWS }, &err);
    assert_ok(t != NULL, err);
    assert_int_equal(model_activations(t->model), ACTIVATIONS_INT8);
    return t;
}

// Decodes a text of `prompt` + `more` tokens with the drafter and records what it receives.
static void decode(struct speclab_decoder *d, int number, int prompt, int more, struct decoded *to)
{
    struct error err;
    to->n = prompt;
    for (int i = 0; i < prompt; i++)
        to->token[i] = (7 * i * i + 31 * number + 3) % 250;
    received.n = 0;
    d->listener = (struct speclab_listener){ .end = ended, .self = to };
    const struct speclab_request r = {
        .sequence = number, .prompt = to->token, .n = prompt, .max_tokens = more, .ignore_end = true
    };
    assert_ok(speclab_decoder_start(d, &r, &err), err);
    while (speclab_decoder_active(d) > 0)
        assert_ok(speclab_decoder_step(d, &err), err);
    assert_int_equal(to->n, prompt + more);
}

static struct speclab_decoder *open_decoder(struct speclab_target *t, int kind, struct drafter_type *recorder)
{
    struct error err;
    char *line = xformat("%s:weights=%s%s", kinds[kind], heads[kind], kind == 2 ? "" : ",tokens=3");
    struct settings *drafter = settings_inline(line, "drafter", &err);
    struct speclab_decoder *p = drafter != NULL ? decoder_read(drafter, NULL, NULL, &err) : NULL;
    assert_ok(p != NULL, err);
    p->seed = 5;
    assert_ok(decoder_open(p, t, 1, LENGTH, &err), err);
    received.type = p->drafter->type;
    received.target = t;
    received.width = p->drafter->taps.n * model_shape(t->model)->width;
    *recorder = *p->drafter->type;
    recorder->advance = record_advance;
    p->drafter->type = recorder;
    settings_free(drafter);
    free(line);
    return p;
}

struct texts {
    int n;
    int64_t offset[TEXTS + 1];
    int32_t id[TEXTS * LENGTH];
};

static void check_kind(int kind)
{
    struct error err;
    struct speclab_target *t = open_target();
    struct drafter_type recorder;
    static struct decoded decoded[TEXTS];
    static float *expected[TEXTS];
    struct speclab_decoder *p = open_decoder(t, kind, &recorder);
    static struct texts texts = { .n = TEXTS };
    for (int i = 0; i < TEXTS; i++) { // short ones, several of which fit into a pass, and some longer than passes
        received.states = expected[i] = xcalloc((size_t)(LENGTH * received.width), sizeof(float));
        decode(p, i, i % 3 == 2 ? 150 + 17 * i : 2 + i, 3 + i, &decoded[i]);
        // All but the tokens of the last step, four at most, and the token before them.
        assert_true(received.n >= decoded[i].n - 5);
        texts.offset[i + 1] = texts.offset[i] + decoded[i].n;
        memcpy(texts.id + texts.offset[i], decoded[i].token, (size_t)decoded[i].n * sizeof(*texts.id));
        decoded[i].n = received.n < decoded[i].n - 1 ? received.n : decoded[i].n - 1;
    }
    float *state = xcalloc((size_t)(texts.offset[TEXTS] * received.width), sizeof(*state));
    const struct speclab_states to = { .layer = p->drafter->taps.layer, .layers = p->drafter->taps.n, .state = state };
    for (int twice = 0; twice < 2; twice++) {
        assert_ok(speclab_states(t, texts.id, texts.offset, TEXTS, &to, &err), err);
        for (int i = 0; i < TEXTS; i++)
            assert_memory_equal(state + texts.offset[i] * received.width, expected[i],
                                (size_t)(decoded[i].n * received.width) * sizeof(float));
        memset(state, 0, (size_t)(texts.offset[TEXTS] * received.width) * sizeof(*state));
    }
    for (int i = 0; i < TEXTS; i++)
        free(expected[i]);
    free(state);
    speclab_decoder_destroy(p);
    speclab_target_close(t);
}

TEST(states_are_those_that_heads_read)
{
    for (int kind = 0; kind < 3; kind++)
        check_kind(kind);
}

// ---- against passes of one token

TEST(logits_and_probabilities_are_those_of_passes_of_one_token)
{
    struct error err;
    struct speclab_target *t = open_target();
    const int vocab = model_shape(t->model)->vocab;
    static const int64_t offset[] = { 0, 3, 4, 154, 170 };
    int32_t id[170], top[170 * TOP];
    float p[170 * TOP], *logits = xcalloc((size_t)(170 * vocab), sizeof(*logits)), *row = NULL;
    double score[170];
    for (int i = 0; i < 170; i++)
        id[i] = (i * i * 13 + 5 * i + 1) % vocab;
    const struct speclab_states to = { .top_k = TOP, .top_id = top, .top_p = p, .logits = logits };
    assert_ok(speclab_states(t, id, offset, 4, &to, &err), err);
    const struct tensor one = rows_on(t->backend, 1, vocab);
    struct kv_shape shape = model_kv_shape(t->model, 1, 170, 1);
    shape.type = t->cache;
    for (int k = 0; k < 4; k++) {
        struct kv_cache *cache = kv_create(t->backend, &shape, &err);
        assert_ok(cache != NULL, err);
        const int length = (int)(offset[k + 1] - offset[k]);
        assert_ok(speclab_score(t, id + offset[k], length, 1, score, &err), err);
        for (int64_t i = offset[k]; i < offset[k + 1]; i++) {
            struct states states;
            assert_ok(model_append(t->model, cache, 0, id + i, 1, NULL, &states, &err), err);
            model_logits(t->model, one, states.last);
            const float *x = rows_read(t->backend, one, &row, &err);
            assert_memory_equal(logits + i * vocab, x, (size_t)vocab * sizeof(*x));
            double sum = 0, of_used = 0; // padding is in the model's own probabilities, and in none of a sampled token
            for (int v = 0; v < vocab; v++)
                *(v < t->used_vocab ? &of_used : &sum) += exp(x[v]);
            sum += of_used;
            for (int j = 0; j < TOP; j++) {
                const int32_t v = top[i * TOP + j];
                int greater = 0;
                for (int w = 0; w < t->used_vocab; w++)
                    greater += x[w] > x[v];
                assert_true(v >= 0 && v < t->used_vocab && greater <= j);
                assert_float_equal(p[i * TOP + j], exp(x[v]) / of_used, 1e-6);
                for (int before = 0; before < j; before++)
                    assert_int_not_equal(top[i * TOP + before], v);
            }
            if (i + 1 < offset[k + 1])
                assert_float_equal(score[i - offset[k]], x[id[i + 1]] - log(sum), 1e-6);
        }
        kv_destroy(cache);
    }
    t->backend->release(t->backend, one.data);
    free(row);
    free(logits);
    speclab_target_close(t);
}

TEST(what_cannot_be_read_is_an_error)
{
    struct error err;
    struct speclab_target *t = open_target();
    static int32_t id[100000] = { 1, 2, 3, 4, 1 << 20 };
    int32_t top[8];
    float p[8], x[1];
    const struct speclab_states none = { 0 }, layer = { .layer = (const int[]){ 8 }, .layers = 1, .state = x },
                                below = { .layer = (const int[]){ -2 }, .layers = 1, .state = x },
                                layers = { .layer = (const int[9]){ 0 }, .layers = 9, .state = x },
                                many = { .top_k = 1 << 20, .top_id = top, .top_p = p };
    const struct {
        const struct speclab_states *to;
        int64_t offset[3];
        const char *with;
    } wrong[] = {
        { &none, { 0, 2, 5 }, "text 1: token 2 is 1048576, expected an id from 0 to " },
        { &none, { 0, 2, 2 }, "text 1: expected at least one token" },
        { &none, { 1, 2, 3 }, "text 0: expected at least one token, after those" },
        { &none, { 0, 2, 90000 }, "text 1: the text has 89998 tokens, the context of " },
        { &layer, { 0, 1, 2 }, "layers: expected numbers from 0 to 7, or -1 for the final state, found 8" },
        { &below, { 0, 1, 2 }, "found -2" },
        { &layers, { 0, 1, 2 }, "layers: expected at most 8, found 9" },
        { &many, { 0, 1, 2 }, "top_k: expected at most " },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_false(speclab_states(t, id, wrong[i].offset, 2, wrong[i].to, &err));
        assert_non_null(strstr(err.text, wrong[i].with));
    }
    assert_ok(speclab_states(t, id, (const int64_t[]){ 0 }, 0, &many, NULL) == false, err);
    assert_ok(speclab_states(t, id, (const int64_t[]){ 0 }, 0, &none, &err), err);
    int64_t shape[2];
    assert_false(speclab_weight(t, "model.layers.0", shape, NULL, &err));
    assert_non_null(strstr(err.text, "there is no weight model.layers.0"));
    speclab_target_close(t);
}

// ---- weights

static float *weight_of(struct speclab_target *t, const char *name, int64_t rows, int64_t width)
{
    struct error err;
    int64_t shape[2];
    float *x = xcalloc((size_t)(rows * width), sizeof(*x));
    assert_ok(speclab_weight(t, name, shape, x, &err), err);
    assert_int_equal(shape[0], rows);
    assert_int_equal(shape[1], width);
    return x;
}

TEST(weights_are_those_of_the_targets_operations)
{
    struct error err;
    struct speclab_target *t = open_target();
    struct backend *b = t->backend;
    const struct model_shape *s = model_shape(t->model);
    float *embedding = weight_of(t, "model.embed_tokens.weight", s->vocab, s->width),
          *head = weight_of(t, "lm_head.weight", s->vocab, s->width),
          *norm = weight_of(t, "model.norm.weight", 1, s->width);
    struct tensor row = rows_on(b, 1, s->width), state_row = rows_on(b, s->width, s->width), logits;
    logits = rows_on(b, s->width, s->vocab);
    for (int32_t id = 0; id < s->vocab; id++) {
        b->take(b, row, model_embedding(t->model), &id);
        assert_memory_equal(embedding + (int64_t)id * s->width, row.data, tensor_bytes(row));
    }
    // A product with the rows of the unit matrix gives the columns of the head, but for the rounding of activations.
    float *unit = state_row.data;
    for (int i = 0; i < s->width; i++)
        for (int k = 0; k < s->width; k++)
            unit[i * s->width + k] = i == k;
    model_logits(t->model, logits, state_row);
    for (int i = 0; i < s->width; i++)
        for (int k = 0; k < s->vocab; k++) {
            const float x = head[(int64_t)k * s->width + i];
            assert_float_equal(((const float *)logits.data)[(int64_t)i * s->vocab + k], x, 1e-5 * fabsf(x) + 1e-9);
        }
    assert_memory_equal(norm, model_norm(t->model).data, (size_t)s->width * sizeof(float));
    int names = 0;
    const char *name, *before = "";
    for (; (name = speclab_weight_name(t, names, &err)) != NULL; names++, before = name)
        assert_true(strcmp(before, name) < 0);
    assert_string_equal(err.text, "");
    assert_int_equal(names, 3 + 9 * s->layers);
    free(embedding);
    free(head);
    free(norm);
    b->release(b, row.data);
    b->release(b, state_row.data);
    b->release(b, logits.data);
    speclab_target_close(t);
}

RUN_TESTS(make, clean_up)
