#!/bin/bash
# misuse.sh - commands that make no sense: each prints one line that says what is wrong, and has the exit status of its page
# follows: verbena(1), and the manual page of each command
# SPDX-License-Identifier: MIT
# usage: misuse.sh VERBENA
set -u
verbena=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export VERBENA_RUNTIME=$work/runtime XDG_CONFIG_HOME=$work/config
mkdir -m 700 "$VERBENA_RUNTIME"
unset VERBENA_DEVICES VERBENA_FAULT
failed=0
fail() { echo "FAILED $*"; failed=1; }
mkdir "$work/folder"
printf 'drop p=0.1\nat 2s\n' >"$work/scenario"
printf 'link r0 type roce netdev lo\nlink r1 type ro' >"$work/cut"

# exit status | what the line contains | the words after verbena, which a shell reads
while IFS='|' read -r status said words; do
	eval "timeout 60 '$verbena' $words" >"$work/out" 2>"$work/err" </dev/null
	got=$?
	[ $got = "$status" ] || fail "verbena $words: exit status $got, not $status"
	[ "$(wc -l <"$work/err")" = 1 ] || fail "verbena $words: not one line: $(cat "$work/err")"
	grep -qF -- "$said" "$work/err" || fail "verbena $words: '$said' is missing: $(cat "$work/err")"
done <<END
2|no command 'bogus'|bogus
2|no command 'bogus'|help bogus
2|one argument too many|help run stat
2|one argument too many|version now
125|unknown option '--bogus'|run --bogus true
125|unknown option '--devices=lo'|run --devices=lo true
125|--device needs a value|run --device
125|--device needs a value|run --device '' true
125|allowed is a list of INTERFACE|run --device iwrp:lo true
125|allowed is auto, always or never|run --wire=sometimes true
125|--capture needs a file|run --capture '' true
125|--capture needs a file|run --capture
125|Is a directory|run --capture '$work/folder' true
2|a probability is from 0 to 1|run --fault 'drop p=2' true
2|No such file|run --fault @/nowhere/file true
125|no program given|run --wire never
127|not found|run /nowhere/program
2|no file given|capture
2|there is no adapter 'roce_none'|capture -w '$work/x' --device roce_none
2|--filter 'no such words'|capture -w '$work/x' --filter 'no such words'
2|--qp 'x'|capture -w '$work/x' --qp x
1|has no open adapter|capture -w '$work/x' --pid $$
1|Is a directory|capture -w '$work/folder' --seconds 1
1|there is no adapter 'roce_none'|stat --device roce_none
1|there is no adapter 'roce_none'|stat qps --device roce_none
1|there is no adapter 'roce_none'|stat --openmetrics --device roce_none
1|there is no process $$ of yours|stat --pid $$
2|--rates needs a number|stat --rates 0
2|--rates is for|stat mrs --rates 1
1|there is no adapter 'roce_none'|top --once --device roce_none
1|there is no process $$ of yours|top --once --pid $$
1|this is no terminal|top
1|no program of yours has|fault add drop
1|has the process id $$|fault add --pid $$ drop
1|has the process id $$|fault list --pid $$
2|there is no such action|fault add nonsense
2|line 2|fault check '$work/scenario'
2|not a regular file|fault check '$work/folder'
1|there is no interface 'none0'|link add r0 type roce netdev none0 --user
1|there is no adapter 'none0'|link show none0
2|the type is roce or iwarp|link add r0 type tcp netdev lo --user
2|automatic needs on or off|link automatic --user
2|ADDRESS:PORT|exporter --listen unix:
2|ADDRESS:PORT|exporter --listen 127.0.0.1:99999
3|is wrong|doctor --bogus
2|is wrong|bench --seconds 0
1|Name or service not known|bench --seconds 1 fe80::zz # no DNS server is asked for that
2|unknown option|enable --bogus
END
[ ! -e "$work/x" ] || fail "a capture that did not begin has left a file"

