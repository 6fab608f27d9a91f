// make_command.c - `speclab make`: a model of any shape and type with random weights, or a head for one, for benchmarks.
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/checkpoint/output.h"
#include "commands/checkpoint/random_model.h"
#include "models/paths.h"
#include "commands/checkpoint/writer.h"

struct random_options { // those not given are the shape's own
    int type, layers, width, heads, kv_heads, head_dim, hidden, vocab, context, seed, experts, experts_used,
        expert_hidden;
};

#define AT(field) offsetof(struct random_options, field)
static const enum type types[] = { Q4_0, Q8_0, BF16, F32, IQ4_NL, IQ4_XS, MXFP4 };
static const struct option options[] = {
    { "type", OPTION_CHOICE, AT(type), "q4_0", "of all matrices", 0, 0, "q4_0|q8_0|bf16|f32|iq4_nl|iq4_xs|mxfp4" },
    { "layers", OPTION_INT, AT(layers), "1", "", 1, 1024, NULL },
    { "width", OPTION_INT, AT(width), "1", "", 1, 1 << 20, NULL },
    { "heads", OPTION_INT, AT(heads), "1", "", 1, 4096, NULL },
    { "kv_heads", OPTION_INT, AT(kv_heads), "1", "", 1, 4096, NULL },
    { "head_dim", OPTION_INT, AT(head_dim), "2", "", 2, 4096, NULL },
    { "hidden", OPTION_INT, AT(hidden), "1", "", 1, 1 << 20, NULL },
    { "vocab", OPTION_INT, AT(vocab), "2", "", 2, 1 << 20, NULL },
    { "context", OPTION_INT, AT(context), "2", "", 2, 1 << 24, NULL },
    { "experts", OPTION_INT, AT(experts), "1", "", 1, 4096, NULL },
    { "experts_used", OPTION_INT, AT(experts_used), "1", "", 1, 64, NULL },
    { "expert_hidden", OPTION_INT, AT(expert_hidden), "1", "", 1, 1 << 20, NULL },
    { "seed", OPTION_INT, AT(seed), "1", "of the weights", 0, INT_MAX, NULL },
    { 0 },
};

struct head_options {
    char *of;
    int type, draft_vocab, seed;
};

#define HEAD_AT(field) offsetof(struct head_options, field)
static const enum type head_types[] = { BF16, F32 };
static const struct option head_options[] = {
    { "of", OPTION_PATH, HEAD_AT(of), NULL, "the target model of the head", 0, 0, NULL },
    { "type", OPTION_CHOICE, HEAD_AT(type), "bf16", "of all matrices", 0, 0, "bf16|f32" },
    { "draft_vocab", OPTION_INT, HEAD_AT(draft_vocab), "32000", "ids that it can propose", 1, 1 << 24, NULL },
    { "seed", OPTION_INT, HEAD_AT(seed), "1", "of the weights", 0, INT_MAX, NULL },
    { 0 },
};

static bool find_shape(const char *name, struct random_shape *to, struct error *err)
{
    struct text names = { 0 };
    for (const struct random_shape *s = random_shapes; s->name != NULL; s++) {
        if (strcmp(s->name, name) == 0) {
            *to = *s;
            free(names.s);
            return true;
        }
        text_printf(&names, "%s%s", names.n > 0 ? ", " : "", s->name);
    }
    fail(err, "unknown shape \"%s\" (expected one of %s)", name, names.s);
    free(names.s);
    return false;
}

// Puts the shape's own sizes where the call gives none, so that what is out of range is refused in one place.
static bool read_shape(struct settings *spec, struct random_shape *shape, struct random_options *o, struct error *err)
{
    const char *name = NULL;
    if (!settings_text(settings_get(spec, "kind"), "kind", &name, err) || !find_shape(name, shape, err))
        return false;
    const struct {
        const char *name;
        int *to;
        const int *given;
    } sizes[] = {
        { "layers", &shape->layers, &o->layers },
        { "width", &shape->width, &o->width },
        { "heads", &shape->heads, &o->heads },
        { "kv_heads", &shape->kv_heads, &o->kv_heads },
        { "head_dim", &shape->head_dim, &o->head_dim },
        { "hidden", &shape->hidden, &o->hidden },
        { "vocab", &shape->vocab, &o->vocab },
        { "context", &shape->context, &o->context },
        { "experts", &shape->experts, &o->experts }, // these three 0: it has none
        { "experts_used", &shape->experts_used, &o->experts_used },
        { "expert_hidden", &shape->expert_hidden, &o->expert_hidden },
    };
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    for (int i = 0; i < SIZES; i++) {
        const bool given = settings_get(spec, sizes[i].name) != NULL;
        if (given && *sizes[i].to == 0)
            return fail(err, "%s: %s has none", sizes[i].name, shape->name);
        if (given || *sizes[i].to == 0)
            continue;
        char *own = xformat("%d", *sizes[i].to);
        settings_put(spec, sizes[i].name, settings_scalar(own));
        free(own);
    }
    if (!options_read(spec, "SHAPE", options, o, err))
        return false;
    for (int i = 0; i < SIZES; i++)
        *sizes[i].to = *sizes[i].to > 0 ? *sizes[i].given : 0;
    return random_shape_check(shape, types[o->type], err);
}

