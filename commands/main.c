// main.c - `speclab COMMAND ...`: looks up the command and calls it.
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/printable.h"
#include "engine/engine.h"
#include "engine/plugin.h"
#include "experiments/machine.h"
#include "experiments/experiment.h"
#include "core/files/mapped.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/devices.h"

static const struct {
    const char *name, *summary;
    int (*function)(int argc, char **argv);
} commands[] = {
    { "run", "run an experiment into a database", command_run },
    { "report", "results in a database as rows for a machine: --csv, --jsonl, --json", command_report },
    { "replay", "other rules, lengths and trees on recorded drafts, without a model", command_replay },
    { "generate", "decode one prompt with a drafter, streaming the text", command_generate },
    { "inspect", "a model's shape, tokenizer and cost; token ids and probabilities of texts", command_inspect },
    { "bench", "time passes of n rows on this machine", command_bench },
    { "exact", "check rules exactly, and test the texts of an experiment for bias", command_exact },
    { "heads", "accuracy of drafters on the target's texts, by depth and rank", command_heads },
    { "list", "list drafters, rules and sampling stages with their options", command_list },
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]), MAX_WORDS = 4096 };

// Words that were commands, and what does their work.
static const struct {
    const char *name, *now;
} former[] = {
    { "tokenize", "inspect MODEL [FILE.jsonl] --tokenize, and --detokenize for --decode" },
    { "score", "inspect MODEL [FILE.jsonl] --score" },
    { "repro", "run --again RUN" },
    { "datastore", "features MODEL FILE... --datastore OUT" },
};

// Words of the Python package: whole ones, and words of commands with one of the options `with` and none of the options
// `without`. (Modules say the same in lines "# with --a --b", "# without --c" and "# with --a without --c".)
static const struct {
    const char *name, *with, *without, *summary;
} tools[] = {
    { "prune", NULL, NULL, "write a smaller model with some of a model's layers" },
    { "quantize", NULL, NULL, "write a model at another precision" },
    { "inflate", NULL, NULL, "write a larger model that computes the same function" },
    { "convert", NULL, NULL, "PyTorch's .pt and .bin files as safetensors" },
    { "predict", NULL, NULL, "predicted speedups beside measured ones, and bounds" },
    { "model", NULL, NULL, "models of the Hugging Face hub into the cache" },
    { "quality", NULL, NULL, "what a lossy rule costs in its texts: perplexity, total variation, tasks solved" },
    { "check-drafter", NULL, NULL, "does a drafter in Python keep its contract? in words" },
    { "trace", NULL, NULL, "a text as it was decoded, step by step" },
    { "generate", "--trace-html", NULL, NULL },
    { "bench", NULL, "--json", NULL },
    { "bench", "--compare --peer-command --peer-option", NULL,
      "time passes beside llama.cpp, or another engine: --compare, --peer-command" },
    { "inspect", NULL, "--checkpoint --detokenize --json --score --tokenize", NULL },
    { "merge", NULL, NULL, "put databases of shards or of several machines into one" },
    { "distill", NULL, NULL, "let a model write training text for its drafters" },
    { "features", NULL, NULL, "write what a trained head, or the drafter rest, reads of texts" },
    { "import", NULL, NULL, "prompts of published datasets (Spec-Bench, GSM8K, ..) for experiments" },
    { "list", NULL, "--json", NULL },
    { "run", "--dry-run", "--json", NULL },
    { "run", "--again", NULL, "a stored run again: does it come out the same? --again" },
    { "report", NULL, "--csv --jsonl --json --intervals",
      "tables of results; to paste (--markdown, --latex); a page with figures (--html); files of other projects (--export)" },
    { "tune", NULL, NULL, "search the settings of drafters for a target and machine" },
    { "compare", NULL, NULL, "results of vLLM, SGLang, llama.cpp, Spec-Bench, papers and speclab in one table" },
    { "completion", NULL, NULL, NULL },
    { "schema", NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL },
};

// Returns the first of these options, a text with blanks between them, that a call has before "--"; NULL: none.
static const char *option_given(int argc, char **argv, const char *options)
{
    for (int k = 2; k < argc && strcmp(argv[k], "--") != 0; k++) {
        const size_t n = strcspn(argv[k], "=");
        for (const char *o = options; *o != '\0'; o += strcspn(o, " "), o += strspn(o, " "))
            if (strcspn(o, " ") == n && strncmp(o, argv[k], n) == 0)
                return o;
    }
    return NULL;
}

// The tool that the words call; -1: none.
static int tool_of(int argc, char **argv)
{
    for (int i = 0; tools[i].name != NULL; i++) {
        const char *with = tools[i].with, *without = tools[i].without;
        if (strcmp(argv[1], tools[i].name) == 0 && (with == NULL || option_given(argc, argv, with) != NULL) &&
            (without == NULL || option_given(argc, argv, without) == NULL))
            return i;
    }
    return -1;
}

// Cuts the last part of a path off.
static void go_up(char *path)
{
    char *slash = strrchr(path, '/');
    *(slash != NULL ? slash : path) = '\0';
}

