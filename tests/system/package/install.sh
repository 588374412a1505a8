#!/bin/bash
# install.sh - what make install puts below a prefix works from there: programs, pkg-config, CMake, completions, units, pages
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need meson ibv_rc_pingpong
if sanitized; then
	skip "install" "a sanitized build is not installed"
	exit 0
fi
staged=$work/staged prefix=$work/moved # the folder behind DESTDIR, and the same tree at another place

staged_install() {
	DESTDIR=$staged meson install -C "$BUILD" --no-rebuild >"$work/install.log" || { tail -20 "$work/install.log"; return 1; }
	configured=$(meson introspect --buildoptions "$BUILD" | python3 -c 'import json, sys; print([o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"][0])')
	mv "$staged$configured" "$prefix"
	! find "$staged" -type f -path "$staged/etc/*" | grep . # nothing outside the prefix
}
check "an installation behind DESTDIR is below the prefix alone" staged_install
libdir=$(dirname "$(find "$prefix" -path '*/verbena/libibverbs.so.1')")
libdir=${libdir%/verbena}
VERBENA=$prefix/bin/verbena
run=("$VERBENA" run)

# --- programs ---
check "verbena devices lists lo" bash -c "'$VERBENA' devices | grep -q '^roce_lo '"
loads_ours() {
	"${run[@]}" ldd "$(command -v ibv_rc_pingpong)" | tee /dev/stderr | grep -q "libibverbs.so.1 => $libdir/verbena/libibverbs.so.1 "
}
check "verbena run puts the installed libraries first" loads_ours
check "ibv_rc_pingpong, both ends" pair ibv_rc_pingpong -d roce_lo -g 1 -n 200 -c
own_broker() { # beside the library, not one of the build
	start_server ibv_rc_pingpong -d roce_lo -g 1 -n 200
	readlink "/proc/$(brokers | head -1)/exe" | tee /dev/stderr | grep -qx "$libdir/verbena/verbena-broker"
	local status=$?
	kill "$server"
	wait "$server"
	return $status
}
check "the broker is the installed one" own_broker
page_there() { [ -s "$prefix/share/man/man8/verbena-broker.8" ] && [ -s "$prefix/share/man/man1/verbena-run.1" ]; }
check "the pages of the broker and of the launcher are there" page_there

# --- programs that are built with it ---
cat >"$work/consumer.c" <<'C'
#include <infiniband/verbs.h>
#include <stdio.h>
int main(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; list && i < n; i++)
		puts(ibv_get_device_name(list[i]));
	return !list || n == 0;
}
C
by_pkg_config() {
	local flags
	flags=$(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --define-variable=prefix="$prefix" --cflags --libs verbena) || return 1
	gcc -o "$work/consumer" "$work/consumer.c" $flags || return 1
	"$work/consumer" | tee /dev/stderr | grep -qx roce_lo
}
check "a program built by pkg-config loads the libraries without the launcher" by_pkg_config
mkdir "$work/cmake"
cat >"$work/cmake/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.16)
project(consumer C)
find_package(Verbena 0.1 REQUIRED)
find_package(Verbena REQUIRED COMPONENTS ibverbs rdmacm)
add_executable(consumer ../consumer.c)
target_link_libraries(consumer PRIVATE Verbena::rdmacm Verbena::ibverbs)
C
by_cmake() {
	cmake -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$work/cmake/build" || return 1
	"$work/cmake/build/consumer" | tee /dev/stderr | grep -qx roce_lo
}
too_new() { # a version that is not there is refused
	sed 's/Verbena 0.1/Verbena 99/' "$work/cmake/CMakeLists.txt" >"$work/cmake/new" && mv "$work/cmake/new" "$work/cmake/CMakeLists.txt"
	! cmake -S "$work/cmake" -B "$work/cmake/build2" -DCMAKE_PREFIX_PATH="$prefix"
}
if command -v cmake >/dev/null; then
	check "find_package(Verbena) gives targets that a program links" by_cmake
	check "find_package(Verbena 99) fails" too_new
else
	skip "find_package(Verbena)" "cmake is not installed"
fi

