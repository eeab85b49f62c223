#!/bin/bash
# Replaces the entry point of AWS's images. Like the original, it runs the command in its arguments.
# Source: start_with_right_hostname.sh of the AWS Deep Learning Containers, read 2026-11-23.

# CUDA's compatibility package has the libraries for an image that is newer than the instance's driver.
compatibility=/usr/local/bin/start_cuda_compat.sh
[ -f "$compatibility" ] || compatibility=$(type -P start_cuda_compat.sh)
start() { exec python3 container_start.py "$@"; }
use_compatibility() { source "$compatibility"; }
[ -f "$compatibility" ] && use_compatibility
start "$@"
