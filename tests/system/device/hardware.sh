#!/bin/bash
# hardware.sh - without RDMA devices in the kernel no library of the system is loaded, and nothing is said
# follows: verbena(7), VERBENA_HARDWARE; docs/hardware.md
# SPDX-License-Identifier: MIT
# usage: hardware.sh VERBENA
set -u
verbena=$1
[ -z "$(ls /sys/class/infiniband 2>/dev/null)" ] || { echo "the kernel has RDMA devices"; exit 77; }
for program in ibv_devices rping; do command -v $program >/dev/null || { echo "$program is not installed"; exit 77; }; done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export VERBENA_RUNTIME=$work/runtime
mkdir -m 700 "$VERBENA_RUNTIME"
failed=0
fail() { echo "FAILED $*"; failed=1; }

# loaded MODE PROGRAM…: the files that the program loads go to $work/files, its own output to $work/out and $work/err
loaded() {
	local mode=$1
	shift
	VERBENA_HARDWARE=$mode LD_DEBUG=files LD_DEBUG_OUTPUT="$work/ld" timeout 60 "$verbena" run "$@" >"$work/out" 2>"$work/err" </dev/null
	cat "$work"/ld.* >"$work/files"
	rm "$work"/ld.*
}
of_the_system() { grep -oE '/(usr/)?lib(64)?/[^ ]*lib(ibverbs|rdmacm)\.so[^ ]*' "$work/files" | grep -v verbena | head -1; }

for mode in "" first only off; do
	loaded "$mode" ibv_devices || fail "VERBENA_HARDWARE=$mode: ibv_devices: exit status $?"
	grep -q 'calling init.*/libibverbs' "$work/files" || fail "VERBENA_HARDWARE=$mode: no library is loaded at all"
	[ -z "$(of_the_system)" ] || fail "VERBENA_HARDWARE=$mode: ibv_devices loads $(of_the_system)"
	[ ! -s "$work/err" ] || fail "VERBENA_HARDWARE=$mode: ibv_devices says: $(cat "$work/err")"
	if [ "$mode" = only ]; then
		grep -q 'roce_' "$work/out" && fail "VERBENA_HARDWARE=only lists Verbena's devices"
	else
		grep -q 'roce_lo' "$work/out" || fail "VERBENA_HARDWARE=$mode does not list Verbena's devices: $(cat "$work/out")"
	fi
done
# a client without a server: it resolves the address, and is refused
loaded first rping -c -a 127.0.0.1 -p 7999 -C 1
[ -z "$(of_the_system)" ] || fail "rping loads $(of_the_system)"
[ $failed = 0 ] && echo ok
exit $failed
