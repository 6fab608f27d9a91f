#include "tests/exact/table_loop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "engine/engine.h"
#include "experiments/yaml.h"
#include "sampling/dist.h"
#include "sampling/outcomes.h"
#include "sampling/sampling.h"
#include "tests/support/check.h"
#include "tests/exact/table_drafter.h"
#include "verifier/verifier.h"

// ---- randomness: the loop creates a Philox source per sequence and gets the enumeration, which is shared by all

static struct {
    struct outcomes *outcomes;
    int sources; // created in this run
} walk;

// Makes the addresses of sequences distinct.
static struct address of_sequence(const struct rng *self, struct address at)
{
    at.position += (int32_t)((const struct philox *)self)->sequence * 1000;
    return at;
}

static bool walk_accept(struct rng *self, double num, double den, struct address at)
{
    return walk.outcomes->rng.accept(&walk.outcomes->rng, num, den, of_sequence(self, at));
}

static int walk_pick(struct rng *self, const double *weight, int n, struct address at)
{
    return walk.outcomes->rng.pick(&walk.outcomes->rng, weight, n, of_sequence(self, at));
}

struct philox __wrap_philox_source(uint64_t seed, uint64_t sequence);
struct philox __wrap_philox_source(uint64_t seed, uint64_t sequence)
{
    walk.sources++;
    return (struct philox){ { walk_accept, walk_pick, 0, NULL }, seed, sequence, { 0 } };
}

// ---- mutants of the loop, made by what is passed to it

static struct {
    const struct stage *stage; // the penalty that is applied wrongly
    const struct table_drafter *table_drafter;
    int n;
    int32_t rejected[8 * TABLE_TEXT]; // of PENALTY_FOR_REJECTED
} penalty_memory;

static void remember_rejected(const struct speclab_step *s)
{
    for (int v = 1; v <= s->drafted; v++) {
        bool accepted = false;
        for (int k = 0; k < s->decided; k++)
            accepted = accepted || s->node[k] == v;
        if (!accepted)
            penalty_memory.rejected[penalty_memory.n++] = s->draft[v];
    }
}

static bool is_penalty(const struct stage *s)
{
    return strstr(s->name, "_penalty") != NULL;
}

static void penalty_as_at_root(struct logits *l, const void *options, const struct path *before)
{
    int n = before->n < penalty_memory.table_drafter->root_n ? before->n : penalty_memory.table_drafter->root_n;
    penalty_memory.stage->apply(l, options, &(struct path){ n, before->token, before->prompt });
}

static void penalty_twice_for_last(struct logits *l, const void *options, const struct path *before)
{
    penalty_memory.stage->apply(l, options, before);
    penalty_memory.stage->apply(l, options, &(struct path){ 1, before->token + before->n - 1, 0 });
}

static void penalty_for_rejected(struct logits *l, const void *options, const struct path *before)
{
    int32_t all[10 * TABLE_TEXT];
    memcpy(all, before->token, (size_t)before->n * sizeof(*all));
    memcpy(all + before->n, penalty_memory.rejected, (size_t)penalty_memory.n * sizeof(*all));
    penalty_memory.stage->apply(l, options, &(struct path){ before->n + penalty_memory.n, all, before->prompt });
}

static void penalty_for_prompt(struct logits *l, const void *options, const struct path *before)
{
    penalty_memory.stage->apply(l, options, &(struct path){ before->n, before->token, 0 });
}

static const struct stage wrong_stages[FLAWS] = {
    [PENALTY_AS_AT_THE_ROOT] = { .apply = penalty_as_at_root },
    [PENALTY_TWICE_FOR_THE_LAST_TOKEN] = { .apply = penalty_twice_for_last },
    [PENALTY_FOR_REJECTED] = { .apply = penalty_for_rejected },
    [PENALTY_FOR_THE_PROMPT] = { .apply = penalty_for_prompt },
};

// ---- stop conditions

static bool ends(const struct table_instance *w, int32_t token)
{
    for (int i = 0; i < w->end.n; i++)
        if (w->end.token[i] == token)
            return true;
    return false;
}

// Number of tokens kept if the stop string ends with the n-th token; 0: it does not.
static int tokens_kept(const struct table_instance *w, const int32_t *token, int n)
{
    const struct digits *s = &w->string;
    if (s->n == 0 || n < s->n || memcmp(token + n - s->n, s->token, (size_t)s->n * sizeof(*token)) != 0)
        return 0;
    return n - s->n + w->stay;
}

