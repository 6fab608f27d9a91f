// quantize_command.c - `speclab quantize`: a model at another precision, as target or as drafter.
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
#include "models/paths.h"
#include "commands/checkpoint/quantise.h"
#include "commands/checkpoint/writer.h"

static const char about[] =
    "Writes the model with all its matrices (attention, feed-forward, embedding, head) in one type. Norms and\n"
    "biases stay as they are, and so does a matrix whose rows are no whole number of 32 for q8_0 and q4_0; it is\n"
    "named. A GGUF file, of any types that can be read, becomes a GGUF file; a Hugging Face directory becomes a\n"
    "directory (bf16) or, with its tokenizer, a GGUF file. q8_0 and q4_0 are what ggml's reference gives, rounded\n"
    "from what the model's own numbers are: making a small type a larger one brings nothing back. PATH must not\n"
    "exist yet.\n";

static const char examples[] =
    "  speclab quantize smollm2-135m-instruct --type q8_0 --out smollm2-q8.gguf\n"
    "  speclab quantize meta-llama/Llama-3.2-1B-Instruct --type q4_0 --out llama-1b-q4.gguf\n";

static bool type_named(const char *word, enum type *to)
{
    static const enum type types[] = { Q8_0, Q4_0, BF16 };
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (strcmp(word, type_facts[types[i]].name) == 0) {
            *to = types[i];
            return true;
        }
    return false;
}

static void report(const char *to, enum type type, const struct quantised *q, double seconds)
{
    const char *name = type_facts[type].name;
    printf("%s: %.1f MB, from %.1f MB, in %.1f s\n", to, (double)q->after / 1e6, (double)q->before / 1e6, seconds);
    printf("%d matrices are %s now", q->changed, name);
    if (q->same > 0)
        printf(", %d were before", q->same);
    printf("\n");
    if (q->odds > 0)
        printf("%d stay as they are, since their rows are no whole number of blocks of %d: %s%s\n", q->odds,
               type_facts[type].block, q->odd, q->odds > 3 ? ", ..." : "");
}

static int quantise(const char *name, enum type type, const char *to, const struct usage *u)
{
    struct error err;
    struct output output;
    struct model_config c = { 0 };
    struct quantised done = { 0 };
    struct backend *b = NULL;
    char *from = model_path(name, NULL, &err);
    int status = 0;
    bool ok = from != NULL && config_read(from, &c, &err);
    if (ok && !quantise_fits(&c, type, to, &err))
        status = usage_fail(u, "--out %s", err.text);
    making_begin(&output);
    struct step_observer observer = output_observer(&output);
    if (ok && status == 0) {
        ok = (b = backend_cpu(0, &err)) != NULL && quantise_model(from, type, to, b, &observer, &done, &err);
        double seconds = making_end(&output);
        if (ok)
            report(to, type, &done, seconds);
    }
    if (!ok)
        status = command_fail(u, &err);
    if (b != NULL)
        b->destroy(b);
    free(done.odd);
    config_free(&c);
    free(from);
    return status;
}

int command_quantize(int argc, char **argv)
{
    const char *word = NULL, *out = NULL;
    const struct flag flags[] = {
        { "type", FLAG_TEXT, &word, "TYPE", "of the matrices: q8_0, q4_0 or bf16", 0, 0 },
        { "out", FLAG_TEXT, &out, "PATH", "the file, whose name ends with .gguf, or the directory to make", 0, 0 },
        { 0 },
    };
    const struct usage u = { "quantize", "--type TYPE --out PATH MODEL", about, flags, examples, 1, 1 };
    char **operand;
    enum type type;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != GO_ON)
        return status;
    if (word == NULL || out == NULL || *out == '\0')
        return usage_fail(&u, "%s is needed", word == NULL ? "--type TYPE" : "--out PATH");
    if (!type_named(word, &type))
        return usage_fail(&u, "--type: expected q8_0, q4_0 or bf16, found \"%s\"", word);

    char *to = making_path(out);
    status = quantise(operand[0], type, to, &u);
    free(to);
    return status != 0 ? status : command_done(&u);
}
