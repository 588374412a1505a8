#!/bin/bash
# wire.sh - RoCEv2 between two network namespaces, each figure beside a peer in the same run; wire.py measures
# Everything runs in its own PID and network namespaces, so that nothing is left behind.
# usage: bench/wire.sh [lat|bw|loss|long|lo]...   BUILD names the build directory
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
measure "$@"
