#!/bin/bash
# refusals.sh - what the kernel's RoCEv2 adapter does with every wrong use of a queue pair, compared with the table
# follows: tests/system/refusals/refusals.c, the same program unmodified; ibv_post_send(3)
# SPDX-License-Identifier: MIT
# usage: refusals.sh [FILE]   keeps the lines in FILE
source "$(dirname "$0")/lab/lib.sh"
lab_needs
there=$ROOT/tests/system/refusals
lab_boots vbrefuse
AGAIN=1 # a guest whose emulated processors get no time hangs, even when the kernel talks to itself
(cd "$there" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/refusals" refusals.c cases.c ends.c request.c outcome.c windows.c -lrdmacm -libverbs) || exit 1
check "the guest gets the program" "$LAB" put "$work/refusals"

# Both ends are rxe0. Its memory is smaller than a message of 2 GiB. rxe's user library takes what is posted to a queue pair
# of type UD for a send with an address handle, and reads through the pointer. It has no XRC, and this kernel's rxe has no
# flush and no atomic write. An invalidation of a window that is not bound ends it with an oops (table.py has the same list)
excluded=(over-2-gib no-address-handle "ud write" "ud read" "ud compare-swap" "ud fetch-add" "ud local-inv" "ud send-inv"
	"ud bind" "xrc " " flush " " atomic-write "
	"inv window-2-invalidated")
runs() { VERBENA_LAB_S=900 "$LAB" guest "timeout -k 2 880 /root/refusals -d rxe0 $(printf -- '-x "%s" ' "${excluded[@]}") -q $*" >"$work/lines"; }
repeats() {
	local names
	mapfile -t names < <(python3 "$there/table.py" differ "$there/table" rxe "$work/rxe")
	[ ${#names[@]} = 0 ] && return 0
	runs "2000 $(printf '"%s" ' "${names[@]}")" || return 1
	cat "$work/lines" >>"$work/rxe"
}
compares() {
	python3 "$there/table.py" check "$there/table" rxe "$work/rxe"
}
check "the kernel's adapter is put to every wrong use" runs 100
mv "$work/lines" "$work/rxe"
check "what differs is repeated" repeats
[ -z "${1:-}" ] || cp "$work/rxe" "$1"
check "the kernel's adapter has the outcomes of the table" compares
finish