# --- a file of adapters that was cut off ---
mkdir -p "$XDG_CONFIG_HOME/verbena" && cp "$work/cut" "$XDG_CONFIG_HOME/verbena/devices.conf"
timeout 60 "$verbena" devices >"$work/out" 2>"$work/err"
[ $? = 1 ] && grep -q '^r0 ' "$work/out" && [ "$(wc -l <"$work/err")" = 1 ] || fail "devices with a file that was cut off: $(cat "$work/err")"
timeout 60 "$verbena" link set r0 mtu 1024 --user >"$work/out" 2>"$work/err"
[ $? = 1 ] && cmp -s "$work/cut" "$XDG_CONFIG_HOME/verbena/devices.conf" || fail "a file with a wrong line was changed: $(cat "$work/err")"

# --- help describes a command as its --help does ---
for command in $("$verbena" help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'); do
	[ "$("$verbena" help $command)" = "$("$verbena" $command --help)" ] || fail "help $command"
done
for words in 'fault add --help' 'fault add --all --help' 'link add r0 type --help' 'capture -w x --help' 'stat qps --help'; do
	[ "$("$verbena" $words)" = "$("$verbena" help ${words%% *})" ] || fail "$words is not the help of ${words%% *}"
done
[ "$("$verbena" run --no-shim -- printf %s --help)" = --help ] || fail "a program's --help is the launcher's"

# --- all that print have JSON, and one value has two forms ---
rm "$XDG_CONFIG_HOME/verbena/devices.conf"
printf 'drop p=0.1 seed=1\nat 2s remove all\n' >"$work/right"
for words in version devices 'enable --status' 'fault list' "fault check $work/right" 'link show' 'link add r0 type roce netdev lo --user' 'link set r0 mtu 1024 --user' \
	stat 'stat processes' 'top --once --delay=0.1' 'capture --seconds=0.1' "capture --seconds 0.1 -w $work/some.pcapng"; do
	timeout 60 "$verbena" $words --json >"$work/out" 2>"$work/err" </dev/null
	python3 -c 'import json, sys; json.load(open(sys.argv[1], "rb"))' "$work/out" 2>/dev/null || fail "$words --json: $(cat "$work/out" "$work/err")"
done
"$verbena" run --fault='wc=RETRY_EXC_ERR nth=1' --wire=never true || fail "--fault=RULE"

# --- what takes long shows on a terminal how far it is, and leaves nothing there ---
cat >"$work/progress.py" <<-'IN'
	import fcntl, os, pty, struct, subprocess, sys, termios
	def begin(columns, *words):
	    master, slave = pty.openpty()
	    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
	    p = subprocess.Popen([sys.argv[1], *words], stdout=subprocess.DEVNULL, stderr=slave)
	    os.close(slave)
	    return p, master
	def said(p, master):
	    text = b""
	    try:
	        while part := os.read(master, 65536):
	            text += part
	    except OSError: # the command has ended
	        pass
	    assert p.wait() == 0, text
	    return text
	stat, narrow, capture, soon = begin(80, "stat", "--rates", "3"), begin(20, "top", "--once", "--delay", "3"), begin(80, "capture", "--json", "--seconds", "4"), begin(80, "stat", "--rates", "0.2")
	text = said(*stat)
	assert (b"... rates: 2 of 3 s" in text or b"... rates: 3 of 3 s" in text) and text.endswith(b" \r"), text
	lines = said(*narrow).split(b"\r")
	assert any(l.startswith(b"... rates") for l in lines) and max(map(len, lines)) <= 19, lines
	text = said(*capture)
	assert b"0 frames captured, 0 dropped" in text and text.endswith(b" \r"), text
	assert not said(*soon)
	# bold heads are for terminals that have them
	for term, bold in (("xterm", True), ("dumb", False)):
	    master, slave = pty.openpty()
	    subprocess.run([sys.argv[1], "stat"], stdout=slave, check=True, env={**os.environ, "TERM": term})
	    os.close(slave)
	    assert (b"\x1b[1m" in os.read(master, 65536)) == bold, term
IN
timeout 60 python3 "$work/progress.py" "$verbena" 2>"$work/err" || fail "progress: $(tail -1 "$work/err")"
[ $failed = 0 ] && echo ok
exit $failed
