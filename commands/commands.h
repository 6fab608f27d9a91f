// commands.h - the commands of `speclab`. Each receives its own argv (argv[0] is the command's name) and returns the exit
// status: 0 success, 1 failure, 2 wrong usage. Results go to stdout, everything else to stderr.
#pragma once

int command_run(int argc, char **argv);    // run_command.c
int command_report(int argc, char **argv); // report_command.c
int command_compare(int argc, char **argv);
int command_merge(int argc, char **argv);   // merge_command.c
int command_predict(int argc, char **argv); // predict_command.c
int command_replay(int argc, char **argv);  // replay_command.c
int command_repro(int argc, char **argv);   // repro_command.c
int command_generate(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_features(int argc, char **argv);
int command_score(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_make(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_prune(int argc, char **argv);
int command_quantize(int argc, char **argv);
int command_inflate(int argc, char **argv);
int command_list(int argc, char **argv);
int command_exact(int argc, char **argv);
int command_heads(int argc, char **argv);
int command_import(int argc, char **argv);    // import/import_command.c
int command_tune(int argc, char **argv);      // tune/tune_command.c
int command_datastore(int argc, char **argv); // datastore/datastore_command.c
int command_distill(int argc, char **argv);   // distill/distill_command.c
