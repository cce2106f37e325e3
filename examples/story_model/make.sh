#!/bin/sh
# Make the shipped story model in two commands, each inside ten minutes on one NVIDIA H200:
#   sh make.sh corpus TEACHER OUT      sample, tokenize, and try the training for a minute
#   sh make.sh train  TEACHER OUT      train and write the model (makes a smaller corpus first if there is none)
# TEACHER is the folder pack_weights.py wrote. What is large stays in $WORK; OUT gets a handful of small files.
set -eu
step=$1 teacher=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
work=${WORK:-/tmp/story_model}
began=$(date +%s)
export PYTHONUNBUFFERED=1
mkdir -p "$work" "$out"

corpus() { # MINUTES: a run that outlasts its budget by far is stopped; its stories so far are used
    timeout "$("$python" -c "print(int($1 * 60 + 75))")" "$python" "$here/sample_corpus.py" --teacher "$teacher" \
        --out "$work/corpus.txt" --minutes "$1" ${SAMPLE_OPTIONS:-} || echo "sample_corpus.py ended with $?"
    timeout 130 "$python" "$here/tokenize_corpus.py" --corpus "$work/corpus.txt" --work "$work" ${TOKENIZE_OPTIONS:-}
}

case $step in
corpus)
    corpus "${SAMPLE_MINUTES:-3.5}"
    head -c 20000 "$work/corpus.txt" > "$out/corpus_start.txt"
    cp "$work/corpus.json" "$work/tokens.json" "$work/tokenizer.json" "$out"
    # The trial finds what only a GPU shows, and leaves the compiled kernels in the cache.
    timeout 150 "$python" "$here/train.py" --work "$work" --out "$work/trial" --minutes "${TRIAL_MINUTES:-1.5}" \
        --save-seconds 10 --reserve 15 ${TRAIN_OPTIONS:-}
    cp "$work/trial/samples.txt" "$out/trial_samples.txt"
    cp "$work/trial/losses.json" "$out/trial_losses.json"
    ;;
train)
    # Both splits appear last, so they say that the corpus step was whole.
    [ -s "$work/train.bin" ] && [ -s "$work/validation.bin" ] || corpus "${FALLBACK_MINUTES:-2}"
    spent=$(($(date +%s) - began))
    minutes=$("$python" -c "print(min(${TRAIN_MINUTES:-7.5}, 8.9 - $spent / 60))")
    "$python" "$here/train.py" --work "$work" --out "$out" --minutes "$minutes" ${TRAIN_OPTIONS:-}
    ;;
*)
    echo "make.sh: step '$step' is neither corpus nor train" >&2
    exit 2
    ;;
esac
echo "make.sh $step: $(($(date +%s) - began)) s"
