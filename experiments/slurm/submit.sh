#!/bin/bash
# submit.sh - runs an experiment on a Slurm cluster, as a job array of shards, and merges them:
#     submit.sh FILE.yaml FOLDER SHARDS [OPTION OF SBATCH...] [-- OPTION OF RUN...]
#
# FOLDER is shared by all nodes; FOLDER/results.db is the result. The options of sbatch are for the shards (--cpus-per-task=8 --gres=gpu:1
# --time=4:00:00 --constraint=..). SPECLAB names the program if it is not on the PATH of the nodes. Their python3 (3.11 or newer, without packages)
# merges, by the Python package that is beside this script; SPECLAB_TOOLS names another folder of it.
set -eu
unset CDPATH
[ $# -ge 3 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd) yaml=$1 folder=$2 shards=$3
shift 3
case $shards in '' | *[!0-9]* | 0) echo "submit.sh: expected a number of shards, found \"$shards\"" >&2; exit 2 ;; esac
[ -e "$yaml" ] || { echo "submit.sh: $yaml: no such file" >&2; exit 2; }
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
[ $# = 0 ] || shift
mkdir -p "$folder"
export SPECLAB_TOOLS=${SPECLAB_TOOLS-$(cd "$here/../../python" && pwd)}
array=$(sbatch --parsable --array="0-$((shards - 1))" --output="$folder/shard-%a.log" ${options[0]+"${options[@]}"} \
               "$here/shard.sbatch" "$yaml" "$folder" "$@")
merge=$(sbatch --parsable --dependency="afterok:$array" --output="$folder/merge.log" "$here/merge.sbatch" "$folder" "$shards")
echo "shards: job $array; merge: job $merge, into $folder/results.db"
