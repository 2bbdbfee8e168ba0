#!/bin/sh
# One party's part in a training that happens again and again: check, run, and where this party judges, gate and promote.
#
#   retrain.sh loans/job.toml bank                          # at a partner
#   AT_LEAST=0.70 WORSE_BY=0.01 retrain.sh loans/job.toml bank   # at the label holder, who has figures to judge by
#
# All parties start it at the same time; the `patience` of the job is how long they wait for each other.
set -eu
job=$1 party=$2
folder=$(dirname "$job")
here=$(cd "$(dirname "$0")" && pwd)

# Whoever is still at it goes on; a second one would wait for partners who are busy with the first.
exec 9> "$folder/.retrain-$party.lock"
flock --nonblock 9 || { echo "retrain: the last one is still running" >&2; exit 75; }

# 3 says that a partner is not up yet, which `run` waits for; anything else is wrong here and now.
colonnade check "$job" --as "$party" || test $? -eq 3
colonnade run "$job" --as "$party" --quiet --log json

test -n "${AT_LEAST:-}" || exit 0
code=0
version=$("${PYTHON:-python3}" "$here/gate.py" "$folder/$party-files" "$party" \
  --at-least "$AT_LEAST" --worse-by "${WORSE_BY:-0}") || code=$?
test $code -eq 3 && exit 0
test $code -eq 0 || exit 1
colonnade model promote "$job" --as "$party" "$version"
# Partners promote the same: this file is what they are told, by whatever way the organisations have for it.
echo "$version" > "$folder/accepted-version"
