// test_environment.c - a run resumed elsewhere is reported, and refused without --mix where bits may differ.
#include "tests/support/tests.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/commands.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "experiments/cells.h"
#include "experiments/machine.h"
#include "experiments/experiment.h"
#include "core/files/input.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

#define TEXT \
    "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: chatml}\n" \
    "limits: {new_tokens: 6, context: 300}\ncells: {drafter: [none, ngram]}\n"

enum { MIX = 1, STOPPED = 2, PLANNED = 4 }; // how: with --mix, interrupted at once, a dry run

// Runs the experiment. said: what it prints, or why it fails, has this pattern. not_said: not this; NULL: nothing of it.
static void expect_run(struct store *s, const char *text, int how, bool works, const char *said, const char *not_said)
{
    static const int stop = 1;
    struct error err = { "" };
    struct experiment *e = load(text);
    char *printed;
    size_t n;
    FILE *to = open_memstream(&printed, &n);
    e->mix = (how & MIX) != 0;
    struct json *plan = (how & PLANNED) != 0 ? experiment_dry_run(e, s, &err) : NULL;
    const bool ok =
        (how & PLANNED) != 0 ? plan != NULL : experiment_run(e, s, to, (how & STOPPED) != 0 ? &stop : NULL, &err);
    if (plan != NULL)
        json_print(plan, to);
    fclose(to);
    experiment_free(e);
    if (ok != works)
        fail_msg("%s%s", printed, err.text);
    char *all = xformat("%s%s", printed, err.text);
    expect_pattern(all, said, text);
    assert_true(not_said == NULL || strstr(all, not_said) == NULL);
    free(all);
    free(printed);
}

static struct store *run_into(const char *db)
{
    struct store *s = open_store(db);
    expect_run(s, TEXT, 0, true, " .. 2 cells, 10 conversations decoded, 0 stored already\n", NULL);
    return s;
}

TEST(a_run_stores_where_its_texts_were_decoded)
{
    struct store *s = run_into("noted.db");
    for (int again = 0; again < 2; again++) {
        expect_count(s, 2, "environment");
        expect_count(s, 2,
                     "environment JOIN run ON run.id = run WHERE machine = processor || ', ' || arithmetic AND"
                     " run.revision = environment.revision AND arithmetic LIKE '%, 1 thread'");
        expect_run(s, TEXT, 0, true, " .. 2 cells, 0 conversations decoded, 10 stored already\n", NULL);
    }
    store_close(s);
}

// Stored texts are of another revision. A run with nothing to decode does not fail; a dry run says what will be refused.
TEST(another_revision_is_refused_if_texts_would_be_mixed)
{
    struct store *s = run_into("mixed.db");
    perform(s, "UPDATE environment SET revision = 'older'");
    perform(s, "UPDATE run SET revision = 'older'");
    expect_run(s, TEXT, 0, true, "", "older");
    expect_run(s, TEXT, PLANNED, true, "", "older");
    expect_count(s, 2, "environment");

    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 2");
    const int64_t texts = query_first_int(s, "SELECT count(*) FROM sequence");
    expect_run(s, TEXT, 0, false, " .. texts of revision older with  .. --mix resumes", NULL);
    expect_run(s, TEXT, PLANNED, true, " .. run 1 (none,  .. run 2 (ngram,  .. --mix", NULL);
    expect_run(s, TEXT, PLANNED | MIX, true, " .. before: older, ", "--mix");
    expect_count(s, texts, "sequence");
    expect_count(s, 2, "run WHERE revision = 'older'");

    expect_run(s, TEXT, MIX, true, " .. resumes with revision  .. before: older, ", NULL);
    expect_count(s, TURNS, "sequence WHERE run = 2");
    expect_count(s, 4, "environment");
    char *both = xformat("run WHERE revision = 'older, %s'", speclab_revision());
    expect_count(s, 2, both);
    free(both);
    expect_count(s, 0, "run WHERE machine LIKE '%;%'"); // one machine, once
    store_close(s);
}

TEST(another_instruction_set_is_refused_and_another_processor_reported)
{
    struct store *s = run_into("other.db");
    perform(s, "UPDATE environment SET arithmetic = 'sse7, 1 thread'");
    perform(s, "DELETE FROM sequence WHERE run = 1 AND prompt = 0");
    expect_run(s, TEXT, 0, false, " .. with sse7, 1 thread; this is", NULL);
    perform(
        s,
        "UPDATE environment SET arithmetic = (SELECT replace(machine, processor || ', ', '') FROM run WHERE id = run),"
        " processor = 'Another CPU'");
    expect_run(s, TEXT, 0, true, " .. before:  .. Another CPU", NULL);
    // Its partner was decoded again, too.
    expect_count(s, 2, "run WHERE machine LIKE 'Another CPU, %; %'");
    expect_count(s, 2 * TURNS, "(SELECT DISTINCT run, prompt, turn, repeat FROM sequence)");
    store_close(s);
}

