#!/bin/bash
# Runs the command in its arguments as the entry point of AWS's images would, which the SageMaker SDK's command replaces.
# Source: start_with_right_hostname.sh of the AWS Deep Learning Containers, read 2026-11-23.

# The libraries of CUDA's compatibility package, for an image that is newer than the driver of the instance.
use_cuda_compatibility() {
    local script=/usr/local/bin/start_cuda_compat.sh
    [ -f "$script" ] || script=$(type -P start_cuda_compat.sh)
    if [ -f "$script" ]; then
        source "$script"
    fi
}

# Of several instances each has the name by which the others reach it, algo-N, in place of the container's own.
use_host_name() {
    local source=/changehostname.c library=/tmp/libchangehostname.so
    if [ "${SM_HOST_COUNT:-1}" -gt 1 ] && [ -f "$source" ] && type -P gcc >/dev/null; then
        sed "s/PLACEHOLDER_HOSTNAME/\"$SM_CURRENT_HOST\"/g" "$source" >/tmp/changehostname.c &&
            gcc -shared -fPIC -o "$library" /tmp/changehostname.c -ldl &&
            export LD_PRELOAD="$library${LD_PRELOAD:+:$LD_PRELOAD}"
    fi
}

use_cuda_compatibility
use_host_name
exec "$@"
