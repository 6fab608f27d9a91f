# What `speclab completion` prints behind its tables: functions for both shells, then those of one.
#
# One prints candidates, a line each: `@` says that a file is expected, `:` that any text is.

# KIND, or KIND:KEY=VALUE,..: the candidates have the whole beginning.
_speclab_plugin() { # drafter or rule, BEGINNING
    case $2 in
    *:*=*) ;;
    *:*) _speclab_option_names "$1" "${2%%:*}" | sed "s|^|${2%%:*}:|"; return ;;
    *) _speclab_kinds "$1"; return ;;
    esac
    case ${2##*[:,]} in
    *=*) _speclab_option_values "$1" "${2%%:*}" "$(echo "${2##*[:,]}" | sed 's/=.*//')" | sed "s|^|${2%=*}=|" ;;
    *) _speclab_option_names "$1" "${2%%:*}" | sed "s|^|${2%,*},|" ;;
    esac
}

_speclab_takes_value() { # WORD --FLAG: whether a value follows
    case $2 in
    --*=*) return 1 ;;
    --*) [ -n "$(_speclab_values "$1" "$2" '')" ] ;;
    *) return 1 ;;
    esac
}

_speclab_candidates() { # WORD BEFORE BEGINNING: of the word at the cursor, which the word BEFORE precedes
    case $3 in
    --*=*) _speclab_values "$1" "${3%%=*}" "${3#*=}" | grep -vx : | sed "s|^\([^@]\)|${3%%=*}=\\1|"; return ;;
    -*) _speclab_flags "$1"; return ;;
    esac
    if _speclab_takes_value "$1" "$2"; then _speclab_values "$1" "$2" "$3" | grep -vx :; return; fi
    case $1 in
    list) _speclab_kinds drafter; _speclab_kinds rule; _speclab_kinds stage ;;
    completion) printf '%s\n' bash zsh ;;
    schema) ;;
    *) echo @ ;;
    esac
}

# ---- bash

_speclab() {
    local line=${COMP_LINE:0:COMP_POINT} current found known _speclab_program=${COMP_WORDS[0]}
    local -a words
    read -ra words <<<"$line"
    [[ $line != *[[:space:]] ]] || words+=('')
    current=${words[${#words[@]} - 1]}
    if [ ${#words[@]} -le 2 ]; then
        found=$(_speclab_words)
    else
        found=$(_speclab_candidates "${words[1]}" "${words[${#words[@]} - 2]}" "$current")
    fi
    if [[ $'\n'$found$'\n' == *$'\n@\n'* ]]; then
        compopt -o filenames 2>/dev/null
        local file=$current
        [[ $file != --*=* ]] || file=${file#*=}
        mapfile -t COMPREPLY < <(compgen -f -- "$file")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$found" -- "$current")
    # bash takes : and = for ends of words and replaces only what follows the last of them
    known=${current%"${current##*[:=]}"}
    COMPREPLY=("${COMPREPLY[@]#"$known"}")
    [[ ${COMPREPLY[0]:-} != *= ]] || compopt -o nospace 2>/dev/null
}
complete -F _speclab speclab

# ---- zsh

_speclab() {
    local _speclab_program=${words[1]}
    local -a found
    if (( CURRENT <= 2 )); then
        found=(${(f)"$(_speclab_words)"})
    else
        found=(${(f)"$(_speclab_candidates "${words[2]}" "${words[CURRENT-1]}" "${words[CURRENT]}")"})
    fi
    if (( ${found[(Ie)@]} )); then
        found=(${found:#@})
        [[ ${words[CURRENT]} != --*=* ]] || compset -P '*='
        _files
    fi
    compadd -S '' -- ${(M)found:#*=}
    compadd -- ${found:#*=}
}
compdef _speclab speclab