// Stopped after the check and before its first text: table environment still describes the stored texts.
TEST(an_environment_without_a_text_is_not_stored)
{
    struct store *s = run_into("stopped.db");
    perform(s, "UPDATE environment SET revision = 'older', processor = 'Another CPU'");
    perform(s, "UPDATE run SET revision = 'older'");
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 2");
    expect_run(s, TEXT, MIX | STOPPED, false, " .. before: older,  .. interrupted", NULL);
    expect_count(s, 2, "environment");
    expect_count(s, 2, "run WHERE revision = 'older'");
    expect_run(s, TEXT, 0, false, " .. --mix", NULL); // again
    expect_run(s, TEXT, MIX, true, "", NULL);
    expect_count(s, 4, "environment");
    // since: when its first pair started.
    expect_count(s, 0,
                 "environment AS e WHERE since <> (SELECT started FROM pair WHERE id ="
                 " (SELECT max(pair) FROM sequence WHERE run = e.run)) AND revision <> 'older'");
    // The resumed texts were decoded under the new one, the others under the old one.
    expect_count(s, query_first_int(s, "SELECT count(*) FROM sequence"),
                 "sequence AS q JOIN environment AS e ON e.id = q.environment AND e.run = q.run"
                 " WHERE (e.revision <> 'older') = (q.pair = (SELECT max(id) FROM pair))");
    // Without a text it may start anywhere.
    perform(s, "UPDATE environment SET revision = 'older', arithmetic = 'sse7, 1 thread'");
    perform(s, "DELETE FROM sequence");
    expect_run(s, TEXT, 0, true, "", NULL);
    expect_count(s, 2, "environment WHERE revision <> 'older'");
    expect_count(s, 2, "environment");
    expect_count(s, 0, "run WHERE revision LIKE '%older%' OR machine LIKE '%sse7%'");
    store_close(s);
}

TEST(a_run_whose_texts_cannot_be_stored_fails)
{
    struct store *s = open_store("failing.db");
    perform(s, "CREATE TEMP TRIGGER no BEFORE INSERT ON sequence WHEN new.prompt = 2 BEGIN SELECT RAISE(ABORT, 'not"
               " stored'); END");
    expect_run(s, TEXT, 0, false, " .. not stored", NULL);
    expect_count(s, 0, "sequence WHERE prompt = 2");
    expect_count(s, 0, "run WHERE finished IS NOT NULL");
    perform(s, "DROP TRIGGER no");
    expect_run(s, TEXT, 0, true, "", NULL);
    expect_count(s, 2 * TURNS, "sequence");
    store_close(s);
}

// A changed file makes a new cell; the message names what has changed.
TEST(a_cell_with_changed_files_is_reported)
{
    static const char text[] =
        "name: x\ntarget: {model: patched.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
        "limits: {new_tokens: 8}\n";
    static const char *const changed[] = { "configuration, tokenizer or chat template differs", "weights differ",
                                           "prompts differ" };
    struct small_model t = small_default;
    char *path = test_path("patched.gguf");
    struct store *s = open_store("patched.db");
    for (int run = 1; run <= 4; run++) {
        t.theta = run > 1 ? 500 : 0;
        t.seed += run == 3;
        small_write_gguf(path, &t);
        if (run == 4)
            write_file("p.jsonl", "{\"id\": \"q\", \"prompt\": \"Hello, you\"}\n");
        char *said = xformat(" .. run %d (none, rejection) does not resume run %d: the  .. %s", run, run - 1,
                             run > 1 ? changed[run - 2] : "");
        expect_run(s, text, 0, true, run > 1 ? said : "", run > 1 ? NULL : "does not resume");
        expect_run(s, text, 0, true, "", "does not resume"); // the run exists now
        expect_count(s, run, "run");
        expect_count(s, run, "sequence");
        free(said);
    }
    expect_count(s, 4, "(SELECT DISTINCT tokens FROM sequence)"); // each was decoded by the model as it was then
    expect_count(s, 2, "(SELECT DISTINCT target_hash FROM run)"); // the hashes are the weights' alone
    store_close(s);
    free(path);
}

// Twelve digits alone denote a release build of a commit; anything else has a suffix. Of the folder "source".
TEST(a_revision_shows_uncommitted_changes_and_debug_builds)
{
    static const struct {
        const char *command, *build, *mark;
    } as[] = { { "git init -q && touch a.c && git add a.c && git -c user.name=x -c user.email=x@x commit -q -m x",
                 "Release", "" },
               { "touch notes.txt", "Release", "" },
               { "true", "Debug", "+debug" },
               { "mkdir b && touch b/new.c", "Release", "+changes" },
               { "rm b/new.c", "Release", "" },
               { "echo >>a.c", "Release", "+changes" },
               { "true", "Debug", "+changes+debug" } };
    struct error err = { "" };
    char *folder = test_path("source"), *to = test_path("revision.h");
    if (system("git --version >&2") != 0)
        skip();
    assert_int_equal(mkdir(folder, 0777), 0);
    for (size_t i = 0; i < sizeof(as) / sizeof(*as); i++) {
        char *command = xformat("cd %s && (%s) >&2 && cmake -DSOURCE=%s -DTO=%s -DVERSION=1 -DBUILD=%s -P " SOURCE
                                "/cmake/revision.cmake",
                                folder, as[i].command, folder, to, as[i].build);
        assert_int_equal(system(command), 0);
        char *text = file_text(to, NULL, &err), *at = text != NULL ? strstr(text, "REVISION \"") : NULL;
        assert_non_null(at);
        assert_int_equal(strspn(at += strlen("REVISION \""), "0123456789abcdef"), 12);
        assert_int_equal(strncmp(at + 12, as[i].mark, strlen(as[i].mark)), 0);
        assert_int_equal(at[12 + strlen(as[i].mark)], '"');
        free(text);
        free(command);
    }
    free(folder);
    free(to);
}

RUN_TESTS(make_files, test_directory_tear_down)
