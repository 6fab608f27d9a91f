// test_real.c - the decode loop on a real model, SmolLM2-135M-Instruct, if it is in the model cache: with every drafter and
// number of slots the text equals that of ordinary decoding.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/paths.h"
#include "models/layer_list.h"
#include "tests/formats/derived_model.h"
#include "tests/support/tests.h"
#include "tests/support/pairings.h"
#include "tests/support/decode_prompts.h"
#include "tests/support/small_model.h"

#if defined(__SANITIZE_ADDRESS__)
enum { PROMPTS = 1, LIMIT = 4 }; // a pass takes ten times as long under the sanitizers; the release build runs all
#else
enum { PROMPTS = 4, LIMIT = 24 };
#endif

static char *target_path, *draft_path;
static struct prompt_set prompts;

// Reads some of the prompts for greedy decoding in tests/cases.
static void read_prompts(void)
{
    struct error err;
    char *path = xformat("%s/greedy_smollm2.jsonl", CASES), *line = NULL;
    size_t capacity = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (prompts.n < PROMPTS && getline(&line, &capacity, f) > 0) {
        struct json *j = json_parse(line, strlen(line), path, &err);
        const struct json *ids = json_get(j, "prompt_ids");
        int n = (int)json_count(ids);
        for (int i = 0; i < n && n < 100; i++)
            prompts.token[prompts.n][i] = (int32_t)json_int(json_at(ids, (size_t)i));
        if (n < 100)
            prompts.length[prompts.n++] = n;
        json_free(j);
    }
    fclose(f);
    free(line);
    free(path);
}

static void compare_with_none(const char *sampling, const char *rule)
{
    struct decode_setup s = {
        target_path, draft_path, &prompts, "none", sampling, rule, NULL, 1, LIMIT, 192, NULL, NULL
    };
    struct decode_result *plain = decode_prompts(&s);
    for (int i = 0; i < pair_count(); i++) {
        s.drafter = pair_drafter(i);
        s.slots = i % 2 == 0 ? 1 : 3;
        struct decode_result *other = decode_prompts(&s);
        assert_same_texts(plain, other, &s);
        printf("    %s, %s, %s, %d slots: equal; %d of %d draft tokens accepted\n", sampling, rule, s.drafter, s.slots,
               other->accepted, other->drafted);
        free(other);
    }
    free(plain);
}

TEST(text_of_smollm2_is_the_same_for_every_drafter)
{
    struct error err;
    target_path = model_path("smollm2-135m-instruct", NULL, &err);
    if (target_path == NULL) {
        printf("    skipped: smollm2-135m-instruct is not in the model cache (./run model smollm2-135m-instruct)\n");
        skip();
    }
    int n;
    int *keep = layer_list_parse("0-11,13,15,17,19-29", 30, &n, &err);
    draft_path = xformat("%s/pruned.gguf", test_directory());
    derived_write(target_path, draft_path, &(const struct derived){ .keep = keep, .n = n, .type = F32 });
    pair_heads_make(target_path, draft_path);
    read_prompts();
    compare_with_none("{temperature: 0}", "rejection");
    compare_with_none("{temperature: 1}", "match");
    free(keep);
    free(draft_path);
    free(target_path);
}

int main(void)
{
    int failed = tests_run(NULL, NULL);
    test_directory_remove();
    return failed;
}