# --- completions ---
completed() { # LINE: what bash offers for it
	bash -c 'source "$1"; read -ra COMP_WORDS <<<"$2"; [[ $2 != *" " ]] || COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _verbena; printf "%s\n" "${COMPREPLY[@]}"' \
		bash "$prefix/share/bash-completion/completions/verbena" "$1"
}
all_commands() {
	local c n=0
	for c in $("$VERBENA" help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'); do
		completed "verbena ${c%?}" | grep -qx "$c" || { echo "bash does not offer $c (data/commands)"; return 1; }
		grep -q "\"$c:" "$prefix/share/zsh/site-functions/_verbena" || { echo "zsh does not offer $c"; return 1; }
		n=$((n + 1))
	done
	[ $n -gt 10 ]
}
check "the completions have every command of verbena help" all_commands
# each option that --help describes, but --help itself, and those of another command
all_options() {
	local c o n=0
	for c in $("$VERBENA" help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'); do
		completed "verbena $c -" >"$work/offered"
		for o in $("$VERBENA" $c --help | grep -v '`verbena' | grep -oE '(^|[ [|])--[a-z][a-z-]+' | tr -d ' [|' | sort -u | grep -vx -- --help); do
			grep -qx -- "$o" "$work/offered" || { echo "bash does not offer $c $o (data/commands)"; return 1; }
			n=$((n + 1))
		done
	done
	[ $n -gt 30 ]
}
check "and every option of their --help" all_options
options_too() {
	completed "verbena devices --" | grep -qx -- --json && completed "verbena run --" | grep -qx -- --no-shim &&
		completed "verbena enable --s" | grep -qx -- --status && completed "verbena run ibv_rc_p" | grep -qx ibv_rc_pingpong
}
check "bash completes options, and the program of verbena run" options_too
if command -v zsh >/dev/null; then
	check "zsh reads its completion" zsh -n "$prefix/share/zsh/site-functions/_verbena"
fi

# --- units ---
units=$prefix/lib/systemd/system
if command -v systemd-analyze >/dev/null; then
	# the programs of the units are where this installation is
	sed -i "s%$configured/%$prefix/%" "$units"/*.service
	verified() { MANPATH=$prefix/share/man systemd-analyze verify --man=no "$units"/*.service 2>&1 | tee /dev/stderr | { ! grep -q verbena; }; }
	check "systemd-analyze verify has nothing to say about the units" verified
	# of 100, which is no sandbox at all; what remains: root, the network, the processes of the host
	for u in "$units"/*.service; do
		check "the sandbox of $(basename "$u"): an exposure of 3.0 at most" systemd-analyze security --offline=true --threshold=30 "$u"
	done
else
	skip "systemd units" "systemd-analyze is not installed"
fi
# Without systemd, the broker with the capabilities of its unit, on a read-only root
sandboxed_broker() {
	local s status=0 caps
	caps=$(sed -n 's/^CapabilityBoundingSet=//p' "$units/verbena-broker.service" | tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ /,/g')
	unshare -nm bash -uc 'ip link set lo up; mount -t tmpfs -o mode=755 none /run; mkdir -m 755 /run/verbena; mount --bind /run/verbena /run/verbena; mount -o remount,bind,ro /
		unset VERBENA_RUNTIME
		timeout 60 setpriv --bounding-set "-all,$2" --inh-caps=-all --no-new-privs "$1/verbena/verbena-broker" --stay & b=$!
		for _ in $(seq 200); do compgen -G "/run/verbena/broker-*.sock" >/dev/null && break; sleep 0.05; done
		for u in 0 47112; do
			as=(setpriv --reuid $u --regid $u --clear-groups)
			"${as[@]}" timeout 30 env VERBENA_WIRE=always XDG_RUNTIME_DIR=/nowhere "$0" run ibv_rc_pingpong -e -d roce_lo -g 1 -n 100 -p 18600 & s=$!
			sleep 1
			"${as[@]}" timeout 30 env VERBENA_WIRE=always XDG_RUNTIME_DIR=/nowhere "$0" run ibv_rc_pingpong -e -d roce_lo -g 1 -n 100 -p 18600 127.0.0.1 && wait $s || { kill $s; kill $b; exit 1; }
		done
		kill $b; wait $b' "$VERBENA" "$libdir" "$caps" || status=$?
	return $status
}
if [ "$(id -u)" = 0 ] && unshare -nm true 2>/dev/null; then
	chmod -R go+rX "$work/moved"
	check "a broker with the capabilities of its unit, on a read-only root, serves root and a user, over UDP" sandboxed_broker
else
	skip "a broker with the capabilities of its unit" "needs root"
fi

# --- RPM ---
spec_version() { [ "$(sed -n 's/^Version: *//p' "$ROOT/verbena.spec")" = "$("$VERBENA" version | cut -d' ' -f2)" ]; }
check "the RPM spec has the version of the build" spec_version
deb_version() { [ "$(sed -n '1s/.*(\(.*\)).*/\1/p' "$ROOT/debian/changelog")" = "$("$VERBENA" version | cut -d' ' -f2)" ]; }
check "debian/changelog has the version of the build" deb_version
# each installed file matches a line of %files, and each line matches a file
spec_files() {
	local pattern f bad=0 unmatched
	rpmspec -P --define "_prefix /p" --define "_datadir /p/share" --define "_libdir /p${libdir#"$prefix"}" --define "_unitdir /p/lib/systemd/system" "$ROOT/verbena.spec" 2>/dev/null |
		sed -n '/^%files/,/^%changelog/p' | sed '/^%exclude /d; s/^%dir //' | grep ^/ >"$work/patterns" || return 1
	(cd "$prefix" && find . \( -type f -o -type l \) | sed 's/^\./\/p/') >"$work/files"
	cp "$work/files" "$work/left"
	while read -r pattern; do
		unmatched=1
		while read -r f; do
			case $f in $pattern | ${pattern%/}/*) unmatched=0 && sed -i "\\%^$f\$%d" "$work/left" ;; esac
		done <"$work/files"
		[ $unmatched = 0 ] || { echo "no file: $pattern"; bad=1; }
	done <"$work/patterns"
	[ ! -s "$work/left" ] || { echo "in no package:"; cat "$work/left"; bad=1; }
	return $bad
}
if ! command -v rpmspec >/dev/null; then
	skip "the RPM spec" "rpm is not installed"
elif [ ! -f "$units/verbena-target.service" ] || [ ! -d "$libdir/nbdkit" ]; then
	skip "the RPM spec" "this build has no target or no plugin"
else
	check "the RPM spec can be parsed" bash -c "rpmspec -P '$ROOT/verbena.spec' >/dev/null"
	check "the RPM spec lists every installed file" spec_files
fi
finish
