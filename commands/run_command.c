// run_command.c - `speclab run` and `speclab report`: runs an experiment into a database, and reports from it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "experiments/cells.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "experiments/experiment.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/report.h"
#include "results/merge/shards.h"
#include "results/store.h"

// ---- run

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 || errno != ENOENT;
}

// A dry run creates no database; an existing one is read for the work already done.
static int dry_run(const struct usage *u, const struct experiment *e, const char *db)
{
    struct error err;
    struct store *s = NULL;
    if (exists(db) && (s = store_open(db, &err)) == NULL)
        return command_fail(u, &err);
    bool ok = experiment_dry_run(e, s, stdout, &err);
    store_close(s);
    return ok ? command_done(u) : command_fail(u, &err);
}

// By Slurm's variables, tasks that are submitted again without the others would have another division: their databases know better.
static bool check_shard(struct store *s, const struct experiment *e, struct error *err)
{
    const struct shard own = e->shard;
    struct shard_row other;
    if (!own.by_slurm)
        return true;
    if (!store_other_shard(s, e->name, own.index, own.of, &other, err))
        return false;
    if (other.shards > 0)
        return fail(err,
                    "%s has shard %d/%d of %s, and by SLURM_ARRAY_TASK_ID this is shard %d/%d: give --shard %d/%d, or "
                    "--shard none",
                    store_path(s), other.shard, other.shards, e->name, own.index, own.of, other.shard, other.shards);
    fprintf(stderr, "speclab run: shard %d/%d, by SLURM_ARRAY_TASK_ID; --shard none runs all of it\n", own.index,
            own.of);
    return true;
}

static void print_end(const struct experiment *e, const char *db)
{
    if (e->shard.of > 1)
        fprintf(stderr,
                "Shard %d/%d is done, its results are in %s; `speclab merge` joins the databases of all shards.\n",
                e->shard.index, e->shard.of, db);
    else
        fprintf(stderr, "Results are in %s; `speclab report --db %s` prints them.\n", db, db);
}

static int run(const struct usage *u, const struct experiment *e, const char *db)
{
    struct error err;
    struct store *s = store_open(db, &err);
    if (s == NULL)
        return command_fail(u, &err);
    const volatile int *stop = interrupt_catch();
    bool ok = check_shard(s, e, &err) && experiment_run(e, s, stderr, stop, &err);
    store_close(s);
    if (ok) {
        print_end(e, db);
        return 0;
    }
    if (*stop != 0) {
        fprintf(stderr, "speclab run: interrupted; finished texts are in %s; the same command resumes from there\n",
                db);
        return 1;
    }
    return command_fail(u, &err);
}

// db NULL: the default.
static int run_into(const struct usage *u, const struct experiment *e, bool dry, const char *db)
{
    char *own = e->shard.of > 1 ? xformat("results-%d-of-%d.db", e->shard.index, e->shard.of) : xstrdup("results.db");
    db = db != NULL ? db : own;
    const int status = dry ? dry_run(u, e, db) : run(u, e, db);
    free(own);
    return status;
}

int command_run(int argc, char **argv)
{
    const char *db = NULL, *shard = NULL;
    bool dry = false, mix = false, no_probe = false;
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &db, "FILE", "database for the results; default: results.db, of a shard\nresults-I-of-N.db",
          0, 0 },
        { "shard", FLAG_TEXT, &shard, "I/N",
          "only part I, from 0, of N of the work, into a database of\nits own; none: all of it. Default in a job array of Slurm:\n"
          "by SLURM_ARRAY_TASK_ID",
          0, 0 },
        { "dry-run", FLAG_ON, &dry, NULL, "only print the cells, what is done of each, memory\nand the estimated time",
          0, 0 },
        { "mix", FLAG_ON, &mix, NULL,
          "resume runs with texts of another revision or instruction\nset; bits may differ, and both are recorded", 0,
          0 },
        { "no-probe", FLAG_ON, &no_probe, NULL, "do not measure memory and processors before the first text", 0, 0 },
        { 0 },
    };
    const struct usage u = {
        .name = "run",
        .operands = "FILE.yaml",
        .about = "Runs all cells of an experiment and stores every step in the database. Results that the\n"
                 "database already has are not run again: after Ctrl-C, a crash or a change to the file,\n"
                 "the same command resumes. Progress goes to stderr.\n",
        .flags = flags,
        .examples = "  speclab run experiments/demo.yaml --dry-run\n  speclab run experiments/demo.yaml --db demo.db\n"
                    "  speclab run experiments/demo.yaml --shard 0/4\n",
        .min_operands = 1,
        .max_operands = 1,
    };
    char **operand;
    struct error err;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    struct shard part;
    struct experiment *e = shard_read(shard, &part, &err) ? experiment_load(operand[0], &err) : NULL;
    if (e == NULL)
        return usage_fail(&u, "%s", err.text);
    e->mix = mix;
    e->probe = !no_probe;
    e->shard = part;
    status = run_into(&u, e, dry, db);
    experiment_free(e);
    return status;
}

// ---- report

static int report(const struct usage *u, const char *db, const struct report_options *o, const char *golden)
{
    struct error err;
    if (!exists(db))
        return usage_fail(u, "%s: no such database; `speclab run FILE.yaml --db %s` creates it", db, db);
    struct store *s = store_open(db, &err);
    if (s == NULL)
        return command_fail(u, &err);
    bool within = true,
         ok = golden != NULL ? report_golden(s, o, golden, stdout, &within, &err) : report_write(s, o, stdout, &err);
    store_close(s);
    if (!ok)
        return command_fail(u, &err);
    const int status = command_done(u);
    return status != 0 || within ? status : 1;
}

