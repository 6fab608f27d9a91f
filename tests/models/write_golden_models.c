// write_golden_models.c - writes the models of tests/cases/architectures.jsonl as directories, and those of FP8, for the tests in Python:
// write_golden_models TMPDIR
//
// Prints a line of JSON for each: name, plain (BF16), chat (with a tokenizer), tokens, rows and logits; of FP8: name, fp8, and plain, the same numbers
// in F32. The folder must exist; it is not removed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/json.h"
#include "core/memory.h"
#include "tests/models/golden_model.h"
#include "tests/models/small_fp8.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"

static void print(struct json *j)
{
    char *line = json_write(j);
    printf("%s\n", line);
    free(line);
    json_free(j);
}

int main(int argc, char **argv)
{
    static const char *const keys[] = { "tokens", "rows", "logits" };
    if (argc != 2 || setenv("TMPDIR", argv[1], 1) != 0)
        return 2;
    size_t n;
    struct json **models = golden_models(&n);
    for (size_t i = 0; i < n; i++) {
        struct json *j = json_new_object();
        char *plain = golden_model_write(models[i], BF16), *chat = golden_model_write_chat(models[i]);
        if (strcmp(json_text(json_get(models[i], "name")), "gemma2-plain") == 0) { // llama.cpp reads no other Gemma-2
            golden_model_tie(plain);
            golden_model_tie(chat);
        }
        json_set(j, "name", json_new_text(json_text(json_get(models[i], "name"))));
        json_set(j, "plain", json_new_text(plain));
        json_set(j, "chat", json_new_text(chat));
        json_set(j, "images", json_new_bool(json_get(models[i], "images") != NULL));
        for (int k = 0; k < 3; k++)
            json_set(j, keys[k], json_clone(json_get(models[i], keys[k])));
        print(j);
        free(plain);
        free(chat);
    }
    golden_models_free(models, n);
    for (const struct fp8_form *f = fp8_forms; f->name != NULL; f++) {
        char *from = test_path("fp8_source"), *to = xformat("%s/%s", test_directory(), f->name),
             *plain = xformat("%s_plain", to);
        small_write_hf(from, &fp8_shape);
        small_write_fp8(from, to, plain, f);
        struct json *j = json_new_object();
        json_set(j, "name", json_new_text(f->name));
        json_set(j, "fp8", json_new_text(to));
        json_set(j, "plain", json_new_text(plain));
        print(j);
        free(from);
        free(to);
        free(plain);
    }
    fflush(stdout);
    _exit(0); // without the removal of the folder
}
