// paired_run.c - decodes some prompts with the cells that lack them, which take turns.
//
// plan.c alone decides what is decoded, from what the database has. With several slots the cells take turns in slices
// of about a second, so that they meet the same states of the machine. Each keeps its slots and caches, and all of its
// slots decode until its part is over. If no conversation waits for a slot, it decodes a filler: another prompt of the
// experiment whose text is not stored. So every stored step has a text in every slot, and no text is decoded in a
// smaller batch than others.
#include "experiments/pairs/paired_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/files/mapped.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "engine/prompts.h"
#include "experiments/machine.h"
#include "experiments/observed_cell.h"
#include "experiments/pairs/plan.h"
#include "experiments/recorder.h"
#include "results/store.h"
#include "verifier/target_cache.h"

enum { WARM_PROMPT = 64, WARM_TOKENS = 8 };
enum { REFILLS = 8 }; // prompts of a paired run for each slot, if there are several
// A slice of an experiment's slice_ns ends earlier with a LEAST_ROUNDS-th of the tokens that its cell may decode, but
// not before a fifth of slice_ns.
enum { LEAST_ROUNDS = 16 };

// ---- conversations: the turns of one prompt in one cell
//
// Each turn contains the answers to earlier turns, so stored turns are read in order. Whether the next turn fits the
// context is computed from those answers and never stored.

struct conversation { // initialize with { 0 }
    const struct prompt *prompt;
    char **answer;     // (n_turns) answers of the turns before `turn`
    int turn;          // the next turn
    bool full;         // the next turn does not fit the context; updated with `turn`
    int64_t number;    // the next turn's text, which is being decoded; -1: it is not
    int prompt_tokens; // number of prompt tokens of that turn
};

static bool conversation_is_over(const struct conversation *t)
{
    return t->full || t->turn == t->prompt->n_turns;
}

// Appends the token ids of the next turn.
static bool conversation_ids(const struct conversation *t, const struct loaded_experiment *o, struct ids *to,
                             struct error *err)
{
    return prompt_token_ids(o->target, t->prompt, t->answer, t->turn, to, err);
}

// Sets t->full. Every first turn fits: loaded_experiment_open has checked them.
static bool update_full(struct conversation *t, const struct loaded_experiment *o, struct error *err)
{
    t->full = false;
    if (t->turn == 0 || t->turn == t->prompt->n_turns)
        return true;
    struct ids ids = { 0 };
    bool ok = conversation_ids(t, o, &ids, err);
    t->full = ok && ids.n >= (size_t)o->context;
    free(ids.id);
    return ok;
}

// Moves to the turn after the answer, and returns the text of the answer, borrowed from the conversation.
static const char *set_answer(struct conversation *t, const struct loaded_experiment *o, const int32_t *token, int n)
{
    free(t->answer[t->turn]);
    return t->answer[t->turn++] = speclab_text(o->target, token, (size_t)n, NULL);
}

// Reads a stored turn. A turn that does not continue the current answers enters the history only, since it continues
// other answers.
static bool read_turn(struct conversation *t, const struct loaded_experiment *o, struct store *s, int64_t run,
                      int64_t none, int turn, int repeat, struct history *to, struct error *err)
{
    struct stored_turn stored;
    if (!store_turn(s, run, t->prompt->number, turn, repeat, &stored, err))
        return false;
    to->turn[turn].pair = stored.found ? stored.pair : 0;
    if (history_answers(to) == turn + 1)
        set_answer(t, o, stored.token, stored.n);
    free(stored.token);
    return !stored.found || store_has_pair(s, run, none, t->prompt->number, turn, repeat, &to->turn[turn].paired, err);
}

// Reads the stored turns of the conversation in `run`. *to: its history, for plan_turns. run 0 or s NULL: nothing is
// stored. none: the baseline's run.
static bool conversation_open(struct conversation *t, const struct loaded_experiment *o, struct store *s, int64_t run,
                              int64_t none, const struct prompt *p, int repeat, struct history *to, struct error *err)
{
    *t = (struct conversation){ .prompt = p, .answer = xcalloc((size_t)p->n_turns, sizeof(*t->answer)), .number = -1 };
    *to = (struct history){ .n_turns = p->n_turns };
    bool ok = true;
    for (int turn = 0; turn < p->n_turns && s != NULL && run != 0 && ok; turn++)
        ok = read_turn(t, o, s, run, none, turn, repeat, to, err);
    assert(!ok || t->turn == history_answers(to));
    ok = ok && update_full(t, o, err);
    to->full = t->full;
    return ok;
}

