// test_heads_command.c - `speclab heads`: accuracy of drafters on known texts, and the best fixed tree.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "drafters/trees/tree.h"
#include "experiments/experiment.h"
#include "commands/heads.h"
#include "commands/texts.h"
#include "engine/engine.h"
#include "core/files/input.h"
#include "results/store.h"
#include "tests/support/tests.h"
#include "tests/cli/child_process.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_heads.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"

#define HEAD \
    "name: examined\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: chatml}\n" \
    "limits: {new_tokens: 24, context: 320}\nseed: 5\n"
#define CELLS(sampling, drafter) HEAD "cells:\n  sampling: [" sampling "]\n  drafter: [" drafter "]\n"

static const char *texts_file; // of the next evaluation; NULL: the target generates the texts

// *printed: the printed text, to be freed; NULL: not wanted
static struct head_ranks evaluate_and_print(const char *text, int64_t tokens, char **printed)
{
    struct error err;
    struct head_ranks ranks = { .depth = -1 };
    FILE *out = tmpfile();
    assert_non_null(out);
    const struct heads_options plan = { .tokens = tokens, .texts = texts_file, .out = out };
    struct experiment *e = load(text);
    assert_ok(heads_run(e, &plan, &ranks, &err), err);
    experiment_free(e);
    if (printed != NULL) {
        *printed = xcalloc(1, 1 << 14);
        rewind(out);
        assert_true(fread(*printed, 1, (1 << 14) - 1, out) < (1 << 14) - 1);
    }
    fclose(out);
    return ranks;
}

static struct head_ranks evaluate(const char *text, int64_t tokens)
{
    return evaluate_and_print(text, tokens, NULL);
}

TEST(a_target_that_drafts_for_itself_is_always_correct)
{
    const struct head_ranks s =
        evaluate(CELLS("{temperature: 0}", "{kind: small, model: target.gguf, tokens: 4}"), 100);
    assert_int_equal(s.depth, 4);
    assert_int_equal(s.positions[0], 100);
    for (int d = 0; d < 4; d++) {
        assert_true(s.positions[d] > 80 && s.positions[d] <= 100);
        assert_int_equal(s.ranked[d][0], s.positions[d]);
    }
}

// A draft model that receives the text's tokens ranks a position the same at every depth: the counts of two depths differ
// by the first position of each text only. Continuing from another token or another row would give other ranks.
TEST(ranks_at_a_depth_equal_those_from_a_later_position)
{
    const struct head_ranks s =
        evaluate(CELLS("{temperature: 1}", "{kind: small, model: draft.gguf, tokens: 3, pick: greedy}"), 2 * 24);
    int64_t found = 0;
    assert_int_equal(s.depth, 3);
    for (int d = 0; d + 1 < 3; d++) {
        assert_int_equal(s.positions[d] - s.positions[d + 1], s.texts);
        for (int r = 0; r < HEADS_RANKS; r++) {
            assert_true(s.ranked[d][r] >= s.ranked[d + 1][r]);
            found += s.ranked[d][r];
        }
    }
    assert_true(found > 0 && s.ranked[0][0] < s.positions[0]);
}

TEST(every_head_reports_ranks_to_the_depth_of_its_drafts)
{
    char *target = test_path("target.gguf"), *draft = test_path("draft.gguf");
    pair_heads_make(target, draft);
    static const char *const drafters[] = {
        "{kind: medusa, weights: draft.gguf.medusa, tokens: 3}",
        "{kind: medusa, weights: draft.gguf.medusa, tree: mc_sim_7b_63, pick: greedy}",
        "{kind: eagle, weights: draft.gguf.eagle, nodes: 9, top: 3, tokens: 4, pick: greedy}",
        "{kind: eagle3, weights: draft.gguf.eagle3, widths: [2, 2]}",
    };
    const int depth[] = { 3, 4, 4, 2 };
    for (int i = 0; i < 4; i++) {
        char *text = xformat(HEAD "cells:\n  sampling: [{temperature: 1}]\n  drafter: [%s]\n", drafters[i]);
        const struct head_ranks s = evaluate(text, 60);
        assert_int_equal(s.depth, depth[i]);
        assert_int_equal(s.positions[0], 60);
        assert_true(i == 3 ? s.unknown > 0 && s.unknown < 60
                           : s.unknown == 0); // two thirds of the vocabulary are missing
        free(text);
    }
    free(target);
    free(draft);
}

