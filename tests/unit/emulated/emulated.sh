#!/bin/bash
# emulated.sh - unit tests on an emulated machine: frames and engines on s390x, which is big-endian; on aarch64 core
# usage: emulated.sh s390x|aarch64   Libraries other than the C library are left out (ISA-L: frame/ has code of its own)
# EMULATED=long: on aarch64 the whole library too, and two programs that use it
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/../../.."
machine=$1
skip() {
	echo "skipped: $*"
	exit 77
}
case $machine in
s390x) packages="gcc-s390x-linux-gnu libc6-dev-s390x-cross" ;;
aarch64) packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;;
*) echo "usage: emulated.sh s390x|aarch64" >&2; exit 2 ;;
esac
export CC=$machine-linux-gnu-gcc
command -v "$CC" >/dev/null || skip "no cross compiler (Debian: $packages)"
[ -e "/usr/$machine-linux-gnu/lib/libc.a" ] || skip "no C library for $machine (Debian: $packages)"
command -v "qemu-$machine" >/dev/null || skip "no emulator (Debian: qemu-user)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work
# headers of libraries are the same for all machines; the C library's own headers come first
export flags="-std=gnu17 -O1 -D_GNU_SOURCE -Wall -Wextra -Wno-maybe-uninitialized -Wno-unused-parameter -Wno-missing-field-initializers -Wno-sign-compare -Werror
	-fno-strict-aliasing -fPIC -fvisibility=hidden -Isrc -Itests/unit -idirafter /usr/include -DVB_VERSION=\"0\" -DVB_LIBDIR=\"/none\" -DVB_EMULATED"
compile() { # SOURCE: into $work/SOURCE.o
	mkdir -p "$work/$(dirname "$1")"
	# shellcheck disable=SC2086
	$CC $flags ${more:-} -c -o "$work/$1.o" "$1"
}
export -f compile
compile_all() { printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'compile {}'; }
sources() { # NAME FOLDER: the files of a list in FOLDER/meson.build
	awk -v list="$1 = files(" 'index($0, list) == 1 { on = 1 } on { print } on && /\)/ { exit }' "$2/meson.build" | grep -o "'[^']*\.c'" | tr -d "'" | sed "s|^|$2/|"
}

# run_tests FOLDER "HELPER…" "LIBRARY SOURCE…" TEST…
run_tests() {
	local part=$1 helpers=$2 library=$3 t s objects
	shift 3
	for t; do
		objects=()
		for s in "tests/unit/$part/${t}_test.c" $helpers $library; do
			objects+=("$work/$s.o")
			[ -e "$work/$s.o" ] || echo "$s"
		done >"$work/missing"
		[ ! -s "$work/missing" ] || { mapfile -t s <"$work/missing" && compile_all "${s[@]}"; }
		$CC -static -pthread -o "$work/test" "${objects[@]}" -lm
		timeout 300 "qemu-$machine" "$work/test" >"$work/out" 2>&1 || {
			cat "$work/out"
			echo "not ok $part $t on $machine"
			exit 1
		}
		echo "ok $part $t: $(wc -l <"$work/out")"
	done
}

frame=$(echo src/frame/*.c)
run_tests frame tests/unit/frame/reference.c "$frame" cursor icrc ip_sums message net opcode packet psn tso
run_tests fault "" "$(sources vb_fault_rule_sources src/fault) src/frame/opcode.c" rule script
run_tests roce tests/unit/roce/fixture.c "$(echo src/engine/roce/*.c) $frame" requester responder
run_tests iwarp tests/unit/iwarp/fixture.c "$(echo src/engine/iwarp/*.c) $frame" mpa rdmap stream hostile
run_tests cm "tests/unit/cm/fixture.c tests/unit/cm/sim.c" "$(echo src/engine/cm/*.c) $frame" conn message route
[ "$machine" = aarch64 ] || exit 0
core="$(sources vb_core_objects src/core) $(sources vb_fault_rule_sources src/fault) src/fault/set.c src/fault/timer.c"
run_tests core tests/unit/core/fake.c "$core src/core/lid.c src/core/ib.c $frame src/util/guard.c src/util/lock.c src/util/log.c" \
	ah arrival async cq handle key mr mw post qp qp_state srq
run_tests core src/util/lock.c "" favourite
[ "${EMULATED:-}" = long ] || exit 0
missing_of() { while read -r s; do [ -e "$work/$s.o" ] || echo "$s"; done; }
# the whole library, and programs that talk to each other; the first one of them has the broker inside. Not optimized,
# which is quicker than all of it would be
export more=-O0
mapfile -t library < <(find src/{util,frame,capture,fault,core,engine,net,node,path,broker,abi} src/fabric/proto -name '*.c' ! -path src/broker/server/main.c)
programs=(tests/system/local/{pair,work,window_cases,kinds}.c)
mapfile -t s < <(printf '%s\n' "${library[@]}" | missing_of)
compile_all "${s[@]}" "${programs[@]}"
mkdir "$work/lib"
mapfile -t s < <(printf "$work/%s.o\n" "${library[@]}")
$CC -shared -pthread -Wl,--version-script,src/abi/libibverbs.map -Wl,-z,nodelete -Wl,-Bsymbolic -Wl,-soname,libibverbs.so.1 -o "$work/lib/libibverbs.so.1" "${s[@]}" -ldl
mapfile -t s < <(printf "$work/%s.o\n" "${programs[@]}")
$CC -pthread -o "$work/test" "${s[@]}" "$work/lib/libibverbs.so.1"
ip link show lo 2>/dev/null | grep -q UP || skip "lo is down, so there is no adapter for two programs"
for t in "two that sleep wake each other" "UC delivers" "datagrams over IPv4 addresses"; do
	timeout 100 "qemu-$machine" -L "/usr/$machine-linux-gnu" -E "LD_LIBRARY_PATH=$work/lib" "$work/test" "$t" >"$work/out" 2>&1 && grep -q '^ok' "$work/out" && ! grep -q skipped "$work/out" || {
		cat "$work/out"
		echo "not ok two programs on $machine: $t"
		exit 1
	}
	echo "ok two programs: $t"
done
# the rest is compiled, so that what the layouts of structs must be is checked
export more=-fsyntax-only
mapfile -t rest < <(find src -name '*.c' | missing_of)
compile_all "${rest[@]}"
echo "ok ${#rest[@]} other files compile"
