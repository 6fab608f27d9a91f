#include "commands/completion.h"

#include <stdio.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "core/options.h"
#include "drafters/drafter.h"
#include "sampling/sampling.h"
#include "verifier/rules/rule.h"

// ---- what both shells ask: functions of POSIX's shell, each with one table
//
// A function prints candidates, one a line: `@` says that a file is expected, `:` that any text is.

static void print_name(const char *name, size_t n)
{
    printf(" '%.*s'", (int)n, name);
}

static void print_choices(const char *choices)
{
    for (const char *word = choices; *word != '\0';) {
        const size_t n = strcspn(word, "|");
        print_name(word, n);
        word += n + (word[n] == '|');
    }
}

static bool is_file(const struct flag *f)
{
    static const char *const files[] = { "FILE", "DIR", "MODEL", "FOLDER" };
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        if (strncmp(f->argument, files[i], strlen(files[i])) == 0)
            return true;
    return false;
}

static void print_value(const struct flag *f, const char *word)
{
    if (f->kind == FLAG_ON)
        return;
    printf("    %s:--%s) ", word, f->name);
    if (strcmp(f->name, "drafter") == 0 || strcmp(f->name, "rule") == 0)
        printf("_speclab_plugin %s \"$3\"", f->name);
    else if (f->kind == FLAG_DEVICE)
        printf("printf '%%s\\n' cpu cuda cublas");
    else if (f->kind == FLAG_CHOICE || strchr(f->argument, '|') != NULL) {
        printf("printf '%%s\\n'");
        print_choices(f->argument);
    } else
        printf(is_file(f) ? "echo @" : "echo :");
    printf(" ;;\n");
}

static void print_flags(const struct usage *u, void *self)
{
    (void)self;
    for (const struct flag *f = u->flags; f->name != NULL; f++)
        printf(" --%s", f->name);
}

static void print_values(const struct usage *u, void *self)
{
    (void)self;
    for (const struct flag *f = u->flags; f->name != NULL; f++)
        print_value(f, u->name);
}

// Calls `show` with the usage of a command, which does nothing else then.
static void with_usage(const struct word *w, void (*show)(const struct usage *u, void *self))
{
    char *argv[] = { (char *)(uintptr_t)w->name, NULL };
    usage_observe(show, NULL);
    w->function(1, argv);
    usage_observe(NULL, NULL);
}

static void print_words(const struct word *words)
{
    printf("_speclab_words() {\n    printf '%%s\\n' --help --version completion schema");
    for (const struct word *w = words; w->name != NULL; w++)
        if (w->option == NULL)
            print_name(w->name, strlen(w->name));
    printf("\n}\n\n");
    printf("_speclab_flags() { # WORD\n    case $1 in\n");
    for (const struct word *w = words; w->name != NULL; w++)
        if (w->function != NULL) {
            printf("    %s) printf '%%s\\n' --help", w->name);
            with_usage(w, print_flags);
            for (const struct word *o = words; o->name != NULL; o++)
                if (o->option != NULL && strcmp(o->name, w->name) == 0)
                    printf(" %s", o->option);
            printf(" ;;\n");
        }
    printf(
        "    *) \"$_speclab_program\" \"$1\" --help 2>/dev/null | grep -oE -e '--[a-z][a-z-]+' | sort -u ;;\n    esac\n}\n\n");
    printf("_speclab_values() { # WORD --FLAG BEGINNING\n    case $1:$2 in\n");
    for (const struct word *w = words; w->name != NULL; w++)
        if (w->function != NULL)
            with_usage(w, print_values);
    printf("    esac\n}\n\n");
}

// ---- drafters, rules, stages

static void print_option_values(const char *what, const char *kind, const struct option *o)
{
    for (; o != NULL && o->name != NULL; o++)
        if (o->type == OPTION_CHOICE || o->type == OPTION_BOOL) {
            printf("    %s:%s:%s) printf '%%s\\n'", what, kind, o->name);
            print_choices(o->type == OPTION_BOOL ? "true|false" : o->choices);
            printf(" ;;\n");
        }
}

static void print_option_names(const char *what, const char *kind, const struct option *o)
{
    printf("    %s:%s) printf '%%s\\n'", what, kind);
    for (; o != NULL && o->name != NULL; o++)
        printf(" %s=", o->name);
    printf(" ;;\n");
}

static void print_plugins(void)
{
    printf("_speclab_kinds() { # drafter, rule or stage\n    case $1 in\n    drafter) printf '%%s\\n'");
    for (int i = 0; drafter_types[i] != NULL; i++)
        printf(" %s", drafter_types[i]->name);
    printf(" ;;\n    rule) printf '%%s\\n'");
    for (int i = 0; rules[i] != NULL; i++)
        printf(" %s", rules[i]->name);
    printf(" ;;\n    stage) printf '%%s\\n'");
    for (int i = 0; stages[i] != NULL; i++)
        printf(" %s", stages[i]->name);
    printf(" ;;\n    esac\n}\n\n_speclab_option_names() { # drafter KIND, or rule KIND\n    case $1:$2 in\n");
    for (int i = 0; drafter_types[i] != NULL; i++)
        print_option_names("drafter", drafter_types[i]->name, drafter_types[i]->options);
    for (int i = 0; rules[i] != NULL; i++)
        print_option_names("rule", rules[i]->name, rules[i]->options);
    printf(
        "    esac\n}\n\n_speclab_option_values() { # drafter KIND OPTION, or rule KIND OPTION\n    case $1:$2:$3 in\n");
    for (int i = 0; drafter_types[i] != NULL; i++)
        print_option_values("drafter", drafter_types[i]->name, drafter_types[i]->options);
    for (int i = 0; rules[i] != NULL; i++)
        print_option_values("rule", rules[i]->name, rules[i]->options);
    printf("    esac\n}\n\n");
}