static void conversation_close(struct conversation *t)
{
    for (int i = 0; t->answer != NULL && i < t->prompt->n_turns; i++)
        free(t->answer[i]);
    free(t->answer);
    *t = (struct conversation){ 0 };
}

// ---- what is due

static const struct cell_runner *none_of(const struct experiment *e, const struct group *g, const struct cell_runner *c)
{
    const struct cell_runner *none = g->cell_runner;
    while (!none->none || none->cell.rule != experiment_baseline_rule(e, c->cell.rule))
        none++;
    return none;
}

static bool open_conversations(struct paired_run *o, const struct loaded_experiment *loaded, struct store *s,
                               const struct group *g, struct history *history, struct error *err)
{
    for (int k = 0; k < g->n * o->n; k++) {
        const struct cell_runner *c = &g->cell_runner[k / o->n];
        const struct prompt *p = &loaded->e->prompts.prompt[o->first + k % o->n];
        if (!conversation_open(&o->conversation[k], loaded, s, c->run, none_of(loaded->e, g, c)->run, p, o->repeat,
                               &history[k], err))
            return false;
    }
    return true;
}

int paired_run_prompts(int batch)
{
    return batch == 1 ? 1 : REFILLS * batch;
}

struct paired_run paired_run_at(const struct experiment *e, int batch, int repeat, int first)
{
    const int left = e->prompts.n - first, most = paired_run_prompts(batch);
    return (struct paired_run){
        .number = first / most + repeat,
        .batch = batch,
        .repeat = repeat,
        .first = first,
        .n = left < most ? left : most,
    };
}

bool paired_run_open(struct paired_run *o, const struct loaded_experiment *loaded, struct store *s,
                     const struct group *g, struct error *err)
{
    size_t all = (size_t)g->n * (size_t)o->n;
    o->conversation = xcalloc(all, sizeof(*o->conversation));
    o->due = xcalloc(all, sizeof(*o->due));
    struct history *history = xcalloc(all, sizeof(*history));
    int *none = xcalloc((size_t)g->n, sizeof(*none));
    for (int c = 0; c < g->n; c++)
        none[c] = (int)(none_of(loaded->e, g, &g->cell_runner[c]) - g->cell_runner);
    bool ok = open_conversations(o, loaded, s, g, history, err);
    if (ok)
        plan_turns(&(struct stored){ g->n, o->n, none, history }, o->due);
    free(history);
    free(none);
    return ok;
}

void paired_run_close(struct paired_run *o, const struct group *g)
{
    for (int k = 0; k < g->n * o->n; k++)
        conversation_close(&o->conversation[k]);
    free(o->conversation);
    free(o->due);
}

static bool takes_part(const struct paired_run *o, int c)
{
    for (int i = 0; i < o->n; i++)
        if (o->due[c * o->n + i].from != PLAN_NOTHING)
            return true;
    return false;
}

int paired_run_missing(const struct paired_run *o, int c)
{
    int n = 0;
    for (int i = 0; i < o->n; i++)
        n += o->due[c * o->n + i].missing;
    return n;
}

// ---- a cell's part

struct cell_part { // one cell's part of a paired run: its conversations in the slots of its decoder
    struct runner *r;
    struct cell_runner *c;
    struct conversation *conversation; // (o->n)
    const struct paired_run *o;
    char *label;     // drafter, rule and sampling, for progress; owned
    int missing;     // conversations that the cell itself lacks
    int fillers;     // number of fillers that were started
    int64_t earlier; // tokens that the cell had decoded before this part
    bool over;       // no conversation waits or is under way
};

// A sequence's number is made of prompt, turn and repeat only. So with the rule `match` every cell decodes the same
// text, and a text does not depend on the time, the batch or interruptions. The three numbers have 18, 6 and 8 bits. No
// text has repeat MAX_REPEATS, which is for fillers.
enum { TURN_BITS = 6, REPEAT_BITS = 8 };
_Static_assert(MAX_PROMPTS <= 1 << (32 - TURN_BITS - REPEAT_BITS) && MAX_TURNS == 1 << TURN_BITS &&
                   MAX_REPEATS < 1 << REPEAT_BITS,
               "a sequence number has 32 bits");

