// test_step_launches.c - how many kernels, graphs and uploads a step queues once its graphs exist, on the emulated GPU: the host and the
// device pay for each of them, so there are as many for one sequence as for several.
#include "core/error.h"
#include "kernels/backend.h"
#include "tests/device/emulated.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "verifier/rules/rule.h"

enum { LENGTH = 160, STEPS = 30, LONG = STEPS * 5 };

struct queued {
    int launches, uploads;
};

static struct backend *open_emulated(struct error *err)
{
    return backend_emulated(0, err);
}

// The fewest of any step: of one whose graphs exist, and in which no text ended.
static struct queued fewest(const char *drafter, int slots)
{
    static int32_t prompt[] = { 5, 9, 7, 5, 9, 7, 5, 9, 7 };
    struct error err = { "" };
    emulated_processors(66); // with few of them, rows of probabilities are made in several launches
    struct pair *p = pair_open_on(open_emulated, NULL, pair_target, pair_draft, drafter, "{temperature: 0}",
                                  rule_named("rejection"), slots, LENGTH);
    struct speclab_decoder *d = decoder_create(p->verifier, p->drafter, slots, 1, (struct speclab_listener){ 0 }, &err);
    struct queued least = { INT32_MAX, INT32_MAX };
    for (int i = 0; i < slots; i++)
        assert_ok(decoder_start(
                      d, &(struct speclab_request){ .sequence = i, .prompt = prompt, .n = 9 - i, .max_tokens = LONG },
                      NULL, NULL, &err),
                  err);
    for (int i = 0; i < STEPS && speclab_decoder_active(d) == slots; i++) {
        const int64_t launches = emulated_launches(), uploads = emulated_uploads();
        assert_ok(speclab_decoder_step(d, &err), err);
        const struct queued now = { (int)(emulated_launches() - launches), (int)(emulated_uploads() - uploads) };
        if (now.launches <= least.launches)
            least = now;
    }
    speclab_decoder_destroy(d);
    pair_close(p);
    emulated_processors(4);
    return least;
}

static void check(const char *drafter, int launches, int uploads)
{
    for (int slots = 1; slots <= 4; slots += 3) {
        const struct queued q = fewest(drafter, slots);
        print_message("    %s, %d of them: %d launches and %d uploads a step\n", drafter, slots, q.launches, q.uploads);
        if (q.launches > launches || q.uploads > uploads)
            fail_msg("%s, %d slots: a step queues %d launches and %d uploads; expected at most %d and %d", drafter,
                     slots, q.launches, q.uploads, launches, uploads);
    }
}

TEST(a_step_queues_no_more_for_several_sequences_than_for_one)
{
    check("none", 7, 0);
    check("eagle:weights=%s.eagle,nodes=12,top=4,tokens=4,pick=greedy", 34, 0);
    check("eagle3:weights=%s.eagle3,nodes=12,top=4,tokens=4,pick=greedy", 34, 0);
}

int main(void)
{
    return EMULATED_HERE ? tests_run(pair_models_make_bf16, pair_models_remove) : 77;
}
