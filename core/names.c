#include "core/names.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

// ---- names of other programs
//
// Sources: vLLM's SpeculativeConfig and SamplingParams, the options of llama-server (its README), transformers'
// GenerationConfig and SGLang's server arguments, as of 2026. They are suggestions, no second names. A name that stands
// in several places has several rows.

static const struct foreign {
    const char *name, *program;
    enum name_place place;
    const char *ours; // NAME_KEY: with the mapping that it is in
} foreign[] = {
    { "num_speculative_tokens", "vLLM", NAME_OPTION, "tokens" },
    { "prompt_lookup_max", "vLLM", NAME_OPTION, "longest" },
    { "prompt_lookup_min", "vLLM", NAME_OPTION, "shortest" },
    { "speculative_model", "vLLM", NAME_OPTION, "model" },
    { "speculative_token_tree", "vLLM", NAME_OPTION, "tree" },
    { "suffix_decoding_max_tree_depth", "vLLM", NAME_OPTION, "max_tree_depth" },
    { "suffix_decoding_max_spec_factor", "vLLM", NAME_OPTION, "max_spec_factor" },
    { "suffix_decoding_min_token_prob", "vLLM", NAME_OPTION, "min_token_prob" },
    { "draft_model", "vLLM", NAME_KIND, "small" },
    { "rejection_sampler", "vLLM", NAME_KIND, "rejection" },
    { "typical_acceptance_sampler", "vLLM", NAME_KIND, "typical" },
    { "max_tokens", "vLLM", NAME_KEY, "limits.new_tokens" },
    { "max_tokens", "vLLM", NAME_FLAG, "tokens" },
    { "max_model_len", "vLLM", NAME_KEY, "limits.context" },
    { "max_model_len", "vLLM", NAME_FLAG, "context" },
    { "max_num_seqs", "vLLM", NAME_KEY, "cells.batch" },
    { "max_num_seqs", "vLLM", NAME_FLAG, "batch" },
    { "kv_cache_dtype", "vLLM", NAME_KEY, "target.cache" },
    { "kv_cache_dtype", "vLLM", NAME_FLAG, "cache" },
    { "ignore_eos", "vLLM", NAME_KEY, "limits.ignore_end" },
    { "ignore_eos", "vLLM", NAME_FLAG, "ignore-end" },
    { "assistant_model", "transformers", NAME_OPTION, "model" },
    { "num_assistant_tokens", "transformers", NAME_OPTION, "tokens" },
    { "prompt_lookup_num_tokens", "transformers", NAME_OPTION, "tokens" },
    { "max_matching_ngram_size", "transformers", NAME_OPTION, "longest" },
    { "assistant_confidence_threshold", "transformers", NAME_OPTION, "threshold" },
    { "assistant_early_exit", "transformers", NAME_OPTION, "exit_layer" },
    { "prompt_lookup", "transformers", NAME_KIND, "ngram" },
    { "max_new_tokens", "transformers", NAME_KEY, "limits.new_tokens" },
    { "max_new_tokens", "transformers", NAME_FLAG, "tokens" },
    { "max_length", "transformers", NAME_KEY, "limits.context" },
    { "max_length", "transformers", NAME_FLAG, "context" },
    { "stop_strings", "transformers", NAME_KEY, "limits.stop" },
    { "stop_strings", "transformers", NAME_FLAG, "stop" },
    { "model_draft", "llama.cpp", NAME_OPTION, "model" },
    { "spec_draft_model", "llama.cpp", NAME_OPTION, "model" },
    { "draft", "llama.cpp", NAME_OPTION, "tokens" },
    { "draft_n", "llama.cpp", NAME_OPTION, "tokens" },
    { "draft_max", "llama.cpp", NAME_OPTION, "tokens" },
    { "spec_draft_n_max", "llama.cpp", NAME_OPTION, "tokens" },
    { "draft_p_min", "llama.cpp", NAME_OPTION, "threshold" },
    { "spec_draft_p_min", "llama.cpp", NAME_OPTION, "threshold" },
    { "spec_ngram_simple_size_n", "llama.cpp", NAME_OPTION, "longest" },
    { "spec_ngram_simple_size_m", "llama.cpp", NAME_OPTION, "tokens" },
    { "spec_draft_device", "llama.cpp", NAME_OPTION, "device" },
    { "ngram_simple", "llama.cpp", NAME_KIND, "ngram" },
    { "draft_simple", "llama.cpp", NAME_KIND, "small" },
    { "draft_eagle3", "llama.cpp", NAME_KIND, "eagle3" },
    { "spec_type", "llama.cpp", NAME_FLAG, "drafter" },
    { "n_predict", "llama.cpp", NAME_KEY, "limits.new_tokens" },
    { "n_predict", "llama.cpp", NAME_FLAG, "tokens" },
    { "predict", "llama.cpp", NAME_FLAG, "tokens" },
    { "ctx_size", "llama.cpp", NAME_KEY, "limits.context" },
    { "ctx_size", "llama.cpp", NAME_FLAG, "context" },
    { "parallel", "llama.cpp", NAME_KEY, "cells.batch" },
    { "parallel", "llama.cpp", NAME_FLAG, "batch" },
    { "cache_type_k", "llama.cpp", NAME_KEY, "target.cache" },
    { "cache_type_k", "llama.cpp", NAME_FLAG, "cache" },
    { "repeat_penalty", "llama.cpp", NAME_STAGE, "repetition_penalty" },
    { "reverse_prompt", "llama.cpp", NAME_FLAG, "stop" },
    { "system_prompt", "llama.cpp", NAME_FLAG, "system" },
    { "chat_template", "llama.cpp", NAME_KEY, "prompts.chat" },
    { "chat_template", "llama.cpp", NAME_FLAG, "chat" },
    { "speculative_draft_model_path", "SGLang", NAME_OPTION, "model" },
    { "speculative_num_steps", "SGLang", NAME_OPTION, "tokens" },
    { "speculative_num_draft_tokens", "SGLang", NAME_OPTION, "nodes" },
    { "speculative_eagle_topk", "SGLang", NAME_OPTION, "top" },
    { "speculative_draft_temperature", "SGLang", NAME_OPTION, "temperature" },
};

