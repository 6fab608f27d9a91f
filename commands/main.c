// main.c - `speclab COMMAND ...`: finds the command and steps aside.
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/commands.h"

static const struct {
    const char *name, *summary;
    int (*function)(int argc, char **argv);
} commands[] = {
    { "run", "run an experiment's file, results into a database", command_run },
    { "report", "tables of what is in a database", command_report },
    { "generate", "decode one prompt with a drafter, shown as it comes", command_generate },
    { "tokenize", "texts to token ids, and back", command_tokenize },
    { "score", "log-probabilities and perplexity of given texts", command_score },
    { "inspect", "what a model is, and what a pass of it costs", command_inspect },
    { "make", "a model of random weights to measure with", command_make },
    { "bench", "what passes cost on this machine, beside llama.cpp if wanted", command_bench },
    { "prune", "a smaller model from some of a model's layers", command_prune },
    { "quantize", "the model at another precision", command_quantize },
    { "inflate", "a larger model that computes the same function", command_inflate },
    { "exact", "prove rules exact, and put a pair's texts to the test", command_exact },
    { "heads", "how well drafters guess texts that are known, by depth and rank", command_heads },
    { "list", "drafters, rules and sampling stages with their options", command_list },
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct usage self = { .name = "" };

static void print_usage(FILE *to)
{
    fprintf(to, "Usage: speclab COMMAND ...\n\n"
                "Speculative decoding, measured: a model paired with drafters, and what each gains and costs.\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\n`speclab COMMAND --help` says more. Exit status: 0 done, 1 it failed, 2 it was called wrongly.\n");
}

static int unknown_command(const char *word)
{
    const char *names[COMMANDS + 1] = { 0 };
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    const char *meant = nearest(word, names);
    if (meant != NULL)
        fprintf(stderr, "speclab: there is no command \"%s\"; did you mean %s?\n", word, meant);
    else
        fprintf(stderr, "speclab: there is no command \"%s\"; speclab --help lists them\n", word);
    return 2;
}

int main(int argc, char **argv)
{
    // A reader that goes away (`| head`) shows as a failed write, which command_done knows how to take.
    signal(SIGPIPE, SIG_IGN);
    // So does a file that may not grow (`ulimit -f`), which would otherwise end us with half of it written.
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
