#!/bin/bash
# faulty.sh - fio writes and verifies on verbena-target while both ends run scenarios of faults; an adapter is removed
# follows: man/verbena-fault.1, "SCENARIOS"; man/nbdkit-verbena-plugin.1; fio(1)
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
source "$HERE/medium.sh"
TARGET=$BUILD/storage/verbena-target DISK=$BUILD/storage/verbena-disk PLUGIN=$BUILD/storage/nbdkit-verbena-plugin.so
[ -x "$TARGET" ] && [ -e "$PLUGIN" ] || { skip faulty "verbena-target or the plugin is not built"; exit 0; }
sanitized && { skip faulty "a plugin with sanitizers in it cannot be loaded"; exit 0; }
need nbdkit fio python3
fio --enghelp 2>/dev/null | grep -qw nbd || { skip faulty "fio is built without nbd"; exit 0; }
MB=8
NQN=nqn.2026-01.test:faulty

# --- scenarios: of the host (nbdkit), and of the target. Each rule acts before it is removed ---
scenario() { cat >"$work/$1"; }
scenario roce.host <<-'END'
	drop p=0.01 seed=1
	delay=300us every=30
	at 1s remove all
	at 1s add corrupt every=60
	at 1s add duplicate every=40
	at 2s remove all
	at 2s add port=down for=300ms
	at 2500ms add reorder p=0.02 seed=5
	at 4s remove all
END
scenario roce.target <<-'END'
	drop dir=rx every=80
	at 1s remove all
	at 1s add corrupt dir=rx every=80
	at 2s remove all
	at 3s add port=down for=300ms
	at 3500ms add rate=400M
	at 4500ms remove all
END
scenario local.host <<-'END'
	delay=200us p=0.05 seed=1
	at 1s remove all
	at 1s add corrupt nth=50
	at 3s remove all
	at 3s add port=down for=300ms
	at 4s add rate=2G
	at 5s remove all
END
scenario local.target <<-'END'
	delay=200us p=0.05 seed=3
	at 2s add drop nth=50
	at 4s remove all
	at 4s add port=down for=300ms
END
scenario iwarp.host <<-'END'
	delay=500us p=0.02 seed=1
	at 1s remove all
	at 1s add corrupt every=400 count=3
	at 2s add cut every=500 count=3
	at 3s remove all
	at 3s add port=down for=300ms
END
scenario iwarp.target <<-'END'
	delay=500us p=0.02 seed=2
	at 1s remove all
	at 1500ms add corrupt every=300 count=3
	at 2s remove all
	at 2500ms add cut every=400 count=3
	at 3500ms add rate=400M
	at 5s remove all
END

