# ceph_full.sh - two verbena-targets and a pool that is full, then removed, on the cluster that ceph.sh has started
# follows: docs/ceph.md, "Several targets of one image"; ceph(8), "osd pool set-quota"
# SPDX-License-Identifier: MIT
# sourced, not run; after ceph_gateways.sh
pool_quota() { ceph osd pool set-quota gone max_bytes "$1"; }
is_full() { ceph osd pool ls detail | grep -q "'gone'.*full"; }
block_to() { # NAME NSID OFFSET SECONDS
	at 0 timeout -k 5 "$4" "$disk_tool" write "$(url_of "$1")?nsid=$2" "$3" < <(head -c 4096 /dev/urandom)
}
says_of_second() { grep -q "namespace 2: .*$2" "$work/$1.err"; } # NAME WORDS
# full_status NAME: of both images, who writes
full_status() { at 0 timeout -k 5 20 "$target" status --port "${member_port[$1]}" >"$work/$1.status" && sed -n 's/.*"writer": "\(.*\)".*/\1/p' "$work/$1.status" | xargs; }
first_goes_on() { block_to e 1 0 60 && full_status e >"$work/writers"; }
none_is_shut_out() { ! grep '"shut_out": true' "$work/e.status"; }
# The OSDs learn that the pool is full a moment after the monitor says so
until_one_waits() {
	local i
	for i in 1 2 3 4 5; do
		block_to e 2 $((i * 4))m 120 &
		waiting=$!
		wait_for 4 says_of_second e "its pool is full" && ! gone $waiting && return 0
		wait $waiting || return 1
	done
	return 1
}
pool_is_full() {
	local waiting
	block_to e 2 0 60 && pool_quota 1 && wait_for 60 is_full && until_one_waits || return 1
	echo "what needs no space goes on"
	block_to e 2 0 60 && at 0 timeout -k 5 60 "$disk_tool" read "$(url_of e)?nsid=2" 0 4k >"$work/read" && first_goes_on || return 1
	sleep 22 # longer than wait_seconds, and than all leases
	echo "the write waits"
	! gone $waiting && first_goes_on && none_is_shut_out && [ "$(grep -c "namespace 2: its pool is full" "$work/e.err")" = 1 ] || return 1
	echo "space again"
	pool_quota 0 && wait $waiting && block_to e 2 28m 60
}
pool_is_removed() {
	ceph osd pool delete gone gone --yes-i-really-really-mean-it
	{ wait_for 60 says_of_second e "cannot be opened again yet" && wait_for 60 says_of_second f "cannot be opened again yet" && first_goes_on &&
		[ "$(grep -c "opened again yet" "$work/e.err")" -le 3 ]; } && return 0
	grep '"writer\|"shut_out' "$work"/[ef].status
	cat "$work"/[ef].err
	return 1
}
both_pools_served() {
	local name
	printf '%s\n' "osd pool create gone 4" "osd pool application enable gone rbd" | ceph && client rbd create gone/x --size 32M && client rbd create disks/t --size 32M || return 1
	member_images=(disks/t gone/x)
	for name in e f; do
		free_port
		member_port[$name]=$port
		: >"$work/$name.err"
		member_start $name
		wait_for 60 member_listens $name && ! gone "${member[$name]}" || { cat "$work/$name.err"; return 1; }
	done
	full_status e && full_status f
}
full_ends() {
	local name status=0
	for name in e f; do
		member_kill TERM $name
		wait_for 60 gone "${member[$name]}" && wait "${member[$name]}" || status=1
	done
	cat "$work"/[ef].err
	return $status
}

full_cases() { # HOW
	check "$1: two gateways serve images of two pools" both_pools_served
	gone "${member[f]:-0}" && return
	check "$1: … one pool is full: writes that need space wait, all else goes on, and they when there is space" pool_is_full
	check "$1: … it is removed: a line says so, the image of the other pool is served" pool_is_removed
	check "$1: … the gateways end" full_ends
}
