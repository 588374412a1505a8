#!/bin/bash
# launchers.sh - launchers write one tree at the same time, readers see whole files, each namespace has its own tree
# follows: verbena-run(1)
# SPDX-License-Identifier: MIT
# usage: launchers.sh VERBENA
set -u
verbena=$1
VERBENA_RUNTIME=$(mktemp -d)
export VERBENA_RUNTIME
trap 'rm -rf "$VERBENA_RUNTIME"' EXIT
"$verbena" run true 2>&1 | grep -q 'was not found' && { echo "skipped: the libraries are not built"; exit 77; }
unshare -n true 2>/dev/null || { echo "skipped: no network namespaces here"; exit 77; }

export verbena
unshare -n bash -u <<'IN'
ip link set lo up
ip link add v0 type veth peer name v1 2>/dev/null || { echo "skipped: no veth"; exit 77; }
fail() { echo "FAILED $*"; exit 1; }
tree=$VERBENA_RUNTIME/sys.$(stat -Lc %i /proc/self/ns/net)
"$verbena" run true || fail start
[ "$(ls "$tree/class/infiniband" | xargs)" = "roce_lo roce_v0 roce_v1" ] || fail "the devices: $(ls $tree/class/infiniband)"

# three launchers in a loop while the addresses change, and a reader
for i in 1 2 3; do
	(for k in $(seq 60); do "$verbena" run true || exit 1; done) &
	pids="${pids:-} $!"
done
(for k in $(seq 40); do ip addr add 10.5.0.$k/24 dev v0; ip link set v0 up; ip link set v0 down; done) &
pids="$pids $!"
"$verbena" run bash -c 'for k in $(seq 1500); do
	read -r a </sys/class/infiniband/roce_v0/ports/1/state && read -r b </sys/class/infiniband/roce_v0/ports/1/gids/1 || exit 1
	[[ $a == [14]:\ [AD]* && ${#b} = 39 ]] || { echo "half: $a $b"; exit 1; }; done' || fail "a reader saw: $?"
for p in $pids; do wait "$p" || fail "a launcher"; done
"$verbena" run true
[ "$("$verbena" run cat /sys/class/infiniband/roce_v0/ports/1/gids/40)" = 0000:0000:0000:0000:0000:ffff:0a05:0028 ] || fail "the last address"

# with LIDs a tree of its own, too
[ "$(VERBENA_LIDS=1 "$verbena" run cat /sys/class/infiniband/roce_v0/ports/1/lid)" = 0x1 ] || fail "VERBENA_LIDS"
[ "$("$verbena" run cat /sys/class/infiniband/roce_v0/ports/1/lid)" = 0x0 ] || fail "the tree without LIDs"

# a device that disappeared, and a new one
ip link del v0
ip link add w0 type veth peer name w1
"$verbena" run ls /sys/class/infiniband | xargs | grep -qx "roce_lo roce_w0 roce_w1" || fail "devices that went and came"

# VERBENA_DEVICES leads to a tree of its own
VERBENA_DEVICES=lo "$verbena" run ls /sys/class/infiniband | xargs | grep -qx roce_lo || fail "VERBENA_DEVICES"
"$verbena" run ls /sys/class/infiniband | xargs | grep -qx "roce_lo roce_w0 roce_w1" || fail "the tree of all devices"

# a stopped writer with the lock delays a start, but does not prevent it
exec 9>"$tree/.lock"; flock 9
ip addr add 10.6.0.1/24 dev w0
timeout 100 "$verbena" run --no-shim true || fail "no start with --no-shim"
timeout 100 "$verbena" run true 2>/dev/null || fail "no start while the lock is held"

# such a start writes no tree, and reads none of an earlier start
"$verbena" run ls /sys/class/infiniband 2>/dev/null | grep -q roce_w0 && fail "a tree that another start has written"
ip addr del 10.6.0.1/24 dev w0
"$verbena" run ls /sys/class/infiniband | xargs | grep -qx "roce_lo roce_w0 roce_w1" || fail "a tree that is in line needs no lock"
IN
status=$?
[ $status = 0 ] || exit $status
outside=$("$verbena" run ls /sys/class/infiniband)
case $outside in *roce_w0*) echo "FAILED: a device of another namespace"; exit 1 ;; esac

# the next start removes trees of namespaces that have ended; trees of living namespaces and of other users stay
trees() { ls "$VERBENA_RUNTIME" | grep -c '^sys\.'; }
rm -rf "$VERBENA_RUNTIME"/sys.*
unshare -n "$verbena" run true
mkfifo "$VERBENA_RUNTIME/end"
unshare -n "$verbena" run cat "$VERBENA_RUNTIME/end" &
living=$!
for _ in $(seq 100); do [ "$(cat /proc/$living/comm)" = cat ] && break; sleep 0.05; done
tree=$VERBENA_RUNTIME/sys.$(stat -Lc %i /proc/$living/ns/net)
mkdir -m 755 "$VERBENA_RUNTIME/sys.1"
[ "$(id -u)" != 0 ] || chown 65533 "$VERBENA_RUNTIME/sys.1"
"$verbena" run true
[ "$(id -u)" != 0 ] || [ -d "$VERBENA_RUNTIME/sys.1" ] || { echo "FAILED: another user's tree is gone"; exit 1; }
rm -rf "$VERBENA_RUNTIME/sys.1"
[ -d "$tree" ] || { echo "FAILED: the tree of a namespace that lives is gone"; exit 1; }
[ "$(trees)" = 2 ] || { echo "FAILED: there are $(trees) trees: $(ls "$VERBENA_RUNTIME")"; exit 1; }
echo >"$VERBENA_RUNTIME/end"
wait $living
"$verbena" run true
[ "$(trees)" = 1 ] || { echo "FAILED: there are still $(trees) trees: $(ls "$VERBENA_RUNTIME")"; exit 1; }
echo ok
