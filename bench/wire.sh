#!/bin/bash
# wire.sh - the figures of the wire: RoCEv2 between two network namespaces, each beside a peer in the same run; wire.py measures
# Everything runs in a PID and a network namespace of its own, so that nothing can be left behind
# usage: bench/wire.sh [lat|bw|loss|long|lo]...   BUILD names the build directory
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
measure "$@"
