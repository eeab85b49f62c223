#!/bin/bash
# Runs the command in its arguments as the entry point of AWS's images would, whose place this script takes.
# Source: start_with_right_hostname.sh of the AWS Deep Learning Containers, read 2026-11-23.

# The libraries of CUDA's compatibility package, for an image that is newer than the driver of the instance.
compatibility=/usr/local/bin/start_cuda_compat.sh
[ -f "$compatibility" ] || compatibility=$(type -P start_cuda_compat.sh)
start() { exec python3 container_start.py "$@"; }
use_compatibility() { source "$compatibility"; }
[ -f "$compatibility" ] && use_compatibility
start "$@"
