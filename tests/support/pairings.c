#include "tests/support/pairings.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/yaml.h"
#include "kernels/backend.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/support/check.h"
#include "tests/support/rule_defaults.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"
#include "tests/support/small_store.h"
#include "verifier/rules/rule.h"

static const char *const lines[] = {
    "none",
    "ngram",
    "ngram:longest=2,tokens=3",
    "suffix:max_spec_factor=2,min_token_prob=0.01",
    "rest:datastore=%s.store,shortest=1",
    "rest:datastore=%s.store,shortest=1,choices=5,nodes=9,tokens=4",
    "lookahead:window=4,ngram=3,candidates=3",
    "early_exit:exit_layer=1",
    "early_exit:exit_layer=1,widths=[3,2,1]",
    "early_exit:exit_layer=1,nodes=9,top=3,tokens=4,pick=greedy",
    "layer_skip:keep=0,tokens=3,pick=coupled",
    "layer_skip:keep=1,tree=eagle_25,pick=greedy",
    "union:of=[{kind: ngram, longest: 2},{kind: suffix},{kind: recycling, tree: [[0],[1],[0,0],[2]]}]",
    "union:nodes=9,of=[{kind: ngram},{kind: small, model: %s, widths: [3, 2, 1]},{kind: eagle3, weights: %s.eagle3, nodes: 12, top: 4, tokens: 4, pick: greedy}]",
    "union:of=[{kind: medusa, weights: %s.medusa, tokens: 3},{kind: ngram, longest: 2, tokens: 3}]",
    "adaptive:by=confidence,threshold=0.1,of={kind: small, model: %s, tokens: 6}",
    "adaptive:by=confidence,threshold=0.05,of={kind: eagle3, weights: %s.eagle3, widths: [2, 2, 2]}",
    "adaptive:by=acceptance,of={kind: ngram, longest: 2}",
    "adaptive:of={kind: eagle, weights: %s.eagle, pick: greedy}",
    "oracle:tokens=3",
    "oracle:tokens=3,wrong=[0.5, 0.1]",
    "ladder:of=[{kind: ngram, shortest: 3},{kind: recycling, tree: [[0],[1],[0,0],[2]]},{kind: early_exit, exit_layer: 1}]",
    "small:model=%s",
    "small:model=%s,tokens=1",
    "small:model=%s,tokens=6,pick=greedy",
    "small:model=%s,tokens=3,pick=coupled,temperature=0.8",
    "small:model=%s,widths=[3,2,1]",
    "small:model=%s,widths=[3,2,1],distinct=false,temperature=1.6",
    "small:model=%s,widths=[2,2,2],pick=greedy",
    "small:model=%s,nodes=9,top=3,tokens=4,pick=greedy",
    "small:model=%s,tree=eagle_25,pick=greedy",
    "small:model=%s.other,vocabulary=common",
    "small:model=%s.other,vocabulary=common,widths=[3,2,1]",
    "small:model=%s.other,vocabulary=common,nodes=9,top=3,tokens=4,pick=greedy",
    "small:model=%s.other,vocabulary=retokenize",
    "small:model=%s.other,vocabulary=retokenize,tokens=6,pick=greedy",
    "medusa:weights=%s.medusa,tokens=3",
    "medusa:weights=%s.medusa,tree=mc_sim_7b_63,pick=greedy",
    "medusa:weights=%s.medusa,widths=[2,2,1],distinct=false",
    "blockwise:weights=%s.medusa",
    "eagle:weights=%s.eagle",
    "eagle:weights=%s.eagle,tree=eagle_25,pick=greedy",
    "eagle:weights=%s.eagle,nodes=59,top=10,tokens=6,pick=greedy",
    "eagle:weights=%s.eagle,widths=[3,2,1]",
    "eagle3:weights=%s.eagle3,tokens=3",
    "eagle3:weights=%s.eagle3,nodes=12,top=4,tokens=4,pick=greedy",
    "eagle3:weights=%s.eagle3,widths=[2,2,2],temperature=0.5",
    "ladder:of=[{kind: ngram, longest: 2, tokens: 3, at_least: 2}]",
    "ladder:of=[{kind: ngram, shortest: 2, at_least: 2},{kind: small, model: %s, tokens: 3}]",
    "ladder:of=[{kind: ngram, longest: 2},{kind: small, model: %s, widths: [3, 2, 1]}]",
    "ladder:of=[{kind: ngram, shortest: 3},{kind: eagle3, weights: %s.eagle3, tokens: 3}]",
    "ladder:of=[{kind: ngram, longest: 2, at_least: 3},{kind: medusa, weights: %s.medusa, tokens: 2},{kind: eagle, weights: %s.eagle}]",
    "ladder:of=[{kind: ngram, shortest: 3},{kind: eagle3, weights: %s.eagle3, nodes: 12, top: 4, tokens: 4, pick: greedy, at_least: 9},"
    "{kind: medusa, weights: %s.medusa, tokens: 3}]",
};