static char letter(char c)
{
    return c == '-' ? '_' : c;
}

static bool is_same(const char *a, const char *b)
{
    while (*a != '\0' && letter(*a) == letter(*b))
        a++, b++;
    return *a == '\0' && *b == '\0';
}

// The name in the list that is `word`, whether written with - or _.
static const char *find(const char *word, const char *const *names)
{
    while (*names != NULL && !is_same(word, *names))
        names++;
    return *names;
}

// What the row is called in a list of names of a place; NULL: it is not there. A sampling stage is a flag, too.
static const char *called_here(const struct foreign *f, enum name_place place, const char *const *names)
{
    const char *dot = strrchr(f->ours, '.');
    if (f->place != place && !(f->place == NAME_STAGE && place == NAME_FLAG))
        return NULL;
    return find(dot != NULL ? dot + 1 : f->ours, names);
}

static void put_owner(struct text *to, const struct foreign *f, const char *word)
{
    text_printf(to, "; %s'%s %s is ", f->program, f->program[strlen(f->program) - 1] == 's' ? "" : "s", word);
}

static void put_elsewhere(struct text *to, const struct foreign *f)
{
    static const char *const form[] = {
        [NAME_COMMAND] = "%s",
        [NAME_FLAG] = "--%s of generate",
        [NAME_KEY] = "%s in an experiment",
        [NAME_OPTION] = "an option of drafters, %s",
        [NAME_STAGE] = "the sampling stage %s",
        [NAME_KIND] = "the drafter or rule %s",
    };
    char *what = xformat(form[f->place], f->ours);
    text_puts(to, what);
    free(what);
}

// ---- near names

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int distance(const char *a, const char *b)
{
    enum { MAX_LENGTH = 40 };
    int d[MAX_LENGTH + 1][MAX_LENGTH + 1], n = (int)strlen(a), m = (int)strlen(b);
    if (n > MAX_LENGTH || m > MAX_LENGTH)
        return INT_MAX;
    for (int i = 0; i <= n; i++)
        for (int k = 0; k <= m; k++) {
            if (i == 0 || k == 0) {
                d[i][k] = i + k;
                continue;
            }
            const char x = letter(a[i - 1]), y = letter(b[k - 1]);
            d[i][k] = smaller(smaller(d[i - 1][k], d[i][k - 1]) + 1, d[i - 1][k - 1] + (x != y));
            if (i > 1 && k > 1 && x == letter(b[k - 2]) && letter(a[i - 2]) == y)
                d[i][k] = smaller(d[i][k], d[i - 2][k - 2] + 1);
        }
    return d[n][m];
}

const char *name_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    int smallest = 1 + (int)strlen(word) / 3 + 1; // entries at this distance or more are unrelated
    for (; *names != NULL; names++) {
        int d = strncmp(*names, word, strlen(word)) == 0 && strlen(word) >= 3 ? 1 : distance(word, *names);
        if (d < smallest) {
            smallest = d;
            best = *names;
        }
    }
    return best;
}

void name_hint(struct text *to, enum name_place place, const char *word, const char *const *names)
{
    const char *dashes = place == NAME_FLAG ? "--" : "", *near;
    const struct foreign *first = NULL;
    for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++) {
        const struct foreign *f = &foreign[i];
        if (!is_same(word, f->name))
            continue;
        const char *here = called_here(f, place, names);
        first = first != NULL ? first : f;
        if (here != NULL) {
            put_owner(to, f, word);
            text_printf(to, "%s%s here", dashes, here);
            return;
        }
    }
    if (first != NULL) {
        put_owner(to, first, word);
        put_elsewhere(to, first);
    } else if ((near = name_nearest(word, names)) != NULL) {
        text_printf(to, "; did you mean %s%s?", dashes, near);
    }
}
