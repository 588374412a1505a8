# ceph_storage.sh - the tests of verbena-target, its clients and tools, with images of the cluster that ceph.sh has started in place of files and memory
# see: medium.sh
# SPDX-License-Identifier: MIT
# sourced, not run. CEPH_STORAGE: which of them, by the names in storage_cases (default all)
medium_net=vcm$$ # a bridge, by which the hosts of these tests reach the cluster

medium_network() {
	ip link add $medium_net type bridge && ip addr add $here/24 dev $medium_net && ip link set $medium_net up
}
medium_network_gone() { ip link del $medium_net 2>/dev/null; }

# with_image HOW NAME SECONDS COMMAND…: its cases count as ours
with_image() {
	local how=$1 name=$2 since=$SECONDS status=0 n
	[[ " ${CEPH_STORAGE:-$name} " = *" $name "* ]] || return 0
	env MEDIUM=rbd:disks MEDIUM_NET=$medium_net "CEPH_CONF=$cluster/ceph.conf" timeout -k 60 $(($3 * SLOW)) "${@:4}" >"$work/$name.said" 2>&1 </dev/null || status=$?
	sed -E "s/^((not )?ok|skip) /&$how, $name: /" "$work/$name.said"
	n=$(grep -c '^not ok' "$work/$name.said")
	failed=$((failed + n))
	[ $status = 0 ] || [ "$n" -gt 0 ] || check "$how: $name ends well" false
	echo "# $how: $name took $((SECONDS - since)) s"
}
new_image() { client rbd create "disks/$1" --size "$2"; } # NAME SIZE

storage_cases() { # HOW
	local dir=$ROOT/tests/system/storage plugin=$BUILD/storage/nbdkit-verbena-plugin.so s
	for s in nbdkit_kill nbdkit_paths outage faulty powercut between; do
		with_image "$1" $s 1200 "$dir/$s.sh"
	done
	for s in client_tools nbd tls_strangers qos; do
		with_image "$1" $s 600 "$dir/$s.sh" "$target" "$disk_tool" "$plugin"
	done
	for s in tcp tls rdma auto; do
		check "$1: an image of 16 MiB for client_target by $s" new_image target_$s 16M
		with_image "$1" client_target_$s 600 "${run[@]}" "$BUILD/tests/system/storage/storage_client_target" "$target" $s rbd:disks/target_$s
	done
	for s in tcp rdma; do
		check "$1: an image for client_vanish by $s" new_image vanish_$s 1M
		with_image "$1" client_vanish_$s 600 "${run[@]}" "$BUILD/tests/system/storage/storage_client_vanish" "$target" $s 200 rbd:disks/vanish_$s
	done
}
