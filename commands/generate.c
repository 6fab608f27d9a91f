// generate.c - `speclab generate`: decodes one prompt with a drafter and streams the text.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/part.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/generate.h"
#include "core/files/json_lines.h"
#include "core/utf8.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

// ---- options

static bool read_ids(struct generate *g, struct error *err)
{
    struct json *list = json_parse(g->ids, strlen(g->ids), "--ids", err);
    bool ok = list != NULL && json_read_ids(list, "--ids", g->target->used_vocab, &g->prompt_ids, err);
    json_free(list);
    return ok && (g->prompt_ids.n > 0 || fail(err, "--ids: the list is empty; expected at least one token"));
}

// Reads stdin, without the one line end that `echo` adds.
static bool read_stdin(struct text *to, struct error *err)
{
    if (!input_read("-", INPUT_STDIN, INPUT_TEXTS, to, err))
        return false;
    if (to->n > 0 && to->s[to->n - 1] == '\n')
        to->s[--to->n] = '\0';
    return true;
}

static bool read_prompt(struct generate *g, struct error *err)
{
    struct text text = { 0 };
    bool ok = speclab_target_has_chat(g->target, err);
    if (ok && strcmp(g->prompt, "-") == 0)
        ok = read_stdin(&text, err);
    else if (ok)
        text_puts(&text, g->prompt);
    if (ok && memchr(text.s, '\0', text.n) != NULL)
        ok = fail(err, "the prompt contains a NUL byte at offset %zu", strlen(text.s));
    // Before the chat template is applied, so that the offset refers to the user's text.
    ok = ok && require_utf8(text.s, text.n, "the prompt", err) &&
         (g->system == NULL || require_utf8(g->system, strlen(g->system), "--system", err));
    if (ok && g->system != NULL && strcmp(g->options.chat, "none") == 0)
        ok = fail(err, "--system requires a chat template; --chat none has none");
    const struct message both[] = { { "system", g->system }, { "user", text.s } };
    const int first = g->system == NULL;
    ok = ok && target_encode_chat(g->target, both + first, 2 - first, &g->prompt_ids, err);
    free(text.s);
    return ok && (g->prompt_ids.n > 0 || fail(err, "the prompt is empty; expected at least one token"));
}

// Length of the sequence in rows: the prompt, the new tokens and the largest draft, limited by the context.
static bool choose_length(const struct generate *g, int *length, struct error *err)
{
    const int trained = model_shape(g->target->model)->context;
    if (g->context > trained)
        return fail(err, "--context %lld: the context of %s is %d tokens", g->context, g->target->path, trained);
    long long context = g->context > 0 ? g->context : trained, n = (long long)g->prompt_ids.n;
    if (n >= context)
        return fail(err, "the prompt has %lld tokens, which fills the context of %lld", n, context);
    long long need = n + g->tokens + MAX_NODES;
    *length = (int)(need < context ? need : context);
    return true;
}

// ---- what was decoded

static void print_json(struct generate *g)
{
    const struct text *text = &g->printer.text;
    struct json *j = json_object_of(
        JSON("prompt_ids", json_new_ids(g->prompt_ids.id, g->prompt_ids.n)),
        JSON("text", g->target->tokenizer != NULL ? json_new_text_n(text->s, text->n) : json_new_null()));
    transcript_json(&g->transcript, j);
    json_set(j, "settings", generate_settings(g));
    json_print(j, stdout);
}

// ---- decoding

static void on_step(void *self, const struct speclab_step *s)
{
    struct generate *g = self;
    transcript_step(&g->transcript, s);
    printer_add(&g->printer, s->token, s->n, s->accepted);
}

static void on_end(void *self, const struct speclab_end *e)
{
    transcript_done(&((struct generate *)self)->transcript, e);
}

static bool decode(struct generate *g, struct error *err)
{
    const struct speclab_request r = generate_request(g, 0, &g->prompt_ids);
    const volatile int *stop = interrupt_catch_in_plugins();
    bool ok = speclab_decoder_start(g->decoder, &r, err);
    while (ok && speclab_decoder_active(g->decoder) > 0 && !(g->printer.to != NULL && stdout_failed()))
        ok = interrupt_check(stop, err) && speclab_decoder_step(g->decoder, err);
    return ok;
}

