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
check "the kernel's adapter is put to every wrong use" runs 50
mv "$work/lines" "$work/rxe"
check "what differs is repeated" repeats
[ -z "${1:-}" ] || cp "$work/rxe" "$1"
check "the kernel's adapter has the outcomes of the table" compares

# One end of each kind
free_port
asked_by_verbena() {
	VERBENA_LAB_S=600 "$LAB" guest "timeout -k 2 580 /root/refusals -d rxe0 -l $port" >"$work/server.out" 2>&1 &
	"$LAB" guest "for i in \$(seq 100); do busybox netstat -ltn | grep -q ':$port ' && exit 0; sleep 0.1; done; exit 1" || return 1
	timeout -k 2 580 "${on_here[@]}" "${run[@]}" "$work/refusals" -d roce_tap0 -c "192.0.2.2:$port" "${without[@]}" -q 50 >"$work/to-rxe" || return 1
	wait $!
}
asked_by_rxe() {
	timeout -k 2 580 "${on_here[@]}" "${run[@]}" "$work/refusals" -d roce_tap0 -l "$port" >"$work/server.out" 2>&1 </dev/null &
	wait_for 20 listens "$port"
	VERBENA_LAB_S=600 "$LAB" guest "timeout -k 2 580 /root/refusals -d rxe0 -c 192.0.2.1:$port $(printf -- '-x "%s" ' "${excluded[@]}") -q 50" >"$work/from-rxe" || return 1
	wait $!
}
fits() { python3 "$there/table.py" mixed "$there/table" "$1" "$work/$1"; }
without=()
for text in "${excluded[@]}"; do without+=(-x "$text"); done
check "Verbena does everything wrong to the kernel's adapter" asked_by_verbena
check "the outcomes are those of one or the other" fits to-rxe
check "the kernel's adapter does everything wrong to Verbena" asked_by_rxe
check "these outcomes, too" fits from-rxe
[ -z "${1:-}" ] || cp "$work"/{to,from}-rxe "$(dirname "$1")"
finish