int64_t sequence_number(int64_t prompt, int turn, int repeat)
{
    assert(prompt < MAX_PROMPTS && turn < MAX_TURNS && repeat < MAX_REPEATS);
    return ((prompt << TURN_BITS | turn) << REPEAT_BITS) | repeat;
}

static int64_t filler_number(int n)
{
    return (int64_t)(n % (1 << (32 - REPEAT_BITS))) << REPEAT_BITS | MAX_REPEATS;
}

static char *label_of(const struct runner *r, const struct cell_runner *c)
{
    const struct experiment *e = r->e;
    bool several_rules = e->rule.n > 1;
    return xformat("%s%s%s%s%s, %s", e->target.n > 1 ? e->target.entry[c->cell.target].shown : "",
                   e->target.n > 1 ? ", " : "", e->drafter.entry[c->cell.drafter].shown, several_rules ? ", " : "",
                   several_rules ? e->rule.entry[c->cell.rule].shown : "", e->sampling.entry[c->cell.sampling].shown);
}

// Starts the first turn of a prompt. longest: number of the prompt's tokens that are used; 0: all. Nothing is recorded.
static bool start_unrecorded(const struct runner *r, struct cell_runner *c, int prompt, int longest, int limit,
                             int64_t number, struct error *err)
{
    struct ids ids = { 0 };
    bool ok = prompt_token_ids(r->loaded->target, &r->e->prompts.prompt[prompt], NULL, 0, &ids, err);
    const struct speclab_request request = {
        .sequence = number,
        .prompt = ids.id,
        .n = longest > 0 && ids.n > (size_t)longest ? longest : (int)ids.n,
        .max_tokens = limit,
        .ignore_end = true,
    };
    ok = ok && speclab_decoder_start(c->decoder, &request, err);
    free(ids.id);
    return ok;
}

// Decodes a few tokens of a prompt, which are discarded, before a cell's first paired run.
static bool warm_up(struct runner *r, struct cell_runner *c, int prompt, struct error *err)
{
    const int64_t number = sequence_number(r->e->prompts.prompt[prompt].number, 0, 0);
    bool ok = start_unrecorded(r, c, prompt, WARM_PROMPT, WARM_TOKENS, number, err);
    while (ok && speclab_decoder_active(c->decoder) > 0)
        ok = interrupt_check(r->stop, err) && speclab_decoder_step(c->decoder, err);
    c->warm = ok;
    return ok;
}

static bool start_turn(struct cell_part *p, struct conversation *t, struct error *err)
{
    const struct runner *r = p->r;
    struct ids ids = { 0 };
    bool ok = conversation_ids(t, r->loaded, &ids, err);
    const int64_t number = sequence_number(t->prompt->number, t->turn, p->o->repeat);
    const struct speclab_request request = cell_request(r->e, number, &ids);
    ok = ok && speclab_decoder_start(p->c->decoder, &request, err);
    if (ok) {
        recorder_begin(p->c->recorder, number);
        t->number = number;
        t->prompt_tokens = request.n;
    }
    free(ids.id);
    return ok;
}

// A conversation decodes one turn at a time and keeps its slot until it is over; then the next one has it. Sets `over`.
static bool start_turns(struct cell_part *p, struct error *err)
{
    p->over = true;
    for (int i = 0; i < p->o->n; i++) {
        struct conversation *t = &p->conversation[i];
        const bool waits = t->number < 0 && !conversation_is_over(t);
        if (waits && speclab_decoder_has_free_slot(p->c->decoder) && !start_turn(p, t, err))
            return false;
        p->over = p->over && !waits && t->number < 0;
    }
    return true;
}

int filler_prompt(const struct paired_run *o, int number)
{
    const int begun = o->first + o->n;
    return begun - 1 - number % begun;
}

// Fillers end only by the limit.
static bool start_fillers(struct cell_part *p, struct error *err)
{
    for (; speclab_decoder_has_free_slot(p->c->decoder); p->fillers++)
        if (!start_unrecorded(p->r, p->c, filler_prompt(p->o, p->fillers), 0, p->r->e->new_tokens,
                              filler_number(p->fillers), err))
            return false;
    return true;
}