static bool generate(struct generate *g, struct error *err)
{
    int length = 0;
    if (!generate_open_target(g, err) || !(g->ids != NULL ? read_ids(g, err) : read_prompt(g, err)) ||
        !choose_length(g, &length, err) ||
        !generate_open(g, 1, length, (struct speclab_listener){ .step = on_step, .end = on_end, .self = g }, err))
        return false;
    g->transcript.keep = g->json;
    g->transcript.trace = g->trace;
    g->transcript.prompt = (int)g->prompt_ids.n;
    g->printer.to = g->json ? NULL : stdout;
    g->printer.colour = printer_wants_colour(stdout);
    g->printer.stops = generate_stops(g);
    if (!decode(g, err))
        return false;
    printer_end(&g->printer,
                g->transcript.stop != NULL && strcmp(g->transcript.stop, stop_name(SPECLAB_STOP_STRING)) == 0);
    if (g->transcript.stop == NULL)
        return true; // stdout was closed
    if (g->json)
        print_json(g);
    fflush(stdout);
    transcript_print(&g->transcript, stderr);
    return true;
}

static void close_all(struct generate *g)
{
    speclab_decoder_destroy(g->decoder);
    speclab_target_close(g->target);
    settings_free(g->drafter_settings);
    settings_free(g->rule_settings);
    settings_free(g->sampling_settings);
    printer_free(&g->printer);
    transcript_free(&g->transcript);
    free(g->prompt_ids.id);
}

static const char about[] =
    "Decodes one prompt and streams the text; on a terminal, accepted draft tokens are green (NO_COLOR is\n"
    "respected). The PROMPT `-` is read from stdin. Statistics go to stderr. The default temperature is 0:\n"
    "greedy decoding. `speclab list` describes drafters, rules and sampling stages with their options.\n"
    "`./run generate .. --trace-html FILE` writes a page of the steps.\n";

static const char examples[] =
    "  speclab generate smollm2-135m-instruct --drafter ngram 'Repeat after me: red, green, blue.'\n"
    "  speclab generate target.gguf --drafter small:model=draft.gguf,tokens=4 --temperature 0.8 --seed 7 - < prompt.txt\n"
    "  speclab generate target.gguf --ids '[1, 2, 3]' --tokens 16 --json --trace\n"
    "  speclab generate smollm2-135m-instruct --prompts questions.jsonl --jsonl --batch 16 > answers.jsonl\n";

// Fills in one flag for each sampling stage, whose name and help are to be freed. Returns their number.
static int add_stage_flags(struct generate *g, struct flag *to)
{
    int n = 0;
    for (; stages[n] != NULL; n++) {
        const struct option *o = stages[n]->option;
        const char *standard = stages[n] == &temperature_stage ? "0" : o->default_value;
        char *name = xstrdup(stages[n]->name);
        for (char *c = name; (c = strchr(c, '_')) != NULL;)
            *c = '-';
        to[n] = (struct flag){ .name = name,
                               .kind = FLAG_TEXT,
                               .to = &g->stage[n],
                               .argument = o->type == OPTION_PAIRS ? "'{ID: X, ...}'" : "X",
                               .help = xformat("%s:\n%s%s%s", stages[n]->summary, o->help,
                                               *standard != '\0' ? "; default: " : "", standard) };
    }
    return n;
}

// A stage of a plugin may have the name of another option.
static bool names_differ(const struct flag *flag, struct error *err)
{
    for (const struct flag *a = flag; a->name != NULL; a++)
        for (const struct flag *b = flag; b < a; b++)
            if (strcmp(a->name, b->name) == 0)
                return fail(err, "generate has two options --%s: a sampling stage needs a name of its own", a->name);
    return true;
}

// Checks what the flags say together, and generates.
static int run(struct generate *g, const struct usage *u, char **operand, int n)
{
    struct error err;
    if (g->prompts != NULL && (n > 1 || g->ids != NULL || g->system != NULL || g->json || !g->jsonl))
        return usage_fail(u, "--prompts: expected --jsonl, and neither PROMPT, --ids, --system nor --json");
    if (g->prompts == NULL && (g->jsonl || g->batch > 0))
        return usage_fail(u, "%s requires --prompts", g->jsonl ? "--jsonl" : "--batch");
    if (g->ids == NULL && g->prompts == NULL && n < 2)
        return usage_fail(u, "missing prompt: expected PROMPT, - for stdin, --ids or --prompts");
    if (g->ids != NULL && n > 1)
        return usage_fail(u, "expected either --ids or PROMPT, found both: \"%s\"", operand[1]);
    if (g->ids != NULL && g->system != NULL)
        return usage_fail(u, "--system requires a chat template, which is not applied to --ids");
    if (!chat_name_known(g->options.chat, &err))
        return usage_fail(u, "--chat: %s", err.text);
    if (g->ids != NULL && g->options.chat_variables != NULL)
        return usage_fail(u, "--chat-template-kwargs requires a chat template, which is not applied to --ids");
    struct json *variables;
    if (!chat_variables_read(g->options.chat_variables, &variables, &err))
        return usage_fail(u, "--chat-template-kwargs: %s", err.text);
    json_free(variables);
    if (g->trace && !g->json)
        return usage_fail(u, "--trace requires --json");
    for (int i = 0; i < g->stop.n; i++) {
        if (*g->stop.text[i] == '\0')
            return usage_fail(u, "--stop: expected a text that is not empty");
        if (!require_utf8(g->stop.text[i], strlen(g->stop.text[i]), "--stop", &err))
            return usage_fail(u, "%s", err.text);
    }
    g->model = operand[0];
    g->prompt = operand[n - 1];
    if (!generate_read(g, &err))
        return usage_fail(u, "%s", err.text);
    return (g->prompts != NULL ? generate_prompts : generate)(g, &err) ? 0 : command_fail(u, &err);
}

