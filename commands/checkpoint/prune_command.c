// prune_command.c - `speclab prune`: a simple draft model from the target's own layers.
#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/checkpoint/output.h"
#include "models/config.h"
#include "models/layer_list.h"
#include "models/paths.h"
#include "commands/checkpoint/prune.h"
#include "commands/checkpoint/source.h"

static const char about[] =
    "Writes a smaller model that keeps some of a larger one's layers, copied bit for bit in the model's own format: a GGUF\n"
    "file becomes a GGUF file, a Hugging Face directory a directory. Nothing is retrained, so how well it drafts depends on\n"
    "which layers are removed; middle layers matter least. PATH must not exist yet.\n";

static const char examples[] =
    "  speclab prune smollm2-135m-instruct --keep 0-11,13,15,17,19-29 --out draft.gguf\n"
    "  speclab generate smollm2-135m-instruct --drafter small:model=draft.gguf 'What is a prime number?'\n";

static bool prune(const char *name, const char *list, const char *out, const struct usage *u, int *status)
{
    struct error err;
    char *to = output_path(out);
    struct model_config c = { 0 };
    struct output_summary summary;
    struct left_out left_out;
    int n = 0, *keep = NULL;
    char *from = model_path(name, NULL, &err);
    bool ok = from != NULL && config_read(from, &c, &err);
    if (ok) {
        keep = layer_list_parse(list, c.layers, &n, &err);
        if (keep == NULL)
            *status = usage_fail(u, "--keep: %s", err.text);
        ok = keep != NULL;
    }
    ok = ok && prune_model(from, keep, n, to, &left_out, &err) && output_read_back(to, &summary, &err);
    if (ok) {
        printf("%s: %d of %d layers, %.1f MB\n", to, summary.layers, c.layers, summary.bytes / 1e6);
        output_print_left_out(&left_out);
    }
    if (!ok && *status == 0)
        *status = command_fail(u, &err);
    config_free(&c);
    free(keep);
    free(from);
    free(to);
    return ok;
}

int command_prune(int argc, char **argv)
{
    const char *list = NULL, *to = NULL;
    const struct flag flags[] = {
        { "keep", FLAG_TEXT, &list, "LAYERS", "numbers and ranges from 0, ascending: 0-3,26-29", 0, 0 },
        { "out", FLAG_TEXT, &to, "PATH", "the file or directory to write", 0, 0 },
        { 0 },
    };
    const struct usage u = { "prune", "--keep LAYERS --out PATH MODEL", about, flags, examples, 1, 1 };
    char **operand;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    if (list == NULL || to == NULL || *to == '\0')
        return usage_fail(&u, "%s is needed", list == NULL ? "--keep LAYERS" : "--out PATH");

    status = 0;
    return prune(operand[0], list, to, &u, &status) ? command_done(&u) : status;
}
