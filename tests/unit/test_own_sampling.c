// test_own_sampling.c - a sampling of a sequence's own: each text is that of a decoder with this sampling for all, whatever its
// neighbours have, on the host and on a device.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/settings.h"
#include "experiments/yaml.h"
#include "tests/device/emulated.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 64, NEW = 12, SLOTS = 4 };

// The last of `some` has a stage that devices have not; they have all stages of `all`.
static const char *const some[SLOTS] = { "{temperature: 0}", "{temperature: 0.5}", "{temperature: 1, top_k: 3}",
                                         "{frequency_penalty: 1.5, presence_penalty: 0.5, temperature: 0.8}" };
static const char *const all[SLOTS] = { "{temperature: 0}", "{temperature: 0.5}", "{temperature: 1, top_k: 3}",
                                        "{temperature: 0.8, top_p: 0.7}" };

struct texts {
    int32_t token[SLOTS][NEW];
    int n[SLOTS];
};

static void on_done(void *self, const struct speclab_end *e)
{
    struct texts *t = self;
    t->n[e->sequence] = e->n;
    memcpy(t->token[e->sequence], e->token, (size_t)e->n * sizeof(int32_t));
}

// own[i]: of sequence i; NULL: that of the pair
static void decode(pair_device *device, const char *drafter, const char *sampling, struct sampling *own[SLOTS],
                   struct texts *to)
{
    struct error err;
    const int32_t prompt[] = { 5, 9, 7, 5, 9, 7, 5, 9 };
    struct pair *p =
        pair_open_on(device, NULL, pair_target, pair_draft, drafter, sampling, rule_named("rejection"), SLOTS, LENGTH);
    struct speclab_decoder *d = decoder_create(p->verifier, p->drafter, SLOTS, 21,
                                               (struct speclab_listener){ .end = on_done, .self = to }, &err);
    assert_non_null(d);
    for (int i = 0; i < SLOTS; i++)
        assert_ok(decoder_start(
                      d, &(struct speclab_request){ .sequence = i, .prompt = prompt, .n = 8 - i, .max_tokens = NEW },
                      NULL, own != NULL ? own[i] : NULL, &err),
                  err);
    while (speclab_decoder_active(d) > 0)
        assert_ok(speclab_decoder_step(d, &err), err);
    speclab_decoder_destroy(d);
    pair_close(p);
}

static void check(pair_device *device, const char *const samplings[SLOTS])
{
    struct sampling own[SLOTS];
    struct sampling *each[SLOTS];
    struct texts mixed, one, other;
    struct error err;
    int differ = 0;
    for (int i = 0; i < SLOTS; i++) {
        struct settings *s = yaml_parse(samplings[i], strlen(samplings[i]), "sampling", &err);
        assert_ok(sampling_read(s, &own[i], &err), err);
        settings_free(s);
        each[i] = &own[i];
    }
    decode(device, "none", "{temperature: 1}", each, &mixed);
    decode(device, "none", "{temperature: 1}", NULL, &other);
    for (int i = 0; i < SLOTS; i++) {
        decode(device, "none", samplings[i], NULL, &one);
        assert_int_equal(one.n[i], mixed.n[i]);
        assert_memory_equal(one.token[i], mixed.token[i], (size_t)one.n[i] * sizeof(int32_t));
        differ += memcmp(other.token[i], mixed.token[i], sizeof(other.token[i])) != 0;
    }
    assert_true(differ >= 2);
    // Drafts of another temperature do not change a greedy text.
    decode(device, "small:model=%s,tokens=3", "{temperature: 1}", each, &other);
    assert_memory_equal(other.token[0], mixed.token[0], sizeof(other.token[0]));
    for (int i = 0; i < SLOTS; i++)
        sampling_free(&own[i]);
}

TEST(each_sequence_is_sampled_as_it_says)
{
    check(NULL, some);
    check(NULL, all);
}

#if defined(EMULATED_DEVICE)
static struct backend *open_emulated(struct error *err)
{
    return backend_emulated(0, err);
}

TEST(each_sequence_is_sampled_as_it_says_on_a_device)
{
    check(open_emulated, some);
    check(open_emulated, all);
}
#endif

RUN_TESTS(pair_models_make, pair_models_remove)
