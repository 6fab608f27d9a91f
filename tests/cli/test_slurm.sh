#!/usr/bin/env bash
# test_slurm.sh - a sweep of 24 cells as 4 shards on a real Slurm, with tasks that are killed and requeued, merged, has the tables of one process
# that was killed five times and resumed: the same texts, steps and counts, and nothing twice:
#     test_slurm.sh SOURCE BUILD
#
# Sets up a Slurm of its own on loopback (slurm_node.sh). Exit status 77: no slurm-wlm or no munge, or they cannot run here.
set -uo pipefail
source=$1 build=$2
PATH=$PATH:/usr/sbin
for p in munged slurmctld slurmd sbatch scontrol sqlite3 python3; do
    command -v $p >/dev/null || { echo "no $p: Debian's packages slurm-wlm, munge, sqlite3 and python3 are needed"; exit 77; }
done
. "$source/tests/cli/slurm_node.sh"
root=$(mktemp -d)
trap 'slurm_stop; rm -rf "$root"' EXIT
trap 'exit 1' INT TERM
bad=0
wrong() { echo "FAILED: $*"; bad=1; }
export SPECLAB=$build/speclab
cd "$root"

# ---- a sweep of 24 cells

"$build/write_small_model" target.gguf && "$build/write_small_model" draft.gguf keep=0,2 || exit 1
for ((i = 1; i <= 36; i++)); do
    echo "{\"id\": \"$i\", \"turns\": [\"one two $i one two $i\", \"and again $i\"]}"
done >prompts.jsonl
cat >sweep.yaml <<'YAML'
name: sweep
target: {model: target.gguf}
threads: 1
prompts: {file: prompts.jsonl, chat: none}
limits: {new_tokens: 48, context: 256, ignore_end: true}
seed: 5
cells:
  sampling: [{temperature: 0}, {temperature: 1}]
  batch: [1, 2]
  rule: [rejection, match]
  drafter: [none, {kind: ngram, tokens: 4}, {kind: small, model: draft.gguf, tokens: 3}]
YAML

texts() { sqlite3 "$1" 'SELECT count(*) FROM sequence' 2>/dev/null || echo 0; }

# ---- one process, killed five times

run_until() {                    # run_until DB TEXTS: runs, and kills the run when the database has as many texts
    "$SPECLAB" run sweep.yaml --db "$1" --no-probe >>whole.log 2>&1 &
    local run=$!
    while kill -0 $run 2>/dev/null && [ "$(texts "$1")" -lt "$2" ]; do sleep 0.05; done
    kill -9 $run 2>/dev/null || wrong "the run ended before it was killed"
    wait $run 2>/dev/null
}
all=$((24 * 36 * 2))
for k in 1 2 3 4 5; do run_until whole.db $((all * k / 6)); done
"$SPECLAB" run sweep.yaml --db whole.db --no-probe >>whole.log 2>&1 || wrong "the resumed run failed: $(tail -n 1 whole.log)"

# ---- four shards on Slurm