static bool store_one_turn(struct cell_part *p, struct conversation *t, struct sequence_row *row, struct error *err)
{
    struct runner *r = p->r;
    struct cell_runner *c = p->c;
    const struct environment here = environment_of(r->loaded, c);
    row->prompt = t->prompt->number;
    row->prompt_id = t->prompt->id;
    row->category = t->prompt->category;
    row->turn = t->turn;
    row->repeat = p->o->repeat;
    row->pair = p->o->pair;
    row->prompt_tokens = t->prompt_tokens;
    if (r->loaded->given_up != NULL)
        progress_line(&r->progress, "%s", r->loaded->given_up);
    free(r->loaded->given_up);
    r->loaded->given_up = NULL;
    row->under = c->environment_stored != NULL && strcmp(c->environment_stored, here.processor) == 0 ? NULL : &here;
    t->number = -1;
    r->progress.tokens += row->new_tokens;
    if (!mapped_unchanged(err)) // the weights are no longer those of the run
        return false;
    row->text = set_answer(t, r->loaded, row->token, row->new_tokens);
    const bool ok = update_full(t, r->loaded, err) && store_sequence(r->store, c->run, row, err);
    if (ok && row->under != NULL) {
        free(c->environment_stored);
        c->environment_stored = xstrdup(here.processor);
    }
    return ok;
}

static bool store_finished_turns(struct cell_part *p, struct error *err)
{
    struct sequence_row row;
    for (int64_t number; (number = recorder_take(p->c->recorder, &row)) >= 0;) {
        struct conversation *t = p->conversation;
        while (t->number != number)
            t++;
        if (!store_one_turn(p, t, &row, err))
            return false;
    }
    return true;
}

// Restarts each conversation at its due turn; those that are not due are over. Call part_close in any case, also after
// failure.
static bool part_open(struct cell_part *p, const struct due *due, struct error *err)
{
    p->label = label_of(p->r, p->c);
    p->earlier = recorder_tokens(p->c->recorder);
    for (int i = 0; i < p->o->n; i++) {
        struct conversation *t = &p->conversation[i];
        if (due[i].from == PLAN_NOTHING)
            continue;
        assert(due[i].from <= t->turn);
        t->turn = due[i].from;
        if (!update_full(t, p->r->loaded, err))
            return false;
    }
    return true;
}

// Fills free slots, takes one step and stores the texts that ended; sets `over`.
static bool part_step(struct cell_part *p, struct error *err)
{
    struct error other;
    progress_tick(&p->r->progress, p->label);
    if (!interrupt_check(p->r->stop, err) || !start_turns(p, err) || (!p->over && !start_fillers(p, err)))
        return false;
    if (p->over)
        return true;
    // A text that has ended is stored, too, if the step fails after that.
    const bool stepped = speclab_decoder_step(p->c->decoder, err);
    return store_finished_turns(p, stepped ? err : &other) && stepped && start_turns(p, err);
}

// Returns the number of tokens decoded so far, including those of fillers.
static int64_t part_tokens(const struct cell_part *p)
{
    return recorder_tokens(p->c->recorder) - p->earlier;
}

static void part_close(struct cell_part *p)
{
    speclab_decoder_drop(p->c->decoder);
    free(p->label);
}

// An error of a plugin ends its cell alone: the texts that it has finished are stored, and the other cells continue.
// Returns false for any other error, and for an interruption.
static bool ends_cell(struct runner *r, struct cell_runner *c, const struct error *why)
{
    if (!error_ends_cell(why, r->stop))
        return false;
    char *label = label_of(r, c);
    progress_line(&r->progress, "%s: %s; the cell ends here", label, why->text);
    free(label);
    speclab_decoder_drop(c->decoder); // another cell uses the cache next
    c->failed = true;
    r->failed++;
    return true;
}

// ---- slices

// Returns the cell of a round's k-th slice, out of n. Rounds alternate between an order and its reverse, so that what
// changes evenly with time costs all cells alike in two rounds. The first order rotates between paired runs.
static int turn_of(const struct paired_run *o, int round, int k, int n)
{
    return ((round % 2 == 0 ? k : n - 1 - k) + o->number) % n;
}