// A random token of 288 would be correct once in 288.
TEST(a_head_made_of_the_targets_layer_is_mostly_correct)
{
    struct small_model one = small_default;
    one.layers = 1;
    char *target = test_path("one"), *head = test_path("one.eagle");
    small_write_hf(target, &one);
    heads_write_eagle_of(head, &one);
    const struct head_ranks s = evaluate(
        "name: examined\ntarget: {model: one}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: chatml}\n"
        "limits: {new_tokens: 24, context: 320}\ncells:\n  sampling: [{temperature: 0}]\n"
        "  drafter: [{kind: eagle, weights: one.eagle, tokens: 3, pick: greedy}]\n",
        150);
    for (int d = 0; d < 3; d++) {
        print_message("    after %d correct tokens: %lld of %lld correct\n", d, (long long)s.ranked[d][0],
                      (long long)s.positions[d]);
        assert_true(s.ranked[d][0] * 4 > s.positions[d]);
    }
    free(target);
    free(head);
}

// Rebuilds the table from the counts. The EAGLE-3 head has a third of the vocabulary, and is sometimes correct.
TEST(the_table_follows_from_the_counts)
{
    static const char *const drafters[] = {
        "{kind: small, model: draft.gguf, tokens: 3, pick: greedy}",
        "{kind: small, model: draft.gguf, tokens: 3, pick: coupled}",
        "{kind: eagle3, weights: draft.gguf.eagle3, tokens: 2}",
    };
    int64_t unknown = 0;
    double correct = 0;
    for (int i = 0; i < 3; i++) {
        char *text = xformat(HEAD "cells:\n  sampling: [{temperature: 1}]\n  drafter: [%s]\n", drafters[i]), *printed;
        const struct head_ranks s = evaluate_and_print(text, 200, &printed);
        const char *table = strchr(printed, '\n') + 1;
        struct text expected = { 0 };
        text_printf(
            &expected,
            "  %lld positions of %lld texts of the target. Share of positions whose token is among the drafter's top k,\n"
            "  by the number of correct tokens before it in the draft (EAGLE's n-alpha)\n"
            "  correct  positions     k = 1       2       3       4       5      10\n",
            (long long)s.positions[0], (long long)s.texts);
        double chain = 0, reached = 1;
        for (int d = 0; d < s.depth; d++) {
            static const int columns[] = { 1, 2, 3, 4, 5, 10 };
            text_printf(&expected, "  %7d %10lld  ", d, (long long)s.positions[d]);
            for (int c = 0; c < 6; c++) {
                int64_t among = 0;
                for (int r = 0; r < columns[c]; r++)
                    among += s.ranked[d][r];
                text_printf(&expected, "  %.4f", (double)among / (double)s.positions[d]);
            }
            text_puts(&expected, "\n");
            reached *= (double)s.ranked[d][0] / (double)s.positions[d];
            chain += reached;
        }
        text_printf(&expected, "  Expected depth of a greedy chain, if these were independent: %.2f tokens.\n", chain);
        text_puts(&expected, "  Acceptance of a greedy chain by depth, each after correct draft tokens:");
        for (int d = 0; d < s.depth; d++)
            text_printf(&expected, " %.4f", s.reached[d] > 0 ? (double)s.accepted[d] / (double)s.reached[d] : 0.0);
        text_puts(&expected, "\n  Confidence, q of its most probable token, by depth:\n"
                             "  correct      mean   right     ECE   Brier   AUROC\n");
        for (int d = 0; d < s.depth; d++)
            text_printf(&expected, "  %7d    %.4f  %.4f  %.4f  %.4f  %.4f\n", d, s.confidence[d],
                        (double)s.ranked[d][0] / (double)s.positions[d], s.ece[d], s.brier[d], s.auroc[d]);
        if (s.unknown > 0)
            text_printf(&expected,
                        "  The token is missing from the drafter's vocabulary at %.2f %% of the positions.\n",
                        (double)s.unknown / (double)s.positions[0] * 100);
        assert_string_equal(table, expected.s);
        unknown += s.unknown;
        correct += chain;
        free(expected.s);
        free(printed);
        free(text);
    }
    assert_true(unknown > 0 && correct > 0.1);
}