static int first_stop(void *self, const int32_t *token, int n, int fresh)
{
    for (int k = n - fresh + 1; k <= n; k++)
        if (tokens_kept(self, token, k) > 0)
            return tokens_kept(self, token, k);
    return 0;
}

static int end_token_at_step_end(void *self, const int32_t *token, int n, int fresh)
{
    return ends(self, token[n - 1]) ? n : 0;
}

// ---- the table's own distribution, token by token

struct own {
    const struct table_instance *table_instance;
    const struct sampling *sampling;
    struct table p;
    int prompt, limit;
    double *mass; // (texts, LOOP_REASONS)
};

static void add_own(const struct own *o, int32_t *token, int n, double probability)
{
    const struct table_instance *w = o->table_instance;
    float row[TABLE_VOCAB];
    double p[TABLE_VOCAB];
    table_logits(&o->p, text_number(w->vocab, token, n), row);
    sampling_row(o->sampling, row, w->vocab, w->vocab, &(struct path){ n, token, o->prompt });
    dist_from_row(p, row, w->vocab);
    for (int x = 0; x < w->vocab; x++) {
        int new = n + 1 - o->prompt, stay = new, why = -1;
        if (p[x] <= 0)
            continue;
        token[n] = x;
        if (tokens_kept(w, token + o->prompt, new) > 0) {
            stay = tokens_kept(w, token + o->prompt, new);
            why = SPECLAB_STOP_STRING;
        } else if (ends(w, x))
            why = SPECLAB_STOP_TOKEN;
        else if (new == o->limit)
            why = SPECLAB_STOP_LIMIT;
        else if (n + 1 == w->length)
            why = SPECLAB_STOP_CONTEXT;
        if (why >= 0)
            o->mass[text_number(w->vocab, token + o->prompt, stay) * LOOP_REASONS + (uint64_t)why] +=
                probability * p[x];
        else
            add_own(o, token, n + 1, probability * p[x]);
    }
}

// ---- enumeration

struct examination {
    const struct table_instance *table_instance;
    struct model *target;
    struct sampling sampling, wrong;
    struct table_drafter *table_drafter;
    struct verifier *verifier;
    struct speclab_decoder *decoder;
    struct stops stops;
    enum flaw flaw;
    uint64_t texts[LOOP_SEQUENCES];  // number of combinations of text and stop reason
    uint64_t result[LOOP_SEQUENCES]; // the combination of this run; UINT64_MAX: not ended
    int emitted[LOOP_SEQUENCES];     // tokens emitted by steps
    int cut[LOOP_SEQUENCES];         // tokens of the last step that are not in the text
    struct loop_result *found;       // counts of texts
};

static void on_step(void *self, const struct speclab_step *s)
{
    struct examination *t = self;
    const int prompt = t->table_instance->start[s->sequence].n;
    if (s->position != prompt + t->emitted[s->sequence] - 1 || s->n > s->decided)
        table_model_violation(t->target, "sequence %d: a step at place %d after %d tokens", (int)s->sequence,
                              s->position, t->emitted[s->sequence]);
    t->emitted[s->sequence] += s->n;
    t->cut[s->sequence] = s->decided - s->n;
    if (t->flaw == PENALTY_FOR_REJECTED)
        remember_rejected(s);
}

static void on_text(void *self, const struct speclab_end *e)
{
    struct examination *t = self;
    enum speclab_stop why =
        t->flaw == END_CHECKED_AT_THE_END_OF_STEPS && e->why == SPECLAB_STOP_STRING ? SPECLAB_STOP_TOKEN : e->why;
    uint64_t *result = &t->result[e->sequence];
    if (*result != UINT64_MAX || e->n > t->emitted[e->sequence] ||
        (why != SPECLAB_STOP_STRING && e->n != t->emitted[e->sequence]))
        table_model_violation(t->target, "sequence %d ends with %d tokens after steps of %d", (int)e->sequence, e->n,
                              t->emitted[e->sequence]);
    t->found->why[why]++;
    t->found->within += t->cut[e->sequence] > 0;
    t->found->back += e->n < t->emitted[e->sequence];
    *result = text_number(t->table_instance->vocab, e->token, e->n) * LOOP_REASONS + (uint64_t)why;
}

