#!/bin/bash
# nbdkit_paths.sh - fio writes and verifies through the nbdkit plugin by several paths, which come and go: those of a list
# in the address, and those that the discovery log lists
# follows: man/nbdkit-verbena-plugin.1; fio(1)
# SPDX-License-Identifier: MIT
# usage: nbdkit_paths.sh [CHANGES]
source "$(dirname "$0")/../../support/lib.sh"
source "$(dirname "$0")/medium.sh"
CHANGES=${1:-2}
TARGET=$BUILD/storage/verbena-target
PLUGIN=$BUILD/storage/nbdkit-verbena-plugin.so
DISK=$BUILD/storage/verbena-disk
[ -x "$TARGET" ] && [ -e "$PLUGIN" ] || { skip nbdkit_paths "verbena-target or the plugin is not built"; exit 0; }
sanitized && { skip nbdkit_paths "a plugin with sanitizers in it cannot be loaded"; exit 0; }
need nbdkit fio
fio --enghelp 2>/dev/null | grep -qw nbd || { skip nbdkit_paths "fio is built without nbd"; exit 0; }
NQN=nqn.2026-01.test:paths CONTROL=$VERBENA_RUNTIME/target-1.sock
target= server= fio=

paths_cleanup() {
	local status=$? p
	[ $BASHPID = $$ ] || return
	trap - EXIT INT TERM
	for p in $fio $server $target; do die "$(program_of "$p")" "$p"; done
	(exit $status)
	cleanup
}
trap paths_cleanup EXIT
trap 'exit 130' INT TERM

listen_at() { # PORT…: the target's ports, written into its configuration
	local p list=
	for p; do list+="${list:+, }{\"transport\": \"$transport\", \"address\": \"127.0.0.1\", \"port\": $p}"; done
	printf '{"listen": [%s], "subsystems": [{"nqn": "%s", "allow_any_host": true, "namespaces": [{"nsid": 1, %s}]}]}\n' \
		"$list" "$NQN" "$medium" >"$work/target.json"
}
ctl() { timeout -k 2 20 "$TARGET" "$@" --control "$CONTROL"; }
target_up() { [ -s "$work/target.out" ] || gone "$target"; }
written() { ctl status >"$work/status" && sed -n 's/.*"writes": \([0-9]*\).*/\1/p' "$work/status" | head -1; }
goes_on() { [ "$(written)" -gt "$wanted" ] 2>/dev/null || gone $fio; }
more() { # N: so many more commands are written
	wanted=$(($(written) + $1))
	wait_for 30 goes_on
}
info_shows() { # PORT…: these are the paths
	"${run[@]}" "$DISK" --json info "$url" >"$work/info" && python3 - "$work/info" "$@" <<-'END'
		import json, sys
		p = json.load(open(sys.argv[1]))["paths"]
		print(p)
		sys.exit(sorted(x["port"] for x in p) != sorted(sys.argv[2:]) or not all(x["connected"] for x in p))
	END
}

# verified TRANSPORT KIND: the ports of the target come and go, one is always there
verified() {
	local transport=$1 a b status i url wanted=0
	medium_json 16M || return 1
	free_port; a=$port
	free_port; b=$port
	[ "$a" != "$b" ] || b=$((b + 1))
	listen_at "$a" "$b"
	rm -f "$work"/{target.out,nbd}
	"${run[@]}" "$TARGET" --config "$work/target.json" --control "$CONTROL" >"$work/target.out" 2>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 target_up && [ -s "$work/target.out" ] || { cat "$work/target.err"; return 1; }
	case $2 in
	list) url=nvme+$transport://127.0.0.1:$a,127.0.0.1:$b/$NQN ;;
	discovery) url="nvme+$transport://127.0.0.1:$a/$NQN?discover" ;;
	esac
	info_shows "$a" "$b" || return 1
	"${run[@]}" nbdkit -f -U "$work/nbd" "$PLUGIN" url="$url" queues=2 >"$work/nbdkit.out" 2>&1 &
	server=$!
	wait_for 20 test -S "$work/nbd" || { cat "$work/nbdkit.out"; return 1; }
	timeout -k 2 $((120 * SLOW)) fio --name=verified --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd" --rw=randwrite --bsrange=4k-64k --size=16M \
		--iodepth=16 --fsync=64 --time_based --runtime=100 --verify=crc32c --verify_fatal=1 --verify_backlog=128 --verify_state_save=0 >"$work/fio.out" 2>&1 &
	fio=$!
	for ((i = 0; i < CHANGES; i++)); do # the discovery service of the address goes first
		more 200
		if [ $((i % 2)) = 0 ]; then listen_at "$b"; else listen_at "$a"; fi
		ctl reload || break
		more 100
		listen_at "$a" "$b"
		ctl reload || break
		wait_for 20 both_connected || break
	done
	more 100
	kill -INT "$(program_of $fio)" 2>/dev/null # it ends in order
	wait $fio
	status=$?
	kill "$(program_of "$server")" && wait "$server"
	server= fio=
	[ $2 = list ] || info_shows "$a" "$b" || status=1
	kill "$(program_of "$target")" && wait "$target"
	target=
	echo "$i changes, fio ended with $status"
	[ $status = 0 ] && [ $i = "$CHANGES" ] && ! grep -q "verify:\|error=" "$work/fio.out" && return 0
	tail -n 100 "$work"/{fio,nbdkit}.out "$work/target.err" "$work/status"
	return 1
}
# A controller of the subsystem for each path, beside that of the discovery service
both_connected() {
	ctl status >"$work/status" && python3 - "$work/status" "$NQN" <<-'END'
		import json, sys
		s = next(s for s in json.load(open(sys.argv[1]))["subsystems"] if s["nqn"] == sys.argv[2])
		sys.exit(len(s["controllers"]) != 2)
	END
}

check "fio by nbdkit, a list of paths by RDMA: what is verified is right while ports come and go" verified rdma list
check "fio by nbdkit, paths by discovery, TCP: ports that come and go become paths and end" verified tcp discovery
finish
