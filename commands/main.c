// main.c - `speclab COMMAND ...`: looks up the command and calls it.
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "experiments/environment.h"

static const struct {
    const char *name, *summary;
    int (*function)(int argc, char **argv);
} commands[] = {
    { "run", "run the experiment in a YAML file, store every step in a database", command_run },
    { "report", "tables of the results in a database", command_report },
    { "compare", "results of vLLM, SGLang, llama.cpp, Spec-Bench and speclab in one table", command_compare },
    { "merge", "put databases of shards or of several machines into one", command_merge },
    { "predict", "predicted speedups beside measured ones, and bounds", command_predict },
    { "replay", "other rules, lengths and trees on recorded drafts, without a model", command_replay },
    { "repro", "run a stored run again: is it the same, within its interval?", command_repro },
    { "generate", "decode one prompt with a drafter, streaming the text", command_generate },
    { "tokenize", "text to token ids, and back", command_tokenize },
    { "score", "log-probabilities and perplexity of given texts", command_score },
    { "inspect", "a model's shape, tokenizer and tensors, and the cost of a pass", command_inspect },
    { "make", "write a model with random weights, for benchmarks", command_make },
    { "bench", "time passes of n rows on this machine, optionally beside llama.cpp", command_bench },
    { "prune", "write a smaller model with some of a model's layers", command_prune },
    { "quantize", "write a model at another precision", command_quantize },
    { "inflate", "write a larger model that computes the same function", command_inflate },
    { "exact", "check rules exactly, and test the texts of an experiment for bias", command_exact },
    { "features", "write what a head reads of training texts, for a trainer", command_features },
    { "heads", "accuracy of drafters on the target's texts, by depth and rank", command_heads },
    { "distill", "let a model write training text for its drafters", command_distill },
    { "import", "prompts of published datasets (Spec-Bench, GSM8K, ..) for experiments", command_import },
    { "datastore", "index texts for the drafter rest", command_datastore },
    { "tune", "search the settings of drafters for a target and machine", command_tune },
    { "list", "list drafters, rules and sampling stages with their options", command_list },
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct usage self = { .name = "" };

static void print_usage(FILE *to)
{
    fprintf(
        to,
        "Usage: speclab COMMAND ...\n\n"
        "Speculative decoding, measured: pairs a target model with drafters and reports what each gains and costs.\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\n`speclab COMMAND --help` describes a command. Exit status: 0 success, 1 failure, 2 wrong usage.\n");
}

static int unknown_command(const char *word)
{
    const char *names[COMMANDS + 1] = { 0 };
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    const char *meant = nearest(word, names);
    if (meant != NULL)
        fprintf(stderr, "speclab: unknown command \"%s\"; did you mean %s?\n", word, meant);
    else
        fprintf(stderr, "speclab: unknown command \"%s\"; speclab --help lists all commands\n", word);
    return 2;
}

int main(int argc, char **argv)
{
    // A closed pipe (`| head`) becomes a failed write, which command_done handles.
    signal(SIGPIPE, SIG_IGN);
    // The same for the file size limit (`ulimit -f`), whose signal would end the process in the middle of a write.
    signal(SIGXFSZ, SIG_IGN);
    const char *word = argc > 1 ? argv[1] : NULL;
    if (word == NULL) {
        print_usage(stderr);
        return 2;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(word, commands[i].name) == 0)
            return commands[i].function(argc - 1, argv + 1);
    if (strcmp(word, "--version") == 0)
        printf("speclab %s\n", program_version());
    else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        print_usage(stdout);
    else
        return unknown_command(word);
    return command_done(&self);
}