enum { LINES = sizeof(lines) / sizeof(lines[0]) };

static char **given; // in place of these
static int n_given;

void pair_only(char **drafters, int n)
{
    given = drafters;
    n_given = n;
}

static bool is_named(const char *name)
{
    for (int l = 0; l < LINES; l++)
        if (strlen(name) == strcspn(lines[l], ":") && strncmp(lines[l], name, strlen(name)) == 0)
            return true;
    return false;
}

// The first option without a default; NULL: all have one.
static const char *required_option(const struct drafter_type *type)
{
    for (const struct option *o = type->options; o != NULL && o->name != NULL; o++)
        if (o->default_value == NULL)
            return o->name;
    return NULL;
}

// The i-th registered drafter that no line names and that has defaults; NULL: no more.
static const char *unnamed(int i)
{
    static bool reported; // once per drafter and program
    const char *found = NULL;
    for (int t = 0; drafter_types[t] != NULL; t++) {
        const char *name = drafter_types[t]->name;
        if (is_named(name))
            continue;
        const char *required = required_option(drafter_types[t]);
        if (required == NULL && i-- == 0)
            found = name;
        if (required != NULL && !reported)
            print_message("skipped: drafter %s has no default for its option %s (test_drafters %s:%s=..)\n", name,
                          required, name, required);
    }
    reported = true;
    return found;
}

int pair_count(void)
{
    int n = LINES;
    if (n_given > 0)
        return n_given;
    while (unnamed(n - LINES) != NULL)
        n++;
    return n;
}

const char *pair_drafter(int i)
{
    return n_given > 0 ? given[i] : i < LINES ? lines[i] : unnamed(i - LINES);
}

char *pair_target, *pair_draft;

// A draft model with another tokenizer: DRAFT.other.
static void make_other(const char *draft)
{
    struct small_model t = small_default;
    char *directory = xformat("%s.other", draft);
    t.layers = 1;
    t.other_tokens = true;
    small_write_hf(directory, &t);
    free(directory);
}

void pair_heads_make(const char *target, const char *draft)
{
    const struct head_shape s = head_shape_of(target);
    static const struct {
        const char *name;
        void (*write)(const char *, const struct head_shape *);
    } kinds[] = { { "medusa", heads_write_medusa }, { "eagle", heads_write_eagle }, { "eagle3", heads_write_eagle3 } };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char *directory = xformat("%s.%s", draft, kinds[i].name);
        kinds[i].write(directory, &s);
        free(directory);
    }
    make_other(draft);
    char *store = xformat("%s.store", draft);
    small_store_write(target, store);
    free(store);
}

static struct small_model make_target(enum type type)
{
    struct small_model t = small_default;
    t.type = type;
    small_write_hf(pair_target = test_path("target"), &t);
    t.layers = 1;
    return t;
}

static int make_pair(enum type type)
{
    struct small_model draft = make_target(type);
    small_write_gguf(pair_draft = test_path("draft.gguf"), &draft);
    pair_heads_make(pair_target, pair_draft);
    return 0;
}

int pair_models_make(void **state)
{
    return make_pair(F32);
}

int pair_models_make_bf16(void **state)
{
    return make_pair(BF16);
}

int pair_models_make_foreign(void **state)
{
    struct small_model draft = make_target(F32);
    draft.seed = 99;
    small_write_hf(pair_draft = test_path("draft"), &draft);
    pair_heads_make(pair_target, pair_draft);
    return 0;
}

int pair_models_remove(void **state)
{
    free(pair_target);
    free(pair_draft);
    test_directory_remove();
    return 0;
}

char *pair_line(const char *drafter, const char *draft)
{
    struct text t = { 0 };
    for (const char *hole; (hole = strstr(drafter, "%s")) != NULL; drafter = hole + 2) {
        text_add(&t, drafter, (size_t)(hole - drafter));
        text_puts(&t, draft);
    }
    text_puts(&t, drafter);
    return t.s;
}

static void read_options(struct pair *p, const char *line, const char *draft)
{
    struct error err;
    char *text = pair_line(line, draft);
    struct settings *s = settings_inline(text, "drafter", &err);
    p->type = s != NULL ? drafter_named(settings_get(s, "kind")->text) : NULL;
    if (p->type == NULL)
        fail_msg("no drafter %s", text);
    p->options = xcalloc(1, p->type->options_size + 1);
    if (!options_read(s, "drafter", p->type->options, p->options, &err))
        fail_msg("%s: %s; expected a line with its options in tests/support/pairings.c", line, err.text);
    settings_free(s);
    free(text);
}

bool pair_declares(const char *drafter, const char *option_name)
{
    char *kind = xstrndup(drafter, strcspn(drafter, ":"));
    const struct drafter_type *type = drafter_named(kind);
    free(kind);
    for (const struct option *o = type != NULL ? type->options : NULL; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, option_name) == 0)
            return true;
    return false;
}

unsigned pair_makes(const char *drafter)
{
    struct pair p = { 0 };
    read_options(&p, drafter, "-");
    const unsigned made = drafter_makes(p.type, p.options);
    options_free(p.type->options, p.options);
    free(p.options);
    return made;
}

