#!/bin/sh
# preload.sh - runs a program over the preload library, with its own runtime directory
# follows: rsocket(7)
# SPDX-License-Identifier: MIT
# preload.sh LIBRARY PROGRAM ARGS...
library=$(realpath "$1")
shift
exec "$(dirname "$0")/api.sh" env LD_PRELOAD="$library" "$@"
