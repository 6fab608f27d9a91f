#include "models/architectures.h"

#include <string.h>

#include "core/memory.h"

// MedusaModelLlama: Medusa-2 trains a model together with its heads, and stores both in one directory.
static const struct architecture table[] = {
    { "llama", "llama", { "LlamaForCausalLM", "MedusaModelLlama" }, GGUF_ROPE_NORM },
};
enum { ROWS = sizeof(table) / sizeof(*table) };

const struct architecture *architecture_of_gguf(const char *name, size_t n)
{
    for (int i = 0; i < ROWS; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0)
            return &table[i];
    return NULL;
}

const struct architecture *architecture_of_model_type(const char *model_type)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(table[i].model_type, model_type) == 0)
            return &table[i];
    return NULL;
}

bool architecture_has_class(const struct architecture *a, const char *class)
{
    for (size_t i = 0; i < sizeof(a->classes) / sizeof(*a->classes) && a->classes[i] != NULL; i++)
        if (strcmp(a->classes[i], class) == 0)
            return true;
    return false;
}

char *architectures_supported(bool gguf)
{
    struct text t = { 0 };
    for (int i = 0; i < ROWS; i++) {
        text_puts(&t, i == 0 ? "" : i == ROWS - 1 ? " or " : ", ");
        text_printf(&t, gguf ? "%s" : "\"%s\"", gguf ? table[i].name : table[i].model_type);
    }
    return t.s;
}
