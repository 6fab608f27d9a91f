// test_names.c - what an unknown name may mean: names that are close, and names of other programs.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/names.h"
#include "core/options.h"
#include "drafters/drafter.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

static void expect_hint(enum name_place place, const char *word, const char *const *names, const char *hint)
{
    struct text t = { 0 };
    text_puts(&t, "");
    name_hint(&t, place, word, names);
    assert_string_equal(t.s, hint);
    free(t.s);
}

static void a_close_name_is_suggested(void **state)
{
    (void)state;
    const char *const options[] = { "longest", "shortest", "tokens", NULL };
    expect_hint(NAME_OPTION, "lenght", options, "; did you mean longest?");
    expect_hint(NAME_OPTION, "tokesn", options, "; did you mean tokens?");
    expect_hint(NAME_OPTION, "short", options, "; did you mean shortest?");
    expect_hint(NAME_OPTION, "speed", options, "");
    expect_hint(NAME_OPTION, "lenght", (const char *const[]){ NULL }, "");
    expect_hint(NAME_FLAG, "ignore_end", (const char *const[]){ "tokens", "ignore-end", NULL },
                "; did you mean --ignore-end?");
    expect_hint(NAME_FLAG, "a-name-that-is-longer-than-every-name-that-is-known", options, "");
}

static void a_name_of_another_program_is_translated_where_it_stands(void **state)
{
    (void)state;
    const char *const ngram[] = { "longest", "shortest", "tokens", NULL },
                      *const flags[] = { "drafter", "tokens", "context", "repetition-penalty", NULL },
                      *const root[] = { "name", "limits", NULL }, *const limits[] = { "new_tokens", "context", NULL };
    expect_hint(NAME_OPTION, "num_speculative_tokens", ngram, "; vLLM's num_speculative_tokens is tokens here");
    expect_hint(NAME_OPTION, "prompt_lookup_max", ngram, "; vLLM's prompt_lookup_max is longest here");
    // As a flag, --tokens is another thing: the option of a drafter is named.
    expect_hint(NAME_FLAG, "num_speculative_tokens", flags,
                "; vLLM's num_speculative_tokens is an option of drafters, tokens");
    expect_hint(NAME_FLAG, "draft-max", flags, "; llama.cpp's draft-max is an option of drafters, tokens");
    expect_hint(NAME_FLAG, "max_new_tokens", flags, "; transformers' max_new_tokens is --tokens here");
    expect_hint(NAME_FLAG, "n-predict", flags, "; llama.cpp's n-predict is --tokens here");
    expect_hint(NAME_FLAG, "repeat-penalty", flags, "; llama.cpp's repeat-penalty is --repetition-penalty here");
    expect_hint(NAME_KEY, "max_new_tokens", limits, "; transformers' max_new_tokens is new_tokens here");
    expect_hint(NAME_KEY, "max_new_tokens", root,
                "; transformers' max_new_tokens is limits.new_tokens in an experiment");
    expect_hint(NAME_KIND, "prompt_lookup", (const char *const[]){ "none", "ngram", NULL },
                "; transformers' prompt_lookup is ngram here");
}

static bool has_option(const struct option *o, const char *name)
{
    for (; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, name) == 0)
            return true;
    return false;
}

// What the table says of drafters, rules and stages is there.
static void the_names_that_are_suggested_exist(void **state)
{
    (void)state;
    static const struct {
        const char *theirs, *drafter;
    } options[] = {
        { "num_speculative_tokens", "small" },
        { "num_speculative_tokens", "ngram" },
        { "prompt_lookup_max", "ngram" },
        { "prompt_lookup_min", "ngram" },
        { "assistant_model", "small" },
        { "model_draft", "small" },
        { "speculative_token_tree", "eagle" },
        { "assistant_confidence_threshold", "adaptive" },
        { "assistant_early_exit", "early_exit" },
        { "suffix_decoding_max_tree_depth", "suffix" },
        { "draft_p_min", "adaptive" },
        { "suffix_decoding_max_spec_factor", "suffix" },
        { "speculative_eagle_topk", "eagle3" },
        { "suffix_decoding_min_token_prob", "suffix" },
        { "spec_draft_device", "small" },
        { "speculative_num_draft_tokens", "eagle" },
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
        const struct drafter_type *t = drafter_named(options[i].drafter);
        const char *names[64] = { NULL };
        struct text hint = { 0 };
        for (int n = 0; t->options[n].name != NULL; n++)
            names[n] = t->options[n].name;
        name_hint(&hint, NAME_OPTION, options[i].theirs, names);
        const char *is = strstr(hint.s, " is ");
        char *ours = is != NULL ? xstrndup(is + 4, strcspn(is + 4, " ")) : xstrdup("");
        if (!has_option(t->options, ours))
            fail_msg("%s of drafter %s: %s", options[i].theirs, options[i].drafter, hint.s);
        free(ours);
        free(hint.s);
    }
    assert_non_null(stage_named("repetition_penalty"));
    assert_non_null(rule_named("rejection"));
    assert_non_null(rule_named("typical"));
    assert_non_null(drafter_named("small"));
    assert_non_null(drafter_named("eagle3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_close_name_is_suggested),
        cmocka_unit_test(a_name_of_another_program_is_translated_where_it_stands),
        cmocka_unit_test(the_names_that_are_suggested_exist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
