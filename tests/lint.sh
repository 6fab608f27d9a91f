#!/usr/bin/env bash
# Checks what readers rely on and no compiler checks: formatting, one includer of each dependency, which folder may include which
# (docs/architecture.md), which files call each other, and the sizes of files and folders. Prints every violation; exit status 1 if there is any.
#
#   tests/lint.sh          these checks
#   tests/lint.sh words    words that are not used in this project (tests/retired_words.txt), in names, comments, strings and docs
set -u
unset CDPATH
cd "$(dirname "$0")/.." || exit 1
bad=0
files() { git ls-files -co --exclude-standard "$@"; } # tracked, and new ones before `git add`
violation() { printf '%s\n' "$*"; bad=1; }

# Texts of other people, data, and the list of the words itself.
not_checked=(':!LICENSE' ':!CMakePresets.json' ':!docs/notes' ':!tests/retired_words.txt'
             ':!experiments/data' ':!tests/cases/*.json' ':!tests/cases/*.jsonl' ':!tests/cases/torch' ':!tests/cases/tokenizer*')

retired_words() {                # prints "file:line: word -> words to use" for each place, and their number
    local everywhere identifiers
    local begin='(?<![A-Za-z])' end='(?![A-Za-z])'
    everywhere=$(sed -n '/^[^#_]/s/\t.*//p' tests/retired_words.txt | paste -s -d '|')
    identifiers=$(sed -n '/^_/{s/^_//;s/\t.*//p;}' tests/retired_words.txt | paste -s -d '|')
    # An identifier or a part of one: next to _, after a type, -> or a field's dot, or before a subscript or an assignment.
    {
        git grep --untracked -nIioP "$begin(?:$everywhere)$end|(?:(?<=_)|(?<=->)|(?<=[\\w\\])]\\.)|(?<=[ (]\\*)|(?<=int )|(?<=bool )|(?<=double )|(?<=float )|(?<=char )|(?<=_t ))(?:$identifiers)$end|$begin(?:$identifiers)(?=_|->|\\[|\\+\\+| [-+*/|&]?= )" \
            -- "${not_checked[@]}"
        files -- "${not_checked[@]}" | grep -noiP "$begin(?:$everywhere|$identifiers)$end" |
            while IFS=: read -r n word; do echo "$(files -- "${not_checked[@]}" | sed -n "${n}p"):0:$word"; done
    } | perl -ne '
        BEGIN {
            open my $list, "<", "tests/retired_words.txt" or die;
            while (<$list>) { push @words, [qr/^_?(?:$1)$/i, $2] if /^(?!#)_?(.*)\t(.*)/ }
        }
        my ($place, $word) = /^(.*?:\d+):(.*)$/ or next;
        my ($instead) = grep { $word =~ $_->[0] } @words;
        print "$place: $word -> ", $instead ? $instead->[1] : "?", "\n";
        END { print STDERR "lint: ", $. || 0, " retired words\n"; exit($. > 0) }'
}

if [ "${1:-}" = words ]; then
    retired_words
    exit
fi

folders='core sampling kernels models drafters verifier results engine experiments commands'

# One includer of each dependency.
while read -r header includer; do
    for file in $(grep -lE "#include <$header>" -r --include="*.[ch]" --include="*.cpp" $folders); do
        [ "$file" = "$includer" ] || violation "$file includes <$header>; only $includer does"
    done
done <<'INCLUDERS'
sqlite3.h results/store/connection.h
yaml.h experiments/yaml.c
jansson.h core/json.h
Random123/philox.h core/philox.h
pcre2.h models/tokenizers/pattern.c
utf8proc.h models/tokenizers/normal_form.c
xxhash.h core/digest.c
zlib.h experiments/replay/packed_rows.c
boost/.* results/statistics/distributions.cpp
INCLUDERS

# Arrows go down only. A folder within another one that is listed here is a module of its own.
modules='core
sampling core
kernels/device_step core
kernels core kernels/device_step
models/formats core
models/tokenizers core models/formats
models core kernels models/formats
drafters core sampling kernels/device_step kernels models/formats models/tokenizers models
verifier/rules core sampling kernels/device_step verifier
verifier core sampling kernels/device_step kernels models verifier/rules
results/statistics core
verifier/exact core sampling verifier verifier/rules results/statistics
results core results/statistics
engine core sampling kernels models/tokenizers models drafters verifier verifier/rules
experiments core sampling kernels models/formats models/tokenizers models drafters verifier verifier/rules results/statistics verifier/exact results engine
commands core sampling kernels models/formats models/tokenizers models drafters verifier verifier/rules results/statistics verifier/exact results engine experiments'
while read -r violated; do
    violation "$violated"
done < <(files '*.c' '*.h' '*.cu' | grep -v ^tests/ | MODULES=$modules xargs perl -ne '
    BEGIN { for (split /\n/, $ENV{MODULES}) { my ($name, @may) = split; $may{$name} = [@may] } }
    sub module { my ($path) = @_; while ($path =~ s|/[^/]*$||) { return $path if $may{$path} } }
    next unless /^#include "([a-z_]+\/.*)"/ and my $from = module($ARGV);
    my ($line, $to) = ($_, module($1));
    chomp $line;
    print "$ARGV: $line ($from may include: @{$may{$from}})\n" unless grep { $_ eq $to } $from, @{$may{$from}};')

# Folders of a size that can be overviewed.
while read -r n folder; do
    [ "$n" -le 40 ] || [ "$folder" = tests/cases ] || violation "$folder has $n files, at most 40 are allowed"
done < <(files | sed -n 's|/[^/]*$||p' | sort | uniq -c)

# Files of a size that can be overviewed; not data, and not what only grows.
while read -r n file; do
    [ "$n" -le 600 ] || [ "$file" = total ] || violation "$file has $n lines, at most 600 are allowed: split it by subject"
done < <(files -z -- ':!*.json' ':!*.jsonl' ':!*.model' ':!*.safetensors' ':!tests/cases/*.txt' ':!experiments/data' ':!CHANGELOG.md' ':!docs/notes' | xargs -0 wc -l)

# Files are boundaries: no circles of calls, and declarations with their definitions. Needs a build; says so where there is none.
tests/boundaries.py || [ $? = 77 ] || bad=1

# A type of quantized numbers is a row of core/tensor.h: other code names none of those that have no use of their own.
while read -r file; do
    violation "$file names a type of core/tensor.h"
done < <(files $folders | grep -E '\.(c|h|cu)$' | grep -vxE 'core/(tensor\.h|quantize\.c)|kernels/(cpu/blocks|cuda/unpack)\.h' |
    xargs perl -ne 's|//.*||; s/"(?:\\.|[^"\\])*"//g; print "$ARGV\n" if /\b(?:Q4_1|Q5_[01]|Q[456]_K|IQ4_NL|IQ4_XS|MXFP4)\b/' | sort -u)

# Random numbers come from sampling/rng.h only.
grep -nE '\b(rand|random|drand48|srand)\(' -r --include='*.[ch]' ${folders%% results*} && violation "random numbers come from sampling/rng.h only"

# Comments are sentences or noun phrases, not fragments that begin with a preposition, and fit in the column limit of .clang-format.
# Code within "clang-format off" may be longer, and so may strings.
commented='commands core engine sampling experiments kernels/cpu kernels/cuda kernels/device_step kernels/*.[ch] models drafters verifier results python/speclab python/training'
while read -r place; do
    violation "$place"
done < <(files $commented | grep -E '\.(c|h|cpp|cu|sql|py)$' | xargs perl -CSD -ne '
    BEGIN { $preposition = qr/as|at|behind|below|beside|before|after|between|by|for|from|in|into|of|on|onto|to|under|up to|with|without/ }
    $mark = $ARGV =~ /py$/ ? qr/#/ : $ARGV =~ /sql$/ ? qr/--/ : qr{//};
    if ($ARGV =~ /py$/ && (/"""/ || $inside)) {
        $docstring = /^\s*r?"""/ && $last =~ /:$|^$/ if !$inside;
        $inside ^= (() = /"""/g) % 2;
        print "$ARGV:$.: a docstring has a line of ", length() - 1, " columns, expected at most 120\n" if $docstring && length() > 121;
        next;
    }
    $last = $_;
    s/"(?:\\.|[^"\\])*"|\x27(?:\\.|[^\x27\\])\x27/"q" x length $&/ge unless /^\s*$mark/;
    if (/^(.*?)(?<![:\w])$mark\s?(.*)/) {
        ($before, $text) = ($1, $2);
        print "$ARGV:$.: a line with a comment has ", length() - 1, " columns, expected at most 120\n" if length() > 121 && !$off && $text !~ /^(?:fmt|noqa)/;
        $off = $1 eq "off" if $text =~ /^clang-format (off|on)/;
        print "$ARGV:$.: expected a sentence or a noun phrase, found \"", substr($text, 0, 30), " ..\"\n"
            if !($before =~ /^\s*$/ && $continues == length $before) &&
               $text =~ /^(?:(?:$preposition)\b(?!:)|[Ll]ikewise|[Tt]he same (?:as|at|for|in|of|on|to|with)\b|Of )/ &&
               $text !~ /^(?:at (?:least|most)|(?:to|at) [[(]|with(?:out)? --)/;
        $continues = length $before;
    } else {
        $continues = -1;
    }
    close ARGV if eof;')

# A child process ends with the program.
grep -nE '\b(v?fork|posix_spawnp?|popen|system)\(' -r --include='*.[ch]' $folders | grep -v '^core/interrupt\.[ch]:' &&
    violation "processes are started by process_fork of core/interrupt.h only"

# No shell expands what is in the name of a folder.
while read -r place; do
    violation "$place ..: expected VERBATIM beside COMMAND"
done < <(files '*CMakeLists.txt' '*.cmake' | xargs perl -ne '
    $text .= $_;
    if (eof) {
        print "$ARGV: $1\n" while $text =~ /(add_custom_\w+\(\S+ \S+)(?![^()]*VERBATIM)[^()]*COMMAND\b[^()]*\)/g;
        $text = "";
    }')

# Versions format differently: Debian 12's counts.
case $(clang-format --version 2>/dev/null) in
*"version 14."*)
    while read -r place; do
        violation "$place: clang-format -i would change this line"
    done < <(files '*.c' '*.h' '*.cu' '*.cpp' | xargs clang-format --dry-run 2>&1 | grep 'warning:' | cut -d : -f 1,2 | uniq)
    ;;
*) echo "lint: formatting was not checked: no clang-format 14" ;;
esac
retired_words || bad=1
[ $bad = 0 ] && echo "lint: no violations"
exit $bad
