#!/usr/bin/env bash
# Stands in for gcloud: keeps what it was asked in $FAKE/calls, and in $FAKE the states of
# one queued resource and one TPU VM, whose two workers are the folders worker-0 and -1.
set -euo pipefail

printf '%q ' "$@" >> "$FAKE/calls"
echo >> "$FAKE/calls"
if [[ -e $FAKE/broken ]]; then
    echo "ERROR: (gcloud) PERMISSION_DENIED" >&2
    exit 1
fi
if [[ "$1 $2" != "compute tpus" ]]; then
    echo "the fake gcloud does not know: $*" >&2
    exit 1
fi
what=$3 verb=$4 worker='' text='' place=''
for word in "$@"; do
    case $word in
        --worker=*) worker=${word#*=} ;;
        --command=*) text=${word#*=} ;;
        /*.gz) file=$word ;;
        --zone=?*) place=$word ;;
    esac
done
[[ -n $place ]] || { echo "no zone" >&2 && exit 1; }

started() {
    echo READY > "$FAKE/tpu-vm"
    mkdir -p "$FAKE/worker-0" "$FAKE/worker-1"
}

workers() {
    if [[ $worker == all ]]; then echo 0 1; else echo "$worker"; fi
}

case "$what $verb" in
    "tpu-vm describe" | "queued-resources describe")
        if ! cat "$FAKE/$what" 2> /dev/null; then
            echo "ERROR: (gcloud.compute.tpus) NOT_FOUND: Resource was not found" >&2
            exit 1
        fi
        ;;
    "queued-resources create") echo ACTIVE > "$FAKE/$what" && started ;;
    "tpu-vm create") started ;;
    "queued-resources delete" | "tpu-vm delete")
        rm -rf "$FAKE"/{queued-resources,tpu-vm,worker-0,worker-1}
        ;;
    "tpu-vm scp")
        for i in $(workers); do cp "$file" "$FAKE/worker-$i/t2t_jax.tar.gz"; done
        ;;
    "tpu-vm ssh")
        echo "SSH: Attempting to connect to worker $worker..."
        status=0
        for i in $(workers); do
            (cd "$FAKE/worker-$i" && HOME=$PWD bash -c "$text") || status=$?
        done
        exit "$status"
        ;;
    *)
        echo "the fake gcloud does not know: $*" >&2
        exit 1
        ;;
esac