enum draft_memory pair_remembers(const char *drafter)
{
    struct pair p = { 0 };
    read_options(&p, drafter, "-");
    const enum draft_memory memory = drafter_remembers(p.type, p.options);
    options_free(p.type->options, p.options);
    free(p.options);
    return memory;
}

bool pair_is_of_drafters(const char *drafter)
{
    char *kind = xstrndup(drafter, strcspn(drafter, ":"));
    const bool is = drafter_named(kind)->of != NULL;
    free(kind);
    return is;
}

bool pair_uses_target(const char *drafter)
{
    static const char *const names[] = { "recycling", "lookahead", "early_exit", "layer_skip", "oracle" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strstr(drafter, names[i]) != NULL)
            return true;
    return false;
}

bool pair_fits(const char *drafter, const struct rule *rule)
{
    return takes_missing(rule->takes, pair_makes(drafter)) == 0;
}

struct pair *pair_open(const char *target, const char *draft, const char *drafter, const char *sampling,
                       const struct rule *rule, int slots, int length)
{
    return pair_open_on(NULL, NULL, target, draft, drafter, sampling, rule, slots, length);
}

static struct backend *opened_by(pair_device *open)
{
    struct error err;
    struct backend *b = open != NULL ? open(&err) : backend_cpu(2, &err);
    assert_ok(b != NULL, err);
    return b;
}

struct pair *pair_open_on(pair_device *target_on, pair_device *draft_on, const char *target, const char *draft,
                          const char *drafter, const char *sampling, const struct rule *rule, int slots, int length)
{
    struct error err;
    struct pair *p = xcalloc(1, sizeof(*p));
    struct settings *s = yaml_parse(sampling, strlen(sampling), "sampling", &err);
    assert_ok(s != NULL && sampling_read(s, &p->sampling, &err), err);
    settings_free(s);
    read_options(p, drafter, draft);
    p->backend = opened_by(target_on);
    p->draft_backend = draft_on != NULL ? opened_by(draft_on) : NULL;
    p->sampling.workers = p->backend->workers(p->backend);
    const int rows = slots * 64; // max nodes of all tested drafts
    p->target = model_open(target, p->backend, ACTIVATIONS_F32, rows > MAX_NODES ? rows : MAX_NODES, &err);
    assert_ok(p->target != NULL, err);
    int used_vocab = model_shape(p->target)->vocab;
    p->tokenizer = tokenizer_open(target, &err);
    if (p->tokenizer != NULL && tokenizer_size(p->tokenizer) < used_vocab)
        used_vocab = tokenizer_size(p->tokenizer);
    struct drafter_env env = { .backend = p->draft_backend != NULL ? p->draft_backend : p->backend,
                               .target_backend = p->backend,
                               .target = p->target,
                               .tokenizer = p->tokenizer,
                               .sampling = &p->sampling,
                               .slots = slots,
                               .length = length,
                               .used_vocab = used_vocab };
    p->drafter = drafter_create(p->type, &env, p->options, &err);
    if (p->drafter == NULL)
        fail_msg("%s: %s", drafter, err.text);
    p->rule = rule;
    p->rule_options = rule_defaults(rule);
    struct verifier_setup setup = { .target = p->target,
                                    .rule = rule,
                                    .rule_options = p->rule_options,
                                    .sampling = &p->sampling,
                                    .taps = p->drafter->taps,
                                    .top = p->drafter->top,
                                    .cache_rows = p->drafter->cache_rows,
                                    .slots = slots,
                                    .length = length,
                                    .nodes = p->drafter->nodes,
                                    .used_vocab = used_vocab };
    p->verifier = verifier_create(&setup, &err);
    if (p->verifier == NULL)
        fail_msg("%s: %s", drafter, err.text);
    if (p->type->attach != NULL)
        p->type->attach(p->drafter, verifier_cache(p->verifier));
    return p;
}

void pair_close(struct pair *p)
{
    verifier_destroy(p->verifier);
    drafter_destroy(p->drafter);
    options_free(p->type->options, p->options);
    rule_defaults_free(p->rule, p->rule_options);
    sampling_free(&p->sampling);
    tokenizer_close(p->tokenizer);
    model_close(p->target);
    p->backend->destroy(p->backend);
    if (p->draft_backend != NULL)
        p->draft_backend->destroy(p->draft_backend);
    free(p->options);
    free(p);
}

void pair_feed(struct pair *p, int slot, const int32_t *token, int n, const int32_t *node)
{
    struct error err;
    for (struct advance a;;) {
        assert_ok(verifier_prefill(p->verifier, slot, token, n, &a, &err), err);
        if (a.n == 0)
            return;
        a.node = node;
        a.sequence = token;
        a.length = (int)(a.token - token) + a.n;
        if (p->type->advance != NULL)
            assert_ok(p->type->advance(p->drafter, &a, 1, &err), err);
    }
}
