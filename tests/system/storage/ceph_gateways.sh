# ceph_gateways.sh - two verbena-targets that serve one image of the cluster that ceph.sh has started
# follows: docs/ceph.md, "Several targets of one image"
# SPDX-License-Identifier: MIT
# sourced, not run; after ceph_gateway.sh
two_paths=$BUILD/tests/system/storage/storage_gateway_host
declare -A member_port=() member=() # of each gateway: its port, its process
member_images=(disks/s)

member_start() { # NAME
	: >"$work/$1.out"
	at 0 "$target" --gateway "$1" --nqn "$gateway_url" --transport "$(on_rdma && echo auto || echo tcp)" "${member_images[@]/#/--export=rbd:}" --ceph-conf "$cluster/ceph.conf" --port "${member_port[$1]}" \
		>"$work/$1.out" 2>>"$work/$1.err" </dev/null &
	member[$1]=$!
}
member_listens() { [ -s "$work/$1.out" ] || gone "${member[$1]}"; }
member_kill() { # SIGNAL NAME
	kill "-$1" "$(program_of "${member[$2]}")"
}
member_says() { at 0 timeout -k 5 20 "$target" status --port "${member_port[$1]}" >"$work/$1.status"; } # NAME
has_image() { member_says "$1" && grep -q '"writer": "here"' "$work/$1.status"; }                          # NAME
# One of them writes, the other knows it: sets $writer and $other. On a busy machine an owner may miss its lease, so no case
# relies on which one writes, or that it stays so
settled() {
	member_says a && member_says b || return 1
	for writer in a b; do
		other=$([ $writer = a ] && echo b || echo a)
		grep -q '"writer": "here"' "$work/$writer.status" && grep -q '"writer": "another"' "$work/$other.status" &&
			! grep -q '"shut_out": true' "$work/$other.status" && return 0
	done
	return 1
}
url_of() { echo "nvme+tcp://127.0.0.1:${member_port[$1]}/$gateway_url"; }
members_up() {
	local name
	client rbd create disks/s --size 32M || client rbd resize --no-progress --allow-shrink disks/s --size 32M || return 1
	for name in a b; do
		free_port
		member_port[$name]=$port
		member_start $name
		wait_for 60 member_listens $name && ! gone "${member[$name]}" || { cat "$work/$name.err"; return 1; }
	done
	wait_for 60 settled || { show_members; return 1; }
}
# What tells why a case has failed
show_members() {
	local name
	client rados -p disks get "$(client rados -p disks ls | grep verbena.gateways)" -
	for name in a b; do
		echo "--- $name$(gone "${member[$name]}" && echo ", which has ended")"
		member_says $name && grep '"writer"\|"shut_out"\|"late"' "$work/$name.status"
		tail -n 40 "$work/$name.err"
	done
	echo "--- the cluster"
	ceph -s
	echo "--- load of the machine: $(cat /proc/loadavg)"
}
same_disk() {
	local name
	for name in a b; do
		at 0 timeout -k 5 60 "$disk_tool" info "$(url_of $name)" >"$work/$name.info" || return 1
	done
	cat "$work/a.info" "$work/b.info"
	diff <(grep UUID "$work/a.info") <(grep UUID "$work/b.info") && grep -q UUID "$work/a.info" &&
		grep 'controller 1,' "$work/a.info" && grep 'controller 4095,' "$work/b.info"
}
sees_size() { at 0 timeout -k 5 60 "$disk_tool" info "$(url_of "$1")" | grep -q "^size *$2 "; } # NAME BYTES
both_see_size() { sees_size a "$1" && sees_size b "$1"; }
resized_by_both() { client rbd resize --no-progress disks/s --size 48M && wait_for 60 both_see_size 50331648; }
# Its gateways watch it
not_removed() { ! client rbd rm --no-progress disks/s && wait_for 60 settled; }
differs() { refused_with "has block=512, this one block=4096" --gateway c --nqn "$gateway_url" --export rbd:disks/s --block-size 4096; }
name_is_taken() { refused_with "another target is the gateway a of this image" --gateway a --nqn "$gateway_url" --export rbd:disks/s; }

# What the host has seen of it, in a moment: the writes that waited have ended by then
interrupted() {
	sleep 1
	kill -USR1 "$(program_of $load)"
	wait_for 20 load_said $((said + 1))
	said=$(grep -c longest "$work/load.out")
}
load_said() { [ "$(grep -c longest "$work/load.out")" -ge "$1" ]; } # TIMES
both_listed() { # each lists the ports of both
	local name
	for name in a b; do
		at 0 timeout -k 5 60 "$disk_tool" list "$(url_of $name)" | tee "$work/$name.list"
		grep -qF "$(url_of a)" "$work/$name.list" && grep -qF "$(url_of b)" "$work/$name.list" || return 1
	done
}
listed_alone() { # NAME OTHER
	at 0 timeout -k 5 60 "$disk_tool" list "$(url_of "$1")" >"$work/$1.list" && ! grep -F "$(url_of "$2")" "$work/$1.list"
}
# reserve NAME HOST WORD…: commands of one of two hosts to a gateway; its last command ends so
reserve() {
	timeout -k 5 180 /usr/bin/python3 "$ROOT/tests/system/storage/reserve.py" "${member_port[$1]}" "$gateway_url" "${@:2}" | tee "$work/reserve"
}
ends_with() { [ "$(tail -1 "$work/reserve")" = "$1" ]; }
conflicts() { reserve "$1" 2 write && ends_with "write: conflict"; } # NAME: with a write of host 2. The load is of host 1
reserved() {
	local report
	reserve a 1 register:10 acquire:10:2 report && ends_with "report: good type=2 persists=1 host1=10*" && report=$(tail -1 "$work/reserve") &&
		reserve b 2 read write report && ends_with "$report" && [ "$(grep -c conflict "$work/reserve")" = 2 ]
}
released() {
	reserve a 2 register:20 preempt:20:10:1 write && ends_with "write: good" && reserve b 1 read write && ends_with "write: conflict" &&
		reserve b 2 clear:20 && reserve a 1 report && ends_with "report: good type=0 persists=1"
}

