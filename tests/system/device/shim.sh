#!/bin/bash
# shim.sh - programs that read /sys/class/infiniband and /dev/infiniband find the adapters; nothing else changes
# follows: verbena-run(1)
# SPDX-License-Identifier: MIT
# usage: shim.sh VERBENA
set -u
verbena=$1
failed=0
VERBENA_RUNTIME=$(mktemp -d)
export VERBENA_RUNTIME
trap 'rm -rf "$VERBENA_RUNTIME"' EXIT

"$verbena" run true 2>"$VERBENA_RUNTIME/err"
if grep -q 'was not found' "$VERBENA_RUNTIME/err"; then
	echo "skipped: the libraries are not built"
	exit 77
fi
[ -e /sys/class/infiniband ] && { echo "skipped: this machine has RDMA hardware"; exit 77; }

# expect WHAT PATTERN COMMAND...: the output of the command, run with the shim, matches
expect() {
	local what=$1 pattern=$2 out
	shift 2
	out=$("$verbena" run "$@" 2>&1)
	if [[ $out == $pattern ]]; then
		echo "ok $what"
	else
		echo "FAILED $what: $* printed: $out"
		failed=1
	fi
}

# needs PROGRAM: false, with a message, if it is missing
needs() {
	command -v "$1" >/dev/null || { echo "skipped: no $1"; return 1; }
}

lo=/sys/class/infiniband/roce_lo
expect 'bash lists and reads' '*roce_lo*1: CA*' bash -c "echo /sys/class/infiniband/*; cat $lo/node_type"
expect 'bash changes into the tree' '*roce_lo*' bash -c 'cd /sys/class/infiniband && echo *'
expect 'ls -l shows directories' '*d*roce_lo*' ls -l /sys/class/infiniband
expect 'ls -l shows character devices' 'total 0*crw-rw-rw-*uverbs0*' ls -l /dev/infiniband
expect 'find walks' "*$lo/ports/1/gids/0*" find /sys/class/infiniband
expect 'grep -r walks' '*RoCE v2*' grep -r RoCE $lo/
expect 'stat of a node' 'character special file' stat -c %F /dev/infiniband/uverbs0
expect 'lstat of a node, readlink of it' 'no link' bash -c '[ -L /dev/infiniband/uverbs0 ] || echo no link'
expect 'a node is readable and writable' 'yes' bash -c '[ -r /dev/infiniband/uverbs0 -a -w /dev/infiniband/uverbs0 -a -c /dev/infiniband/uverbs0 ] && echo yes'
expect 'what is not there is not there' '*No such file*' cat $lo/nope
expect 'attributes cannot be written' '*Permission denied*' bash -c "echo x >$lo/node_desc"
expect 'realpath keeps the name' "$lo" realpath $lo
expect 'doubled slashes and dots' '1: CA' cat //sys//class/infiniband/./roce_lo/ports/../node_type
expect 'a way out by ..' '*lo*' ls /sys/class/infiniband/../net
expect 'relative to /sys/class' '*roce_lo*' bash -c 'cd /sys/class && ls infiniband'
expect 'a link in the tree is followed' '*lo*' ls /sys/class/infiniband_verbs/uverbs0/device/net
if needs /usr/bin/python3; then
	expect 'python lists, opens, stats' "*'roce_lo'*True*lo*" /usr/bin/python3 -c "
import os, glob
print(os.listdir('/sys/class/infiniband'), open('$lo/node_guid').read())
print(os.access('/dev/infiniband/uverbs0', os.R_OK | os.W_OK), os.listdir('$lo/device/net'))
root = os.open('/', os.O_RDONLY)
assert 'roce_lo' in os.listdir(os.open('sys/class/infiniband', os.O_RDONLY, dir_fd=root))
assert os.path.realpath('$lo') == '$lo' and glob.glob('/sys/class/infiniband/*/ports/1/state')
assert os.scandir('/dev/infiniband') and os.stat('/dev/infiniband/uverbs0').st_rdev == os.makedev(1, 3)"
fi
needs perl && expect 'glob inside the C library' '*/sys/class/infiniband/roce_lo*' perl -e 'use File::Glob; print join(" ", glob("/sys/class/infiniband/*"))'
needs ibstat && expect 'ibstat' "*CA 'roce_lo'*State: Active*Physical state: LinkUp*Link layer: Ethernet*" ibstat
needs ibstatus && expect 'ibstatus' "*'roce_lo' port 1*4: ACTIVE*5: LinkUp*Gb/sec*" ibstatus
if needs rdma; then
	expect 'rdma dev' '*roce_lo: node_type ca*' rdma dev
	expect 'rdma dev show' '0: roce_lo: node_type ca fw*node_guid*' rdma dev show roce_lo
	expect 'rdma link' '*link roce_lo/1 state ACTIVE physical_state LINK_UP netdev lo*' rdma link
	expect 'rdma link show' 'link roce_lo/1 state ACTIVE physical_state LINK_UP netdev lo*' rdma link show roce_lo/1
	expect 'rdma -j link' '[[]*"ifname":"roce_lo"*]' rdma -j link
	expect 'rdma res' '*roce_lo*' rdma res
	expect 'rdma link add is refused' '*not supported*' rdma link add x type rxe netdev lo
fi
expect 'other netlink sockets work' '*lo*' ip link show lo

# the rest of the system is the same with and without the shim
for command in 'ls /sys/class/net' 'ls -l /dev/null' 'cat /etc/hostname' 'readlink -f /proc/self/root' 'ls -d /sys/class /dev' 'find /usr/include/rdma'; do
	plain=$($command 2>&1)
	shimmed=$("$verbena" run $command 2>&1)
	if [ "$plain" = "$shimmed" ]; then
		echo "ok unchanged: $command"
	else
		echo "FAILED unchanged: $command"
		failed=1
	fi
done
out=$("$verbena" run --no-shim ls /sys/class/infiniband 2>&1) && { echo "FAILED --no-shim"; failed=1; }

# exit statuses
"$verbena" run -- sh -c 'exit 3'; [ $? = 3 ] || { echo "FAILED: the status of the program"; failed=1; }
"$verbena" run /nonexistent/x 2>/dev/null; [ $? = 127 ] || { echo "FAILED: 127"; failed=1; }
"$verbena" run /etc/passwd 2>/dev/null; [ $? = 126 ] || { echo "FAILED: 126"; failed=1; }
"$verbena" run 2>/dev/null; [ $? = 125 ] || { echo "FAILED: 125"; failed=1; }
exit $failed
