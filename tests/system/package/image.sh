#!/bin/bash
# image.sh - the Containerfile, built by buildah without a registry, and what containers of its image do
# follows: Containerfile(5), buildah-build(1), buildah-run(1)
# SPDX-License-Identifier: MIT
# IMAGE=yes: builds the image, which takes minutes (make soak does); otherwise only the recipe is compared
# IMAGE_BASE: a root of Debian 12 for its base, made before (.tar)
source "$(dirname "$0")/../../support/lib.sh"
sanitized && { skip "the image" "it is built without sanitizers"; exit 0; }

# --- the recipe ---
# What debian/control needs for a build is what the first stage installs, but for what build-essential brings
build_packages() {
	local p missing=0
	sed ':a; /\\$/N; s/\\\n//; ta' "$ROOT/Containerfile" | sed -n '/^FROM .* AS build/,/^FROM/p' | sed -n 's/^RUN .*--no-install-recommends//p' | tr -s ' \t' '\n' >"$work/first"
	for p in $(sed -n '/^Build-Depends:/,/^[A-Z]/p' "$ROOT/debian/control" | sed '/^[A-Z].*:/s/^Build-Depends://; t; /^[A-Z]/d' | sed 's/([^)]*)//g; s/\[[^]]*\]//g; s/<[^>]*>//g; s/,/ /g; s/debhelper-compat/debhelper/'); do
		grep -qx -- "$p" "$work/first" || { echo "the first stage does not install $p"; missing=1; }
	done
	[ -s "$work/first" ] && return $missing
}
check "the Containerfile installs what debian/control needs for a build" build_packages
[ -n "${IMAGE:-}" ] || { skip "the image and its containers" "it takes minutes: IMAGE=yes tests/system/package/image.sh"; exit $((failed > 0)); }
need mmdebstrap buildah nsenter
[ "$(id -u)" = 0 ] && unshare -mnpf true 2>/dev/null || { skip "the image" "needs root and namespaces"; exit 0; }

# --- building ---
# chroot isolation and plain directories need no support from the kernel or from systemd
export BUILDAH_ISOLATION=chroot
b=(buildah --root "$work/storage" --runroot "$work/buildah" --storage-driver vfs)
# The recipe's base by its name, so that no registry is asked. It gets packages as this machine does
base() {
	local tar=${IMAGE_BASE:-$work/base.tar} c
	[ -s "$tar" ] || timeout 600 mmdebstrap --quiet --variant=minbase bookworm "$tar" || return 1
	c=$("${b[@]}" from scratch) && "${b[@]}" add -q "$c" "$tar" / && "${b[@]}" add -q "$c" /etc/apt/apt.conf.d /etc/apt/apt.conf.d &&
		"${b[@]}" commit -q --rm "$c" "$(sed -n 's/^FROM \([^ ]*\) AS build/\1/p' "$ROOT/Containerfile")"
}
check "a base image from Debian's packages" base
[ $failed = 0 ] || exit 1
build_image() { timeout 3600 "${b[@]}" bud --pull-never --layers=false -t verbena "$ROOT" </dev/null; }
check "buildah builds the Containerfile" build_image
[ $failed = 0 ] || exit 1

# --- containers ---
# Each has a network of its own, and the image's root again; DIRECTORY is its /run/verbena
new_container() { "${b[@]}" from --pull-never verbena </dev/null; }
first=$(new_container) second=$(new_container)
config() { # Entrypoint|Cmd: its words, one a line
	"${b[@]}" inspect --type image verbena | python3 -c 'import json, sys; print("\n".join(json.load(sys.stdin)["OCIv1"]["config"][sys.argv[1]]))' "$1"
}
mapfile -t entrypoint < <(config Entrypoint)
mapfile -t command < <(config Cmd)
has_other_network() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/$$/ns/net)" ]; }
networks() { # sets $one and $other, joined by a cable
	local s
	unshare -n sleep 600 & one=$!
	unshare -n sleep 600 & other=$!
	wait_for 10 has_other_network $one && wait_for 10 has_other_network $other || return 1
	nsenter -t $one -n ip link add c0 type veth peer name c0 netns $other
	for s in $one $other; do
		nsenter -t $s -n sh -c "ip link set lo up; ip addr add 10.78.0.$((s == one ? 1 : 2))/24 dev c0; ip link set c0 up"
	done
}
in_container() { # NETWORK CONTAINER DIRECTORY COMMAND…: as the entry point would start it
	local n=$1 c=$2 d=$3
	shift 3
	timeout -k 2 120 nsenter -t "$n" -n "${b[@]}" run --env VERBENA_LOG="${DEBUG:-}" --volume "$d:/run/verbena" "$c" -- "$@" </dev/null
}
mkdir -m 755 "$work/shared" "$work/own1" "$work/own2"
check "two networks joined by a cable" networks
starts() { in_container "$one" "$first" "$work/shared" "${entrypoint[@]}" "${command[@]}" | tee /dev/stderr | grep -q roce_c0; }
check "the image's command shows the adapters" starts
enabled() { in_container "$one" "$first" "$work/shared" ibv_devices | tee /dev/stderr | grep -q roce_lo; }
check "a program without the launcher has them too" enabled
both_in_one='timeout 60 ibv_rc_pingpong -d roce_lo -g 1 -n 100 & s=$!; sleep 1; timeout 60 ibv_rc_pingpong -d roce_lo -g 1 -n 100 127.0.0.1 && wait $s'
check "two programs of one container" in_container "$one" "$first" "$work/shared" sh -c "$both_in_one"
check "another user, with a directory of his own" in_container "$one" "$first" "$work/shared" setpriv --reuid 1000 --regid 1000 --clear-groups \
	env VERBENA_RUNTIME=/tmp/verbena sh -c "mkdir -m 700 /tmp/verbena; $both_in_one"
# two DIRECTORY DIRECTORY: a ping-pong between both containers
two() {
	local s status=0 ping="ibv_rc_pingpong -p 18789 -d roce_c0 -g 1 -n 300 -s 16384 -c" # port 0x4965
	DEBUG=debug in_container "$one" "$first" "$1" $ping >"$work/container1" 2>&1 & s=$!
	wait_for 30 nsenter -t "$one" -n sh -c 'grep -q ":4965 [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6'
	DEBUG=debug in_container "$other" "$second" "$2" $ping 10.78.0.1 >"$work/container2" 2>&1 || status=1
	wait $s || status=1
	cat "$work"/container[12]
	return $status
}
packets() { sed -n 's/.*RoCE: packets sent: //p' "$work"/container[12] | awk '{ n += $1 } END { print n + 0 }'; }
shared_memory() { two "$work/shared" "$work/shared" && [ "$(packets)" = 0 ] && grep -q 'requester: .* bytes: ' "$work/container2"; }
over_the_cable() { two "$work/own1" "$work/own2" && [ "$(packets)" -gt 600 ]; }
check "two containers that share their runtime directory: shared memory, and not a packet" shared_memory
check "two containers with a directory each: RoCE" over_the_cable
small() {
	local m
	m=$("${b[@]}" mount "$second") && [ ! -e "$m/src" ] && [ -z "$(ls "$m"/tmp/*.deb 2>/dev/null)" ] && [ -z "$(ls "$m/var/lib/apt/lists" 2>/dev/null)" ]
}
check "sources and packages are not in the image" small
"${b[@]}" umount -a >/dev/null
kill "$one" "$other"
wait "$one" "$other"
finish
