// import_command.c - `speclab import`: options, the files' entries, what is written, and what is said about it.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/import/datasets.h"
#include "commands/import/entries.h"
#include "commands/import/selection.h"
#include "core/error.h"
#include "core/json.h"
#include "engine/prompts.h"
#include "formats/file.h"

struct import {
    struct prompt_choice choice;
    struct selection selection;
    const char *out; // NULL: stdout
    char **file;     // (files)
    int files;
    long long per_category, limit, seed; // seed -1: the first ones
    int64_t entries, repeated;
    int64_t dropped[DROPS];
    char *first_dropped[DROPS]; // its place
    struct json *sources;       // what the files were
};

static const char about[] =
    "Writes the prompts of a published dataset as a file of prompts for experiments (`prompts: {file: ..}`), generate, score\n"
    "and tune: JSON lines with id, category and turns. DATASET is a name of --list. FILE is as it is published: JSON lines or\n"
    "one JSON list, also gzipped; several FILEs are one dataset. The first line also says how the file was made (\"import\").\n";

static const char examples[] =
    "  speclab import --list\n"
    "  speclab import gsm8k test.jsonl --limit 80 --seed 1 --out gsm8k.jsonl\n"
    "  speclab import humaneval HumanEval.jsonl.gz --template completion --out humaneval.jsonl\n"
    "  speclab import spec-bench question.jsonl --category rag --category qa --per-category 10 --out rag.jsonl\n"
    "  speclab import longbench hotpotqa.jsonl gov_report.jsonl --template dataset2prompt.json --out long.jsonl\n"
    "  speclab import sharegpt ShareGPT_V3_unfiltered_cleaned_split.json --turns 1 --limit 200 --seed 0 --out sharegpt.jsonl\n";

// ---- reading

static bool read_file(struct import *m, const char *path, struct error *err)
{
    struct entries e;
    struct made_prompt p;
    bool ok = entries_open(&e, path, err);
    char hash[HASH_TEXT];
    while (ok && entries_next(&e, err)) {
        if (!(ok = made_prompt_of(&m->choice, &e, m->entries, &p, err)))
            break;
        char *place = entries_place(&e);
        m->dropped[p.drop]++;
        if (p.drop == DROP_NOT)
            selection_add(&m->selection, p, place, m->entries);
        else if (m->first_dropped[p.drop] == NULL)
            m->first_dropped[p.drop] = place;
        else
            free(place);
        m->entries++;
    }
    ok = ok && !e.failed &&
         (e.n > 0 || fail(err, "%s: expected entries of %s, found none", path, m->choice.dataset->name));
    hash_write(e.hash, hash);
    struct json *source = json_new_object();
    json_set(source, "hash", json_new_text(hash));
    json_set(source, "entries", json_new_int(e.n));
    json_push(m->sources, source);
    entries_close(&e);
    return ok;
}

static bool category_exists(const struct import *m, const char *name)
{
    for (size_t i = 0; i < m->selection.n; i++)
        if (strcmp(m->selection.candidate[i].p.category, name) == 0)
            return true;
    return false;
}

static bool select_prompts(struct import *m, struct error *err)
{
    const struct dataset *d = m->choice.dataset;
    for (int i = 0; i < m->choice.categories; i++)
        if (!category_exists(m, m->choice.category[i]))
            return fail(err, "--category: expected one of %s's, found \"%s\", which no prompt has", m->file[0],
                        m->choice.category[i]);
    if (!selection_check(&m->selection, d->collected, &m->repeated, err))
        return false;
    if (m->selection.n == 0)
        return fail(err, "%s: expected prompts, found none among %lld entries", m->file[0], (long long)m->entries);
    selection_limit(&m->selection, m->per_category, m->limit, m->seed);
    return m->selection.n <= MAX_PROMPTS ||
           fail(err, "expected at most %d prompts, found %zu; --limit N takes fewer", MAX_PROMPTS, m->selection.n);
}

// ---- writing

static void set_int(struct json *j, const char *key, int64_t v, int64_t none)
{
    if (v != none)
        json_set(j, key, json_new_int(v));
}

