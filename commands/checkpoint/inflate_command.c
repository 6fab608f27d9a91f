// inflate_command.c - `speclab inflate`: a model with the cost of a larger one and the texts of an existing one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/checkpoint/output.h"
#include "kernels/backend.h"
#include "models/config.h"
#include "commands/checkpoint/inflate.h"
#include "commands/checkpoint/inflate_head.h"
#include "commands/checkpoint/source.h"
#include "models/paths.h"
#include "commands/checkpoint/writer.h"

static const char about[] =
    "Writes a larger model that computes the same function: wider, with more heads, hidden units and layers, all of\n"
    "which are computed and multiplied by zero. It costs what a model of its size costs and generates what the\n"
    "smaller one does, so a drafter can be measured with a large target when only a small one exists. Its speeds are of\n"
    "no real model: the file is marked as inflated, which inspect and every report show. Logits are equal up to\n"
    "rounding, which int8 activations can make visible in a text; with four times the width (or the same) they\n"
    "are equal to the last bit. Numbers are copied in the model's own types, so width and hidden must be multiples\n"
    "of the block size (32, or 256 for q4_k to q6_k and iq4_xs); the head size stays the same, and as many\n"
    "or more query heads share a key-value head. A GGUF file becomes a GGUF file, a Hugging Face directory\n"
    "a directory. PATH must not exist yet. With --target, MODEL is a head of the smaller model, and becomes one of\n"
    "TARGET, an inflated model: with its sizes, and with the drafts of the head.\n";

static const char examples[] =
    "  speclab inflate smollm2-135m-instruct --width 2304 --hidden 2816 --heads 32 --kv-heads 8 --out 1b.gguf\n"
    "  speclab inflate smollm2-135m-instruct --layers 60 --out deep.gguf\n"
    "  speclab inflate eagle3-head --target 1b.gguf --out eagle3-head-1b\n"
    "  speclab generate 1b.gguf --drafter small:model=smollm2-135m-instruct 'What is a prime number?'\n";

struct requested_sizes {
    long long width, hidden, heads, kv_heads, layers;
};

static bool report(const char *to, const struct model_config *c, const struct sizes *s, double seconds,
                   struct error *err)
{
    struct output_summary summary;
    if (!output_read_back(to, &summary, err))
        return false;
    printf("%s: %.1f million parameters, %.1f MB, in %.1f s; marked as inflated\n", to, summary.parameters / 1e6,
           summary.bytes / 1e6, seconds);
    printf("width %d (%d), hidden %d (%d), %d heads on %d (%d on %d), %d layers (%d)\n", s->width, c->width, s->hidden,
           c->hidden, s->heads, s->kv_heads, c->heads, c->kv_heads, s->layers, c->layers);
    if (!inflate_is_exact(c, s))
        printf("its logits equal the model's up to rounding; with width %lld they would be equal to the last bit\n",
               4LL * c->width);
    return true;
}

static int inflate(const char *name, const struct requested_sizes *a, const char *to, const struct usage *u)
{
    struct error err;
    struct output output;
    struct left_out left_out;
    struct model_config c = { 0 };
    struct sizes s = { (int)a->width, (int)a->hidden, (int)a->heads, (int)a->kv_heads, (int)a->layers };
    struct backend *b = NULL;
    char *from = model_path(name, NULL, &err);
    int status = 0;
    bool ok = from != NULL && config_read(from, &c, &err);
    if (ok && !inflate_resolve(&c, &s, to, &err))
        status = usage_fail(u, "%s", err.text);
    output_begin(&output);
    struct progress_observer observer = output_observer(&output);
    if (ok && status == 0) {
        ok = (b = backend_cpu(0, &err)) != NULL && inflate_model(from, &s, to, b, &observer, &left_out, &err);
        double seconds = output_end(&output);
        ok = ok && report(to, &c, &s, seconds, &err);
        if (ok)
            output_print_left_out(&left_out);
    }
    if (!ok)
        status = command_fail(u, &err);
    if (b != NULL)
        b->destroy(b);
    config_free(&c);
    free(from);
    return status;
}

static int inflate_for(const char *head, const char *target, const char *to, const struct usage *u)
{
    struct error err;
    struct model_config c = { 0 };
    struct backend *b = NULL;
    char *path = model_path(target, NULL, &err);
    const bool ok = path != NULL && config_read(path, &c, &err) && (b = backend_cpu(0, &err)) != NULL &&
                    inflate_head(head, &c, to, b, &err);
    if (ok)
        printf("%s: a head for %s, of width %d; marked as inflated\n", to, target, c.width);
    if (b != NULL)
        b->destroy(b);
    config_free(&c);
    free(path);
    return ok ? 0 : command_fail(u, &err);
}

int command_inflate(int argc, char **argv)
{
    struct requested_sizes a = { 0 };
    const char *out = NULL, *target = NULL;
    const struct flag flags[] = {
        { "width", FLAG_INT, &a.width, "N", "of the residual stream; default of all of these: the model's own", 1,
          (1 << 24) - 1 },
        { "hidden", FLAG_INT, &a.hidden, "N", "units of the feed-forward network", 1, (1 << 24) - 1 },
        { "heads", FLAG_INT, &a.heads, "N", "query heads of the model's head size, a multiple of --kv-heads", 1,
          1 << 14 },
        { "kv-heads", FLAG_INT, &a.kv_heads, "N", "key-value heads; their groups cannot become smaller", 1, 1 << 14 },
        { "layers", FLAG_INT, &a.layers, "N", "added layers are copies that write zeros", 1, 1024 },
        { "target", FLAG_TEXT, &target, "TARGET", "MODEL is a head, which becomes one of this inflated model", 0, 0 },
        { "out", FLAG_TEXT, &out, "PATH", "the file (its name ends with .gguf) or the directory to write", 0, 0 },
        { 0 },
    };
    const struct usage u = { "inflate", "--out PATH MODEL", about, flags, examples, 1, 1 };
    char **operand;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    if (out == NULL || *out == '\0')
        return usage_fail(&u, "--out PATH is needed");

    if (target != NULL && (a.width | a.hidden | a.heads | a.kv_heads | a.layers) != 0)
        return usage_fail(&u, "--target: the sizes are those of %s, so none can be given", target);

    char *to = output_path(out);
    status = target != NULL ? inflate_for(operand[0], target, to, &u) : inflate(operand[0], &a, to, &u);
    free(to);
    return status != 0 ? status : command_done(&u);
}
