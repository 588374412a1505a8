#!/bin/bash
# iwarp.sh - iWARP between two network namespaces, beside plain TCP and programs over TCP; iwarp.py measures
# Everything runs in its own PID and network namespaces, so that nothing is left behind.
# usage: bench/iwarp.sh [bw|crc|lat]...   BUILD names the build directory
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
measure "$@"
