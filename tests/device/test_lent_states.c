// test_lent_states.c - hidden states that a foreign drafter gets on the device: the memory itself, with the numbers that another
// drafter gets as a copy on the host.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "engine/engine.h"
#include "engine/foreign.h"
#include "kernels/backend.h"
#include "tests/device/emulated.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "verifier/rules/rule.h"

enum { LAYERS = 2 };
static const int32_t layer[LAYERS] = { 1, -1 };
static struct foreign_report report;
static struct backend *backend; // of the target
static struct text states[2];   // of a copy, and of what is lent
static int width, advances, syncs;
static int (*real_sync_all)(struct backend *b, struct error *err);

static int counting_sync(struct backend *b, struct error *err)
{
    syncs++;
    return real_sync_all(b, err);
}

static int64_t create(const struct foreign_setting *s, const struct foreign_value *option, int32_t *nodes)
{
    width = s->width;
    *nodes = 3;
    return 1;
}

static int32_t propose(int64_t drafter, const struct foreign_request *r, int32_t n)
{
    for (int i = 0; i < n; i++)
        if (r[i].depth > 0 && speclab_foreign_add(r[i].draft, 0, r[i].token[r[i].n - 1], NULL) == -2)
            return 0;
    return 1;
}

static int32_t take_copy(int64_t drafter, const struct foreign_advance *a, int32_t n)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(a[i].device, -1);
        text_add(&states[0], (const char *)a[i].features, (size_t)(a[i].n * LAYERS * width) * sizeof(float));
    }
    return 1;
}

static int32_t take_lent(int64_t drafter, const struct foreign_advance *a, int32_t n)
{
    struct error err = { "" };
    assert_int_equal(syncs, 2 * advances + 1); // before this call
    advances++;
    for (int i = 0; i < n; i++) {
        const size_t bytes = (size_t)(a[i].n * LAYERS * width) * sizeof(float);
        char *to = xcalloc(1, bytes);
        assert_int_equal(a[i].device, 0);
        assert_null(backend->host(backend, (void *)a[i].features)); // memory of the device
        backend->download(backend, to, a[i].features, bytes);
        assert_true(backend->sync(backend, &err));
        text_add(&states[1], to, bytes);
        free(to);
    }
    return 1;
}

static int32_t destroy(int64_t drafter)
{
    return 1;
}

static struct backend *open_emulated(struct error *err)
{
    return backend_emulated(0, err);
}

static bool decode(const char *name, int fail_at, struct error *err)
{
    static const int32_t prompt[] = { 5, 9, 7, 5, 9, 7, 5, 9, 7 };
    struct pair *p = pair_open_on(open_emulated, NULL, pair_target, pair_draft, name, "{temperature: 0}",
                                  rule_named("rejection"), 2, 64);
    struct speclab_decoder *d = decoder_create(p->verifier, p->drafter, 2, 1, (struct speclab_listener){ 0 }, err);
    backend = p->backend;
    real_sync_all = backend->sync_all;
    backend->sync_all = counting_sync;
    syncs = advances = 0;
    for (int i = 0; i < 2; i++)
        assert_true(
            decoder_start(d, &(struct speclab_request){ .sequence = i, .prompt = prompt, .n = 9 - i, .max_tokens = 12 },
                          NULL, NULL, err));
    bool ok = true;
    while (ok && speclab_decoder_active(d) > 0) {
        if (fail_at > 0 && advances == fail_at)
            emulated_fault_next(1);
        ok = speclab_decoder_step(d, err);
    }
    emulated_fault_next(0);
    speclab_decoder_destroy(d);
    pair_close(p);
    return ok;
}

TEST(lent_states_are_the_copied_ones)
{
    static struct foreign_drafter drafter[2];
    static const char *const name[] = { "copying", "lending" };
    struct error err = { "" };
    for (int i = 0; i < 2; i++) {
        drafter[i] = (struct foreign_drafter){ .version = FOREIGN_VERSION,
                                               .name = name[i],
                                               .summary = "notes hidden states",
                                               .layers = LAYERS,
                                               .layer = layer,
                                               .kinds = TAKES_DETERMINISTIC | TAKES_CHAINS,
                                               .on_device = i,
                                               .report = &report,
                                               .create = create,
                                               .propose = propose,
                                               .advance = i == 0 ? take_copy : take_lent,
                                               .destroy = destroy };
        if (speclab_register_foreign_drafter(&drafter[i]) == 0)
            fail_msg("%s", report.why);
        if (!decode(name[i], 0, &err))
            fail_msg("%s", err.text);
        assert_int_equal(syncs, i == 0 ? 0 : 2 * advances);
    }
    assert_true(advances > 5);
    assert_true(states[0].n > 20 * LAYERS * sizeof(float) * 16);
    assert_int_equal(states[0].n, states[1].n);
    assert_memory_equal(states[0].s, states[1].s, states[0].n);
    assert_false(decode("lending", 3, &err));
    assert_non_null(strstr(err.text, "cuda:0"));
    free(states[0].s);
    free(states[1].s);
}

int main(void)
{
    return EMULATED_HERE ? tests_run(pair_models_make, pair_models_remove) : 77;
}
