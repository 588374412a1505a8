# lib.sh - what the scripts that need the lab's guest have in common: the guest is there for as long as the script runs
# follows: tests/interop/lab/lab
# SPDX-License-Identifier: MIT
# sourced, not run
HERE=$(cd "$(dirname "$0")" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/../../support/lib.sh"
LAB=${LAB:-$ROOT/tests/interop/lab/lab}
target=   # what else is to end with the script
borrowed= # a guest that was up before, and is left up

# lab_needs PROGRAM…: where one is missing, or something that the lab needs, there is nothing to see here
lab_needs() {
	local name
	name=$(basename "$0" .sh)
	need ip qemu-system-x86_64 mmdebstrap nc "$@"
	[ "$(id -u)" = 0 ] || { skip "$name" "only root makes network namespaces"; exit 0; }
	[ -c /dev/net/tun ] || { skip "$name" "there is no /dev/net/tun"; exit 0; }
}
lab_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that was told to end before it became its program
	trap - EXIT INT TERM
	[ -z "$target" ] || kill -9 "$target" 2>/dev/null
	[ -n "$borrowed" ] || "$LAB" down
	(exit $status)
	cleanup
}
# lab_boots NAME [GUEST]: the guest, and the namespace of its cable, tap0; or GUEST, which is up already
lab_boots() {
	borrowed=${2:-}
	export VERBENA_LAB_NAME=${borrowed:-$1$$}
	trap lab_cleanup EXIT
	trap 'exit 130' INT TERM
	on_here=(ip netns exec "$VERBENA_LAB_NAME" env "VERBENA_RUNTIME=$work/run")
	[ -n "$borrowed" ] || check "the guest boots" "$LAB" up
	[ $failed = 0 ] || exit 1
}
came() { ip -n "$VERBENA_LAB_NAME" -s -j link show tap0 | sed -n 's/.*"rx":{"bytes":\([0-9]*\).*/\1/p'; } # bytes of the guest's
listens() { # PORT
	ip netns exec "$VERBENA_LAB_NAME" cat /proc/net/tcp /proc/net/tcp6 | grep -qi ":$(printf %04X "$1") [0-9A-F]*:0000 0A"
}
# siw_module: the kernel's iWARP for the guest, as $work/siw.ko; says why there is none
siw_module() {
	local module
	module=$("$ROOT/tests/interop/lab/siw" "$("$LAB" guest uname -r)" 2>"$work/siw.err") && cp "$module" "$work/siw.ko" && return 0
	tail -1 "$work/siw.err"
	return 1
}
