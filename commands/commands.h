// commands.h - the commands of `speclab`. Each receives its own argv (argv[0] is the command's name) and returns the
// exit status: 0 success, 1 failure, 2 wrong usage. Results go to stdout, everything else to stderr.
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct error;
struct experiment;
struct json;
struct option;
struct shard;
struct store;

// The program: a command in argv[1] and its words, NULL behind them. Returns the exit status. Once in a process.
int speclab_main(int argc, char **argv); // main.c

int command_run(int argc, char **argv);      // run_command.c
int command_report(int argc, char **argv);   // report.c
int command_replay(int argc, char **argv);   // replay_command.c
int command_generate(int argc, char **argv); // generate.c
int command_inspect(int argc, char **argv);  // inspect.c
int command_bench(int argc, char **argv);    // bench/bench_command.c
int command_list(int argc, char **argv);     // list_command.c
int command_exact(int argc, char **argv);    // exact/exact_command.c
int command_heads(int argc, char **argv);    // heads.c

// The registered drafters, rules and stages, only: those of this name, NULL: all; and a table of options, an array
// (list_command.c).
struct json *registries_json(const char *only);
struct json *options_json(const struct option *o);

// Returns cells, memory and estimated time without running anything (dry_run.c); its cells have the hashes of their
// inputs, as table `run` has them. s: for times and stored results; NULL: none. NULL on failure.
struct json *experiment_dry_run(const struct experiment *e, struct store *s, struct error *err);

// option: "I/N" or "none"; NULL: the shard follows from Slurm's SLURM_ARRAY_TASK_ID, _COUNT, _MIN and _STEP, if they
// are set (run_command.c).
bool shard_read(const char *option, struct shard *to, struct error *err);
