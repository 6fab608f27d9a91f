// test_names.c - what an unknown name may mean: names that are close, and names of other programs.
#include "tests/support/tests.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/names.h"
#include "core/options.h"
#include "drafters/drafter.h"

TEST(names_that_are_close_and_names_of_other_programs_are_suggested)
{
    const char *const ngram[] = { "longest", "shortest", "tokens", NULL }, *const kinds[] = { "none", "ngram", NULL },
                      *const flags[] = { "drafter", "tokens", "context", "ignore-end", "repetition-penalty", NULL },
                      *const root[] = { "name", "limits", NULL }, *const limits[] = { "new_tokens", "context", NULL };
    const struct {
        enum name_place place;
        const char *word, *const *names, *hint; // what the hint ends with
    } cases[] = {
        { NAME_OPTION, "lenght", ngram, " longest?" },
        { NAME_OPTION, "short", ngram, " shortest?" },
        { NAME_OPTION, "speed", ngram, "" },
        { NAME_OPTION, "lenght", ngram + 3, "" },
        { NAME_FLAG, "ignore_end", flags, " --ignore-end?" },
        { NAME_FLAG, "a-name-that-is-longer-than-every-name-that-is-known", ngram, "" },
        { NAME_OPTION, "num_speculative_tokens", ngram, " is tokens here" },
        { NAME_OPTION, "prompt_lookup_max", ngram, " is longest here" },
        // As a flag, --tokens is another thing: the option of a drafter is named.
        { NAME_FLAG, "num_speculative_tokens", flags, " is an option of drafters, tokens" },
        { NAME_FLAG, "n-predict", flags, " is --tokens here" },
        { NAME_FLAG, "repeat-penalty", flags, " is --repetition-penalty here" },
        { NAME_KEY, "max_new_tokens", limits, " is new_tokens here" },
        { NAME_KEY, "max_new_tokens", root, " is limits.new_tokens in an experiment" },
        { NAME_KIND, "prompt_lookup", kinds, " is ngram here" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct text t = { 0 };
        text_puts(&t, "");
        name_hint(&t, cases[i].place, cases[i].word, cases[i].names);
        const size_t n = strlen(cases[i].hint);
        if (t.n < n || strcmp(t.s + t.n - n, cases[i].hint) != 0 || (n == 0 && t.n > 0))
            fail_msg("%s: \"%s\", expected \"%s\"", cases[i].word, t.s, cases[i].hint);
        free(t.s);
    }
}

static bool has_option(const struct option *o, const char *name)
{
    for (; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, name) == 0)
            return true;
    return false;
}

// What the table says of drafters is there.
TEST(the_names_that_are_suggested_exist)
{
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
}

RUN_TESTS(NULL, NULL)
