#!/usr/bin/env bash
# run.sh TEST.py BUILD_FOLDER: a test of the trainer, in the environment that `./run train` makes. 77: there is none.
set -euo pipefail
unset CDPATH
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${SPECLAB_TRAIN_PYTHON:-$("$here/../../python/training/environment" path)/bin/python}
if ! "$python" -c 'import torch, safetensors, yaml' 2>/dev/null; then
    echo "$1: skipped: there is no torch ($python); ./run train sets it up"
    exit 77
fi
build=$2
. "$here/../scripts/sanitizers.sh"
export SANITIZED="${sanitized[*]}" # the words before a command that loads the engine's library
PYTHONPATH=$here/../../python:$here BUILD=$2 OMP_NUM_THREADS=1 exec "$python" -B "$here/$1" -v