// ---- texts from a file

enum { GIVEN = 3, GIVEN_LENGTH = 60 };

// Texts of which two thirds are the target's most probable tokens, and for each token whether it is.
struct given {
    int32_t id[GIVEN * GIVEN_LENGTH];
    bool top[GIVEN][GIVEN_LENGTH];
};

static void make_given(struct given *g)
{
    struct error err;
    int32_t top[GIVEN_LENGTH];
    float p[GIVEN_LENGTH];
    const struct speclab_states s = { .top_k = 1, .top_id = top, .top_p = p };
    char *model = test_path("target.gguf");
    struct speclab_target *t =
        speclab_target_open(model, &(struct speclab_target_options){ .chat = "none", .threads = 1 }, &err);
    assert_ok(t != NULL, err);
    for (int i = 0; i < GIVEN; i++)
        for (int n = 0; n < GIVEN_LENGTH; n++) {
            int32_t *id = g->id + i * GIVEN_LENGTH;
            const int64_t offset[] = { 0, n };
            assert_ok(n == 0 || speclab_states(t, id, offset, 1, &s, &err), err);
            id[n] = n > 0 && (n + i) % 3 != 0 ? top[n - 1] : 10 + (7 * n + i) % 200;
            g->top[i][n] = n > 0 && id[n] == top[n - 1];
        }
    speclab_target_close(t);
    free(model);
}

static bool is_answer(int n)
{
    return (n >= 5 && n < 25) || n >= 40;
}

// A draft model that is the target ranks a token first where it is the target's most probable one.
TEST(texts_of_a_file_are_evaluated_where_they_are_answers)
{
    static struct given g;
    struct head_ranks expected = { 0 };
    struct text file = { 0 };
    make_given(&g);
    for (int i = 0; i < GIVEN; i++) {
        for (int list = 0; list < 2; list++) {
            text_puts(&file, list == 0 ? "{\"input_ids\": [" : "], \"loss_mask\": [");
            for (int n = 0; n < GIVEN_LENGTH; n++)
                text_printf(&file, "%s%d", n > 0 ? "," : "", list == 0 ? g.id[i * GIVEN_LENGTH + n] : is_answer(n));
        }
        text_puts(&file, "]}\n");
        for (int n = 1; n < GIVEN_LENGTH; n++) {
            bool chain = true;
            for (int d = 0; d < 4 && n + d < GIVEN_LENGTH && is_answer(n + d); d++) {
                expected.positions[d]++;
                expected.ranked[d][0] += g.top[i][n + d];
                expected.reached[d] += chain;
                chain = chain && g.top[i][n + d];
                expected.accepted[d] += chain;
            }
        }
    }
    write_file("given.jsonl", file.s);
    texts_file = test_path("given.jsonl");
    const struct head_ranks s =
        evaluate(CELLS("{temperature: 0}", "{kind: small, model: target.gguf, tokens: 4}"), 1000);
    assert_int_equal(s.texts, GIVEN);
    assert_int_equal(s.depth, 4);
    for (int d = 0; d < 4; d++) {
        assert_int_equal(s.positions[d], expected.positions[d]);
        assert_int_equal(s.ranked[d][0], expected.ranked[d][0]);
        assert_int_equal(s.reached[d], expected.reached[d]);
        assert_int_equal(s.accepted[d], expected.accepted[d]);
    }
    assert_true(s.accepted[1] > 0 && s.accepted[1] < s.reached[1]);
    free((char *)texts_file);
    texts_file = NULL;
    free(file.s);
}