int command_report(int argc, char **argv)
{
    const char *db = "results.db";
    bool csv = false, jsonl = false, markdown = false, latex = false;
    long long top = -1;
    int export = -1;
    const char *golden = NULL;
    struct report_options o = { .format = REPORT_TABLE };
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &db, "FILE", "database; default: results.db", 0, 0 },
        { "experiment", FLAG_TEXT, &o.experiment, "NAME", "experiment to report; default: all", 0, 0 },
        { "against", FLAG_TEXT, &o.against, "RUN",
          "compare every other run of the same prompts with this one,\npairwise: its number in the table `run`, or a part of the\n"
          "name of its drafter",
          0, 0 },
        { "top", FLAG_INT, &top, "N",
          "only the N fastest cells of each comparison, beside none's;\n0: all; default: all, but 10 of more than 100 cells, and a page\nof --latex",
          0, 1000000 },
        { "details", FLAG_ON, &o.details, NULL, "the tables of each comparison also of more than 100 cells", 0, 0 },
        { "markdown", FLAG_ON, &markdown, NULL, "tables of Markdown, for a README", 0, 0 },
        { "latex", FLAG_ON, &latex, NULL, "tables of LaTeX with booktabs, for a paper", 0, 0 },
        { "by-category", FLAG_ON, &o.by_category, NULL,
          "with --markdown or --latex: a column for each category of\nprompts, as in papers", 0, 0 },
        { "csv", FLAG_ON, &csv, NULL, "CSV: one row a run, with all numbers", 0, 0 },
        { "jsonl", FLAG_ON, &jsonl, NULL, "JSON Lines: one object a run", 0, 0 },
        { "export", FLAG_CHOICE, &export, "spec-bench|vllm|sglang|nvidia|golden",
          "write files in this project's form into FOLDER, one or two\na run; golden: one of acceptance lengths, for --golden",
          0, 0 },
        { "golden", FLAG_TEXT, &golden, "FILE",
          "compare acceptance lengths with those in the file; exit\nstatus 1 if one is outside its tolerance", 0, 0 },
        { "html", FLAG_TEXT, &o.html, "FILE", "write one page with all cells and figures, which needs no\nother file",
          0, 0 },
        { "svg", FLAG_TEXT, &o.svg, "FOLDER", "write the figures as SVG files into this folder", 0, 0 },
        { "pdf", FLAG_TEXT, &o.pdf, "FOLDER", "write the figures as PDF files into this folder", 0, 0 },
        { 0 },
    };
    const struct usage u = {
        .name = "report",
        .operands = "[FOLDER]",
        .about = "Reports the results in a database: for each cell tokens/s, speedup over the baseline `none`\n"
                 "in the same paired runs, tokens per step, acceptance rate by position, time to first token,\n"
                 "shares of time, and whether the texts equal those of `none`. Intervals are 95 %, with prompts\n"
                 "as the sample.\n",
        .flags = flags,
        .examples = "  speclab report --db demo.db\n  speclab report --db demo.db --against 2\n"
                    "  speclab report --db demo.db --experiment demo --csv > demo.csv\n"
                    "  speclab report --db demo.db --latex --by-category > table.tex\n"
                    "  speclab report --db demo.db --export vllm results\n"
                    "  speclab report --db demo.db --html demo.html --svg figures\n",
        .max_operands = 1,
    };
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    const bool figures = o.html != NULL || o.svg != NULL || o.pdf != NULL;
    if (csv + jsonl + markdown + latex + (export >= 0) + (golden != NULL) + figures > 1)
        return usage_fail(
            &u, "--csv, --jsonl, --markdown, --latex, --export, --golden and --html, --svg, --pdf exclude each other");
    if (export >= 0 && n == 0)
        return usage_fail(&u, "--export: expected a folder for the files, found none");
    if (export < 0 && n > 0)
        return usage_fail(&u, "%s: a folder is for --export only", operand[0]);
    const bool table = !csv && !jsonl && !markdown && !latex && export < 0 && golden == NULL && !figures;
    if (o.against != NULL && !csv && !jsonl && !table)
        return usage_fail(&u, "--against goes with --csv and --jsonl, and with no other form");
    if (o.by_category && !markdown && !latex)
        return usage_fail(&u, "--by-category goes with --markdown or --latex");
    if (top >= 0 && ((!table && !markdown && !latex) || o.against != NULL))
        return usage_fail(
            &u, "--top is of tables: it goes with --markdown and --latex, not with other forms and --against");
    if (o.details && (!table || o.against != NULL))
        return usage_fail(&u,
                          "--details is of the terminal's tables: it goes with no other form and not with --against");
    o.top = top == 0 ? REPORT_TOP_ALL : top > 0 ? (int)top : 0;
    if (csv)
        o.format = REPORT_CSV;
    else if (jsonl)
        o.format = REPORT_JSONL;
    else if (markdown)
        o.format = REPORT_MARKDOWN;
    else if (latex)
        o.format = REPORT_LATEX;
    else if (figures)
        o.format = REPORT_FIGURES;
    else if (export >= 0)
        o.format = REPORT_SPEC_BENCH + (enum report_format) export;
    o.directory = export >= 0 ? operand[0] : NULL;
    return report(&u, db, &o, golden);
}
