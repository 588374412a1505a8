#!/bin/bash
# squatter.sh - a user creates another user's runtime directory, or files in it, first: they are not used, and a line
# says so
# follows: verbena(7), VERBENA_RUNTIME
# see: SECURITY.md
# SPDX-License-Identifier: MIT
# usage: squatter.sh PROGRAM VERBENA BROKER SHIM
set -u
program=$1 verbena=$2 broker=$3 shim=$4
[ "$(id -u)" = 0 ] || { echo "skipped: needs root to be two users"; exit 77; }
if [ -z "${VB_TEST_INSIDE:-}" ]; then
	unshare -mn true 2>/dev/null || { echo "skipped: no namespaces here"; exit 77; }
	VB_TEST_INSIDE=1 exec unshare -mn "$0" "$(realpath "$program")" "$(realpath "$verbena")" "$(realpath "$broker")" "$(realpath "$shim")"
fi
mount -t tmpfs -o mode=755 run /run && mount -t tmpfs -o mode=1777 tmp /tmp || { echo "skipped: no tmpfs"; exit 77; }
ip link set lo up
cd / || exit 1
unset VERBENA_RUNTIME XDG_RUNTIME_DIR VERBENA_LOG VERBENA_BROKER VERBENA_BROKER_LOG VERBENA_DEVICES VERBENA_LIDS
net=$(stat -Lc %i /proc/self/ns/net)
victim=65533 squatter=65532
own=/tmp/verbena-$victim
as() { # USER COMMAND…
	local user=$1
	shift
	setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
}
as $victim "$verbena" version >/dev/null || { echo "skipped: other users cannot get at $verbena"; exit 77; }
daemon=
trap '[ -z "$daemon" ] || kill "$daemon"' EXIT
failed=0
expect() { # SENTENCE COMMAND…
	local sentence=$1
	shift
	if "$@" >/run/said 2>&1; then echo "ok $sentence"; else
		echo "FAILED $sentence"
		sed 's/^/	/' /run/said
		failed=1
	fi
}
opens() { as $victim env "$@" timeout 60 "$program" >/run/out 2>/run/err; }
says_one_line() { # PATTERN: appears once on standard error; the missing broker is another line
	local lines
	cat /run/err
	lines=$(grep -v 'no broker: ' /run/err)
	[ "$(wc -l <<<"$lines")" = 1 ] && [[ $lines == $1 ]]
}
refused() { cat /run/out; grep -qx refused /run/out; }
opened() { cat /run/out; grep -qx opened /run/out; }
not_misled() { cat /run/out; grep '^path ' /run/out | grep -qv "$1"; }
hostile_tree() { # DIRECTORY: makes the files that the squatter wants programs to read
	as $squatter bash -c "mkdir -p $1/class/infiniband/{roce_lo,evil0}/ports/1 $1/class/infiniband_verbs/uverbs0 &&
		echo hostile >$1/class/infiniband/roce_lo/fw_ver && echo evil0 >$1/class/infiniband_verbs/uverbs0/ibdev"
}
reads() { # ENVIRONMENT…: with the shim
	as $victim env "$@" "$verbena" run bash -c 'echo /sys/class/infiniband/*; cat /sys/class/infiniband/roce_lo/fw_ver' >/run/out 2>/run/err
	cat /run/out /run/err
	! grep -q 'hostile\|evil0' /run/out
}

# the directory, with a tree in it
as $squatter mkdir -m 777 $own
hostile_tree "$own/sys.$net"
opens
expect "a program does not start a broker in another user's directory" refused
expect "and says whose it is" says_one_line "*$own belongs to user $squatter, not to this program's user $victim*VERBENA_RUNTIME*"
expect "nor believes the tree there" not_misled "$own"
expect "the shim does not redirect there" reads
expect "and the launcher says whose it is" grep -q "$own belongs to user $squatter" /run/err

# root's broker serves instead
"$broker" --stay >/dev/null 2>&1 &
daemon=$!
for _ in $(seq 100); do [ -S "/run/verbena/broker-$net.sock" ] && break; sleep 0.05; done
opens VERBENA_LOG=warn
expect "with a broker of root's the program works" opened
expect "and warns" says_one_line "*$own belongs to user $squatter*VERBENA_RUNTIME*"
kill $daemon
wait $daemon 2>/dev/null
daemon=
rm -rf $own /run/verbena

# a link to a directory of the victim
as $victim mkdir -m 700 /tmp/elsewhere
as $squatter ln -s /tmp/elsewhere $own
opens
expect "a link is not followed" refused
expect "and said to be one" says_one_line "*$own is no directory but a link of user $squatter*"
rm -rf $own /tmp/elsewhere

# the victim's directory, writable by all
as $victim mkdir -m 700 $own
chmod 777 $own
opens
expect "a directory that others can write in is not used" refused
expect "and said to be one" says_one_line "*$own can be written by other users (mode 0777)*"
chmod 700 $own
opens
expect "with the right mode it is" opened
for _ in $(seq 100); do [ -e "$own/broker-$net.sock" ] || break; sleep 0.05; done

# VERBENA_RUNTIME names a directory that everybody can write
for file in broker.sock broker.sock.lock broker.sock.state; do
	as $squatter touch /tmp/$file
	chmod 666 /tmp/$file
	opens VERBENA_RUNTIME=/tmp
	expect "a $file of another user's is in the way" refused
	expect "and said to be" says_one_line "*/tmp/$file belongs to user $squatter, not to this program's user $victim*"
	rm -f /tmp/broker.sock*
done
mkfifo /tmp/broker.sock.lock # root's socket, which the victim believes, without a lock
chmod 666 /tmp/broker.sock.lock
opens VERBENA_RUNTIME=/tmp
expect "a lock that is no file is none" refused
rm -f /tmp/broker.sock*
hostile_tree "/tmp/sys.$net"
expect "the shim does not redirect to another user's tree there" reads VERBENA_RUNTIME=/tmp
expect "and the launcher says whose it is" grep -q "/tmp/sys.$net belongs to user $squatter" /run/err
rm -rf /tmp/sys.*

# there is no tree yet: the squatter could make one between the check and the open
if mount -t tmpfs tmpfs /sys/class && mkdir -p /sys/class/infiniband/real0; then
	rm -rf $own
	as $victim env LD_PRELOAD="$shim" ls /sys/class/infiniband >/run/out 2>&1
	expect "where there is no tree the shim does not redirect" grep -qx real0 /run/out
	as $victim env LD_PRELOAD="$shim" VERBENA_RUNTIME=/tmp ls /sys/class/infiniband >/run/out 2>&1
	expect "nor where VERBENA_RUNTIME has none" grep -qx real0 /run/out
	umount /sys/class
fi

# a user's link makes root write a tree in that user's directory
as $squatter mkdir -m 755 /tmp/his "/tmp/his/sys.$net"
mkdir -m 755 /run/roots
as $squatter ln -s /run/roots "/tmp/his/sys.$net/class"
env VERBENA_RUNTIME=/tmp/his "$verbena" run true 2>/run/err
expect "root writes nothing through a user's link" test -z "$(ls /run/roots)"
expect "and says whose tree it is" grep -q "/tmp/his/sys.$net belongs to user $squatter" /run/err
exit $failed
