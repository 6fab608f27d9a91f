// datasets.c - the table of datasets. Fields and templates are those of the sources named here, read in the year 2026 (docs/datasets.md).
#include "commands/import/datasets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/import/entries.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/prose.h"

#define AS_IT_IS "the turns as they are"
#define REASON_AND_BOX "\nPlease reason step by step, and put your final answer within \\boxed{}."
#define LONGBENCH "https://github.com/THUDM/LongBench"

static const char *const mt_bench_categories[] = { "writing",    "roleplay", "reasoning",  "math", "coding",
                                                   "extraction", "stem",     "humanities", NULL };

const struct dataset datasets[] = {
    { .name = "spec-bench",
      .what = "Spec-Bench: 480 questions, MT-bench's among them, in 13 categories of 6 kinds",
      .from = "https://github.com/hemingkx/Spec-Bench, data/spec_bench/question.jsonl",
      .licence = "Apache-2.0; texts of WMT14, CNN/DM, Natural Questions, GSM8K and DPR",
      .keys = "question_id category turns",
      .id = "question_id",
      .category = "category",
      .answer = "reference",
      .shape = SHAPE_TURNS,
      .turns = "turns",
      .template = { { "turns", .source = AS_IT_IS } } },
    { .name = "mt-bench",
      .what = "MT-bench: 80 questions of two turns, 10 in each of 8 categories",
      .from = "https://github.com/lm-sys/FastChat, mt_bench/question.jsonl; HuggingFaceH4/mt_bench_prompts",
      .licence = "Apache-2.0",
      .keys = "question_id|prompt_id category turns|prompt",
      .id = "question_id|prompt_id",
      .category = "category",
      .answer = "reference",
      .shape = SHAPE_TURNS,
      .turns = "turns|prompt",
      .categories = mt_bench_categories,
      .template = { { "turns", .source = AS_IT_IS } } },
    { .name = "eagle",
      .what = "EAGLE's question files: alpaca, gsm8k, humaneval, mt_bench, qa, sum, 80 each",
      .from = "https://github.com/SafeAILab/EAGLE, eagle/data/*/question.jsonl",
      .licence = "Apache-2.0; texts of the datasets that they are from",
      .keys = "question_id category turns",
      .id = "question_id",
      .category = "category",
      .answer = "reference",
      .shape = SHAPE_TURNS,
      .turns = "turns",
      .template = { { "turns", .source = AS_IT_IS } } },
    { .name = "speed-bench",
      .what = "SPEED-Bench: qualitative (880 prompts, 11 categories), throughput_1k to 32k (1,536 each)",
      .from =
          "huggingface.co/datasets/nvidia/SPEED-Bench, prepared by Model-Optimizer/examples/specdec_bench/prepare_data.py",
      .licence = "NVIDIA Evaluation Dataset License: for evaluation, not to be passed on",
      .keys = "question_id category turns sub_category src_id",
      .id = "question_id",
      .category = "category",
      .shape = SHAPE_TURNS,
      .turns = "turns",
      .template = { { "turns", .source = AS_IT_IS } } },
    { .name = "humaneval",
      .what = "HumanEval: 164 Python functions to complete",
      .from = "https://github.com/openai/human-eval, data/HumanEval.jsonl.gz; openai/openai_humaneval",
      .licence = "MIT",
      .keys = "task_id prompt entry_point",
      .id = "task_id",
      .answer = "canonical_solution",
      .template = { { "instruct",
                      "Write a solution to the following problem and make sure that it passes the tests:\n```python\n{prompt}\n```",
                      .source = "DFlash's benchmark; the words are lm-evaluation-harness's (humaneval_instruct)" },
                    { "completion", "{prompt}", .source = "HumanEval's own: code to continue, without a chat template",
                      .completion = true } } },
    { .name = "mbpp",
      .what = "MBPP: 974 small Python tasks; sanitized: 427 of them",
      .from =
          "https://github.com/google-research/google-research, mbpp/mbpp.jsonl, sanitized-mbpp.json; google-research-datasets/mbpp",
      .licence = "CC BY 4.0",
      .keys = "task_id text|prompt test_list",
      .id = "task_id",
      .answer = "code",
      .numbered = true,
      .template = { { "instruct",
                      "You are an expert Python programmer, and here is your task:\n{text|prompt}\nYour code should pass these "
                      "tests:\n{test_list[]}",
                      .source = "lm-evaluation-harness (mbpp_instruct), after Austin et al. 2021" },
                    { "task", "{text|prompt}", .source = "DFlash's benchmark: the task alone" } } },
    { .name = "gsm8k",
      .what = "GSM8K: school mathematics, 1,319 test questions (7,473 for training)",
      .from = "https://github.com/openai/grade-school-math, grade_school_math/data/test.jsonl; openai/gsm8k",
      .licence = "MIT",
      .keys = "question answer",
      .answer = "answer",
      .template = { { "question", "{question}", .source = "Spec-Bench, EAGLE: the question alone" },
                    { "boxed", "{question}" REASON_AND_BOX, .source = "DFlash's benchmark" } } },
    { .name = "cnn-dm",
      .what = "CNN/DailyMail 3.0.0: news to summarize, 11,490 test articles",
      .from = "huggingface.co/datasets/abisee/cnn_dailymail",
      .licence = "Apache-2.0 (the collection); the articles are their publishers'",
      .keys = "article highlights",
      .id = "id",
      .answer = "highlights",
      .collected = true,
      .template = { { "summarize", "Summarize: {article}", .source = "Spec-Bench (summarization), EAGLE (sum)" } } },
    { .name = "alpaca",
      .what = "Alpaca: 52,002 instructions written by a model",
      .from = "https://github.com/tatsu-lab/stanford_alpaca, alpaca_data.json; tatsu-lab/alpaca",
      .licence = "CC BY-NC 4.0",
      .keys = "instruction input output",
      .answer = "output",
      .collected = true,
      .template = { { "chat", "{instruction}\n\nInput:\n{input}", .without = "{instruction}",
                      .source = "DFlash's benchmark" },
                    { "alpaca",
                      "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
                      "response that appropriately completes the request.\n\n### Instruction:\n{instruction}\n\n### "
                      "Input:\n{input}\n\n### Response:",
                      .without =
                          "Below is an instruction that describes a task. Write a response that appropriately completes the "
                          "request.\n\n### Instruction:\n{instruction}\n\n### Response:",
                      .source = "Stanford's training (train.py)" } } },
    { .name = "math-500",
      .what = "MATH-500: 500 competition problems of MATH, 7 subjects, 5 levels",
      .from = "huggingface.co/datasets/HuggingFaceH4/MATH-500, test.jsonl; https://github.com/openai/prm800k",
      .licence = "MIT",
      .keys = "problem subject|type level solution",
      .id = "unique_id",
      .category = "subject|type",
      .answer = "solution",
      .template = { { "boxed", "{problem}" REASON_AND_BOX, .source = "DFlash's benchmark, Qwen's model cards" },
                    { "problem", "{problem}", .source = "the problem alone" } } },
    { .name = "longbench",
      .what = "LongBench: 21 tasks over long contexts, 4,750 prompts",
      .from = "huggingface.co/datasets/THUDM/LongBench, data.zip: a file for each task",
      .licence = "MIT; texts of the datasets that they are from",
      .keys = "context input dataset _id",
      .id = "_id",
      .category = "dataset",
      .answer = "answers",
      .template_file = LONGBENCH ", LongBench/config/dataset2prompt.json",
      .template = { { "plain", "{context}\n\n{input}", .source = "ours: the context, then the question" } } },
    { .name = "longbench-v2",
      .what = "LongBench v2: 503 questions with four choices over contexts of 8k to 2M words",
      .from = "huggingface.co/datasets/THUDM/LongBench-v2, data.json",
      .licence = "Apache-2.0",
      .keys = "context question choice_A choice_B choice_C choice_D",
      .id = "_id",
      .category = "domain",
      .answer = "answer",
      .template_file = LONGBENCH ", prompts/0shot.txt",
      .template = { { "plain",
                      "{context}\n\n{question}\n(A) {choice_A}\n(B) {choice_B}\n(C) {choice_C}\n(D) {choice_D}",
                      .source = "ours: the context, then the question and its choices" } } },
    { .name = "sharegpt",
      .what = "ShareGPT: conversations of people with ChatGPT",
      .from =
          "huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered, ShareGPT_V3_unfiltered_cleaned_split.json",
      .licence = "Apache-2.0 (the collection); the texts are their users'",
      .keys = "conversations|conversation",
      .id = "id",
      .shape = SHAPE_MESSAGES,
      .collected = true,
      .template = { { "turns", .source = "the user's messages, each answered by the model" } } },
    { .name = "magpie",
      .what = "Magpie: conversations that a chat model wrote by itself",
      .from = "huggingface.co/Magpie-Align: Magpie-Pro-300K-Filtered, Magpie-Pro-MT-300K-v0.1 and others",
      .licence = "that of the model which wrote them (Llama 3's and others)",
      .keys = "uuid conversations|instruction",
      .id = "uuid",
      .category = "task_category",
      .shape = SHAPE_MESSAGES,
      .collected = true,
      .template = { { "turns", .source = "the user's messages, each answered by the model" } } },
    { 0 },
};

