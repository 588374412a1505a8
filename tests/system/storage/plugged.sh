# plugged.sh - a disk that verbena-target serves, killed and started again, and nbdkit with our plugin on it
# follows: man/verbena-target.8, man/nbdkit-verbena-plugin.1
# SPDX-License-Identifier: MIT
# sourced, not run, after ../lib.sh or what sources that
TARGET=$BUILD/storage/verbena-target PLUGIN=$BUILD/storage/nbdkit-verbena-plugin.so
pluggable() { # NAME: else says why not
	if sanitized; then
		skip "$1" "nbdkit takes no plugin with a sanitizer in it"
	elif [ ! -x "$TARGET" ] || [ ! -f "$PLUGIN" ]; then
		skip "$1" "verbena-target or the nbdkit plugin is not built"
	else
		return 0
	fi
	return 1
}

target= nbd=
target_speaks() { grep -qs ^nvme "$work/target.out" || gone "$target"; }
serve_by() { # COMMAND…: with what begins a target
	rm -f "$work/target.out"
	"$@" >"$work/target.out" 2>>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 target_speaks && grep -qs ^nvme "$work/target.out"
}
serve_again() { # ARGS…: of serve. The image is locked until the kernel is through with what a killed one had asked for
	local _
	for _ in $(seq 300); do
		serve "$@" && return 0
		sleep 0.1
	done
	cat "$work/target.err"
	return 1
}
plug_by() { # COMMAND…: with what begins nbdkit; plugged says that it can be reached
	"$@" >"$work/nbdkit.out" 2>&1 </dev/null &
	nbd=$!
	wait_for 20 plugged_or_gone && plugged || { cat "$work/nbdkit.out"; return 1; }
}
plugged_or_gone() { plugged || gone "$nbd"; }
ends() { # PID
	local status
	wait_for 30 gone "$1" || { kill -9 "$1"; echo "it did not end"; }
	wait "$1"
	status=$?
	[ $status = 0 ] || echo "it ended with $status"
	return $status
}