// In a checkout, build/CONFIGURATION/speclab hands such words to `run`. An installed program stands in the package, in
// speclab/bin, and hands them to it, in the Python that started it (SPECLAB_PYTHON) or else python3. It does so once:
// SPECLAB_TOOL says that it has. words: those of the call, NULL behind them.
static void hand_over(char *const *words)
{
    char package[PATH_MAX], *python = getenv("SPECLAB_PYTHON"), *argv[MAX_WORDS];
    const ssize_t n = readlink("/proc/self/exe", package, sizeof(package) - 1);
    package[n > 0 ? n : 0] = '\0';
    go_up(package);
    go_up(package);
    char *root = xformat("%s", package), *here = xformat("%s/words", package);
    go_up(root);
    char *script = xformat("%s/run", root), *of_checkout = xformat("%s/python/speclab/words", root);
    const bool installed = access(here, R_OK) == 0;
    int to = 0;
    if (access(script, X_OK) == 0 && access(of_checkout, R_OK) == 0)
        argv[to++] = script;
    else if (python != NULL || installed) {
        static char *const start[] = { "python3", "-P", "-B", "-m", "speclab" };
        for (size_t i = 0; i < sizeof(start) / sizeof(start[0]); i++)
            argv[to++] = i == 0 && python != NULL ? python : start[i];
        const char *path = getenv("PYTHONPATH");
        if (installed)
            setenv("PYTHONPATH", path != NULL && *path != '\0' ? xformat("%s:%s", root, path) : root, 1);
    }
    const bool found = to > 0;
    while (*words != NULL && to < MAX_WORDS - 1)
        argv[to++] = *words++;
    argv[to] = NULL;
    if (getenv("SPECLAB_TOOL") == NULL && *words == NULL && found) {
        setenv("SPECLAB_TOOL", "1", 1);
        signal(SIGPIPE, SIG_DFL);
        signal(SIGXFSZ, SIG_DFL);
        execvp(argv[0], argv);
    }
    free(of_checkout);
    free(script);
    free(here);
    free(root);
}

static char **given; // the words of the call

// An experiment's file may name the plugin: then --plugin names it, too, in the call that is handed over.
static void begin_in_python(const char *file)
{
    char *words[MAX_WORDS] = { NULL };
    int n = 0, to = 0;
    bool is_given = false;
    for (; given[n] != NULL; n++)
        is_given = is_given || ends_with(given[n], file);
    for (int i = 0; i < n && to < MAX_WORDS - 3; i++) {
        words[to++] = given[i];
        if (i == 0 && !is_given) {
            words[to++] = "--plugin";
            words[to++] = (char *)(uintptr_t)file;
        }
    }
    hand_over(words);
}

static int fail_tool(int i, int argc, char **argv)
{
    const char *name = tools[i].name, *without = tools[i].without;
    const char *found = tools[i].with != NULL ? option_given(argc, argv, tools[i].with) : NULL;
    const char *option = found != NULL ? found : "";
    const int n = (int)strcspn(option, " ");
    const char *space = n > 0 ? " " : "";
    return usage_fail(
        &(struct usage){ .name = name },
        "%.*s%sis part of the Python package%s%s: ./run %s%s%.*s, or speclab %s%s%.*s after pip install ./python", n,
        option, space, without != NULL ? " without " : "", without != NULL ? without : "", name, space, n, option, name,
        space, n, option);
}

// What is printed has names of files, models and databases in it. The text of a model stays as it is.
static void make_stdout_printable(const char *command)
{
    FILE *f = NULL;
    if (strcmp(command, "generate") != 0)
        f = printable_stream(STDOUT_FILENO);
    if (f != NULL)
        stdout = f;
}

static const struct usage self = { .name = "" };