const struct dataset *dataset_find(const char *name)
{
    for (const struct dataset *d = datasets; d->name != NULL; d++)
        if (strcmp(d->name, name) == 0)
            return d;
    return NULL;
}

const struct dataset *dataset_nearest(const char *name)
{
    const char *names[sizeof(datasets) / sizeof(*datasets)];
    for (size_t i = 0; i < sizeof(datasets) / sizeof(*datasets); i++)
        names[i] = datasets[i].name;
    const char *close = nearest(name, names);
    return close != NULL ? dataset_find(close) : NULL;
}

const char *dataset_names(void)
{
    static char names[512];
    if (*names == '\0')
        for (const struct dataset *d = datasets; d->name != NULL; d++)
            strcat(strcat(names, d == datasets ? "" : ", "), d->name);
    return names;
}

const struct prompt_template *template_find(const struct dataset *d, const char *name)
{
    for (int i = 0; i < MAX_TEMPLATES && d->template[i].name != NULL; i++)
        if (strcmp(d->template[i].name, name) == 0)
            return &d->template[i];
    return NULL;
}

const struct json *entry_field(const struct json *entry, const char *keys, const char **key, int *n)
{
    *key = keys;
    for (const char *at = keys;; at += strcspn(at, "|") + 1) {
        char *name = xstrndup(at, strcspn(at, "|"));
        const struct json *field = json_get(entry, name);
        free(name);
        if (!json_is_null(field))
            *key = at;
        *n = (int)strcspn(*key, "|");
        if (!json_is_null(field) || strchr(at, '|') == NULL)
            return json_is_null(field) ? NULL : field;
    }
}