static void read_sampling(struct examination *t)
{
    struct error err;
    const char *text = t->table_instance->sampling != NULL ? t->table_instance->sampling : "{temperature: 1}";
    struct settings *s = yaml_parse(text, strlen(text), "sampling", &err);
    assert_ok(s != NULL && sampling_read(s, &t->sampling, &err), err);
    settings_free(s);
    t->wrong = t->sampling; // borrows
    for (int k = 0; k < t->wrong.n; k++)
        if (wrong_stages[t->flaw].apply != NULL && is_penalty(t->wrong.step[k].stage)) {
            penalty_memory.stage = t->wrong.step[k].stage;
            t->wrong.step[k].stage = &wrong_stages[t->flaw];
        }
}

static void examination_open(struct examination *t, const struct draft_shape *g, const struct rule *rule,
                             const void *options, uint64_t seed)
{
    struct error err = { "" };
    const struct table_instance *w = t->table_instance;
    bool late = t->flaw == END_CHECKED_AT_THE_END_OF_STEPS;
    read_sampling(t);
    t->target =
        table_model_create((struct table){ 2 * seed, w->vocab }, w->slots * draft_nodes(g), w->on_device, t->flaw);
    t->table_drafter = table_drafter_create(w, g, t->target, (struct table){ 2 * seed + 1, w->vocab });
    penalty_memory.table_drafter = t->table_drafter;
    struct verifier_setup setup = { .target = t->target,
                                    .rule = rule,
                                    .rule_options = options,
                                    .sampling = &t->wrong,
                                    .taps = t->table_drafter->drafter.taps,
                                    .slots = w->slots,
                                    .length = w->length,
                                    .nodes = draft_nodes(g),
                                    .used_vocab = w->vocab };
    t->verifier = verifier_create(&setup, &err);
    t->stops = (struct stops){ late ? 0 : w->end.n, w->end.token,
                               late              ? end_token_at_step_end
                               : w->string.n > 0 ? first_stop
                                                 : NULL,
                               (void *)(uintptr_t)w };
    t->decoder = t->verifier == NULL
                     ? NULL
                     : decoder_create(t->verifier, &t->table_drafter->drafter, w->slots, 1,
                                      (struct speclab_listener){ .step = on_step, .end = on_text, .self = t }, &err);
    assert_ok(t->decoder != NULL, err);
}

static void examination_close(struct examination *t)
{
    loop_destroy(t->decoder);
    free(t->decoder);
    verifier_destroy(t->verifier);
    t->table_drafter->drafter.type->destroy(&t->table_drafter->drafter);
    table_model_destroy(t->target);
    sampling_free(&t->sampling);
}

// Decodes every sequence to its end. A sequence without a free slot waits for one.
static void run_once(struct examination *t)
{
    struct error err;
    const struct table_instance *w = t->table_instance;
    int started = 0;
    walk.sources = penalty_memory.n = 0;
    for (int i = 0; i < w->sequences; i++) {
        t->result[i] = UINT64_MAX;
        t->emitted[i] = 0;
    }
    while (started < w->sequences || speclab_decoder_active(t->decoder) > 0) {
        for (; started < w->sequences && speclab_decoder_has_free_slot(t->decoder); started++) {
            const struct digits *p = &w->start[started];
            const struct speclab_request r = {
                .sequence = started, .prompt = p->token, .n = p->n, .max_tokens = w->prompt[started].limit
            };
            table_model_start(t->target, p->token, p->n);
            assert_true(decoder_start(t->decoder, &r, &t->stops, NULL, &err));
        }
        assert_true(speclab_decoder_step(t->decoder, &err));
    }
    if (walk.sources != w->sequences)
        table_model_violation(t->target, "%d random sources for %d sequences", walk.sources, w->sequences);
}

