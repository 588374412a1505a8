#!/bin/bash
# copies.sh - counts copies of data read from a file: on one host none; with RoCE one at the reader; with iWARP only of
# small units
# follows: man/verbena-target.8 (status), verbena_nvme.h (statistics), VERBENA_LOG in man/verbena.7
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../net/lib.sh"
TARGET=$BUILD/storage/verbena-target CLIENT=$BUILD/tests/system/storage/storage_client_copies DISK=$BUILD/storage/verbena-disk
[ -x "$TARGET" ] && [ -x "$CLIENT" ] || { skip copies "verbena-target is not built"; exit 0; }
need python3
NQN=nqn.2026-01.test:copies
MB=192
SIZE=$((MB << 20))
CONNECT=4096 # data in the capsules of Connect
SOME=$((256 << 10)) # commands, answers, Identify data
FEW=$((SIZE / 512)) # … and the ends of requests that do not fill an FPDU
PACKET=4096 # at most
target=
export VERBENA_RDMA=copy # in the ring both ends copy, where that is faster
check "two hosts" hosts
head -c $SIZE /dev/urandom >"$work/file"

target_speaks() { grep -qs ^nvme "$work/target.out" || gone "$target"; }
serve() { # ADDRESS ARGS…
	rm -f "$work"/{target,client}.{out,err} "$work/status"
	VERBENA_LOG=debug timeout -k 30 $((120 * SLOW)) "${on_b[@]}" "${run[@]}" "$TARGET" --export "$work/file" --read-only --listen "$1" --port 4420 \
		--nqn $NQN --transport rdma "${@:2}" >"$work/target.out" 2>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 target_speaks && grep -qs ^nvme "$work/target.out"
}
# reads ADDRESS MEMORY BYTES ARGS…: reads the whole file, in requests of BYTES bytes, from a target started with ARGS
reads() {
	local status=0
	serve "$1" "${@:4}" || { cat "$work/target.err"; return 1; }
	VERBENA_LOG=debug timeout -k 2 $((120 * SLOW)) "${on_a[@]}" "${run[@]}" "$CLIENT" "$(head -1 "$work/target.out")" "$work/file" "$2" "$3" \
		>"$work/client.out" 2>"$work/client.err" || status=1
	"${on_b[@]}" "$TARGET" status >"$work/status" || status=1
	kill "$target"
	wait "$target" || status=1
	[ $status = 0 ] || cat "$work"/{target,client}.err
	return $status
}

