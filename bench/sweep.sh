#!/bin/bash
# sweep.sh - latency and bandwidth by message size, on each path beside its peers; the measuring is in sweep.py
# see: bench/README.md
# usage: bench/sweep.sh [host|roce|iwarp|rsockets|storage]...   BUILD names the build directory
# SPDX-License-Identifier: MIT
source "$(dirname "$(readlink -f "$0")")/lib.sh"
measure "$@"
