# medium.sh - what a test's target serves: a file, or memory; or, with MEDIUM=rbd:POOL, images of a Ceph cluster
# follows: rbd(8)
# see: ceph_storage.sh, which sets MEDIUM, CEPH_CONF and MEDIUM_NET
# SPDX-License-Identifier: MIT
# sourced, not run
on_rbd() { [ -n "${MEDIUM:-}" ]; }
images=0
medium_args=() # of a target that is killed: as a gateway it has the image back when its lease is over
! on_rbd || medium_args=(--gateway t)

# medium NAME SIZE: a new and empty one; sets $medium to what --export takes. NAME: memory, or a file
medium() {
	if on_rbd; then
		images=$((images + 1))
		medium=$MEDIUM/t$BASHPID.$images
		timeout -k 5 60 rbd create "${medium#rbd:}" --size "$2"
	elif [ "$1" = memory ]; then
		medium=memory:$2
	else
		medium=$1
		rm -f "$1" && truncate -s "$2" "$1"
	fi
}
# medium_json SIZE: the same, in memory, for a configuration; sets $medium
medium_json() {
	medium='"backend": "memory", "size": "'$1'"'
	on_rbd || return 0
	medium memory "$1" && medium='"backend": "rbd", "path": "'${medium#rbd:}'"'
}
medium_content() { # of $medium
	if on_rbd; then timeout -k 5 120 rbd export --no-progress "${medium#rbd:}" -; else cat "$medium"; fi
}
# medium_joins NETNS…: an interface to the network of the cluster, whose bridge is MEDIUM_NET
medium_joins() {
	local n
	on_rbd || return 0
	for n; do
		joined=$((joined + 1))
		ip link add "v${n: -6}" master "$MEDIUM_NET" type veth peer name ceph0 netns "$n" && ip link set "v${n: -6}" up && ip -n "$n" link set ceph0 up &&
			ip -n "$n" addr add "198.51.100.$((20 + ($$ + joined) % 200))/24" dev ceph0 || return 1
	done
}
joined=0
