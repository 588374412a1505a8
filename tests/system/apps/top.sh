#!/bin/bash
# top.sh - verbena top in a terminal of tmux: rates, sorting, resizing, leaving
# follows: verbena-top(1), tmux(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need ib_send_lat tmux python3

tm() { tmux -L "verbena-test-$$" "$@"; }
end_tmux() { # cleanup looks at the status
	local status=$?
	tm kill-server 2>/dev/null
	(exit $status)
	cleanup
}
trap end_tmux EXIT
screen() { tm capture-pane -p -t top 2>/dev/null; }
shows() { screen | grep -qE -- "$1"; }
open_top() { # WIDTH HEIGHT ARGS…
	local width=$1 height=$2
	shift 2
	tm kill-session -t top 2>/dev/null
	tm new-session -d -s top -x "$width" -y "$height" \
		"env VERBENA_RUNTIME='$VERBENA_RUNTIME' '$VERBENA' top $*; echo status \$?; sleep 300"
}

# keeps the server of tmux alive between two sessions
tm -f /dev/null new-session -d -s keep 'sleep 600'
open_top 160 30
check "without programs it says so" wait_for 20 shows 'no program with an open adapter'
tm send-keys -t top q
check "q quits with success" wait_for 20 shows '^status 0'

for size in 64 4096; do
	start_server ib_send_lat -d roce_lo -e -F -n 100000000 -s $size && start_client ib_send_lat -d roce_lo -e -F -n 100000000 -s $size
	all_servers="${all_servers:-} $server $client"
done
open_top 170 30
check "queue pairs are shown with their rates" wait_for 30 shows 'ib_send_lat +roce_lo +0x[0-9a-f]+ +RC +RTS +same-host .* [0-9.]+ [kMG]?b/s'
four_rows() { [ "$(screen | grep -c 'ib_send_lat .* RTS ')" = 4 ]; }
check "all four are there" wait_for 30 four_rows
# the last but one column is the rate of bytes sent
sorted() {
	screen | awk '/ib_send_lat .* RTS / {
		unit = $(NF - 2); value = $(NF - 3)
		factor = unit ~ /^G/ ? 1e9 : unit ~ /^M/ ? 1e6 : unit ~ /^k/ ? 1e3 : 1
		n++
		if (n > 1 && value * factor > last) exit 1
		last = value * factor
	} END { exit n < 4 || !last }'
}
check "the busiest is first" wait_for 30 sorted
tm send-keys -t top p
check "p shows programs" wait_for 20 shows '^ *PID +USER +PROGRAM'
tm send-keys -t top d
check "d shows adapters" wait_for 20 shows 'roce_lo +4 +4 '
tm send-keys -t top r
check "r sorts by what is received" wait_for 20 shows 'by received'
tm resize-window -t top -x 60 -y 12
fits() { [ -z "$(screen | awk 'length > 60')" ] && shows '^DEVICE +PROGRAMS' && ! shows 'RNR'; }
check "after a resize the columns that fit are shown" wait_for 20 fits
tm resize-window -t top -x 40 -y 10
small() { screen | awk 'NR == 1 && !/^devices, by received  4 programs$/ { exit 1 } NR == 2 && /./ { exit 1 } NR == 3 && !/^DEVICE/ { exit 1 } END { if ($0 !~ /^q quit/) exit 1 }'; }
check "a small terminal has the title in one line, and the keys" wait_for 20 small
tm resize-window -t top -x 20 -y 4
check "a terminal that is too small says so" wait_for 20 shows 'too small'
tm resize-window -t top -x 170 -y 30
check "and a larger one works again" wait_for 20 shows 'roce_lo +4 +4 .*RNR|RNR'
tm send-keys -t top C-c
check "ctrl-C leaves, and the terminal is as before" wait_for 20 shows '^status 0'

# a terminal that goes without a signal, as for a program of nohup(1)
cat >"$work/hang_up.py" <<-'IN'
	import os, pty, subprocess, sys, time
	master, slave = pty.openpty()
	p = subprocess.Popen([sys.argv[1], "top"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env={**os.environ, "TERM": "xterm"})
	os.close(slave)
	os.read(master, 10)
	os.close(master)
	try:
	    p.wait(20)
	except subprocess.TimeoutExpired:
	    p.kill()
	    sys.exit("it goes on without a terminal")
IN
check "it ends when its terminal has gone" python3 "$work/hang_up.py" "$VERBENA"

once() {
	"$VERBENA" top --once --delay 0.2 >"$work/once" || return 1
	[ "$(grep -c 'ib_send_lat .* RTS ' "$work/once")" = 4 ] && ! grep -q "$(printf '\033')" "$work/once"
}
check "--once prints a table without a terminal" once
check "--json is JSON" sh -c '"$0" top --json --delay 0.1 | python3 -c "import json, sys; assert len(json.load(sys.stdin)[\"qps\"]) == 4"' "$VERBENA"
no_terminal() { "$VERBENA" top </dev/null >"$work/out" 2>&1; [ $? = 1 ] && grep -q 'no terminal' "$work/out"; }
check "what is no terminal is an error" no_terminal
unknown_terminal() {
	tm kill-session -t top 2>/dev/null
	tm new-session -d -s top -x 120 -y 20 "env TERM=nonsense '$VERBENA' top; echo status \$?; sleep 300"
	wait_for 20 shows '^status 1' && shows "'nonsense' is not known"
}
check "a terminal of an unknown type is an error" unknown_terminal
wrong() { "$VERBENA" top --nonsense 2>/dev/null; [ $? = 2 ]; }
check "an unknown argument is a wrong usage" wrong
kill $all_servers 2>/dev/null
wait $all_servers 2>/dev/null
tm kill-server 2>/dev/null
finish
