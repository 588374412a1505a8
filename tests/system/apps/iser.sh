#!/bin/bash
# iser.sh - Debian's tgtd as a target, libiscsi's tools and QEMU's as initiators, unmodified: a disk is written and read over iSER
# follows: RFC 7145, tgtadm(8), iscsi-inq(1), qemu-img(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../net/lib.sh"
source "$(dirname "$0")/../../support/iser.sh"
if why=$(why_no_iser); then
	skip iser "$why"
	exit 0
fi

# uses HOW: a target from start to end, the same for one host and two
uses() {
	local before=$failed
	check "tgtd listens for iSER $1" start_target
	[ $failed = $before ] || return
	check "iscsi-inq asks the disk what it is $1" inquires
	[ -z "$where6" ] || check "iscsi-inq asks the disk what it is $1, IPv6" inquires "$where6"
	check "iscsi-readcapacity16 asks for its size $1" tells_size
	if sanitized; then
		skip "images over iSER $1" "qemu-img hangs at its end beside the sanitizer, with a plain file too"
	else
		check "an image of $MB MB is written, is on the disk, and is read back $1" ${crossing:-} writes_and_reads
		check "three initiators read at once $1" ${crossing:-} reads_at_once
	fi
	check "iscsi-perf: small reads, many at once $1" many 8 64
	check "iscsi-perf: large reads, many at once $1" many 512 32
	check "the target goes on when an initiator is killed $1" survives_a_kill
	check "the target goes when it is told to $1" target_ends
}

where=127.0.0.1 where6=
if grep -qs ' lo$' /proc/net/if_inet6; then where6='[::1]'; fi
uses "on one host"
if unshare -n true 2>/dev/null && hosts; then
	at_a=("${on_a[@]}") at_b=("${on_b[@]}")
	where=$V4_B where6="[$V6_B]" crossing="crossing $((MB << 20))"
	uses "between two"
else
	skip "iser between two hosts" "network namespaces cannot be made here"
fi
finish
