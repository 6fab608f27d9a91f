// quantize_command.c - `speclab quantize`: writes a model at another precision.
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
#include "commands/checkpoint/quantize.h"
#include "commands/checkpoint/writer.h"

static const char about[] =
    "Writes the model with all its matrices (attention, feed-forward, embedding, head) in one type. Norms and\n"
    "biases are unchanged, and so is, for q8_0 and q4_0, a matrix whose row length is not a multiple of 32; it is\n"
    "named. A GGUF file, of any types that can be read, becomes a GGUF file; a Hugging Face directory becomes a\n"
    "directory (bf16) or, with its tokenizer, a GGUF file. q8_0 and q4_0 equal ggml's reference, rounded\n"
    "from the model's own numbers: converting to a larger type restores no precision. PATH must not\n"
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

static void report(const char *to, enum type type, const struct quantize_summary *q, double seconds)
{
    const char *name = type_facts[type].name;
    printf("%s: %.1f MB, from %.1f MB, in %.1f s\n", to, (double)q->after / 1e6, (double)q->before / 1e6, seconds);
    printf("%d matrices are %s now", q->changed, name);
    if (q->same > 0)
        printf(", %d were before", q->same);
    printf("\n");
    if (q->unchanged > 0)
        printf("%d are unchanged, since their row lengths are not multiples of %d: %s%s\n", q->unchanged,
               type_facts[type].block, q->unchanged_names, q->unchanged > 3 ? ", ..." : "");
}

static int quantize(const char *name, enum type type, const char *to, const struct usage *u)
{
    struct error err;
    struct output output;
    struct model_config c = { 0 };
    struct quantize_summary done = { 0 };
    struct backend *b = NULL;
    char *from = model_path(name, NULL, &err);
    int status = 0;
    bool ok = from != NULL && config_read(from, &c, &err);
    if (ok && !quantize_check_output(&c, type, to, &err))
        status = usage_fail(u, "--out %s", err.text);
    output_begin(&output);
    struct progress_observer observer = output_observer(&output);
    if (ok && status == 0) {
        ok = (b = backend_cpu(0, &err)) != NULL && quantize_model(from, type, to, b, &observer, &done, &err);
        double seconds = output_end(&output);
        if (ok) {
            report(to, type, &done, seconds);
            output_print_left_out(&done.left_out);
        }
    }
    if (!ok)
        status = command_fail(u, &err);
    if (b != NULL)
        b->destroy(b);
    free(done.unchanged_names);
    config_free(&c);
    free(from);
    return status;
}

int command_quantize(int argc, char **argv)
{
    const char *word = NULL, *out = NULL;
    const struct flag flags[] = {
        { "type", FLAG_TEXT, &word, "TYPE", "of the matrices: q8_0, q4_0 or bf16", 0, 0 },
        { "out", FLAG_TEXT, &out, "PATH", "the file (its name ends with .gguf) or the directory to write", 0, 0 },
        { 0 },
    };
    const struct usage u = { "quantize", "--type TYPE --out PATH MODEL", about, flags, examples, 1, 1 };
    char **operand;
    enum type type;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    if (word == NULL || out == NULL || *out == '\0')
        return usage_fail(&u, "%s is needed", word == NULL ? "--type TYPE" : "--out PATH");
    if (!type_named(word, &type))
        return usage_fail(&u, "--type: expected q8_0, q4_0 or bf16, found \"%s\"", word);

    char *to = output_path(out);
    status = quantize(operand[0], type, to, &u);
    free(to);
    return status != 0 ? status : command_done(&u);
}
