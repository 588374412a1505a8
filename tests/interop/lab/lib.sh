# lib.sh - shared by the scripts that need the lab's guest, which runs as long as the script
# follows: tests/interop/lab/lab
# SPDX-License-Identifier: MIT
# sourced, not run
HERE=$(cd "$(dirname "$0")" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/../../support/lib.sh"
LAB=${LAB:-$ROOT/tests/interop/lab/lab}
target=   # processes to end with the script
borrowed= # a guest that ran before, and is left running

# lab_needs PROGRAM…: skips the script if one of them, or something that the lab needs, is missing
lab_needs() {
	local name
	name=$(basename "$0" .sh)
	need ip qemu-system-x86_64 mmdebstrap nc "$@"
	[ "$(id -u)" = 0 ] || { skip "$name" "only root makes network namespaces"; exit 0; }
	[ -c /dev/net/tun ] || { skip "$name" "there is no /dev/net/tun"; exit 0; }
}
lab_cleanup() {
	local status=$?
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	[ -z "$target" ] || kill -9 "$target" 2>/dev/null
	[ -n "$borrowed" ] || "$LAB" down
	(exit $status)
	cleanup
}
# lab_boots NAME [GUEST]: boots the guest, with its cable tap0 in a namespace; or uses GUEST, which runs already
lab_boots() {
	borrowed=${2:-}
	export VERBENA_LAB_NAME=${borrowed:-$1$$}
	trap lab_cleanup EXIT
	trap 'exit 130' INT TERM
	on_here=(ip netns exec "$VERBENA_LAB_NAME" env "VERBENA_RUNTIME=$work/run")
	[ -n "$borrowed" ] || check "the guest boots" "$LAB" up
	[ $failed = 0 ] || exit 1
}
came() { ip -n "$VERBENA_LAB_NAME" -s -j link show tap0 | sed -n 's/.*"rx":{"bytes":\([0-9]*\).*/\1/p'; } # bytes in the guest
listens() { # PORT
	ip netns exec "$VERBENA_LAB_NAME" cat /proc/net/tcp /proc/net/tcp6 | grep -qi ":$(printf %04X "$1") [0-9A-F]*:0000 0A"
}
# siw_module: builds siw, the kernel's iWARP, for the guest as $work/siw.ko, or prints why it cannot
siw_module() {
	local module
	module=$("$ROOT/tests/interop/lab/siw" "$("$LAB" guest uname -r)" 2>"$work/siw.err") && cp "$module" "$work/siw.ko" && return 0
	tail -1 "$work/siw.err"
	return 1
}
