#!/bin/sh
# preload.sh - a program over the preload library, with a runtime directory of its own
# follows: rsocket(7)
# SPDX-License-Identifier: MIT
# preload.sh LIBRARY PROGRAM ARGS...
library=$(realpath "$1")
shift
exec "$(dirname "$0")/api.sh" env LD_PRELOAD="$library" "$@"