# Killed, then halted for longer than its lease: each time the other takes over, hosts go on, and what the first has reserved
# through it others cannot write
one_is_killed() {
	wait_for 60 settled || return 1
	echo "$writer is killed"
	member_kill KILL $writer
	wait "${member[$writer]}"
	wait_for 60 has_image $other && conflicts $other || return 1
	interrupted
	wait_for 20 listed_alone $other $writer && member_start $writer && wait_for 60 member_listens $writer
}
one_is_halted() {
	local status=0
	wait_for 60 settled || return 1
	sleep 1
	echo "$writer is halted"
	member_kill STOP $writer
	wait_for 60 has_image $other || status=1
	interrupted
	member_kill CONT $writer
	[ $status = 0 ] && wait_for 60 settled && conflicts a && conflicts b
}
load_ends() {
	local status
	kill "$(program_of $load)"
	wait $load
	status=$?
	echo "--- the load ended with $status"
	cat "$work/load.out"
	! on_rdma || grep -q "in use.*rdma" "$work/load.out" || status=1
	return $status
}
gateways_fail() {
	local load said=0 status=0 writer other
	reserved || { restore; return 1; }
	: >"$work/load.out"
	at 0 timeout -k 5 $((400 * SLOW)) "$two_paths" "nvme+auto://127.0.0.1:${member_port[a]},127.0.0.1:${member_port[b]}/$gateway_url" 380 \
		>"$work/load.out" 2>&1 &
	load=$!
	wait_for 60 load_said 1 && said=1 && sleep 1 && one_is_killed && one_is_halted || status=1
	[ $status = 0 ] || show_members
	load_ends || status=1
	[ $status != 0 ] || released || status=1
	[ $status = 0 ] || restore
	return $status
}
# The next cases need both, and no reservation
restore() {
	local name
	for name in a b; do
		gone "${member[$name]}" || continue
		wait "${member[$name]}"
		member_start $name
		wait_for 60 member_listens $name
	done
	reserve a 1 clear:10
	reserve b 2 clear:20
	show_members
}
# late STATUS COMMAND: a write that waits in a halted gateway while the other takes over, and COMMAND before that one
# goes on. Status 3: the write landed
late() {
	local status=0 step pid
	wait_for 60 settled || { show_members; return 1; }
	rm -f "$work"/{steps,go} && mkfifo "$work/steps" "$work/go" || return 1
	at 0 timeout -k 5 $((200 * SLOW)) "$two_paths" "$(url_of a)" "$(url_of b)" late <"$work/go" >"$work/steps" 2>&1 &
	pid=$!
	exec {go}>"$work/go"
	while read -r step; do
		echo "$step"
		case $step in
		halt) member_kill STOP a && echo >&"$go" ;;
		continue) "$2" && member_kill CONT a && echo >&"$go" ;;
		esac
	done <"$work/steps"
	exec {go}>&-
	wait $pid || status=$?
	member_kill CONT a
	[ $status = "$1" ] && return 0
	echo "status $status"
	show_members
	return 1
}
# Only one of its threads has to be slow for the gateway to know first that it is not the owner any more
landed() { late 3 unfenced || late 3 unfenced || late 3 unfenced; }
# Without the blocklist the write must land, or its absence shows nothing
unfenced() {
	local address
	for address in $(ceph osd blocklist ls 2>/dev/null | sed -n 's|^\([^ ]*/[0-9]*\) .*|\1|p'); do
		ceph osd blocklist rm "$address" || return 1
	done
}
not_watched() { client rbd status disks/s >"$work/watchers" && ! grep watcher= "$work/watchers"; }
members_end() {
	local name status=0
	for name in a b; do member_kill TERM $name; done
	for name in a b; do
		wait_for 60 gone "${member[$name]}" || { echo "$name does not end"; member_kill KILL $name; }
		wait "${member[$name]}" || { status=1; tail -n 20 "$work/$name.err"; }
	done
	# the cluster remembers the watch of one that was killed for half a minute
	wait_for 60 not_watched && client rados -p disks ls | grep verbena.gateways &&
		client rados -p disks get "$(client rados -p disks ls | grep verbena.gateways)" - | tee "$work/state" && grep -q '^owner - -$' "$work/state" && return $status
}

several_gateways_cases() { # HOW
	check "$1: two gateways serve one image, one of them writes" members_up
	gone "${member[b]:-0}" && return
	check "$1: … it is the same disk, with controllers of different ids" same_disk
	check "$1: … and two cannot have one name" name_is_taken
	check "$1: … and one that would serve it in another way is refused" differs
	check "$1: … and both see its new size, and keep it from being removed" eval "resized_by_both && not_removed"
	check "$1: … and each lists both of them" both_listed
	check "$1: a gateway is killed, then another halted, under load: hosts go on, everything is found, a reservation holds" gateways_fail
	check "$1: a write that waited in a halted gateway does not land after the takeover" late 0 true
	check "$1: … it does if the blocklist is lifted, so the test notices it" landed
	check "$1: gateways that end give the image up" members_end
}