// How the file was made. No path and no version: the same entries make the same file everywhere.
static struct json *record(const struct import *m)
{
    const struct prompt_choice *c = &m->choice;
    struct json *j = json_new_object();
    json_set(j, "dataset", json_new_text(c->dataset->name));
    json_set(j, "template", json_new_text(c->template_name));
    json_set(j, "files", json_clone(m->sources));
    json_set(j, "prompts", json_new_int((int64_t)m->selection.n));
    if (c->categories > 0) {
        struct json *list = json_new_array();
        for (int i = 0; i < c->categories; i++)
            json_push(list, json_new_text(c->category[i]));
        json_set(j, "category", list);
    }
    if (c->split != NULL)
        json_set(j, "split", json_new_text(c->split));
    set_int(j, "turns", c->turns, 0);
    set_int(j, "min_characters", c->least, 0);
    set_int(j, "max_characters", c->most, 0);
    set_int(j, "per_category", m->per_category, 0);
    set_int(j, "limit", m->limit, 0);
    set_int(j, "seed", m->seed, -1);
    return j;
}

static bool write_prompts(const struct import *m, struct error *err)
{
    struct part *to = m->out != NULL ? part_begin(m->out, err) : part_onto(stdout, "stdout");
    if (to == NULL)
        return false;
    struct json *how = record(m);
    char *text = json_write(how);
    json_free(how);
    for (size_t i = 0; i < m->selection.n; i++) {
        const char *line = m->selection.candidate[i].p.line; // "{..}"
        if (i == 0) {
            part_write(to, "{\"import\":", 10);
            part_write(to, text, strlen(text));
            part_write(to, ",", 1);
            line++;
        }
        part_write(to, line, strlen(line));
        part_write(to, "\n", 1);
    }
    free(text);
    return part_end(to, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void summarize(struct import *m, FILE *to)
{
    const struct prompt_choice *c = &m->choice;
    const struct selection *s = &m->selection;
    fprintf(to, "%s: %zu prompts of %s, template %s; %lld entries read\n", m->out != NULL ? m->out : "stdout", s->n,
            c->dataset->name, c->template_name, (long long)m->entries);
    for (int i = 1; i < DROPS; i++)
        if (m->dropped[i] > 0 && i != DROP_REPEATED)
            fprintf(to, "left out: %lld %s, the first at %s\n", (long long)m->dropped[i], drop_reasons[i],
                    m->first_dropped[i]);
    if (m->repeated > 0 && c->dataset->collected)
        fprintf(to, "left out: %lld %s\n", (long long)m->repeated, drop_reasons[DROP_REPEATED]);
    else if (m->repeated > 0)
        fprintf(to, "%lld with the text of an earlier one, kept as published\n", (long long)m->repeated);
    const char **category = xcalloc(s->n, sizeof(*category));
    for (size_t i = 0; i < s->n; i++)
        category[i] = s->candidate[i].p.category;
    qsort(category, s->n, sizeof(*category), by_name);
    for (size_t i = 0, n = 1; i < s->n; i++, n++)
        if (i + 1 == s->n || strcmp(category[i], category[i + 1]) != 0) {
            fprintf(to, "    %-24s %zu\n", category[i], n);
            n = 0;
        }
    free(category);
}

// ---- the command

static bool check_options(struct import *m, struct error *err)
{
    const struct prompt_choice *c = &m->choice;
    for (int i = 0; i < m->files; i++) {
        if (m->out != NULL && file_is_same(m->file[i], m->out))
            return fail(err, "--out: expected another file than %s, which is read", m->file[i]);
        for (int k = 0; k < i; k++)
            if (file_is_same(m->file[i], m->file[k]))
                return fail(err, "%s: expected each file once", m->file[i]);
    }
    if (c->split != NULL && strcmp(c->dataset->name, "mbpp") != 0)
        return fail(
            err,
            "--split: expected a dataset whose entries belong to splits (mbpp), found %s, which has a file for each",
            c->dataset->name);
    if (c->turns > 0 && c->dataset->shape == SHAPE_TEXT)
        return fail(err, "--turns: expected a dataset of conversations, found %s, whose prompts have one turn",
                    c->dataset->name);
    if (c->answers && c->dataset->answer == NULL && c->dataset->shape != SHAPE_MESSAGES)
        return fail(err, "--answers: expected a dataset with reference answers, found %s", c->dataset->name);
    return c->most == 0 || c->least <= c->most ||
           fail(err, "--min-characters: expected at most --max-characters, %lld, found %lld", (long long)c->most,
                (long long)c->least);
}

static int run(struct import *m, const struct usage *u)
{
    struct error err;
    for (int i = 0; i < m->files; i++)
        if (!read_file(m, m->file[i], &err))
            return command_fail(u, &err);
    if (!select_prompts(m, &err) || !write_prompts(m, &err))
        return command_fail(u, &err);
    summarize(m, m->out != NULL ? stdout : stderr);
    return command_done(u);
}

static void close_all(struct import *m)
{
    prompt_choice_free(&m->choice);
    selection_free(&m->selection);
    json_free(m->sources);
    for (int i = 0; i < DROPS; i++)
        free(m->first_dropped[i]);
}

int command_import(int argc, char **argv)
{
    struct import m = { .seed = -1 };
    struct flag_texts category = { 0 };
    const char *template = NULL;
    long long turns = 0, least = 0, most = 0;
    int split = -1;
    bool list = false;
    static const char splits[] = "prompt|test|validation|train";
    static const char *const split_names[] = { "prompt", "test", "validation", "train" };
    const struct flag flags[] = {
        { "list", FLAG_ON, &list, NULL, "the datasets: what each is, from where, its licence, fields and templates", 0,
          0 },
        { "out", FLAG_TEXT, &m.out, "FILE", "where the prompts are written; default: stdout", 0, 0 },
        { "template", FLAG_TEXT, &template, "NAME",
          "how a prompt is made of an entry: a name of --list, or a FILE of\nLongBench's own templates; default: the first of --list",
          0, 0 },
        { "category", FLAG_TEXTS, &category, "NAME", "only prompts of this category; can be given several times", 0,
          0 },
        { "split", FLAG_CHOICE, &split, splits, "only these of MBPP's tasks, by their ids", 0, 0 },
        { "turns", FLAG_INT, &turns, "N", "the first N turns of each conversation; default: all", 1, MAX_TURNS },
        { "min-characters", FLAG_INT, &least, "N", "only prompts of at least so many characters, all turns together", 1,
          LLONG_MAX },
        { "max-characters", FLAG_INT, &most, "N", "only prompts of at most so many", 1, LLONG_MAX },
        { "per-category", FLAG_INT, &m.per_category, "N", "prompts of each category; default: all", 1, INT_MAX },
        { "limit", FLAG_INT, &m.limit, "N", "prompts in all; default: all", 1, INT_MAX },
        { "seed", FLAG_INT, &m.seed, "N", "take a random sample; default: the first ones", 0, LLONG_MAX },
        { "answers", FLAG_ON, &m.choice.answers, NULL, "keep the reference answers, for `speclab score --answers`", 0,
          0 },
        { 0 },
    };
    const struct usage u = { "import", "DATASET FILE...", about, flags, examples, 0, INT_MAX };
    struct error err;
    char **operand;
    int operands, status = usage_read(&u, argc, argv, &operand, &operands);
    if (status != USAGE_OK)
        return status;
    if (list && operands > 0)
        return usage_fail(&u, "unexpected argument \"%s\": --list describes all datasets", operand[0]);
    if (list) {
        datasets_list(stdout);
        return command_done(&u);
    }
    if (operands == 0)
        return usage_fail(&u, "missing argument: speclab import [OPTION...] %s; --list describes the datasets",
                          u.operands);
    m.choice.dataset = dataset_find(operand[0]);
    if (m.choice.dataset == NULL && dataset_nearest(operand[0]) != NULL)
        return usage_fail(&u, "unknown dataset \"%s\"; did you mean %s?", operand[0],
                          dataset_nearest(operand[0])->name);
    if (m.choice.dataset == NULL)
        return usage_fail(&u, "unknown dataset \"%s\": expected one of %s", operand[0], dataset_names());
    if (operands == 1)
        return usage_fail(&u, "missing file of %s: %s", m.choice.dataset->name, m.choice.dataset->from);
    m.file = operand + 1;
    m.files = operands - 1;
    m.choice.turns = (int)turns;
    m.choice.least = least;
    m.choice.most = most;
    m.choice.split = split >= 0 ? split_names[split] : NULL;
    m.choice.category = category.text;
    m.choice.categories = category.n;
    m.sources = json_new_array();
    if (!check_options(&m, &err) || !prompt_choice_template(&m.choice, template, &err))
        status = usage_fail(&u, "%s", err.text);
    else
        status = run(&m, &u);
    close_all(&m);
    return status;
}
