#!/bin/bash
# storage.sh - verbena-target and verbena-disk beside nbdkit, read(2), iperf3 and our own NVMe/TCP; storage.py measures
# Everything runs in its own PID and network namespaces, so that nothing is left behind.
# usage: bench/storage.sh [small|large|wire|cost]...   BUILD names the build directory
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
measure "$@"