// Whether the entry has one of the keys a|b, null or not: tables converted from parquet have every column in every row.
static bool has_key(const struct json *entry, const char *keys, size_t n)
{
    for (const char *at = keys; at < keys + n; at += strcspn(at, "| ") + 1) {
        char *name = xstrndup(at, strcspn(at, "| "));
        const bool has = json_get(entry, name) != NULL;
        free(name);
        if (has)
            return true;
    }
    return false;
}

// The number of d's keys that the entry has, if it has all; else 0. *missing: the first that it lacks.
static int keys_matched(const struct dataset *d, const struct json *entry, const char **missing)
{
    int matched = 0;
    for (const char *at = d->keys; *at != '\0'; matched++) {
        const size_t n = strcspn(at, " ");
        if (!has_key(entry, at, n)) {
            *missing = at;
            return 0;
        }
        at += n + (at[n] == ' ');
    }
    return matched;
}

// "task_id, text or prompt, test_list"; free() it.
static char *keys_text(const char *keys)
{
    struct text t = { 0 };
    for (const char *at = keys; *at != '\0'; at++)
        if (*at == ' ' || *at == '|')
            text_puts(&t, *at == ' ' ? ", " : " or ");
        else
            text_add(&t, at, 1);
    return t.s;
}

bool dataset_fits(const struct dataset *d, const struct json *entry, struct error *err)
{
    const char *missing = NULL, *ignored;
    const int matched = keys_matched(d, entry, &missing);
    const struct dataset *other = NULL;
    int most = matched;
    for (const struct dataset *o = datasets; o->name != NULL; o++) {
        const int n = keys_matched(o, entry, &ignored);
        if (n > most) {
            other = o;
            most = n;
        }
    }
    if (matched > 0 && other == NULL)
        return true;
    char *keys = keys_text(d->keys), *others = other != NULL ? keys_text(other->keys) : NULL;
    if (matched > 0)
        fail(err, "expected an entry of %s, found more: this looks like %s (%s)", d->name, other->name, others);
    else
        fail(err, "%.*s: expected an entry of %s (%s), found none%s%s%s%s%s", (int)strcspn(missing, " "), missing,
             d->name, keys, other != NULL ? "; this looks like " : "", other != NULL ? other->name : "",
             other != NULL ? " (" : "", other != NULL ? others : "", other != NULL ? ")" : "");
    free(keys);
    free(others);
    return false;
}