# --- a target, nbdkit, fio; $dir has the files of one case ---
speaks() { grep -qs ^nvme "$dir/target.out" || gone "$1"; }
serve() { # TRANSPORT: sets $target and $url
	medium "$dir/image" ${MB}M || return 1
	rm -f "$dir/target.out"
	VERBENA_FAULT=${target_rules:-} timeout -k 5 $((120 * SLOW)) "${run[@]}" "$TARGET" --export "$medium" --transport "$1" --nqn $NQN --port 0 \
		>"$dir/target.out" 2>"$dir/target.err" </dev/null &
	target=$!
	wait_for 20 speaks $target && url=$(head -1 "$dir/target.out") && [ -n "$url" ]
}
plugged() { # URL: sets $server
	VERBENA_FAULT=${host_rules:-} "${run[@]}" nbdkit -f -U "$dir/nbd" "$PLUGIN" url="$1" queues=2 >"$dir/nbdkit.out" 2>&1 </dev/null &
	server=$!
	wait_for 20 test -S "$dir/nbd"
}
# verifies SECONDS: writes anywhere, and reads back what was written, again and again
verifies() {
	timeout -k 2 $((50 * SLOW + $1)) fio --name=verified --ioengine=nbd --uri="nbd+unix:///?socket=$dir/nbd" --rw=randwrite --bsrange=4k-64k --size=${MB}M \
		--iodepth=16 --fsync=64 --time_based --runtime="$1" --verify=crc32c --verify_fatal=1 --verify_backlog=${backlog:-128} --verify_state_save=0 >"$dir/fio.out" 2>&1
	local status=$?
	[ $status = 0 ] && ! grep -q 'verify:\|error=' "$dir/fio.out" && return 0
	echo "fio ended with $status"
	return 1
}
ends() { # it is asked to end, and does
	local status=0 p
	for p in "${server:-}" "${target:-}"; do
		[ -n "$p" ] || continue
		kill "$(program_of "$p")" 2>/dev/null
		wait "$p" || status=1
	done
	server= target=
	return $status
}
told() { tail -n 30 "$dir"/*.out "$dir"/*.err; }

# acted SCENARIO OUTPUT: each rule of the scenario has. Of a port, the program logs the rule and then the change
acted() {
	awk -v scenario="$1" 'NR == FNR { if (sub(/^at [^ ]+ add /, "") || !/^at /) rule[++n] = $0; next }
		/^verbena: fault [0-9]+: .*(number|has acted) [1-9]/ { hit[$3 + 0] = 1 }
		/^verbena: fault [0-9]+: port=/ && ++ports[$3 + 0] > 1 { hit[$3 + 0] = 1 }
		END { for (i = 1; i <= n; i++) if (!hit[i]) { print scenario ": rule " i " has not acted: " rule[i]; bad = 1 } exit bad || !n }' "$dir/$1" "$2"
}
# slower SCENARIO FACTOR: all happens so much later; a port is down no longer
slower() { awk -v factor="$2" '/^at [0-9]/ { n = $2 + 0; sub(/^at [0-9]+/, "at " n * factor) } { print }' "$work/$1" >"$dir/$1"; }
# passes NAME TRANSPORT FACTOR: in a shell of its own, so that the three go on at the same time. 3: all is right, but a
# rule has not acted, because the programs had no processor in its time
passes() {
	local dir=$work/$1.files server= target= status=0
	rm -rf "$dir"
	mkdir "$dir"
	slower "$1.host" "$3"
	slower "$1.target" "$3"
	export VERBENA_LOG=debug host_rules=@$dir/$1.host target_rules=@$dir/$1.target
	if serve "$2" && plugged "$url" && verifies $((6 * $3)); then
		acted "$1.host" "$dir/nbdkit.out" || status=3
		acted "$1.target" "$dir/target.err" || status=3
	else
		status=1
	fi
	ends || { echo "an end does not end in order"; status=1; }
	[ $status = 0 ] || told
	return $status
}
in_background() { # FACTOR NAME ENV… -- the case NAME
	(
		trap - EXIT INT TERM
		[ $# = 2 ] || export "${@:3}"
		passes "$2" rdma "$1" >"$work/$2.said" 2>&1
	) &
	cases[$2]=$!
}
came_through() { # NAME ENV…: where a rule has not acted, once more, alone, and slower
	local status=0 factor
	wait "${cases[$1]}" || status=$?
	for factor in 2 4 8; do
		[ $status = 3 ] || break
		for other in "${cases[@]}"; do wait_for 60 gone "$other"; done
		in_background $factor "$@"
		wait "${cases[$1]}" && status=0 || status=$?
	done
	[ $status = 0 ] || cat "$work/$1.said"
	return $status
}
declare -A cases
in_background 1 roce VERBENA_WIRE=always
in_background 1 local
in_background 1 iwarp VERBENA_WIRE=always VERBENA_DEVICES=iwarp:lo VERBENA_MPA=crc
check "RoCE: fio verifies through packets that are lost, late, wrong, doubled, and ports that go down" came_through roce VERBENA_WIRE=always
check "one host: fio verifies through requests that are lost and late, and ports that go down" came_through local
check "iWARP: fio verifies through wrong FPDUs, connections that are cut, and a port that goes down" came_through iwarp VERBENA_WIRE=always VERBENA_DEVICES=iwarp:lo VERBENA_MPA=crc

# --- an adapter that is removed: requests go on by TCP where they may, and fail where they may not ---
is_written() { # the image was a hole
	if on_rbd; then status_says '"written_bytes": [1-9]'; else [ "$(stat -c %b "$medium")" -gt 0 ]; fi
}
status_says() { # WORDS
	local port=${url#*://*:}
	"$TARGET" status --port "${port%%/*}" >"$dir/status.out" && grep -q "$1" "$dir/status.out"
}
removed() { # PID: its adapter, while it is used
	wait_for 20 is_written && "$VERBENA" fault add --pid "$(program_of "$1")" device=remove >"$dir/fault.out" 2>&1
}
is_by_tcp() { # the target says so of its host
	status_says '"way": "TCP"' && ! grep '"way": "[^T]' "$dir/status.out"
}
goes_by_tcp() { # host|target
	local dir=$work/$1 server= target= status=0 host_rules= target_rules= fio
	mkdir "$dir"
	if serve auto && plugged "${url/nvme+tcp/nvme+auto}"; then
		verifies 2 &
		fio=$!
		if [ "$1" = host ]; then removed $server; else removed $target; fi || { echo "no adapter was removed"; status=1; }
		wait $fio && wait_for 20 is_by_tcp && verifies 1 || status=1
	else
		status=1
	fi
	ends || { echo "an end does not end in order"; status=1; }
	[ $status = 0 ] || told
	return $status
}
check "the host's adapter is removed: fio verifies, by TCP" goes_by_tcp host
check "the target's adapter is removed: fio verifies, by TCP" goes_by_tcp target
# memory is registered on an adapter that was removed, before its connection is told
registers_anew() {
	local dir=$work/anew server= target= status=0 host_rules= target_rules= fio pid
	mkdir "$dir"
	if serve rdma && plugged "$url"; then
		pid=$(program_of $server)
		verifies 3 &
		fio=$!
		wait_for 20 is_written && "$VERBENA" fault add --pid $pid reg=ENODEV count=1 && wait $fio || status=1
		"$VERBENA" fault list --pid $pid | grep -q '1 hits .*reg=ENODEV' || status=1
	else
		status=1
	fi
	ends || { echo "an end does not end in order"; status=1; }
	[ $status = 0 ] || told
	return $status
}
check "a registration fails as on a removed adapter: fio verifies, on a new connection" registers_anew
# Without another transport the program that writes gets an error, and what it has written is right
fails_in_time() {
	local dir=$work/fails server= target= target_rules= status=0 disk
	mkdir "$dir"
	serve rdma || { told; return 1; }
	# the second half is written when the adapter is gone
	python3 -c 'import os, sys, time
for i in range(160):
    for wait in range(4000 if i == 80 else 0):
        if os.path.exists(sys.argv[1]):
            break
        time.sleep(0.01)
    try:
        sys.stdout.buffer.write(b"".join(b"%04095d\n" % (i * 8 + n) for n in range(8)))
        sys.stdout.buffer.flush()
        time.sleep(0.01)
    except BrokenPipeError:
        sys.exit()' "$dir/gone" 2>"$dir/python.err" | timeout $((80 * SLOW)) "${run[@]}" "$DISK" --reconnect=1 write "$url" 0 >"$dir/disk.out" 2>&1 &
	disk=$!
	removed $disk || { echo "no adapter was removed"; status=1; }
	: >"$dir/gone"
	wait $disk
	[ $? = 1 ] && [ "$(wc -l <"$dir/disk.out")" = 1 ] && grep -qi "$NQN: .*transport endpoint" "$dir/disk.out" || status=1
	ends || status=1
	! on_rbd || medium_content >"$dir/image"
	python3 -c 'import sys
image = open(sys.argv[1], "rb").read()
blocks = [image[i:i + 4096] for i in range(0, len(image), 4096)]
right = [b == b"%04095d\n" % i for i, b in enumerate(blocks)]
print("blocks written", sum(right))
sys.exit(not any(right) or all(right) or any(not r and any(b) for r, b in zip(right, blocks)))' "$dir/image" || status=1
	[ $status = 0 ] || told
	return $status
}
check "by RDMA alone the writer gets an error, and no wrong byte is on the disk" fails_in_time
# fio sees what is delivered wrong on purpose: the checks above can fail
is_seen() {
	local dir=$work/seen server= target= host_rules="corrupt icrc=new opcode=READ_RESPONSE every=5" target_rules= status=0 backlog=16
	mkdir "$dir"
	export VERBENA_WIRE=always
	serve rdma && plugged "$url" && { verifies 20 && status=1; grep -q 'error=Invalid or incomplete' "$dir/fio.out" || status=1; }
	ends
	unset VERBENA_WIRE
	[ $status = 0 ] || told
	return $status
}
check "data that is delivered wrong on purpose is seen" is_seen
finish
