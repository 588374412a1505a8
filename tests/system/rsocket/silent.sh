#!/bin/sh
# silent.sh - a client connects to a forking server by TCP and stays silent, and another client follows
# follows: rsocket(7) ("Support for fork()")
# SPDX-License-Identifier: MIT
# silent.sh LIBRARY PROGRAM
library=$(realpath "$1")
program=$2
port=7477
VERBENA_RUNTIME=$(mktemp -d) || exit 1
export VERBENA_RUNTIME RDMAV_FORK_SAFE=1
trap 'kill $server $silent 2>/dev/null; rm -rf "$VERBENA_RUNTIME"' EXIT
LD_PRELOAD=$library "$program" serve $port &
server=$!
for i in 1 2 3; do
	"$program" silent $port >"$VERBENA_RUNTIME/said" & # not an rsocket
	silent="$silent $!"
done
sleep 1 # the server's children work on it
LD_PRELOAD=$library "$program" call $port