const char *mbpp_split(int64_t task_id)
{
    return task_id < 1      ? NULL
           : task_id <= 10  ? "prompt"
           : task_id <= 510 ? "test"
           : task_id <= 600 ? "validation"
           : task_id <= 974 ? "train"
                            : NULL;
}

static void print_words(FILE *to, const char *label, const char *words)
{
    struct text t = { 0 };
    char *at = xformat("    %s", label);
    prose_paragraph(&t, 16, 120, at, words);
    fputs(t.s, to);
    free(at);
    free(t.s);
}

// A template as a JSON text: with its line breaks.
static void add_quoted(struct text *t, const char *before, const char *template)
{
    struct json *j = json_new_text(template);
    char *quoted = json_write(j);
    text_printf(t, "%s%s", before, quoted);
    free(quoted);
    json_free(j);
}

static void print_template(FILE *to, const struct dataset *d, int i)
{
    const struct prompt_template *t = &d->template[i];
    const bool is_default = i == 0 && d->template_file == NULL;
    struct text line = { 0 };
    text_printf(&line, "%s (%s%s)", t->name, is_default ? "default; " : "", t->source);
    if (t->text != NULL)
        add_quoted(&line, ": ", t->text);
    if (t->without != NULL)
        add_quoted(&line, ", without input ", t->without);
    print_words(to, is_default ? "prompt" : "", line.s);
    free(line.s);
}

void datasets_list(FILE *to)
{
    for (const struct dataset *d = datasets; d->name != NULL; d++) {
        char *keys = keys_text(d->keys), *category = d->category != NULL ? keys_text(d->category) : NULL;
        fprintf(to, "%s%s\n", d == datasets ? "" : "\n", d->name);
        print_words(to, "what", d->what);
        print_words(to, "from", d->from);
        print_words(to, "licence", d->licence);
        print_words(to, "fields", keys);
        fprintf(to, "    %-12s%s%s%s\n", "category", category != NULL ? category : "",
                category != NULL ? ", else " : "", d->name);
        if (d->template_file != NULL) {
            char *line = xformat("--template FILE: %s", d->template_file);
            print_words(to, "prompt", line);
            free(line);
        }
        for (int i = 0; i < MAX_TEMPLATES && d->template[i].name != NULL; i++)
            print_template(to, d, i);
        free(keys);
        free(category);
    }
}
