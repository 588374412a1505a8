# plugged.sh - a disk of verbena-target, killed and restarted, with nbdkit and our plugin
# follows: man/verbena-target.8, man/nbdkit-verbena-plugin.1
# SPDX-License-Identifier: MIT
# sourced, not run, after ../lib.sh or what sources that
TARGET=$BUILD/storage/verbena-target PLUGIN=$BUILD/storage/nbdkit-verbena-plugin.so
pluggable() { # NAME: otherwise prints the reason
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
serve_by() { # COMMAND…: prefix of the target's command
	rm -f "$work/target.out"
	"$@" >"$work/target.out" 2>>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 target_speaks && grep -qs ^nvme "$work/target.out"
}
serve_again() { # ARGS…: arguments of serve. The image is locked until the kernel has finished the requests of a killed target
	local _
	for _ in $(seq 300); do
		serve "$@" && return 0
		sleep 0.1
	done
	cat "$work/target.err"
	return 1
}
plug_by() { # COMMAND…: prefix of nbdkit's command; plugged tests whether it can be reached
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