int command_generate(int argc, char **argv)
{
    struct generate g = {
        .drafter = drafter_types[0]->name, .rule = rules[0]->name, .options.chat = "auto", .tokens = 128
    };
    const struct flag first[] = {
        { "drafter", FLAG_TEXT, &g.drafter, "KIND[:KEY=VALUE,...]", "proposes the draft tokens; default: none", 0, 0 },
        { "rule", FLAG_TEXT, &g.rule, "KIND[:KEY=VALUE,...]", "accepts or rejects them; default: rejection", 0, 0 },
    }, last[] = {
        { "seed", FLAG_INT, &g.seed, "N", "seed of all random numbers; default: 0", 0, LLONG_MAX },
        { "tokens", FLAG_INT, &g.tokens, "N", "maximum number of new tokens; default: 128", 1, 1 << 24 },
        { "context", FLAG_INT, &g.context, "N", "maximum length, prompt included; default: the model's context", 1, 1 << 24 },
        { "threads", FLAG_INT, &g.threads, "N", "number of threads; default: one for each processor", 1, MAX_THREADS },
        PRECISION_FLAGS(g.options),
        PACKED_FLAG(g.packed),
        { "chat", FLAG_TEXT, &g.options.chat, CHAT_CHOICES, "chat format of the prompt: the model's own template (auto),\n"
                                                          "or none; default: auto", 0, 0 },
        CHAT_VARIABLES_FLAG(g.options.chat_variables),
        { "system", FLAG_TEXT, &g.system, "TEXT", "system message of the chat", 0, 0 },
        { "prompts", FLAG_TEXT, &g.prompts, "FILE", "with --jsonl, instead of PROMPT: JSON lines, as in experiments; each turn is answered.\n"
                                                          "- is stdin, whose prompts are answered as they come", 0, 0 },
        { "batch", FLAG_INT, &g.batch, "N", "with --prompts: texts decoded at a time; default: 64", 1, MAX_SLOTS },
        { "ids", FLAG_TEXT, &g.ids, "LIST", "prompt as token ids, instead of PROMPT: '[1, 2, 3]'", 0, 0 },
        { "ignore-end", FLAG_ON, &g.ignore_end, NULL, "do not stop at end-of-text tokens", 0, 0 },
        { "stop", FLAG_TEXTS, &g.stop, "TEXT", "stop before this text; can be given several times", 0, 0 },
        { "json", FLAG_ON, &g.json, NULL, "print one JSON object: prompt_ids, new_ids, text, stop, steps, times, settings", 0, 0 },
        { "jsonl", FLAG_ON, &g.jsonl, NULL, "with --prompts: print the settings, then a JSON line for each prompt: id, number,\n"
                                                  "messages, answers, input_ids, loss_mask", 0, 0 },
        { "trace", FLAG_ON, &g.trace, NULL, "with --json: the draft of each step, and which tokens were accepted", 0, 0 },
        { 0 },
    };
    enum { FIRST = sizeof(first) / sizeof(first[0]), LAST = sizeof(last) / sizeof(last[0]) };
    struct flag flags[FIRST + MAX_STAGES + LAST];
    const struct usage u = { "generate", "MODEL PROMPT", about, flags, examples, 1, 2 };
    struct error err;
    char **operand;
    int n;
    memcpy(flags, first, sizeof(first));
    const int stage_flags = add_stage_flags(&g, flags + FIRST);
    memcpy(flags + FIRST + stage_flags, last, sizeof(last));
    int status = names_differ(flags, &err) ? usage_read(&u, argc, argv, &operand, &n) : command_fail(&u, &err);
    if (status == USAGE_OK) {
        status = run(&g, &u, operand, n);
        close_all(&g);
        status = status != 0 ? status : command_done(&u);
    }
    for (int i = 0; i < stage_flags; i++) {
        free((char *)(uintptr_t)flags[FIRST + i].name);
        free((char *)(uintptr_t)flags[FIRST + i].help);
    }
    return status;
}