static const char common[] =
    "# KIND, or KIND:KEY=VALUE,..: the candidates have the whole beginning.\n"
    "_speclab_plugin() { # drafter or rule, BEGINNING\n"
    "    case $2 in\n"
    "    *:*=*) ;;\n"
    "    *:*) _speclab_option_names \"$1\" \"${2%%:*}\" | sed \"s|^|${2%%:*}:|\"; return ;;\n"
    "    *) _speclab_kinds \"$1\"; return ;;\n"
    "    esac\n"
    "    case ${2##*[:,]} in\n"
    "    *=*) _speclab_option_values \"$1\" \"${2%%:*}\" \"$(echo \"${2##*[:,]}\" | sed 's/=.*//')\" | sed \"s|^|${2%=*}=|\" ;;\n"
    "    *) _speclab_option_names \"$1\" \"${2%%:*}\" | sed \"s|^|${2%,*},|\" ;;\n"
    "    esac\n"
    "}\n\n"
    "_speclab_takes_value() { # WORD --FLAG: whether a value follows\n"
    "    case $2 in\n"
    "    --*=*) return 1 ;;\n"
    "    --*) [ -n \"$(_speclab_values \"$1\" \"$2\" '')\" ] ;;\n"
    "    *) return 1 ;;\n"
    "    esac\n"
    "}\n\n"
    "_speclab_candidates() { # WORD BEFORE BEGINNING: of the word at the cursor, which the word BEFORE precedes\n"
    "    case $3 in\n"
    "    --*=*) _speclab_values \"$1\" \"${3%%=*}\" \"${3#*=}\" | grep -vx : | sed \"s|^\\([^@]\\)|${3%%=*}=\\\\1|\"; return ;;\n"
    "    -*) _speclab_flags \"$1\"; return ;;\n"
    "    esac\n"
    "    if _speclab_takes_value \"$1\" \"$2\"; then _speclab_values \"$1\" \"$2\" \"$3\" | grep -vx :; return; fi\n"
    "    case $1 in\n"
    "    list) _speclab_kinds drafter; _speclab_kinds rule; _speclab_kinds stage ;;\n"
    "    completion) printf '%s\\n' bash zsh ;;\n"
    "    schema) ;;\n"
    "    *) echo @ ;;\n"
    "    esac\n"
    "}\n\n";

static const char bash[] =
    "_speclab() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} current found known _speclab_program=${COMP_WORDS[0]}\n"
    "    local -a words\n"
    "    read -ra words <<<\"$line\"\n"
    "    [[ $line != *[[:space:]] ]] || words+=('')\n"
    "    current=${words[${#words[@]} - 1]}\n"
    "    if [ ${#words[@]} -le 2 ]; then\n"
    "        found=$(_speclab_words)\n"
    "    else\n"
    "        found=$(_speclab_candidates \"${words[1]}\" \"${words[${#words[@]} - 2]}\" \"$current\")\n"
    "    fi\n"
    "    if [[ $'\\n'$found$'\\n' == *$'\\n@\\n'* ]]; then\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        local file=$current\n"
    "        [[ $file != --*=* ]] || file=${file#*=}\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$file\")\n"
    "        return\n"
    "    fi\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$found\" -- \"$current\")\n"
    "    # bash takes : and = for ends of words and replaces only what follows the last of them\n"
    "    known=${current%\"${current##*[:=]}\"}\n"
    "    COMPREPLY=(\"${COMPREPLY[@]#\"$known\"}\")\n"
    "    [[ ${COMPREPLY[0]:-} != *= ]] || compopt -o nospace 2>/dev/null\n"
    "}\n"
    "complete -F _speclab speclab\n";

static const char zsh[] =
    "_speclab() {\n"
    "    local _speclab_program=${words[1]}\n"
    "    local -a found\n"
    "    if (( CURRENT <= 2 )); then\n"
    "        found=(${(f)\"$(_speclab_words)\"})\n"
    "    else\n"
    "        found=(${(f)\"$(_speclab_candidates \"${words[2]}\" \"${words[CURRENT-1]}\" \"${words[CURRENT]}\")\"})\n"
    "    fi\n"
    "    if (( ${found[(Ie)@]} )); then\n"
    "        found=(${found:#@})\n"
    "        [[ ${words[CURRENT]} != --*=* ]] || compset -P '*='\n"
    "        _files\n"
    "    fi\n"
    "    compadd -S '' -- ${(M)found:#*=}\n"
    "    compadd -- ${found:#*=}\n"
    "}\n"
    "compdef _speclab speclab\n";

static const char about[] =
    "Prints a script that completes words, options, names of drafters, rules and stages, and their options, in bash or zsh.\n";
static const char examples[] =
    "  source <(speclab completion bash)                 # for this shell; a line of ~/.bashrc for all\n"
    "  source <(speclab completion zsh)                  # behind compinit, in ~/.zshrc\n";

int command_completion(const struct word *words, int argc, char **argv)
{
    const struct flag flags[] = { { 0 } };
    const struct usage u = { "completion", "bash|zsh", about, flags, examples, 1, 1 };
    char **operand;
    const int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    const bool is_zsh = strcmp(operand[0], "zsh") == 0;
    if (!is_zsh && strcmp(operand[0], "bash") != 0)
        return usage_fail(&u, "expected bash or zsh, found \"%s\"", operand[0]);
    if (is_zsh)
        printf("#compdef speclab\n");
    printf("# Completion of speclab for %s, as `speclab completion %s` prints it.\n\n", operand[0], operand[0]);
    print_words(words);
    print_plugins();
    printf("%s%s", common, is_zsh ? zsh : bash);
    return command_done(&u);
}
