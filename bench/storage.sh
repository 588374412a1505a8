#!/bin/bash
# storage.sh - the figures of storage/: verbena-target and verbena-disk beside nbdkit, read(2), iperf3 and our own NVMe/TCP; storage.py measures
# Everything runs in a PID and a network namespace of its own, so that nothing can be left behind
# usage: bench/storage.sh [small|large|wire|cost]...   BUILD names the build directory
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
measure "$@"
