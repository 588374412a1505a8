#!/bin/bash
# iwarp.sh - the figures of iWARP between two network namespaces, each beside plain TCP and its users in the same run; iwarp.py measures
# Everything runs in a PID and a network namespace of its own, so that nothing can be left behind
# usage: bench/iwarp.sh [bw|crc|lat]...   BUILD names the build directory
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
measure "$@"
