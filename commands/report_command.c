// report_command.c - `speclab report`: tables, pages, pictures and files of the results in a database.
#include <stdio.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "core/error.h"
#include "results/report.h"
#include "results/store.h"

static int report(const struct usage *u, const char *db, const struct report_options *o, const char *golden)
{
    struct error err;
    struct store *s = store_open_existing(db, &err);
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