static const char about[] =
    "Writes a GGUF file of Llama's shape with random weights, which llama.cpp loads as well: for benchmarks, where the\n"
    "generated text does not matter. SHAPE is llama-1b (Llama-3.2-1B), llama-3b, llama-8b, smollm2-135m or qwen3-30b-a3b,\n"
    "a mixture of experts; its options are type (q4_0, the default, q8_0, bf16, f32, iq4_nl, iq4_xs or mxfp4, of all\n"
    "matrices), layers, width, heads, kv_heads, head_dim, hidden, vocab, context and seed, and of a mixture experts,\n"
    "experts_used and expert_hidden.\n"
    "The same SHAPE and options give the same bytes. PATH must not exist yet.\n"
    "With eagle3 as SHAPE it writes a folder with an EAGLE-3 head for the model `of`, a layer of that model's shape; its\n"
    "options are of, type (bf16, the default, or f32), draft_vocab (32000) and seed.\n";

static const char examples[] = "  speclab make llama-1b:type=q8_0 --out 1b-q8_0.gguf\n"
                               "  speclab make llama-1b:type=bf16,layers=4 --out small.gguf\n"
                               "  speclab make eagle3:of=small.gguf --out small-eagle3\n"
                               "  speclab bench 1b-q8_0.gguf --compare\n";

static int make_model(const struct usage *u, struct settings *spec, const char *to)
{
    struct error err;
    struct output output;
    struct random_shape s;
    struct random_options o;
    if (!read_shape(spec, &s, &o, &err))
        return usage_fail(u, "%s", err.text);
    output_begin(&output);
    struct progress_observer observer = output_observer(&output);
    bool ok = random_model_write(&s, types[o.type], (uint64_t)o.seed, to, &observer, &err);
    double seconds = output_end(&output);
    if (!ok)
        return command_fail(u, &err);
    printf("%s: %s, %s, in %.1f s\n", to, s.name, type_facts[types[o.type]].name, seconds);
    return command_done(u);
}

static int make_head(const struct usage *u, const struct settings *spec, const char *given)
{
    struct error err;
    struct output output;
    struct head_options o;
    if (!options_read(spec, "eagle3", head_options, &o, &err)) {
        options_free(head_options, &o);
        return usage_fail(u, "%s", err.text);
    }
    const enum type type = head_types[o.type];
    char *of = model_path(o.of, NULL, &err), *to = output_path(given);
    output_begin(&output);
    const bool ok = of != NULL && random_eagle3_write(of, o.draft_vocab, type, (uint64_t)o.seed, to, &err);
    const double seconds = output_end(&output);
    if (ok)
        printf("%s: an EAGLE-3 head for %s, %s, in %.1f s\n", to, o.of, type_facts[type].name, seconds);
    free(of);
    free(to);
    options_free(head_options, &o);
    return ok ? command_done(u) : command_fail(u, &err);
}

int command_make(int argc, char **argv)
{
    const char *out = NULL;
    const struct flag flags[] = {
        { "out", FLAG_TEXT, &out, "PATH", "the file to write, or the folder of a head", 0, 0 },
        { 0 },
    };
    const struct usage u = { "make", "--out PATH SHAPE[:KEY=VALUE,...]", about, flags, examples, 1, 1 };
    struct error err;
    char **operand;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    if (out == NULL || *out == '\0')
        return usage_fail(&u, "--out PATH is needed");
    struct settings *spec = settings_inline(operand[0], "SHAPE", &err);
    if (spec == NULL)
        return usage_fail(&u, "%s", err.text);
    const bool head = strcmp(settings_get(spec, "kind")->text, "eagle3") == 0;
    status = head ? make_head(&u, spec, out) : make_model(&u, spec, out);
    settings_free(spec);
    return status;
}