// Total variation between the joint distribution of the sequences and the product of their own distributions.
static double distance_to_own(const struct examination *t, const double *mass, uint64_t seed)
{
    const struct table_instance *w = t->table_instance;
    double *own[LOOP_SEQUENCES], distance = 0;
    uint64_t all = 1;
    for (int i = 0; i < w->sequences; i++) {
        int32_t token[TABLE_TEXT];
        const struct digits *p = &w->start[i];
        own[i] = xcalloc(t->texts[i], sizeof(**own));
        struct own o = { w, &t->sampling, { 2 * seed, w->vocab }, p->n, w->prompt[i].limit, own[i] };
        memcpy(token, p->token, (size_t)p->n * sizeof(*token));
        add_own(&o, token, p->n, 1);
        all *= t->texts[i];
    }
    for (uint64_t k = 0; k < all; k++) {
        double product = 1;
        uint64_t rest = k;
        for (int i = 0; i < w->sequences; rest /= t->texts[i], i++)
            product *= own[i][rest % t->texts[i]];
        distance += fabs(product - mass[k]) / 2;
    }
    for (int i = 0; i < w->sequences; i++)
        free(own[i]);
    return distance;
}

static struct digits digits(const char *text)
{
    struct digits d = { 0 };
    for (; text != NULL && *text != '\0'; text++)
        d.token[d.n++] = *text - '0';
    return d;
}

struct draft_shape draft_shape_of(struct draft_shape g)
{
    g.parent[0] = -1;
    g.nodes = 1;
    for (const char *at = g.form; *at != '\0'; at += 2 + (at[2] == ' '), g.nodes++) {
        g.parent[g.nodes] = at[0] - '0';
        g.proposal[g.nodes] = at[1] == 'd' ? DETERMINISTIC : at[1] == 's' ? SAMPLED : SAMPLED_WITHOUT_REPLACEMENT;
    }
    return g;
}

struct loop_result table_instance_examine(const struct table_instance *given, const struct draft_shape *g,
                                          const struct rule *rule, const void *options, uint64_t seed, enum flaw flaw)
{
    struct table_instance w = *given;
    struct loop_result found = { .instances = 1 };
    struct examination t = { .table_instance = &w, .flaw = flaw, .found = &found };
    struct outcomes o;
    uint64_t all = 1;
    double total = 0;
    w.length = w.length == 0 ? TABLE_TEXT : w.length;
    w.slots = w.slots == 0 ? 1 : w.slots;
    w.end = digits(w.ends);
    w.string = digits(w.stop);
    for (; w.sequences < LOOP_SEQUENCES && w.prompt[w.sequences].text != NULL; w.sequences++) {
        const int i = w.sequences;
        w.start[i] = digits(w.prompt[i].text);
        const int32_t last[TABLE_TEXT] = {
            w.vocab - 1, w.vocab - 1, w.vocab - 1, w.vocab - 1, w.vocab - 1, w.vocab - 1
        };
        t.texts[i] = (text_number(w.vocab, last, w.prompt[i].limit) + 1) * LOOP_REASONS;
        all *= t.texts[i];
    }
    double *mass = xcalloc(all, sizeof(*mass));
    examination_open(&t, g, rule, options, seed);
    outcomes_begin(&o);
    walk.outcomes = &o;
    while (outcomes_next(&o)) {
        run_once(&t);
        if (flaw == SLOTS_ARE_NOT_EMPTIED && table_model_violations(t.target) > 0)
            break;
        uint64_t k = 0;
        for (int i = w.sequences - 1; i >= 0; i--)
            k = k * t.texts[i] + t.result[i];
        mass[k] += outcomes_probability(&o);
        total += outcomes_probability(&o);
    }
    found.distance = flaw == SLOTS_ARE_NOT_EMPTIED ? 0 : distance_to_own(&t, mass, seed);
    found.lost = fabs(1 - total);
    found.runs = o.runs;
    found.rows = table_model_rows_checked(t.target);
    found.repeated = o.repeated;
    found.violations = table_model_violations(t.target);
    memcpy(found.message, table_model_message(t.target), sizeof(found.message));
    outcomes_end(&o);
    examination_close(&t);
    free(mass);
    return found;
}

void loop_result_add(struct loop_result *worst, const struct loop_result *one)
{
    if (worst->violations == 0)
        memcpy(worst->message, one->message, sizeof(worst->message));
    worst->distance = fmax(worst->distance, one->distance);
    worst->lost = fmax(worst->lost, one->lost);
    worst->instances += one->instances;
    worst->runs += one->runs;
    worst->rows += one->rows;
    for (int why = 0; why < LOOP_REASONS; why++)
        worst->why[why] += one->why[why];
    worst->within += one->within;
    worst->back += one->back;
    worst->repeated += one->repeated;
    worst->violations += one->violations;
}