TEST(a_lookup_drafter_reports_no_ranks)
{
    const struct head_ranks s = evaluate(CELLS("{temperature: 0}", "ngram"), 50);
    assert_int_equal(s.depth, -1); // no drafter has rows of q
}

TEST(the_command_writes_a_tree_that_a_drafter_reads)
{
    if (!child_is_present())
        skip();
    struct error err;
    write_file("one.yaml", CELLS("{temperature: 1}", "{kind: small, model: draft.gguf, tokens: 3, pick: greedy}"));
    struct child_result s =
        child_run("heads %s/one.yaml --tokens 40 --tree 9 --out %s/tree.json", test_directory(), test_directory());
    child_expect_success(&s, "heads");
    assert_non_null(strstr(s.out, "Best fixed tree of 9 draft tokens: [[0], "));
    child_result_free(&s);
    static struct tree t;
    char *path = test_path("tree.json");
    assert_ok(tree_read(path, NULL, &t, &err), err);
    assert_int_equal(t.n, 10);
    free(path);
    const struct head_ranks ranks =
        evaluate(CELLS("{temperature: 1}", "{kind: small, model: draft.gguf, tree: tree.json, pick: greedy}"), 20);
    assert_int_equal(ranks.depth, tree_max_depth(&t));
}

// A cell is identified by the contents of files, not by their names: another tree or another configuration of a head is
// another run, and two names of one tree are the same run.
TEST(the_contents_of_files_are_part_of_a_cell)
{
    static const char tree_cell[] =
        CELLS("{temperature: 0}", "{kind: small, model: draft.gguf, tree: t.json, pick: greedy}");
    static const char same_cell[] =
        CELLS("{temperature: 0}", "{kind: small, model: draft.gguf, tree: \"[[1], [0]]\", pick: greedy}");
    static const char listed_cell[] =
        CELLS("{temperature: 0}", "{kind: small, model: draft.gguf, tree: [[0], [1]], pick: greedy}");
    static const char head_cell[] = CELLS("{temperature: 0}", "{kind: eagle, weights: draft.gguf.eagle, tokens: 1}");
    struct store *s = open_store("cells.db");
    write_file("t.json", "[[0], [0, 0]]");
    run(tree_cell, s);
    run(tree_cell, s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE drafter_kind = 'small'"), 1);
    write_file("t.json", "[[0], [1]]");
    run(tree_cell, s);
    run(same_cell, s);
    run(listed_cell, s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE drafter_kind = 'small'"), 2);
    run(head_cell, s);
    char *config = test_path("draft.gguf.eagle/config.json"), *text = file_text(config, NULL, &(struct error){ "" });
    char *changed = xformat("{\"rope_theta\": 500000.0, %s", strchr(text, '{') + 1);
    run(head_cell, s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE drafter_kind = 'eagle'"), 1);
    write_file("draft.gguf.eagle/config.json", changed);
    run(head_cell, s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE drafter_kind = 'eagle'"), 2);
    write_file("draft.gguf.eagle/config.json", text);
    store_close(s);
    free(config);
    free(text);
    free(changed);
}

TEST(errors_are_one_sentence)
{
    if (!child_is_present())
        skip();
    write_file("two.yaml", CELLS("{temperature: 1}, {temperature: 0}", "{kind: small, model: draft.gguf}"));
    write_file("plain.yaml", CELLS("{temperature: 1}", "none"));
    child_expect_error(2, "FILE.yaml", "heads");
    child_expect_error(2, "--tree", "heads x.yaml --tree 0");
    child_expect_error(2, "absent.yaml", "heads absent.yaml");
    char *none = words_with("heads %s/plain.yaml", test_directory());
    child_expect_error(1, "a drafter other than `none`", none);
    free(none);
    char *two = words_with("heads %s/two.yaml --out x.json", test_directory());
    child_expect_error(2, "expected one drafter, one sampling and one target, found 1, 2 and 1 in ", two);
    write_file("two.yaml", "name: examined\ntarget: [{model: target.gguf}, {model: target.gguf, cache: f32}]\n"
                           "prompts: {file: conversations.jsonl, chat: chatml}\ncells: {drafter: ngram}\n");
    child_expect_error(2, "expected one drafter, one sampling and one target, found 1, 1 and 2 in ", two);
    free(two);
    write_file("unmarked.jsonl", "{\"input_ids\": [5, 6], \"loss_mask\": [1, 0]}\n");
    write_file("one.yaml", CELLS("{temperature: 1}", "{kind: small, model: draft.gguf}"));
    char *unmarked = xformat("heads %s/one.yaml --texts %s/unmarked.jsonl", test_directory(), test_directory()),
         *absent = xformat("heads %s/one.yaml --texts %s/absent.jsonl", test_directory(), test_directory());
    child_expect_error(1, "unmarked.jsonl: no token behind the first is an answer", unmarked);
    child_expect_error(1, "absent.jsonl: No such file", absent);
    free(unmarked);
    free(absent);
    write_file("lookup.yaml", CELLS("{temperature: 1}", "ngram"));
    struct child_result s = child_run("heads %s/lookup.yaml --out %s/x.json", test_directory(), test_directory());
    assert_int_equal(s.status, 1);
    assert_non_null(strstr(s.err, "nothing to write: no drafter has rows of q"));
    child_result_free(&s);
    char *head = words_with("inspect --json %s/draft.gguf.eagle", test_directory());
    child_expect_error(2, "name its target with --target MODEL", head);
    char *itself = xformat("%s --target %s/draft.gguf.eagle", head, test_directory());
    child_expect_error(1, "there is no tensor model.layers.0.input_layernorm.weight", itself);
    free(itself);
    char *more = xformat("%s --target %s/target.gguf --tensors", head, test_directory());
    child_expect_error(2, "--target and --tensors exclude each other", more);
    free(more);
    free(head);
}

// After a prompt of one token there is no hidden state yet that a head could read; at the next position there is.
TEST(a_prompt_of_one_token_is_evaluated_from_the_next_position)
{
    write_file("short.jsonl", "{\"question_id\": 1, \"category\": \"x\", \"input_ids\": [40]}\n");
    const struct head_ranks s =
        evaluate("name: examined\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: short.jsonl, chat: none}\n"
                 "limits: {new_tokens: 24, context: 320, ignore_end: true}\ncells:\n  sampling: [{temperature: 0}]\n"
                 "  drafter: [{kind: medusa, weights: draft.gguf.medusa, tokens: 2}]\n",
                 500);
    assert_int_equal(s.texts, 1); // greedy: the text is not evaluated twice
    assert_int_equal(s.positions[0], 23);
    assert_int_equal(s.positions[1], 22);
}

// One token after a prompt of one: only the second prompt shows that the head reports ranks.
TEST(a_text_too_short_to_evaluate_is_followed_by_another)
{
    write_file("shorter.jsonl", "{\"question_id\": 1, \"category\": \"x\", \"input_ids\": [40]}\n"
                                "{\"question_id\": 2, \"category\": \"x\", \"input_ids\": [40, 41]}\n");
    const struct head_ranks s = evaluate(
        "name: examined\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: shorter.jsonl, chat: none}\n"
        "limits: {new_tokens: 1, context: 320, ignore_end: true}\ncells:\n  sampling: [{temperature: 0}]\n"
        "  drafter: [{kind: medusa, weights: draft.gguf.medusa, tokens: 2}]\n",
        500);
    assert_int_equal(s.texts, 2);
    assert_int_equal(s.positions[0], 1);
}

RUN_TESTS(make_files, test_directory_tear_down)
