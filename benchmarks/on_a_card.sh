#!/usr/bin/env bash
# Measures on a machine with a GPU what docs/results/devices.md lacks, in less than ten
# minutes. Parts run in order of their worth; one that fails or takes too long does not
# stop the others. $OUT (./on_a_card) then has a JSON file for each part that came to its
# end, summary.md with their tables and the last lines of those that failed, and
# autotuning.tgz, the kernels that XLA chose.
#
#   bash benchmarks/on_a_card.sh                        # on that machine: all parts
#   bash benchmarks/on_a_card.sh big decode             # these; programs are kept from before
#   bash benchmarks/on_a_card.sh --rehearse             # small sizes, on any machine
#   bash benchmarks/on_a_card.sh --wheels=DIR [NAME...] # beforehand, with a network
#
# Parts: card base big cublas numbers search multi30k; only if they are named: text
# train_step decode batching packed others. What some of them read, from the environment:
#
#   PROGRAMS  card: programs that were compiled before, by
#             `python -m benchmarks.carried --slice=h200:1 --write=FOLDER`
#   MULTI30K  multi30k: the folder of its text (docs/multi30k.md), to train
#             `multi30k:published` to its end, beside `numbers`
#   TEXT      text: a folder with train, dev and test (.en, .de, or .gz of these), on
#             which base trains for its time; then dev and test are scored
#
# The machine needs Python 3.12 with JAX and its CUDA, and no network: packages that are
# missing come from the wheels in $WHEELS, and JAX stays as it is. --wheels=DIR downloads
# them: all that this package needs beside JAX, NVIDIA's libraries and TensorFlow; or just
# the packages NAME, where the others are installed there. PYTHON=FILE names another
# interpreter; LIMIT=SECONDS another time for all parts together. Paths are relative to
# the repository.
#
# `part` calls functions by name:
# shellcheck disable=SC2329
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
python=${PYTHON:-python3}
out=${OUT:-on_a_card}
packages=(absl-py etils flax importlib_resources langcodes ml-collections numpy optax
  orbax-checkpoint py3langid PyYAML regex sacrebleu sacremoses safetensors scipy
  sentencepiece tensorboardX tqdm ctranslate2)

# wheels DIR [NAME...]: downloads wheels for Python 3.12 on x86-64 Linux.
wheels() {
  local folder=$1 platforms=() release
  shift
  # pip does not know that a system takes the wheels of all earlier ones.
  for release in 5 12 17 24 26 27 28 31 34; do
    platforms+=(--platform "manylinux_2_${release}_x86_64")
  done
  platforms+=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64)
  local options=(--quiet --only-binary=:all: --python-version 3.12 --implementation cp
    "${platforms[@]}" --dest "$folder")
  if [ $# -gt 0 ]; then
    "$python" -m pip download --no-deps "${options[@]}" "$@" || return
  else
    "$python" -m pip download "${options[@]}" "${packages[@]}" &&
      rm -f "$folder"/{jax,jaxlib,nvidia,tensorflow}[-_]*.whl || return
  fi
  du -sh "$folder"
}

all=(card base big cublas numbers search multi30k)
others=(text train_step decode batching packed others)
rehearse=false
case ${1:-} in
  --wheels=?*) wheels "${1#--wheels=}" "${@:2}"; exit ;;
  --rehearse) rehearse=true; shift ;;
esac
for name in "$@"; do
  wanted=
  case $name in
    card) wanted=PROGRAMS ;;
    multi30k) wanted=MULTI30K ;;
    text) wanted=TEXT ;;
  esac
  [ "$wanted" != PROGRAMS ] && "$rehearse" && wanted=
  if [ -n "$wanted" ] && [ -z "${!wanted:-}" ]; then
    echo "$0: $name: want $wanted=FOLDER in the environment; see the head of $0" >&2
    exit 2
  fi
  if [[ " ${all[*]} ${others[*]} " != *" $name "* ]]; then
    echo "$0: $name: want --wheels=DIR, --rehearse, or some of: ${all[*]} ${others[*]}" >&2
    exit 2
  fi
done
if [ -e "$out/summary.md" ]; then
  echo "$0: $out has results already; name another folder by OUT=DIR" >&2
  exit 2
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
limit=${LIMIT:-560}
"$rehearse" && limit=${LIMIT:-3600}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHONUNBUFFERED=1

