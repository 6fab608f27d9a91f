#include "tests/support/decode_prompts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tests/support/check.h"
#include "tests/support/pairings.h"
#include "verifier/rules/rule.h"

// FNV-1a.
static uint64_t hashed(uint64_t hash, const void *data, size_t bytes)
{
    for (const uint8_t *at = data; bytes > 0; at++, bytes--)
        hash = (hash ^ *at) * 0x100000001B3;
    return hash;
}

static uint64_t hash_of_step(uint64_t hash, const struct speclab_step *s)
{
    const size_t nodes = (size_t)s->drafted + 1, advanced = (size_t)s->decided;
    const int all[] = { s->position, (int)nodes, s->decided, s->n, s->empty };
    hash = hashed(hash, all, sizeof(all));
    hash = hashed(hash, s->draft, nodes * sizeof(*s->draft));
    hash = hashed(hash, s->parent, nodes * sizeof(*s->parent));
    hash = hashed(hash, s->proposal, nodes);
    hash = hashed(hash, s->token, advanced * sizeof(*s->token));
    hash = hashed(hash, s->node, advanced * sizeof(*s->node));
    for (int node = 0; node <= s->drafted; node++)
        if (!isnan(s->p[node])) { // a NaN has several bit patterns
            hash = hashed(hash, &s->p[node], sizeof(double));
            hash = hashed(hash, &s->q[node], sizeof(double));
        }
    return hash;
}

static void on_step(void *self, const struct speclab_step *s)
{
    struct decode_result *to = self;
    const struct decode_setup *of = to->setup;
    int n = s->position + 1, left = of->limit - (n - of->prompts->length[s->sequence]), space = of->length - n;
    assert_true(s->depth < (left < space ? left : space)); // the text ends before deeper tokens
    to->steps++;
    to->step_hash[s->sequence] = hash_of_step(to->step_hash[s->sequence], s);
    to->drafted += s->drafted;
    to->accepted += s->decided - 1;
    to->kept += s->n;
    assert_true(s->n >= 0 && s->n <= s->decided && s->batch >= 1);
}

static void on_done(void *self, const struct speclab_end *e)
{
    struct decode_result *to = self;
    to->n[e->sequence] = e->n;
    to->why[e->sequence] = e->why;
    to->decode_ns += e->decode_ns;
    memcpy(to->token[e->sequence], e->token, (size_t)e->n * sizeof(int32_t));
    assert_true(e->prefill_ns >= 0 && e->decode_ns > 0 && e->wall_ns >= e->decode_ns);
}

struct decode_result *decode_prompts(const struct decode_setup *s)
{
    struct error err;
    struct decode_result *to = xcalloc(1, sizeof(*to));
    to->setup = s;
    const struct prompt_set *g = s->prompts;
    struct pair *p = pair_open_on(s->device, s->draft_device, s->target, s->draft, s->drafter, s->sampling,
                                  rule_named(s->rule), s->slots, s->length);
    struct speclab_decoder *d =
        decoder_create(p->verifier, p->drafter, s->slots, 21,
                       (struct speclab_listener){ .step = on_step, .end = on_done, .self = to }, &err);
    assert_non_null(d);
    for (int next = 0; next < g->n || speclab_decoder_active(d) > 0;) {
        while (next < g->n && speclab_decoder_has_free_slot(d)) {
            struct speclab_request a = {
                .sequence = next, .prompt = g->token[next], .n = g->length[next], .max_tokens = s->limit
            };
            assert_ok(decoder_start(d, &a, s->stops, NULL, &err), err);
            next++;
        }
        assert_ok(speclab_decoder_step(d, &err), err);
    }
    speclab_decoder_destroy(d);
    pair_close(p);
    return to;
}

void assert_same_texts(const struct decode_result *a, const struct decode_result *b, const struct decode_setup *s)
{
    for (int i = 0; i < s->prompts->n; i++) {
        int n = a->n[i] < b->n[i] ? a->n[i] : b->n[i];
        for (int k = 0; k < n; k++)
            if (a->token[i][k] != b->token[i][k])
                fail_msg("%s, %s, %s, %d slots: prompt %d differs at token %d", s->drafter, s->sampling, s->rule,
                         s->slots, i, k);
        if (a->n[i] != b->n[i] || a->why[i] != b->why[i])
            fail_msg("%s, %s, %s, %d slots: prompt %d has %d tokens (%s), not %d (%s)", s->drafter, s->sampling,
                     s->rule, s->slots, i, b->n[i], stop_name(b->why[i]), a->n[i], stop_name(a->why[i]));
    }
}
