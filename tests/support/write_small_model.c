// write_small_model.c - writes the small model of experiments/smoke.yaml, or another one:
// write_small_model PATH [LAYERS CONTEXT | shape:NAME,KEY=VALUE..] [KEY=VALUE...]
//
// PATH: a GGUF file if it ends with .gguf, else a directory. LAYERS CONTEXT: heads fill a block of 32. KEY: a member of struct small_model; blocks=1
// begins with small_blocks. Of a GGUF file also keep=0,2: some layers of the model; as=q4_0: its matrices in that type; inflated=NAME: a mark. shape: a
// file of random weights (models/formats/shape.h).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "models/layer_list.h"
#include "core/error.h"
#include "core/files/mapped.h"
#include "core/files/part.h"
#include "models/formats/shape.h"
#include "tests/formats/derived_model.h"
#include "tests/support/small_model.h"

static enum type type_named(const char *name)
{
    for (int t = 0; t < TYPES; t++)
        if (strcmp(type_facts[t].name, name) == 0)
            return (enum type)t;
    fprintf(stderr, "write_small_model: unknown type \"%s\"\n", name);
    exit(2);
}

static bool set_number(struct small_model *m, const char *key, double v)
{
    const struct {
        const char *key;
        int *integer;
        bool *flag;
        double *real;
    } members[] = {
        { "vocab", &m->vocab, NULL, NULL },
        { "width", &m->width, NULL, NULL },
        { "hidden", &m->hidden, NULL, NULL },
        { "layers", &m->layers, NULL, NULL },
        { "heads", &m->heads, NULL, NULL },
        { "kv_heads", &m->kv_heads, NULL, NULL },
        { "head_dim", &m->head_dim, NULL, NULL },
        { "context", &m->context, NULL, NULL },
        { "original", &m->original, NULL, NULL },
        { "shards", &m->shards, NULL, NULL },
        { "tied", NULL, &m->tied, NULL },
        { "bias", NULL, &m->bias, NULL },
        { "sharp", NULL, &m->sharp, NULL },
        { "tokenizer", NULL, &m->tokenizer, NULL },
        { "new_spelling", NULL, &m->new_spelling, NULL },
        { "theta", NULL, NULL, &m->theta },
        { "factor", NULL, NULL, &m->factor },
        { "low", NULL, NULL, &m->low },
        { "high", NULL, NULL, &m->high },
    };
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
        if (strcmp(members[i].key, key) == 0) {
            if (members[i].integer != NULL)
                *members[i].integer = (int)v;
            else if (members[i].flag != NULL)
                *members[i].flag = v != 0;
            else
                *members[i].real = v;
            return true;
        }
    if (strcmp(key, "seed") == 0)
        m->seed = (uint64_t)v;
    return strcmp(key, "seed") == 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: write_small_model PATH [LAYERS CONTEXT | shape:NAME,KEY=VALUE..] [KEY=VALUE...]\n");
    return 2;
}

static void write_model(const char *path, const struct small_model *m, const struct derived *how)
{
    if (how->keep == NULL && how->type == F32 && how->inflated == NULL) {
        ends_with(path, ".gguf") ? small_write_gguf(path, m) : small_write_hf(path, m);
        return;
    }
    char *whole = xformat("%s.whole.gguf", path);
    small_write_gguf(whole, m);
    derived_write(whole, path, how);
    unlink(whole);
    free(whole);
}

int main(int argc, char **argv)
{
    struct small_model model = small_default;
    struct derived how = { .type = F32 };
    struct error err;
    const char *keep = NULL;
    if (argc == 3 && is_shape(argv[2])) {
        char *path = shape_whole_path(argv[2], &err);
        struct mapping file = { 0 };
        const bool ok = path != NULL && file_map(path, &file, &err) && part_file(argv[1], file.at, file.n, &err);
        if (!ok)
            fprintf(stderr, "write_small_model: %s\n", err.text);
        file_unmap(&file);
        free(path);
        return ok ? 0 : 1;
    }
    if (argc < 2 || argv[1][0] == '-')
        return usage();
    int first = 2;
    if (argc > 3 && strchr(argv[2], '=') == NULL) {
        model.layers = atoi(argv[2]);
        model.context = atoi(argv[3]);
        model.head_dim = 32;
        first = 4;
    }
    for (int i = first; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value == NULL)
            return usage();
        *value++ = '\0';
        if (strcmp(argv[i], "blocks") == 0)
            model = small_blocks;
        else if (strcmp(argv[i], "type") == 0)
            model.type = type_named(value);
        else if (strcmp(argv[i], "as") == 0)
            how.type = type_named(value);
        else if (strcmp(argv[i], "rope") == 0)
            model.rope = strcmp(value, "llama3") == 0 ? ROPE_LLAMA3 : ROPE_LINEAR;
        else if (strcmp(argv[i], "keep") == 0)
            keep = value;
        else if (strcmp(argv[i], "inflated") == 0)
            how.inflated = value;
        else if (!set_number(&model, argv[i], atof(value)))
            return usage();
    }
    if (model.layers < 1 || model.context < 0)
        return usage();
    int *kept = keep != NULL ? layer_list_parse(keep, model.layers, &how.n, &err) : NULL;
    if (keep != NULL && kept == NULL) {
        fprintf(stderr, "write_small_model: %s\n", err.text);
        return 2;
    }
    how.keep = kept;
    write_model(argv[1], &model, &how);
    free(kept);
    return 0;
}