# --- their counters ---
field() { python3 -c 'import json, sys; print(sum(x.get(sys.argv[2], 0) for x in json.load(open(sys.argv[1]))["listen"]))' "$work/status" "$1"; }
backend() { python3 -c 'import json, sys; print(sum(n["copied"] for s in json.load(open(sys.argv[1]))["subsystems"] for n in s["namespaces"]))' "$work/status"; }
library() { awk '/^copied / { print $2 }' "$work/client.out"; }
said() { sed -n "s/.*$2: \([0-9]*\)\$/\1/p" "$work/$1.err" | awk '{ n += $1 } END { print n + 0 }'; } # target|client WHAT
moved() { sed -n 's/.*bytes: \([0-9]*\) by one copy, of these \([0-9]*\) mapped; \([0-9]*\) by ring.*/\'"$2"'/p' "$work/$1.err" | awk '{ n += $1 } END { print n + 0 }'; }
OUT="payload bytes copied before sending" PLACE="payload bytes sent in place" IN="payload bytes copied after receiving"
IW_OUT="of those sent, copied" IW_IN="of those received, copied"

# is WHAT NUMBER LEAST MOST
is() {
	echo "$1: $2"
	[ "$2" -ge "$3" ] && [ "$2" -le "$4" ] && return 0
	echo "… is not from $3 to $4"
	return 1
}
# Neither target nor library copies: all data comes from the page cache that the target has mapped
storage_copies_nothing() {
	is "sent from the page cache" "$(field sent_from_map)" $SIZE $SIZE && is "read into the target's memory" "$(field sent_from_pool)" 0 $SOME &&
		is "copied by the target" "$(field copied)" 0 $CONNECT && is "copied by its backend" "$(backend)" 0 0 &&
		is "copied by the library" "$(library)" 0 $CONNECT
}
no_wire() {
	local end
	for end in target client; do
		is "$end: staged to be sent" "$(said $end "$OUT")" 0 0 && is "$end: staged as it came" "$(said $end "$IN")" 0 0 || return 1
	done
}
no_stream() {
	local end
	for end in target client; do
		is "$end: copied to be sent" "$(said $end "$IW_OUT")" 0 0 && is "$end: copied as it came" "$(said $end "$IW_IN")" 0 0 || return 1
	done
}
no_memory() { is "between the programs' memories" $(($(moved target 1) + $(moved client 1))) 0 0; }
by_ring() { is "by ring" $(($(moved target 3) + $(moved client 3))) 0 $SOME; }

# The target's adapter moves each byte once, as hardware does by DMA
one_host() { # MEMORY MAPPED
	reads $V4_A "$1" $((1 << 20)) --mapped && storage_copies_nothing && no_wire && no_stream && by_ring &&
		is "moved by the target's adapter" "$(moved target 1)" $SIZE $((SIZE + SOME)) && is "moved by the client's" "$(moved client 1)" 0 $SOME &&
		is "of these, in memory that both have mapped" "$(moved target 2)" $(($2 * 3 / 4)) $(($2 + SOME)) # the mapping is found after a while
}
kept() { echo $(($(said client "of those, kept until the missing one arrived") * PACKET)); } # packets ahead of a lost one
roce() {
	reads "$1" allocated $((1 << 20)) --mapped && storage_copies_nothing && no_memory && no_stream || return 1
	local again=$(($(said target "request packets retransmitted") * PACKET)) # a busy machine loses some packets
	is "sent from where it lay" "$(said target "$PLACE")" $((SIZE - again)) $((SIZE + SOME)) && is "staged to be sent" "$(said target "$OUT")" 0 $((SOME + again)) && is "staged as it came" "$(said client "$IN")" $SIZE $((SIZE + SOME + $(kept))) &&
		is "staged the other way" $(($(said client "$OUT") + $(said target "$IN"))) 1 $SOME
}
# Large units are received in place, except for the ends of a message; small ones are copied from the stage
iwarp() { # MEMORY IN-PLACE: bytes at least
	local placed copied
	reads $V4_B "$1" $((1 << 20)) --mapped && storage_copies_nothing && no_memory && no_wire || return 1
	placed=$(said client "of those received, in place") copied=$(said client "$IW_IN")
	is "sent from where it lay" "$(said target "of those sent, in place")" $((SIZE - FEW)) $((SIZE + SOME)) &&
		is "copied to be sent" "$(said target "$IW_OUT")" 0 $FEW && is "received in place" "$placed" "$2" $SIZE &&
		is "in place or copied" $((placed + copied)) $SIZE $((SIZE + SOME)) &&
		is "copied the other way" $(($(said client "$IW_OUT") + $(said target "$IW_IN"))) 1 $SOME
}

# --- two hosts ---
check "RoCE, IPv4: who reads stages what comes, once, and nobody else copies" crossing $SIZE roce $V4_B
check "RoCE, IPv6: who reads stages what comes, once, and nobody else copies" crossing $SIZE roce $V6_B
export VERBENA_DEVICES=iwarp:net0
VERBENA_MPA=emss check "iWARP, units no longer than TCP's segments: who reads copies, once" iwarp allocated 0
check "iWARP: nobody copies but the ends of messages" iwarp allocated $((SIZE / 1000 * 999))
check "iWARP: the same into memory of the program's own" iwarp registered $((SIZE / 1000 * 999))
jumbo() { ip -n $A link set net0 mtu 9000 && ip -n $B link set net0 mtu 9000; }
check "a larger MTU" jumbo
check "iWARP: the same there" iwarp allocated $((SIZE / 1000 * 999))
VERBENA_MPA=emss check "iWARP, units no longer than such segments: few are so small that they are copied" iwarp registered $((SIZE / 100 * 99))

# --- the counters work: necessary copies are counted ---
crc() { VERBENA_MPA=crc reads $V4_B allocated $((1 << 20)) --mapped && is "copied to be sent" "$(said target "$IW_OUT")" $SIZE $((SIZE + SOME)) &&
	is "copied as it came" "$(said client "$IW_IN")" $SIZE $((SIZE + SOME)); }
check "iWARP with a CRC: each end copies" crc
unset VERBENA_DEVICES
on_b=("${on_a[@]}")
bounced() { reads $V4_A plain $((16 << 10)) --mapped && is "copied by the library" "$(library)" $SIZE $((SIZE + CONNECT)); }
check "memory that is not registered: the library copies small requests" bounced
pooled() { reads $V4_A allocated $((1 << 20)) && is "sent from the page cache" "$(field sent_from_map)" 0 0 &&
	is "read into the target's memory" "$(field sent_from_pool)" $SIZE $((SIZE + SOME)); }
check "an image that is not mapped: its data comes by the target's memory" pooled

# --- one host ---
# A copy to a file: the disk's data goes directly into memory that both have mapped
disk_copies() {
	serve $V4_A --mapped || { cat "$work/target.err"; return 1; }
	VERBENA_LOG=debug "${on_a[@]}" "${run[@]}" "$DISK" --json --no-sparse copy "$(head -1 "$work/target.out")" "$work/copy" >"$work/client.json" 2>"$work/client.err" &&
		"${on_b[@]}" "$TARGET" status >"$work/status" && kill "$target" && wait "$target" && cmp "$work/file" "$work/copy" || { cat "$work"/{target,client}.err; return 1; }
	python3 -c 'import json, sys; print("copied", json.load(open(sys.argv[1]))["copied_bytes"])' "$work/client.json" >"$work/client.out" || return 1
	storage_copies_nothing && no_wire && by_ring && is "moved by the target's adapter" "$(moved target 1)" $SIZE $((SIZE + SOME)) &&
		is "of these, in memory that both have mapped" "$(moved target 2)" $((SIZE * 3 / 4)) $((SIZE + SOME))
}
check "one host: verbena-disk's memory is mapped by the target" disk_copies
check "one host: nobody copies but the adapter, once, in memory that both have mapped" one_host allocated $SIZE
VERBENA_MEMORY=off check "one host: nobody copies but the adapter, once, into the other's memory" one_host registered 0
check "one host: the same for pages of the program's own, which both map" one_host registered $SIZE
VERBENA_DEVICES=iwarp:net0 check "one host, iWARP: nobody copies but the adapter, once" one_host allocated $SIZE
finish