# missing_wheels: prints the wheels in $WHEELS whose packages are not installed.
missing_wheels() {
  "$python" - "$WHEELS" <<'PYTHON'
import pathlib
import sys
from importlib import metadata

for wheel in sorted(pathlib.Path(sys.argv[1]).glob("*.whl")):
    try:
        metadata.version(wheel.name.split("-")[0])
    except metadata.PackageNotFoundError:
        print(wheel)
PYTHON
}

# install: makes the packages importable, without a change to those that are there.
install() {
  local found=() wheel
  [ -n "${WHEELS:-}" ] && mapfile -t found < <(missing_wheels)
  local pip=("$python" -m pip install --quiet --no-index --no-deps --no-compile
    --upgrade --target "$scratch/packages")
  if [ ${#found[@]} -gt 0 ] && ! "${pip[@]}" "${found[@]}"; then
    for wheel in "${found[@]}"; do # one that is refused does not keep the others out
      "${pip[@]}" "$wheel"
    done
  fi
  PYTHONPATH=$scratch/packages${PYTHONPATH:+:$PYTHONPATH} "$python" -c '
import jax
import benchmarks.decode, t2t_jax.run.train, t2t_jax.tools.verify.command
print(f"JAX {jax.__version__}:", *jax.devices())
print(f"{jax.local_devices()[0].device_kind}, {jax.default_backend()}")'
}

# The parts. Each has the same checks or benchmark in a rehearsal, with small sizes.
# `exec`, so that a part that takes too long is ended, and not its shell alone.

# benchmark NAME FILE ARGUMENT...: runs a benchmark, whose rows go into FILE.json.
benchmark() { "$python" -m "benchmarks.$1" "${@:3}" --output="$out/$2.json"; }

# forecast CONFIG FILE: a step of a config, its time and memory, next to the forecast.
forecast() {
  local work=(--config="configs/$1.py" --steps=12)
  "$rehearse" && work=(--config=configs/tiny.py --config.data.batch_tokens=512 --steps=1
    --peak_sizes=256)
  benchmark forecast "$2" "${work[@]}"
}

card() { # each in its own process: a program that this GPU refuses may end it
  local file status=0 until=$((SECONDS + left - 5)) seconds
  for file in "$PROGRAMS"/*; do
    seconds=$((until - SECONDS))
    [ "$seconds" -gt 10 ] || break
    timeout --foreground --kill-after=2 "$((seconds < 60 ? seconds : 60))" \
      "$python" -m benchmarks.carried --read="$file" \
      --output="$out/carried_$(basename "$file").json" 2>> "$out/card.log" || status=$?
  done
  [ "$status" -eq 0 ] || tail -n 30 "$out/card.log" >&2
  return "$status"
}

base() { forecast base base; }

big() { forecast big big; }

cublas() { # the same without the autotuner's tiles
  local status=0
  "$rehearse" || export XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_enable_triton_gemm=false"
  forecast base cublas_base || status=$?
  forecast big cublas_big || status=$?
  return "$status"
}

numbers() {
  local checks=numbers
  "$rehearse" && checks=forward,padding
  exec "$python" -m t2t_jax verify --full --json --only="$checks" > "$out/numbers.json"
}

train_step() {
  local work=(--config=configs/base.py --batch=192x128 --steps=5)
  "$rehearse" && work=(--config=configs/tiny.py --batch=4x8 --steps=1 --peak_sizes=256)
  exec "$python" -m benchmarks.train_step "${work[@]}" \
    --peers="$(installed marianmt)" --rounds=3 --nomemory --output="$out/train_step.json"
}

search() { # the default batch of a GPU: 512 lines of 32 tokens
  local model work=(--rows=512)
  "$rehearse" && work=(--rows=2 --source=4 --steps=6 --vocab=300 --peak_sizes=256)
  for model in base big; do
    local config=configs/$model.py
    "$rehearse" && config=configs/tiny.py
    "$python" -m benchmarks.decode --config="$config" "${work[@]}" --rounds=3 --peers= \
      --output="$out/search_$model.json" || return
  done
}

# scored NAME WORKDIR ARGUMENT...: trains, and keeps the logs and translations.
scored() {
  local name=$1 workdir=$2 status
  shift 2
  # Ended in time, it saves, and bash is left to keep what there is.
  timeout --foreground --signal=INT --kill-after=15 "$((left - 25))" \
    "$python" -m t2t_jax.main --workdir="$workdir" "$@"
  status=$?
  [ ! -d "$workdir" ] || tar -czf "$out/$name.tgz" -C "$workdir" --exclude=checkpoints .
  return "$status"
}

multi30k() {
  local work=(--config=configs/multi30k.py:published --config.train.dev_lines=0
    --config.data.dir="${MULTI30K:-}")
  "$rehearse" && work=(--config=configs/tiny.py --config.train.steps=2
    --config.data.vocab_size=400 --config.train.dev_lines=0 --config.data.test=)
  export XLA_PYTHON_CLIENT_PREALLOCATE=false
  local status=0 numbers=
  if "$beside"; then # correctness does not mind; nothing here is timed
    (numbers) 2> "$out/numbers.log" &
    numbers=$!
  fi
  scored multi30k "$scratch/multi30k" "${work[@]}" || status=$?
  if [ "$status" -eq 0 ] && ! "$rehearse"; then
    "$python" -m benchmarks.multi30k --data="$MULTI30K" --output="$out/multi30k.json" \
      --translations="$scratch/multi30k/translations/test_2016_flickr.de" || status=$?
  fi
  if [ -n "$numbers" ]; then
    wait "$numbers" || status=$?
    cat "$out/numbers.log" >&2
  fi
  return "$status"
}

text() {
  local seconds=$((left > 200 ? left - 140 : 60)) # the rest: preparing, scoring
  local work=(--config=configs/base.py --config.data.dir="${TEXT:-}"
    --config.data.train=train --config.data.dev=dev "--config.data.test=dev,test"
    --config.train.warmup=1000 --config.train.dev_lines=0
    --config.train.minutes="$(printf '%d.%02d' $((seconds / 60)) $((seconds % 60 * 100 / 60)))")
  "$rehearse" && work=(--config=configs/tiny.py --config.train.steps=2
    --config.data.vocab_size=400 --config.train.dev_lines=0 --config.data.test=)
  scored text "$scratch/text" "${work[@]}"
}

decode() {
  local work=(--rows=128)
  "$rehearse" && work=(--config=configs/tiny.py --rows=2 --source=4 --steps=6 --vocab=300
    --peak_sizes=256)
  exec "$python" -m benchmarks.decode "${work[@]}" --rounds=3 \
    --peers="$(installed ctranslate2 ctranslate2-int8 huggingface)" \
    --output="$out/decode.json"
}

batching() {
  local work=(--config=configs/base.py --wmt=200000)
  "$rehearse" && work=(--config=configs/tiny.py --wmt=2000 --steps=2 --peak_sizes=256
    --config.data.vocab_size=300 --config.data.batch_tokens=8192)
  exec "$python" -m benchmarks.batching "${work[@]}" --config.data.buckets=2 \
    --output="$out/batching.json"
}

packed() {
  local work=(--rows=192 --length=128)
  "$rehearse" && work=(--rows=2 --length=32 --heads=2 --width=8)
  exec "$python" -m benchmarks.packed_attention "${work[@]}" --rounds=3 \
    --output="$out/packed.json"
}

others() { # `determinism` of verify trains six times: not in ten minutes
  local status=0 dtype tokens
  local kernel=("--lengths=128,512,2048") step=(--config=configs/base.py --batch=192x128)
  local feeder=(--wmt=500000 --batches=200) saving=(--preset=base)
  local search=(--config=configs/base.py --config.model.layers=2 --rows=2048) peak=()
  if "$rehearse"; then
    kernel=(--lengths=32 --tokens=64) step=(--config=configs/tiny.py --batch=4x8)
    feeder=(--config=configs/tiny.py --wmt=2000 --batches=2) saving=(--preset=tiny)
    search=(--config=configs/tiny.py --rows=2 --source=4 --steps=6 --vocab=300)
    peak=(--peak_sizes=256)
  fi
  benchmark layers attention --layer=kernel "${kernel[@]}" --rounds=3 || status=$?
  for dtype in float32 bfloat16; do
    benchmark train_step "step_$dtype" "${step[@]}" "${peak[@]}" --dtype="$dtype" \
      --peers= --nomemory --rounds=3 || status=$?
  done
  benchmark input_pipeline feeder "${feeder[@]}" --rounds=1 || status=$?
  benchmark checkpointing saving "${saving[@]}" --rounds=1 || status=$?
  for tokens in 4096 16384 65536; do
    benchmark decode "search_of_$tokens" "${search[@]}" "${peak[@]}" --peers= --rounds=1 \
      --config.decode.batch_tokens="$tokens" || status=$?
  done
  return "$status"
}

# installed NAME...: those of the peers whose packages are installed, with commas.
installed() {
  "$python" - "$@" <<'PYTHON'
import importlib.util
import sys

needs = {"marianmt": ["torch", "transformers"], "huggingface": ["torch", "transformers"]}
found = [
    name
    for name in sys.argv[1:]
    if all(map(importlib.util.find_spec, needs.get(name, ["ctranslate2"])))
]
print(",".join(found))
PYTHON
}

export -f benchmark forecast card base numbers big cublas search scored multi30k text \
  train_step decode batching packed others installed
export python out rehearse scratch

# part UNTIL NAME: runs a function until so many percent of the time are spent, of that
# which the installation left.
part() {
  local name=$2 began=$SECONDS status
  local left=$((start + (limit - start) * $1 / 100 - SECONDS))
  [ "$left" -lt 5 ] && left=5
  export left
  printf '\n## %s\n\n```text\n' "$name"
  # Bash runs the function, as `timeout` starts programs only. Of verify, whose output is
  # JSON, the summary has the lines that it prints as it goes; of benchmarks, their tables.
  timeout --kill-after=10 "$left" bash -c "$name" 2> "$scratch/log"
  status=$?
  if [ "$status" -eq 0 ]; then
    grep -aE '^[a-z_0-9]+: (held|NOT HELD|reported|not checked)' "$scratch/log"
  else
    tail -n 40 "$scratch/log"
  fi
  printf '```\n\nstatus %s, %s of at most %s seconds\n' \
    "$status" "$((SECONDS - began))" "$left"
}

{
  printf '# On a card\n\n%s, commit %s\n\n```text\n' \
    "$(date --utc +%F)" "$(git rev-parse HEAD 2>/dev/null || echo unknown)"
  install 2>&1
  ready=$?
  printf '```\n'
  exit "$ready"
} | tee "$out/summary.md"
[ "${PIPESTATUS[0]}" -eq 0 ] || exit 1
export PYTHONPATH=$scratch/packages${PYTHONPATH:+:$PYTHONPATH}
start=$SECONDS
asked=("$@")
if [ $# -eq 0 ]; then
  for name in "${all[@]}"; do
    case $name in
      card) [ -n "${PROGRAMS:-}" ] || continue ;;
      multi30k) [ -n "${MULTI30K:-}" ] || "$rehearse" || continue ;;
    esac
    asked+=("$name")
  done
fi
# `numbers` compiles for a minute and more: beside the training of `multi30k`.
export beside=false
if [[ " ${asked[*]} " == *" numbers "* && " ${asked[*]} " == *" multi30k "* ]]; then
  beside=true
  for place in "${!asked[@]}"; do
    [ "${asked[place]}" = numbers ] && unset "asked[place]"
  done
fi
if [[ -n "${TEXT:-}" && " ${asked[*]} " == *" text "* ]]; then # its text, meanwhile
  JAX_PLATFORMS=cpu nice "$python" -m t2t_jax prepare --config=configs/base.py \
    --config.data.dir="$TEXT" --config.data.train=train --config.data.dev=dev \
    --config.data.test=dev,test > "$scratch/prepare.log" 2>&1 &
fi
# Shares of the time, about its seconds; what a part leaves goes to the next. Compiling
# takes most of it: on an H200 with 16 cores `base` took 110 seconds, of which the
# forecast by the CPU's compiler, which is no more, took some; each check of `numbers`
# took 20 to 40.
declare -A share=([card]=40 [base]=80 [big]=80 [cublas]=80 [numbers]=120 [search]=60
  [multi30k]=200 [text]=240 [train_step]=80 [decode]=60 [batching]=40 [packed]=40
  [others]=120)
total=0
for name in "${asked[@]}"; do total=$((total + share[$name])); done
{
  spent=0
  for name in "${asked[@]}"; do
    spent=$((spent + share[$name]))
    part $((100 * spent / total)) "$name"
  done
  printf '\n%s of %s seconds\n' "$SECONDS" "$limit"
  tuned=$(find "${T2T_JAX_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/t2t_jax}/xla" -type d \
    -name xla_gpu_per_fusion_autotune_cache_dir 2> /dev/null | head -n 1)
  [ -z "$tuned" ] || tar -czf "$out/autotuning.tgz" -C "$(dirname "$tuned")" \
    "$(basename "$tuned")"
} | tee -a "$out/summary.md"
