# ceph_gateway.sh - verbena-target with images of the cluster that ceph.sh has started
# follows: man/verbena-target.8; rbd(8)
# SPDX-License-Identifier: MIT
# sourced, not run
target=$BUILD/storage/verbena-target
disk_tool=$BUILD/storage/verbena-disk
gateway_url=nqn.2026-01.test:ceph

gateway_config() { # IMAGE…: the namespaces, from 1 on; the last one is in memory
	local image n=0 list=
	for image; do
		n=$((n + 1))
		list+="{\"nsid\": $n, \"backend\": \"rbd\", \"path\": \"$image\", \"ceph_conf\": \"$cluster/ceph.conf\", \"wait_seconds\": 1}, "
	done
	cat >"$work/gateway.json" <<-END
		{"listen": [{"transport": "tcp", "address": "127.0.0.1", "port": $gateway_port}, $(on_rdma && echo "{\"transport\": \"rdma\", \"address\": \"127.0.0.1\", \"port\": $gateway_port}" || echo '{"transport": "tcp", "address": "127.0.0.1", "port": 0}')],
		 "subsystems": [{"nqn": "$gateway_url", "allow_any_host": true, "namespaces": [$list{"nsid": 9, "backend": "memory", "size": "4M"}]}]}
	END
}
gateway_up() {
	client rbd create disks/g --size 32M && client rbd create disks/old --size 8M || return 1
	free_port
	gateway_port=$port
	gateway_config disks/g disks/old
	: >"$work/gateway.out"
	at 0 "$target" --config "$work/gateway.json" >"$work/gateway.out" 2>"$work/gateway.err" </dev/null &
	gateway=$!
	wait_for 60 gateway_listens || { cat "$work/gateway.err"; return 1; }
}
gateway_listens() { [ "$(wc -l <"$work/gateway.out")" -ge 2 ] || gone "$gateway"; }
on_disk() { # TRANSPORT VERB ARGS…: @ stands for the disk
	local transport=$1
	on_rdma || transport=tcp # no adapter there
	shift
	at 0 timeout -k 5 $((120 * SLOW)) "$disk_tool" "${@/#@/nvme+$transport://127.0.0.1:$gateway_port/$gateway_url}"
}
gateway_says() { at 0 timeout -k 5 60 "$target" status --port "$gateway_port" >"$work/status" && grep -q "$1" "$work/status"; }