slurm_start "$root/slurm" || { tail -n 5 slurm/*.log; echo "skipped: no Slurm can be started on this machine; the logs are above"; exit 77; }
wait_for() {                     # wait_for SECONDS COMMAND...: until it succeeds
    local until=$((SECONDS + $1))
    shift
    while [ $SECONDS -lt $until ]; do ! "$@" >/dev/null 2>&1 || return 0; sleep 0.05; done
    wrong "not in time: $*"
    squeue -a
    scontrol show job "${array:-1}" | grep -E 'JobId|JobState|StartTime'
    tail -n 20 shared/*.log slurm/slurmctld.log
    exit 1
}
state() { scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p'; }
is() { [[ " $2 " == *" $(state "$1") "* ]]; }
restarts() { scontrol show job "$1" | sed -n 's/.* Restarts=\([0-9]*\).*/\1/p'; }
has_texts() {                    # has_texts TASK N: on the disk of its node
    local db
    for db in disk/speclab.*/run.db; do
        [ "$(sqlite3 "$db" "SELECT (SELECT max(shard) FROM shard) = $1 AND (SELECT count(*) FROM sequence) >= $2")" != 1 ] || return 0
    done
    return 1
}
kill_task() {                    # all processes of a task, as when its node runs out of memory
    local id pids
    id=$(squeue -h -o %A -j "$1")
    pids=$(scontrol listpids "$id" | awk '$1 ~ /^[0-9]+$/ { print $1 }')
    # shellcheck disable=SC2086 # words
    [ -n "$pids" ] && kill -9 $pids || wrong "task $1 could not be killed"
    wait_for 60 is "$1" "FAILED NODE_FAIL"
}
restarted() {                    # Slurm lets a requeued job wait for two minutes, which this does not; asked too often, it starts none
    sleep 1
    scontrol update jobid="$1" StartTime=now
    is "$1" "RUNNING COMPLETED" && [ "$(restarts "$1")" = "$2" ]
}
starts_again() { wait_for 240 restarted "$1" "$2"; }

mkdir disk
export SAVE=5 TMPDIR=$root/disk
submit() {
    local said
    said=$("$source/experiments/slurm/submit.sh" sweep.yaml shared 4 --cpus-per-task=1 -- --no-probe) || { wrong "submit.sh: $said"; exit 1; }
    array=$(sed -n 's/^shards: job \([0-9]*\);.*/\1/p' <<<"$said")
    merge=$(sed -n 's/.*merge: job \([0-9]*\),.*/\1/p' <<<"$said")
}

submit
# Task 0: all its processes are killed, and with the node's disk its texts are lost. Task 1 is requeued, as by a preemption, and saves.
# Task 2 is told that its time ends: it saves, and requeues itself.
wait_for 120 has_texts 0 10
kill_task "${array}_0"
wait_for 120 has_texts 1 10
scontrol requeue "${array}_1"
wait_for 120 has_texts 2 10
scancel --signal=USR1 --batch "${array}_2"
scontrol requeue "${array}_0"
wait_for 60 test -e shared/shard-1-of-4.db
wait_for 60 test -e shared/shard-2-of-4.db
cp shared/shard-1-of-4.db shared/shard-2-of-4.db .
starts_again "${array}_1" 1      # and is killed: it has its first copy, which it goes on from
wait_for 120 has_texts 1 "$(($(texts shard-1-of-4.db) + 5))"
kill_task "${array}_1"
scontrol requeue "${array}_1"
starts_again "${array}_1" 2
starts_again "${array}_0" 1
starts_again "${array}_2" 1
for i in 0 1 2 3; do wait_for 300 is "${array}_$i" COMPLETED; done
# Tasks have failed, so the first merge never starts. Submitted again, the shards find that they are done, and the merge follows them.
wait_for 60 is "$merge" PENDING
scancel "$merge"
submit
wait_for 300 is "$merge" COMPLETED
[ -z "$(ls disk)" ] || [ "$(ls disk | wc -l)" -le 2 ] || wrong "expected at most the folders of the two killed tasks, found $(ls disk)"

# ---- the same tables

cat >compare.sql <<'SQL'
ATTACH 'shared/results.db' AS merged;
CREATE TEMP VIEW whole_texts AS SELECT DISTINCT r.cell, q.prompt, q.turn, q.repeat, prompt_id, category, prompt_tokens, tokens, text, stop, steps,
    (SELECT group_concat(drafted || ' ' || depth || ' ' || accepted || ' ' || tokens, ', ') FROM (SELECT * FROM main.step WHERE sequence = q.id ORDER BY step))
    FROM main.sequence AS q JOIN main.run AS r ON r.id = q.run;
CREATE TEMP VIEW merged_texts AS SELECT DISTINCT r.cell, q.prompt, q.turn, q.repeat, prompt_id, category, prompt_tokens, tokens, text, stop, steps,
    (SELECT group_concat(drafted || ' ' || depth || ' ' || accepted || ' ' || tokens, ', ') FROM (SELECT * FROM merged.step WHERE sequence = q.id ORDER BY step))
    FROM merged.sequence AS q JOIN merged.run AS r ON r.id = q.run;
CREATE TEMP VIEW whole_runs AS SELECT r.cell, r.peers, r.settings, target_hash, drafter_hash, r.prompts, s.finished, s.prompts
    FROM main.run_summary AS s JOIN main.run AS r ON r.id = s.run;
CREATE TEMP VIEW merged_runs AS SELECT r.cell, r.peers, r.settings, target_hash, drafter_hash, r.prompts, s.finished, s.prompts
    FROM merged.run_summary AS s JOIN merged.run AS r ON r.id = s.run;
CREATE TEMP VIEW whole_sides AS SELECT DISTINCT r.cell, t.prompt, t.turn, t.repeat, t.equal, t.first_difference
    FROM main.texts AS t JOIN main.run AS r ON r.id = t.run WHERE same_rule;
CREATE TEMP VIEW merged_sides AS SELECT DISTINCT r.cell, t.prompt, t.turn, t.repeat, t.equal, t.first_difference
    FROM merged.texts AS t JOIN merged.run AS r ON r.id = t.run WHERE same_rule;
SELECT 'texts in the whole', count(*) FROM whole_texts;
SELECT 'texts merged', count(*) FROM merged_texts;
SELECT 'cells merged', count(*) FROM merged.run WHERE finished IS NOT NULL;
SELECT 'texts that differ', (SELECT count(*) FROM (SELECT * FROM whole_texts EXCEPT SELECT * FROM merged_texts)) + (SELECT count(*) FROM (SELECT * FROM merged_texts EXCEPT SELECT * FROM whole_texts));
SELECT 'runs that differ', (SELECT count(*) FROM (SELECT * FROM whole_runs EXCEPT SELECT * FROM merged_runs)) + (SELECT count(*) FROM (SELECT * FROM merged_runs EXCEPT SELECT * FROM whole_runs));
SELECT 'comparisons with none that differ', (SELECT count(*) FROM (SELECT * FROM whole_sides EXCEPT SELECT * FROM merged_sides)) + (SELECT count(*) FROM (SELECT * FROM merged_sides EXCEPT SELECT * FROM whole_sides));
SELECT 'texts that are in their pair twice', count(*) FROM (SELECT 1 FROM merged.sequence GROUP BY run, prompt, turn, repeat, pair HAVING count(*) > 1);
SELECT 'paired texts that are there twice', count(*) FROM (SELECT 1 FROM merged.texts AS t JOIN merged.sequence AS q ON q.id = t.sequence WHERE t.same_rule
    GROUP BY q.run, q.prompt, q.turn, q.repeat HAVING count(*) > 1);
SELECT 'texts without their steps', count(*) FROM merged.sequence AS q WHERE steps <> (SELECT count(*) FROM merged.step WHERE sequence = q.id);
SQL
sqlite3 -separator ': ' whole.db <compare.sql >compared
cat compared
diff - compared <<EOF || wrong "the merged database is not that of one process"
texts in the whole: $all
texts merged: $all
cells merged: 24
texts that differ: 0
runs that differ: 0
comparisons with none that differ: 0
texts that are in their pair twice: 0
paired texts that are there twice: 0
texts without their steps: 0
EOF
for i in 1 2; do                 # what the copies had is still there: the tasks went on from them
    lost=$(sqlite3 shared/results.db "ATTACH 'shard-$i-of-4.db' AS copy; SELECT count(*) FROM copy.pair WHERE id IN (SELECT pair FROM copy.sequence)
                                      AND uuid NOT IN (SELECT uuid FROM main.pair)")
    [ "$lost" = 0 ] || wrong "task $i: $lost pairs of its copy were decoded again"
done

# ---- merging again changes nothing

sqlite3 shared/results.db .dump >once.sql
merge() { PYTHONPATH=$source/python python3 -B -m speclab merge "$@"; }
merge shared/results.db shared/shard-*-of-4.db >/dev/null || wrong "merging again failed"
merge shared/results.db shared/shard-2-of-4.db shard-1-of-4.db shard-2-of-4.db >/dev/null || wrong "merging earlier copies failed"
sqlite3 shared/results.db .dump >twice.sql
cmp once.sql twice.sql || wrong "merging again changed the database"

# ---- a signal before shard.sbatch knows its run ends it, too

cat >before_run.sh <<'BASH'
trap '[ "$BASH_COMMAND" != "run=\$!" ] || kill -TERM $$' DEBUG
BASH
BASH_ENV=before_run.sh SPECLAB_TOOLS=$source/python SAVE=20 SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_TASK_COUNT=1 bash "$source/experiments/slurm/shard.sbatch" sweep.yaml signal --no-probe \
    >signal.log 2>&1
[[ " 0 124 " != *" $? "* ]] || wrong "a run that was sent a signal at its start went on: $(tail -n 1 signal.log)"
[ $bad = 0 ] && echo "texts decoded: $(texts whole.db) by one process, $(texts shared/results.db) by shards; merged: $(sed -n '/^results.db/p' shared/merge.log)"
exit $bad
