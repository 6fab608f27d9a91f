// test_features.c - features of a text are those that a drafter receives while the text is decoded, to the bit; and the target's
// probabilities are those of its logits.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/features/states.h"
#include "commands/features/target_file.h"
#include "commands/features/texts.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "engine/engine.h"
#include "core/files/mapped.h"
#include "models/formats/safetensors.h"
#include "kernels/backend.h"
#include "tests/support/check.h"
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
    struct speclab_target *t =
        speclab_target_open(model_file, &(struct speclab_target_options){ .chat = "none", .threads = 2 }, &err);
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

static uint16_t plain_bf16(float x) // to nearest: the candidate that is closer, ties to even
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    const uint32_t down = bits & 0xffff0000u, up = down + 0x10000u;
    float a, b;
    memcpy(&a, &down, sizeof(a));
    memcpy(&b, &up, sizeof(b));
    const double to_a = fabs((double)x - a), to_b = fabs((double)b - x);
    return (uint16_t)((to_a < to_b || (to_a == to_b && (down >> 16 & 1) == 0) ? down : up) >> 16);
}

static void check_kind(int kind)
{
    struct error err;
    struct speclab_target *t = open_target();
    struct drafter_type recorder;
    static struct decoded decoded[TEXTS];
    static float *expected[TEXTS];
    struct speclab_decoder *p = open_decoder(t, kind, &recorder);
    struct texts texts = { .n = TEXTS };
    texts.offset = xcalloc(TEXTS + 1, sizeof(*texts.offset));
    texts.id = xcalloc(TEXTS * LENGTH, sizeof(*texts.id));
    for (int i = 0; i < TEXTS; i++) { // short ones, several of which fit into a pass, and some longer than passes
        received.states = expected[i] = xcalloc((size_t)(LENGTH * received.width), sizeof(float));
        decode(p, i, i % 3 == 2 ? 150 + 17 * i : 2 + i, 3 + i, &decoded[i]);
        // All but the tokens of the last step, four at most, and the token before them.
        assert_true(received.n >= decoded[i].n - 5);
        texts.offset[i + 1] = texts.offset[i] + decoded[i].n;
        memcpy(texts.id + texts.offset[i], decoded[i].token, (size_t)decoded[i].n * sizeof(*texts.id));
        decoded[i].n = received.n < decoded[i].n - 1 ? received.n : decoded[i].n - 1;
    }
    for (int type = 0; type < 2; type++) {
        struct text_states s = { .target = t, .taps = p->drafter->taps, .top_k = TOP, .type = type == 0 ? F32 : BF16 };
        assert_ok(text_states_open(&s, ROWS, &err) && text_states_compute(&s, &texts, NULL, &err), err);
        for (int i = 0; i < TEXTS; i++) {
            const int64_t from = texts.offset[i] * received.width, n = (int64_t)decoded[i].n * received.width;
            if (type == 0)
                assert_memory_equal((float *)s.state + from, expected[i], (size_t)n * sizeof(float));
            for (int64_t k = 0; type == 1 && k < n; k++)
                assert_int_equal(((uint16_t *)s.state)[from + k], plain_bf16(expected[i][k]));
        }
        text_states_close(&s);
    }
    for (int i = 0; i < TEXTS; i++)
        free(expected[i]);
    texts_free(&texts);
    speclab_decoder_destroy(p);
    speclab_target_close(t);
}

static void an_eagle3_head_reads_the_features(void **state)
{
    check_kind(0);
}

static void an_eagle_head_reads_the_features(void **state)
{
    check_kind(1);
}

static void medusa_heads_read_the_features(void **state)
{
    check_kind(2);
}

// ---- the target's ends

static void target_rows_are_those_of_its_operations(void **state)
{
    struct error err;
    struct speclab_target *t = open_target();
    struct backend *b = t->backend;
    const struct model_shape *s = model_shape(t->model);
    char *path = test_path("target.safetensors");
    struct target_file f;
    assert_ok(target_file_begin(&f, t, false, &err) &&
                  safetensors_write(path, f.tensor, f.n, NULL, target_file_put, &f, &err),
              err);
    target_file_end(&f);
    struct mapping file;
    struct tensor_list list = { 0 };
    assert_ok(file_map(path, &file, &err) && safetensors_read(path, &file, 0, &list, &err), err);
    assert_int_equal(list.n, 3);
    tensor_list_sort(&list); // embed_tokens, lm_head, norm
    struct tensor row = rows_on(b, 1, s->width), state_row = rows_on(b, s->width, s->width), logits;
    logits = rows_on(b, s->width, s->vocab);
    for (int32_t id = 0; id < s->vocab; id++) {
        b->take(b, row, model_embedding(t->model), &id);
        assert_memory_equal((const float *)list.at[0].data + (int64_t)id * s->width, row.data, tensor_bytes(row));
    }
    // A product with the rows of the unit matrix gives the columns of the head, but for the rounding of activations.
    float *unit = state_row.data;
    for (int i = 0; i < s->width; i++)
        for (int k = 0; k < s->width; k++)
            unit[i * s->width + k] = i == k;
    model_logits(t->model, logits, state_row);
    for (int i = 0; i < s->width; i++)
        for (int k = 0; k < s->vocab; k++) {
            const float head = ((const float *)list.at[1].data)[(int64_t)k * s->width + i];
            assert_float_equal(((const float *)logits.data)[(int64_t)i * s->vocab + k], head,
                               1e-5 * fabsf(head) + 1e-9);
        }
    assert_memory_equal(list.at[2].data, model_norm(t->model).data, (size_t)s->width * sizeof(float));
    b->release(b, row.data);
    b->release(b, state_row.data);
    b->release(b, logits.data);
    tensor_list_free(&list);
    file_unmap(&file);
    free(path);
    speclab_target_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_eagle3_head_reads_the_features),
        cmocka_unit_test(an_eagle_head_reads_the_features),
        cmocka_unit_test(medusa_heads_read_the_features),
        cmocka_unit_test(target_rows_are_those_of_its_operations),
    };
    return cmocka_run_group_tests(tests, make, clean_up);
}
