#include "commands/inspect.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/json.h"
#include "models/config.h"
#include "models/heads/head.h"
#include "models/model.h"
#include "models/paths.h"
#include "models/weights.h"

static void print_text(const char *path, const char *target, enum head_kind kind, const struct head_facts *f)
{
    printf("head        %s\n", path);
    printf("kind        %s (drafter %s)\n", head_kinds[kind], head_drafters[kind]);
    if (f->heads > 0)
        printf("heads       %d: one for each depth of the draft\n", f->heads);
    printf("target      %s: fits\n", target);
    printf("reads       ");
    for (int i = 0; i < f->taps.n; i++)
        if (f->taps.layer[i] == FINAL_STATE)
            printf("the target's last hidden state");
        else
            printf("%s%d", i == 0 ? "the target's hidden states entering layers " : ", ", f->taps.layer[i]);
    printf("\nvocabulary  %d tokens, width %d\n", f->vocab, f->width);
    printf("uses        %s, %s\n", f->own_head ? "its own LM head" : "the target's LM head",
           f->own_embedding ? "its own embedding" : "the target's embedding");
    printf("pass        reads %.1f MB of weights\n", (double)f->bytes / 1e6);
}

static void print_json(const char *path, const char *target, enum head_kind kind, const struct head_facts *f)
{
    struct json *layers = json_new_array();
    for (int i = 0; i < f->taps.n; i++)
        json_push(layers, f->taps.layer[i] == FINAL_STATE ? json_new_text("final") : json_new_int(f->taps.layer[i]));
    json_print(json_object_of(JSON("head", path), JSON("kind", head_drafters[kind]),
                              JSON("heads", f->heads > 0 ? json_new_int(f->heads) : json_new_null()),
                              JSON("target", target), JSON("reads", layers), JSON("vocab", f->vocab),
                              JSON("width", f->width), JSON("own_head", f->own_head),
                              JSON("own_embedding", f->own_embedding), JSON("bytes", f->bytes)),
               stdout);
}

bool inspect_is_head(const char *name)
{
    struct error ignored;
    struct head h;
    char *path = model_path(name, NULL, &ignored);
    const bool is = path != NULL && head_open(&h, path, HEAD_MEDUSA, NULL, &ignored);
    if (is)
        head_close(&h);
    free(path);
    return is;
}

// Reads the target's shape, and checks that its tensors are complete: a head's directory has a llama configuration as well,
// but is not a model.
static bool read_target(const char *path, struct model_shape *to, struct error *err)
{
    struct model_config c = { 0 };
    struct weights *w = config_read(path, &c, err) ? weights_open(&c, err) : NULL;
    const bool ok = w != NULL && model_check(&c, w, err);
    *to = model_shape_of(&c);
    weights_close(w);
    config_free(&c);
    return ok;
}

bool inspect_head(const char *head, const char *target, bool as_json, struct error *err)
{
    char *path = model_path(head, NULL, err), *of = path != NULL ? model_path(target, NULL, err) : NULL;
    struct model_shape shape;
    struct head_facts facts;
    enum head_kind kind;
    const bool ok = of != NULL && read_target(of, &shape, err) && head_fits(path, &shape, &kind, &facts, err);
    if (ok)
        (as_json ? print_json : print_text)(path, of, kind, &facts);
    free(path);
    free(of);
    return ok;
}
