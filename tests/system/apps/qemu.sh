#!/bin/bash
# qemu.sh - Debian's QEMU, unmodified: a running guest moves to another process over rdma:HOST:PORT, and goes on
# follows: qemu(1) -incoming rdma:, docs/rdma.txt of QEMU
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need qemu-system-x86_64 gcc
sanitized && { skip qemu "its emulator and the sanitizer both want the address space"; exit 0; }
ldd "$(command -v qemu-system-x86_64)" | grep -q librdmacm || { skip qemu "this QEMU knows no RDMA"; exit 0; }
TAKES=60 # limit in seconds; it takes two

# The guest: one program without an operating system. It counts on the serial console; each pass checks three ranges of
# its memory: one that every pass changes, one written once, and one that stays zero
cat >"$work/guest.c" <<'GUEST'
__asm__(".text\n.align 4\n.long 0x1badb002, 0, -0x1badb002\n"
        ".globl _start\n_start: mov $0x90000, %esp\ncall main\n");
#define AT(mb) ((volatile unsigned *)((mb) << 20))
#define ONCE(p) ((unsigned)(p) * 2654435761u)

static void say(const char *word, unsigned n)
{
	char line[16], *end = line;

	while (*word)
		*end++ = *word++;
	for (int shift = 28; shift >= 0; shift -= 4)
		*end++ = "0123456789abcdef"[n >> shift & 15];
	*end++ = '\n';
	for (char *c = line; c < end; c++) {
		unsigned char status;
		do
			__asm__ volatile("inb %w1, %0" : "=a"(status) : "Nd"(0x3fd));
		while (!(status & 0x20));
		__asm__ volatile("outb %0, %w1" : : "a"(*c), "Nd"(0x3f8));
	}
}

static void expect(volatile unsigned *p, unsigned value)
{
	if (*p != value)
		say("bad ", (unsigned)p);
}

void main(void)
{
	volatile unsigned *p;

	for (p = AT(8); p < AT(40); p++)
		*p = 0;
	for (; p < AT(72); p++)
		*p = ONCE(p);
	for (unsigned n = 0;; n++) {
		say("", n);
		for (p = AT(8); p < AT(40); p++) {
			expect(p, n);
			*p = n + 1;
		}
		for (; p < AT(72); p++)
			expect(p, ONCE(p));
		for (; p < AT(100); p++)
			expect(p, 0);
	}
}
GUEST
gcc -m32 -O2 -w -ffreestanding -fno-pie -no-pie -fno-stack-protector -fno-asynchronous-unwind-tables -nostdlib -static \
	-Wl,-Ttext=0x100000,--build-id=none,-N,--no-warn-rwx-segments -o "$work/guest" "$work/guest.c" ||
	{ skip qemu "no 32-bit program can be made here"; exit 0; }

declare -A monitor pid
# start WHO ARGS…: a QEMU with that guest; ${monitor[WHO]} is for commands to its monitor
start() {
	local who=$1 fd
	shift
	rm -f "$work/$who".*
	mkfifo "$work/$who.in"
	exec {fd}<>"$work/$who.in"
	monitor[$who]=$fd
	timeout -k 2 240 "${run[@]}" qemu-system-x86_64 -accel tcg -nodefaults -display none -m 128 -kernel "$work/guest" \
		-serial "file:$work/$who.serial" -monitor stdio "$@" <&$fd >"$work/$who.out" 2>&1 &
	pid[$who]=$!
}
tell() { echo "$2" >&"${monitor[$1]}"; } # WHO COMMAND
answers() { tell "$1" "info status"; grep -q "VM status: .*$2" "$work/$1.out"; } # WHO STATE
lines() { cat "$work/$1.serial" 2>/dev/null | wc -l; }
has_lines() { [ "$(lines "$1")" -ge "$2" ]; } # WHO N
end() { # WHO
	tell "$1" quit
	wait "${pid[$1]}"
	local status=$?
	exec {monitor[$1]}>&-
	[ $status = 0 ] || echo "$1 ended with $status"
	return $status
}
settled() {
	tell from "info migrate"
	grep -q "Migration status: \(completed\|failed\)" "$work/from.out"
}

# Each number appears once, in order, across the two consoles (a line may begin on one and end on the other), and
# nothing "bad"
counts_on() { cat "$work/from.serial" "$work/to.serial" | tr -d '\r' | head -n -1 | awk '{ if ($0 != sprintf("%08x", NR - 1)) { print "line " NR ": " $0; exit 1 } }'; }

# moves HOST CAPABILITY…
moves() {
	local host=$1 c status=1
	shift
	free_port
	start from
	start to -incoming "rdma:$host:$port"
	for c; do
		tell from "migrate_set_capability $c on"
		tell to "migrate_set_capability $c on"
	done
	tell from "migrate_set_parameter downtime-limit 5000"
	tell from "migrate_set_parameter max-bandwidth 10G"
	if wait_for $TAKES answers to inmigrate && wait_for $TAKES has_lines from 3; then
		tell from "migrate -d rdma:$host:$port"
		wait_for $TAKES settled && grep -q "Migration status: completed" "$work/from.out" &&
			wait_for $TAKES answers to running && wait_for $TAKES has_lines to 4 && counts_on && status=0
	fi
	end from || status=1
	end to || status=1
	[ $status = 0 ] && return 0
	for c in from to; do
		echo "--- $c"; tr -d '\r' <"$work/$c.out" | grep -v '^$\|\[K' | tail -12; tail -n 3 "$work/$c.serial"
	done
	return 1
}

check "a guest moves over RDMA and counts on, its memory whole" moves 127.0.0.1
check "a guest moves with all its memory pinned" moves 127.0.0.1 rdma-pin-all
finish
