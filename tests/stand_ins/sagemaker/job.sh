#!/bin/bash
# One training job: a network with one computer per instance, and `instance.py` in each.
#
#   job.sh PYTHON FOLDER HOST=DESCRIPTOR...
#
# It runs as the first process of its own process namespace: when it ends, nothing of the job is left. DESCRIPTOR is an
# open socket to the service.
set -eu
python=$1 folder=$2
shift 2
here=$(dirname "$0")

mount -t tmpfs none /run # ip netns keeps its names there
ip link set lo up
ip link add cluster type bridge
ip link set cluster up

number=0
for pair in "$@"; do
    host=${pair%=*} number=$((number + 1))
    ip netns add "$host"
    ip link add "v$number" type veth peer name eth0 netns "$host"
    ip link set "v$number" master cluster up
    ip -n "$host" link set lo up
    ip -n "$host" addr add "10.77.0.$number/24" dev eth0
    ip -n "$host" link set eth0 up
done

for pair in "$@"; do
    host=${pair%=*} descriptor=${pair#*=}
    ip netns exec "$host" unshare --mount --uts --propagation private \
        "$python" -I -S "$here/instance.py" "$folder/$host" "$host" "$descriptor" >"$folder/$host/machine.log" 2>&1 &
    eval "exec $descriptor>&-"
done
wait