static void print_usage(FILE *to)
{
    fprintf(
        to,
        "Usage: speclab COMMAND ...\n\n"
        "Speculative decoding, measured: pairs a target model with drafters and reports what each gains and costs.\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    if (tools[0].name != NULL)
        fprintf(to, "\nTools of the Python package (docs/commands.md):\n");
    for (int i = 0; tools[i].name != NULL; i++)
        if (tools[i].summary != NULL)
            fprintf(to, "  ./run %-13s %s\n", tools[i].name, tools[i].summary);
    fprintf(
        to,
        "\n--plugin FILE adds drafters, rules and sampling stages of your own to every command (docs/python.md).\n");
    fprintf(
        to,
        "speclab --version, speclab completion bash|zsh, and speclab schema, the JSON schema of experiments for editors.\n");
    fprintf(to, "`speclab COMMAND --help` describes a command. Exit status: 0 success, 1 failure, 2 wrong usage.\n");
}

static int unknown_command(const char *word)
{
    const char *names[COMMANDS + sizeof(tools) / sizeof(tools[0])] = { 0 };
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    for (int i = 0; tools[i].name != NULL; i++)
        names[COMMANDS + i] = tools[i].name;
    for (size_t i = 0; i < sizeof(former) / sizeof(*former); i++)
        if (strcmp(word, former[i].name) == 0)
            return usage_fail(&self, "%s is now speclab %s", word, former[i].now);
    struct text hint = { 0 };
    name_hint(&hint, NAME_COMMAND, word, names);
    usage_fail(&self, "unknown command \"%s\"%s", word, hint.n > 0 ? hint.s : "; speclab --help lists all commands");
    free(hint.s);
    return 2;
}

#ifdef __clang__
#define COMPILER "" // its version begins with its name
#else
#define COMPILER "GCC "
#endif

static void print_version(void)
{
    static const char *const sets[] = { "plain",       "avx2",        "avx2_vnni", "avx512",
                                        "avx512_vnni", "avx512_bf16", "neon",      "neon_dotprod" };
    const char *used = cpu_kernels_choose(NULL)->name, *between = "";
    struct devices *d = devices_create(1);
    struct error err;
    struct backend *cuda = devices_get(d, "cuda", &err);
    printf("speclab %s\n", program_version());
    printf("compiler          " COMPILER __VERSION__ "\n");
    printf("instruction sets  ");
    for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
        if (cpu_kernels_choose(sets[i]) != NULL) {
            printf("%s%s%s", between, sets[i], strcmp(sets[i], used) == 0 ? " (used)" : "");
            between = ", ";
        }
    printf("\nCUDA              %s\n", cuda != NULL ? cuda->describe(cuda) : err.text);
    devices_destroy(d);
}

// ---- what the package makes schemas and completion of: `speclab --tables`

static void put_flags(const struct usage *u, void *to)
{
    for (const struct flag *f = u->flags; f->name != NULL; f++)
        json_push(to, json_object_of(JSON("name", f->name), JSON("argument", f->argument)));
}

static struct json *words_json(void)
{
    struct json *list = json_new_array();
    for (int i = 0; i < COMMANDS; i++) {
        char *argv[] = { (char *)(uintptr_t)commands[i].name, NULL };
        struct json *flags = json_new_array();
        usage_observe(put_flags, flags);
        commands[i].function(1, argv);
        json_push(list, json_object_of(JSON("name", commands[i].name), JSON("flags", flags)));
    }
    usage_observe(NULL, NULL);
    return list;
}

static void print_tables(void)
{
    struct json *j = registries_json(NULL), *of_package = json_new_array(), *parts = json_new_array();
    for (int i = 0; tools[i].name != NULL; i++)
        json_push(of_package, json_object_of(JSON("name", tools[i].name), JSON("with", tools[i].with),
                                             JSON("without", tools[i].without)));
    for (const struct experiment_part *p = experiment_parts; p->keys != NULL; p++)
        json_push(parts, json_object_of(JSON("key", p->key), JSON("required", json_new_bool(p->required)),
                                        JSON("options", options_json(p->keys))));
    json_print(json_add(j, JSON("words", words_json()), JSON("tools", of_package), JSON("experiment", parts),
                        JSON("max_batch", MAX_SLOTS)),
               stdout);
}

// What is no command, but answered by the program itself. Returns -1: it is none of these words.
static int answer(const char *word)
{
    if (strcmp(word, "--version") == 0)
        print_version();
    else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        print_usage(stdout);
    else if (strcmp(word, "--tables") == 0)
        print_tables();
    else
        return -1;
    return command_done(&self);
}

// A file that is opened gets the smallest free number: where stderr is closed, it would get the messages, too. As of a
// closed stream, reads of stdin and writes to the others fail.
static void occupy_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(1);
}

int speclab_main(int argc, char **argv)
{
    occupy_streams();
    // A closed pipe (`| head`) becomes a failed write, which command_done handles.
    signal(SIGPIPE, SIG_IGN);
    // So does the file size limit (`ulimit -f`), whose signal would end the process in the middle of a write.
    signal(SIGXFSZ, SIG_IGN);
    mapped_catch_faults();
    struct error err;
    static char **words; // argv as it was
    words = xcalloc((size_t)argc + 1, sizeof(*words));
    memcpy(words, argv, (size_t)argc * sizeof(*words));
    given = words + 1;
    plugins_without_python(begin_in_python);
    if (!plugins_take(&argc, argv, &err))
        return command_fail(&self, &err);
    const char *word = argc > 1 ? argv[1] : NULL;
    if (word == NULL) {
        print_usage(stderr);
        return 2;
    }
    const int tool = tool_of(argc, argv);
    if (tool >= 0) {
        hand_over(given);
        return fail_tool(tool, argc, argv);
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(word, commands[i].name) == 0) {
            FILE *plain = stdout;
            make_stdout_printable(word);
            const int status = commands[i].function(argc - 1, argv + 1);
            if (stdout != plain)
                fclose(stdout); // command_done has flushed it
            stdout = plain;
            return status;
        }
    const int status = answer(word);
    return status >= 0 ? status : unknown_command(word);
}

// The program in a library of its own (speclab_main) has it, too.
int main(int argc, char **argv)
{
    return speclab_main(argc, argv);
}
