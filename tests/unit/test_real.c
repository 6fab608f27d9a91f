// test_real.c - the loop on a real model, SmolLM2-135M-Instruct, where it is in the model cache: every drafter, tree
// and
// slot count says what none says.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/paths.h"
#include "commands/checkpoint/prune.h"
#include "tests/support/check.h"
#include "tests/support/pairings.h"
#include "tests/support/decoded_texts.h"
#include "tests/support/small_model.h"

#if defined(__SANITIZE_ADDRESS__)
enum { PROMPTS = 1, LIMIT = 4 }; // the sanitizers make a pass ten times as long; the release build does them all
#else
enum { PROMPTS = 4, LIMIT = 24 };
#endif

static char *target_path, *draft_path;
static struct prompts_given prompts;

// Some of the prompts that tests/cases has for greedy decoding.
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

static void against_none(const char *sampling, const char *rule)
{
    struct decoded_texts_setup s = { target_path, draft_path, &prompts, "none", sampling, rule,
                                     NULL,        1,          LIMIT,    192,    NULL,     NULL };
    struct decoded_texts *plain = say(&s);
    for (int i = 0; i < pair_count(); i++) {
        s.drafter = pair_drafter(i);
        s.slots = i % 2 == 0 ? 1 : 3;
        struct decoded_texts *other = say(&s);
        same_text(plain, other, &s);
        printf("    %s, %s, %s, %d slots: equal; %d of %d guesses accepted\n", sampling, rule, s.drafter, s.slots,
               other->accepted, other->drafted);
        free(other);
    }
    free(plain);
}

static void smollm2_says_the_same_whatever_is_drafted(void **unused)
{
    (void)unused;
    struct error err;
    target_path = model_path("smollm2-135m-instruct", NULL, &err);
    if (target_path == NULL) {
        printf("    skipped: smollm2-135m-instruct is not in the model cache (./run model smollm2-135m-instruct)\n");
        skip();
    }
    int n;
    int *keep = prune_parse("0-11,13,15,17,19-29", 30, &n, &err);
    draft_path = xformat("%s/pruned.gguf", tiny_directory());
    if (!prune_model(target_path, keep, n, draft_path, &err))
        fail_msg("%s", err.text);
    pair_heads_make(target_path, draft_path);
    read_prompts();
    against_none("{temperature: 0}", "rejection");
    against_none("{temperature: 1}", "match");
    free(keep);
    free(draft_path);
    free(target_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(smollm2_says_the_same_whatever_is_drafted) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_clean();
    return failed;
}