// The first slice of a round ends by its time. It sets *tokens, the total number that its cell has decoded, and the
// other cells decode as many. So all cells go through the prompts side by side. Without a batch a cell has one slice,
// with all its texts.
static bool slice_is_over(const struct cell_part *p, int64_t tokens, int64_t before, int64_t ns)
{
    const int64_t now = part_tokens(p);
    if (p->over || p->o->batch == 1)
        return p->over;
    if (tokens > 0)
        return now >= tokens;
    const struct experiment *e = p->r->e;
    return ns >= e->slice_ns ||
           (ns >= e->slice_ns / 5 && (now - before) * LEAST_ROUNDS >= (int64_t)p->o->n * e->new_tokens);
}

// The slice's row is stored even after a failure or an interruption, since texts have ended in it.
static bool run_slice(struct cell_part *p, int round, int64_t *tokens, struct error *err)
{
    struct slice_load *const load = &p->r->load;
    slice_load_begin(load);
    const int64_t began = clock_ns(), before = part_tokens(p);
    bool ok = true;
    recorder_set_round(p->c->recorder, round);
    do
        ok = part_step(p, err);
    while (ok && !slice_is_over(p, *tokens, before, clock_ns() - began));
    ok = ok && speclab_decoder_pause(p->c->decoder, err);
    if (!ok && ends_cell(p->r, p->c, err))
        ok = p->over = true;
    if (*tokens == 0)
        *tokens = part_tokens(p);
    struct error ignored;
    const struct slice_row row = { .pair = p->o->pair, .run = p->c->run, .round = round, .ns = clock_ns() - began };
    return slice_load_end(load, p->r->store, &row, ok ? err : &ignored) && ok;
}

static bool run_round(const struct paired_run *o, struct cell_part *part, int n, int round, int *left,
                      struct error *err)
{
    int64_t tokens = 0;
    for (int k = 0; k < n; k++) {
        struct cell_part *p = &part[turn_of(o, round, k, n)];
        if (p->over)
            continue;
        const bool ok = run_slice(p, round, &tokens, err);
        if (!ok || p->over) {
            progress_done(&p->r->progress, ok && !p->c->failed ? p->missing : 0);
            *left -= 1;
        }
        if (!ok)
            return false;
    }
    return true;
}

static bool run_cells(struct paired_run *o, struct runner *r, struct group *g, struct error *err)
{
    struct cell_part *part = xcalloc((size_t)g->n, sizeof(*part));
    int n = 0;
    bool ok = true;
    for (int c = 0; c < g->n; c++)
        if (takes_part(o, c) && !g->cell_runner[c].failed)
            part[n++] = (struct cell_part){ r, &g->cell_runner[c], &o->conversation[c * o->n], o,
                                            .missing = paired_run_missing(o, c) };
    for (int k = 0; k < n && ok; k++)
        ok = environment_check(r, part[k].c, err);
    for (int k = 0; k < n && ok; k++)
        ok = part[k].c->warm || warm_up(r, part[k].c, o->first, err) || ends_cell(r, part[k].c, err);
    if (g->cache != NULL)
        target_cache_clear(g->cache);
    ok = ok && (n == 0 || store_new_pair(r->store, r->e->name, &o->pair, err));
    for (int k = 0; k < n && ok; k++)
        ok = part_open(&part[k], &o->due[(part[k].conversation - o->conversation)], err);
    int left = n;
    for (int k = 0; k < n; k++)
        if (part[k].c->failed) { // it failed before its first text
            part[k].over = true;
            left--;
        }
    for (int round = 0; left > 0 && ok; round++)
        ok = run_round(o, part, n, round, &left, err);
    for (int k = 0; k < n; k++)
        part_close(&part[k]);
    free(part);
    return ok;
}

static bool any_is_full(const struct paired_run *o, const struct group *g)
{
    for (int k = 0; k < g->n * o->n; k++)
        if (o->conversation[k].full)
            return true;
    return false;
}

bool paired_run_decode(struct paired_run *o, struct runner *r, struct group *g, struct error *err)
{
    bool ok = paired_run_open(o, r->loaded, r->store, g, err);
    for (int c = 0; c < g->n && ok; c++) {
        progress_skip(&r->progress, o->n - paired_run_missing(o, c));
        ok = paired_run_missing(o, c) == 0 || store_shard_unfinished(r->store, g->cell_runner[c].run, &r->part, err);
    }
    ok = ok && run_cells(o, r, g, err);
    r->full = r->full || any_is_full(o, g);
    paired_run_close(o, g);
    return ok;
}
