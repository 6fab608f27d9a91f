// fuzz_experiment.c - arbitrary bytes as an experiment file, with a tree file beside it. Accepted experiments round-trip
// through their settings.
//
// Input: the YAML file, then a tree in JSON. The model and the prompts that it may name exist.
// reader: experiments/experiment.c experiments/cells.c experiments/yaml.c experiments/sweep/cell_lists.c experiments/sweep/variants.c core/settings.c core/options.c drafters/trees/tree.c
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "drafters/trees/tree.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/yaml.h"
#include "tests/fuzz/fuzz.h"
#include "core/utf8.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

static const struct fuzz_file files[] = { { "x.yaml", FUZZ_WORDS }, { "tree.json", FUZZ_JSON }, { NULL, FUZZ_TEXT } };
static const char fixed_words[] =
    "name  target  threads  prompts  limits  seed  repeat  record  cells  model  cpu  cuda  activations  cache  f32  "
    "bf16  int8  q8_0  default  file  limit  per_category  chat  auto  none  chatml  new_tokens  context  "
    "ignore_end  stop  trials  expected  rows  full  sampling  batch  rule  drafter  kind  typical_p  repetition  "
    "frequency  presence  order  sampled  greedy  coupled  tree.json  tree.txt  mc_sim_7b_63  eagle_25  true  false  "
    "null  0  1  -1  2147483648  1e999  nan  0.5  {}  []  [[0], [0, 0], [1]]  \"\\x7F\"  \"\\N\"  \"a\\L\"  \"\"  "
    "{11: -2.5, 198: 1}  &a  *a  <<: 1  <<: *a  x-a  any  from  to  step  factor  zip  exclude  checkpoint  !!int 1  "
    "--- x  ? a  |\n a  prompts.jsonl  target.gguf  \t  \xC3\xA4";
static const char *words; // these, and the names of drafters, rules and stages and of their options

static void add_names(struct text *to, const char *name, const struct option *options)
{
    text_printf(to, "  %s", name);
    for (; options != NULL && options->name != NULL; options++)
        text_printf(to, "  %s", options->name);
}

static void add_words(void)
{
    struct text all = { 0 };
    text_puts(&all, fixed_words);
    for (int i = 0; drafter_types[i] != NULL; i++)
        add_names(&all, drafter_types[i]->name, drafter_types[i]->options);
    for (int i = 0; rules[i] != NULL; i++)
        add_names(&all, rules[i]->name, rules[i]->options);
    for (int i = 0; stages[i] != NULL; i++)
        add_names(&all, stages[i]->name, NULL);
    words = all.s;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char conversations[] =
        "{\"id\": \"a\", \"category\": \"chat\", \"turns\": [\"one two\", \"and again\"]}\n"
        "{\"id\": \"b\", \"prompt\": \"a b c\"}\n{\"id\": \"d\", \"input_ids\": [75, 104]}\n";
    (void)argc, (void)argv;
    add_words();
    fuzz_write("prompts.jsonl", conversations, sizeof(conversations) - 1);
    fuzz_write("target.gguf", "GGUF", 4); // only its existence is checked
    return 0;
}

// Settings written on one line and read as YAML are the same settings.
static void check_settings(const struct settings *s)
{
    struct text one = { 0 }, two = { 0 };
    struct error err = { "" };
    settings_write(s, &one);
    struct settings *again = yaml_parse(one.s, one.n, "again", &err);
    insist(again != NULL);
    settings_write(again, &two);
    insist(strcmp(one.s, two.s) == 0);
    settings_free(again);
    free(one.s);
    free(two.s);
}

static void check_entries(const struct entries *all)
{
    insist(all->n > 0);
    for (int i = 0; i < all->n; i++) {
        insist(*all->entry[i].shown != '\0');
        check_settings(all->entry[i].settings);
    }
}

static void use_experiment(const char *path)
{
    struct error err = { "" };
    struct experiment *e = experiment_load(path, &err);
    insist(e != NULL || *err.text != '\0');
    if (e == NULL)
        return;
    check_settings(e->file);
    check_entries(&e->sampling);
    check_entries(&e->batch);
    check_entries(&e->rule);
    check_entries(&e->drafter);
    for (int i = 0; i < e->batch.n; i++)
        insist(experiment_batch(e, i) >= 1);
    insist(e->new_tokens >= 1 && e->context >= 2 && e->repeat >= 1 && e->threads >= 1 && e->prompts.n >= 1);
    insist(experiment_turns(e) >= e->prompts.n && groups(e) == e->target.n * e->sampling.n * e->batch.n &&
           experiment_cells(e) > 0);
    experiment_free(e);
}

static void use_tree(const char *name)
{
    struct tree tree, again;
    struct error err = { "" };
    if (!tree_read(name, fuzz_folder(), &tree, &err)) {
        insist(*err.text != '\0');
        return;
    }
    insist(tree.n > 1 && tree.n <= MAX_NODES && tree_max_depth(&tree) <= TREE_DEPTH);
    for (int i = 1; i < tree.n; i++)
        insist(tree.node[i].parent >= 0 && tree.node[i].parent < i && tree.node[i].rank < TREE_RANKS &&
               tree.node[i].depth == tree.node[tree.node[i].parent].depth + 1);
    char *text = tree_write(&tree);
    insist(tree_read(text, NULL, &again, &err) && again.n == tree.n);
    insist(memcmp(again.node, tree.node, (size_t)tree.n * sizeof(tree.node[0])) == 0);
    insist(tree_has_gaps(&again) == tree_has_gaps(&tree));
    for (int i = 0; i < tree.n; i++)
        insist(tree_children(&tree, i) < TREE_RANKS * 2);
    free(text);
}

// A tree built from acceptance shares, as by `speclab heads`, from arbitrary shares.
static void use_shares(const uint8_t *at, size_t n)
{
    double share[4 * 8] = { 0 };
    struct tree best, again;
    struct error err;
    for (size_t i = 0; i < n && i < 4 * 8; i++)
        share[i] = at[i] / 255.0;
    tree_best(share, 4, 8, n > 0 ? at[n - 1] % 64 + 1 : 1, &best);
    insist(best.n >= 1 && best.n <= 65 && !tree_has_gaps(&best));
    char *text = tree_write(&best);
    insist(best.n == 1 || (tree_read(text, NULL, &again, &err) && again.n == best.n));
    free(text);
}

// The first line in the syntax of the command line: "small:model=PATH,widths=[4,2]".
static void use_words(const uint8_t *at, size_t n)
{
    const uint8_t *end = n > 0 ? memchr(at, '\n', n) : NULL;
    struct error err = { "" };
    char *line = xstrndup(n > 0 ? (const char *)at : "", end != NULL ? (size_t)(end - at) : n);
    struct settings *s = settings_inline(line, "--drafter", &err);
    insist(s != NULL || *err.text != '\0');
    use_tree(line);
    struct speclab_decoder *d = s != NULL ? decoder_read(s, NULL, NULL, &err) : NULL;
    if (d != NULL &&
        utf8_valid(line, strlen(line)) == strlen(line)) // the command line may contain bytes that YAML cannot
        check_settings(s);
    speclab_decoder_destroy(d);
    settings_free(s);
    free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    struct fuzz_slice part[2];
    char *path = fuzz_path(files[0].name);
    fuzz_split(input, n, part, 2);
    fuzz_write_files(input, n, files);
    use_experiment(path);
    use_tree(files[1].name);
    use_shares(part[1].at, part[1].n);
    use_words(part[0].at, part[0].n);
    free(path);
    return 0;
}

FUZZ_MUTATOR(files, words)
