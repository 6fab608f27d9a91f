// predict_command.c - `speclab predict`: predicted speedups beside measured ones.
#include <stdio.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "core/error.h"
#include "results/predictions.h"
#include "results/store.h"

static const char about[] =
    "Predicts the speedup of every run in a database and sets it beside the measured one: from Leviathan's formula, from the\n"
    "acceptance by position, and from a replay of the recorded steps over the cost of passes. That cost is of the latest\n"
    "`speclab bench --db` with the run's model, precision and machine, or, without one, of the steps of the runs compared. Prints\n"
    "measured / predicted by its factors, and bounds: the best fixed length, a perfect length, drafter and rule. The numbers are\n"
    "the views prediction and prediction_by_length (docs/results.md).\n";

static const char examples[] = "  speclab bench smollm2-135m-instruct --contexts 128,512 --prefill 0 --db demo.db\n"
                               "  speclab predict --db demo.db --experiment demo\n";

int command_predict(int argc, char **argv)
{
    const char *db = "results.db";
    int source = COST_OF_EITHER;
    long long bench = 0;
    struct predictions_options o = { 0 };
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &db, "FILE", "database; default: results.db", 0, 0 },
        { "experiment", FLAG_TEXT, &o.experiment, "NAME", "experiment to predict; default: all", 0, 0 },
        { "cost", FLAG_CHOICE, &source, "bench|steps",
          "source of the cost of passes; default: bench where there is one", 0, 0 },
        { "bench", FLAG_INT, &bench, "ID",
          "bench to take it from, of the table `bench`; default: the latest that\nhas the run's model, precision and machine",
          1, 1LL << 62 },
        { 0 },
    };
    const struct usage u = { .name = "predict", .operands = "", .about = about, .flags = flags, .examples = examples };
    char **operand;
    struct error err;
    const int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    if (bench > 0 && source == COST_OF_STEPS)
        return usage_fail(&u, "--bench and --cost steps exclude each other");
    struct store *s = store_open_existing(db, &err);
    if (s == NULL)
        return command_fail(&u, &err);
    o.source = bench > 0 ? COST_OF_BENCH : (enum cost_source)source;
    o.bench = bench;
    const bool ok = predictions_write(s, &o, stdout, &err);
    store_close(s);
    return ok ? command_done(&u) : command_fail(&u, &err);
}