gateway_verifies() { # TRANSPORT
	head -c 5000000 /dev/urandom >"$work/source" && on_disk "$1" copy "$work/source" @ && on_disk "$1" read @ 0 5000192 | cmp -n 5000000 - "$work/source" &&
		client rbd export --no-progress disks/g - | cmp -n 5000000 - "$work/source"
}
gateway_has_size() { on_disk tcp info @ | grep -q "^size *$1 "; }
resized() {
	gateway_has_size 33554432 && client rbd resize --no-progress disks/g --size 48M && wait_for 60 gateway_has_size 50331648
}
gateway_writable() { ! gateway_says '"readonly": true'; }
snapshot() {
	local status
	client rbd snap create --no-progress disks/g@s && head -c 1M /dev/zero >"$work/zeros" && on_disk tcp write @ 0 <"$work/zeros" || return 1
	gateway_config disks/g@s && kill -HUP "$(program_of "$gateway")" && wait_for 60 gateway_says '"readonly": true' &&
		on_disk rdma read @ 0 1m | cmp -n 1048576 - "$work/source" || return 1
	on_disk tcp write @ 0 <"$work/zeros"
	status=$?
	gateway_config disks/g && kill -HUP "$(program_of "$gateway")" && wait_for 60 gateway_writable &&
		[ $status -gt 0 ] && [ $status -lt 99 ] && on_disk tcp read @ 0 1m | cmp - "$work/zeros"
}
osds() { # SIGNAL: to all of them
	local i
	for i in 0 1 2; do kill "-$1" "$(program_of "${ceph_pids[osd$i]}")" || return 1; done
}
cluster_stops() {
	local copy
	osds STOP || return 1
	on_disk tcp copy "$work/source" @ &
	copy=$!
	wait_for 60 gateway_says '"late": [1-9]'
	osds CONT
	wait $copy && on_disk rdma read @ 0 5000192 | cmp -n 5000000 - "$work/source"
}
# Five hosts would take all memory for data
others_go_on() {
	local asking i pids=()
	for i in 0 1 2; do pids+=("$(program_of "${ceph_pids[osd$i]}")"); done
	timeout -k 5 60 /usr/bin/python3 -B "$ROOT/tests/system/storage/slow_hosts.py" "$gateway_port" "$gateway_url" 1 9 "${pids[@]}" &
	asking=$!
	wait_for 10 gateway_says '"slow": true' && gateway_says '"memory_slow": [1-9]' || { osds CONT; grep '"memory\|"slow' "$work/status"; return 1; }
	wait $asking && wait_for 60 gateway_says '"memory_slow": 0' && ! gateway_says '"slow": true'
}
# Other options for an image are another opening of it. Its hosts find its namespace all the time
reopened() {
	local load n
	on_disk tcp --seconds=4 --depth=4 --write=100 bench @ &
	load=$!
	wait_for 20 gateway_says '"at_medium": [1-9]' || return 1
	for n in 2 1; do
		sed -i "s/\"wait_seconds\": [12]/\"wait_seconds\": $n/g" "$work/gateway.json"
		: >"$work/gateway.err"
		kill -HUP "$(program_of "$gateway")" && wait_for 60 grep -q "was read again" "$work/gateway.err" || return 1
		! grep "failed" "$work/gateway.err" && gateway_says '"opening": 0' || return 1
	done
	wait $load && on_disk tcp write @ 0 <"$work/zeros" # what later cases compare with
}
gateway_notices() { # by the next request; the OSDs hear of the blocklist after the monitor has answered
	timeout 3 "${run[@]}" "$disk_tool" write "nvme+tcp://127.0.0.1:$gateway_port/$gateway_url" 0 < <(head -c 4096 /dev/zero)
	gateway_says '"shut_out": true'
}
blocklisted() {
	local address reader
	address=$(client rbd status disks/g | sed -n 's/.*watcher=\([^ ]*\) .*/\1/p' | head -1)
	ceph osd blocklist add "$address" && wait_for 60 gateway_notices && grep "has shut this target out" "$work/gateway.err" || return 1
	on_disk tcp read @ 0 1m >"$work/read" &
	reader=$!
	sleep 1
	! gone $reader &&
		[ ! -s "$work/read" ] && kill -HUP "$(program_of "$gateway")" && wait_for 60 gateway_says '"shut_out": false' && wait $reader &&
		cmp "$work/read" "$work/zeros"
}
at_once() { # LINE…: commands of which each waits for the cluster. All succeed
	local line pid status=0 pids=() n=0
	for line; do
		(trap - EXIT; eval "$line") >"$work/once.$n" 2>&1 &
		pids+=($!)
		n=$((n + 1))
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || status=1
	done
	cat "$work"/once.*
	rm "$work"/once.*
	return $status
}
refused_with() { # MESSAGE ARGS…
	local status said
	said=$(at 0 timeout -k 5 60 "$target" --port 0 --ceph-conf "$cluster/ceph.conf" "${@:2}" 2>&1)
	status=$?
	echo "$said"
	[ $status = 1 ] && [ "$(wc -l <<<"$said")" = 1 ] && grep -qF "$1" <<<"$said"
}
bad_names() {
	client rbd create disks/unlocked --size 1M --image-feature layering || return 1
	at_once 'refused_with "pool nowhere: No such file" --export rbd:nowhere/g' 'refused_with "image none: No such file" --export rbd:disks/none' \
		'refused_with "image g@none: No such file" --export rbd:disks/g@none' 'refused_with "POOL/IMAGE" --export rbd:disks' \
		'refused_with "no exclusive lock" --export rbd:disks/unlocked' \
		'refused_with "/nowhere: No such file" --ceph-conf /nowhere --export rbd:disks/g'
}
gateway_ends() {
	kill "$(program_of "$gateway")" && wait_for 60 gone "$gateway" && wait "$gateway" && [ -z "$(client rbd status disks/g | grep watcher=)" ]
}

gateway_cases() { # HOW
	check "$1: verbena-target serves two images" gateway_up
	gone "$gateway" && { check "$1: … and does not end" false; return; }
	check "$1: … by TCP, read as written, by rbd(8), too" gateway_verifies tcp
	check "$1: … by RDMA" gateway_verifies rdma
	check "$1: an image that grows is seen" resized
	check "$1: OSDs that stop: requests wait, hosts try again, all goes on" cluster_stops
	check "$1: … and while five hosts wait for all that they may, a sixth uses another namespace" others_go_on
	check "$1: a snapshot is read-only, and stays as it was" snapshot
	check "$1: a blocklisted target answers nothing, and is let in again when it reloads" blocklisted
	check "$1: an image gets other options while it is written" reopened
	check "$1: what cannot be served is refused in one line" bad_names
	[ $auth = none ] || caps_cases "$1"
	check "$1: the target ends, and leaves no watcher" gateway_ends
}
