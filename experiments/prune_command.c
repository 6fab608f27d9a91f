// prune_command.c - `speclab prune`: a first draft model, made of the target's own layers.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/engine.h"
#include "models/config.h"
#include "models/paths.h"
#include "models/prune.h"
#include "models/weights.h"

static const char about[] =
    "Writes a smaller model that keeps some of a larger one's layers, copied bit for bit in the model's own format: a GGUF\n"
    "file becomes a GGUF file, a Hugging Face directory a directory. Nothing is retrained, so how well it drafts depends on\n"
    "which layers go; middle layers are missed least. PATH must not exist yet.\n";

static const char examples[] =
    "  speclab prune smollm2-135m-instruct --keep 0-11,13,15,17,19-29 --out draft.gguf\n"
    "  speclab generate smollm2-135m-instruct --drafter small:model=draft.gguf 'What is a prime number?'\n";

// What was written, read back: the sentence is about the file, not about what was meant.
static bool report(const char *path, int layers, struct error *err)
{
    struct model_config c = { 0 };
    bool ok = config_read(path, &c, err);
    struct weights *w = ok ? weights_open(&c, err) : NULL;
    if (w != NULL)
        printf("%s: %d of %d layers, %.1f MB\n", path, c.layers, layers, (double)weights_bytes(w) / 1e6);
    weights_close(w);
    config_free(&c);
    return w != NULL;
}

// Without slashes at its end, which a new directory may be given and a file has not.
static char *bare(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return xstrndup(path, n);
}

static bool prune(const char *name, const char *list, const char *out, const struct usage *u, int *status)
{
    struct error err;
    char *to = bare(out);
    struct model_config c = { 0 };
    int n = 0, *keep = NULL;
    char *from = model_path(name, NULL, &err);
    bool ok = from != NULL && config_read(from, &c, &err);
    if (ok) {
        keep = prune_parse(list, c.layers, &n, &err);
        if (keep == NULL)
            *status = usage_fail(u, "--keep: %s", err.text);
        ok = keep != NULL;
    }
    ok = ok && prune_model(from, keep, n, to, &err) && report(to, c.layers, &err);
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
        { "out", FLAG_TEXT, &to, "PATH", "the file or directory to make", 0, 0 },
        { 0 },
    };
    const struct usage u = { "prune", "--keep LAYERS --out PATH MODEL", about, flags, examples, 1, 1 };
    char **operand;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != GO_ON)
        return status;
    if (list == NULL || to == NULL || *to == '\0')
        return usage_fail(&u, "%s is needed", list == NULL ? "--keep LAYERS" : "--out PATH");

    status = 0;
    return prune(operand[0], list, to, &u, &status) ? command_done(&u) : status;
}
