#!/bin/bash
# debs.sh - the Debian packages: the same bytes twice, lintian, and in a fresh Debian: use, upgrade, removal, purge
# follows: Debian policy 4.6.2, deb-version(7)
# SPDX-License-Identifier: MIT
# usage: debs.sh   SUITES: Debian's releases in whose roots the packages are tried ("bookworm trixie")
# PACKAGES=long: they are built a second time, at another place, which must give the same bytes
source "$(dirname "$0")/../../support/lib.sh"
need dpkg-buildpackage dh
[ "$(id -u)" = 0 ] && unshare -nm true 2>/dev/null || { skip "Debian packages" "needs root and namespaces"; exit 0; }
sanitized && { skip "Debian packages" "they are built without sanitizers"; exit 0; }
unset VERBENA_RUNTIME DEB_BUILD_OPTIONS CFLAGS LDFLAGS CC
export DEB_BUILD_OPTIONS="parallel=$(nproc)"

# Roots are made while the packages are built, from where this machine's apt gets its packages. What the packages depend
# on is in them, so nothing is downloaded later
suites=${SUITES:-bookworm trixie}
root_jobs=
if command -v mmdebstrap >/dev/null; then
	for suite in $suites; do
		chmod 755 "$work"
		timeout 400 mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/{doc,man,locale}/*' \
			--include=ibverbs-utils,rdmacm-utils,libisal2,libjson-c5,liburing2,libssl3,iproute2,procps,systemd "$suite" "$work/$suite.tar" \
			>"$work/$suite.log" 2>&1 </dev/null &
		root_jobs="$root_jobs $suite=$!"
	done
fi

# --- building ---
check "make deb builds the packages" "$ROOT/data/deb" "$work/debs"
[ -f "$work/debs/verbena-doc_"*_all.deb ] || finish
names_complete() {
	local p
	for p in verbena libverbena1 libverbena-nvme0 verbena-storage libverbena-dev verbena-doc; do
		compgen -G "$work/debs/${p}_*.deb" >/dev/null || { echo "$p is missing"; return 1; }
	done
}
check "every package is there" names_complete
# From another directory, as from another clone, with another locale, umask and time zone. Two libraries and what is made
# of text would show a path or a time
again() {
	local clone=$work/other/clone-with-a-longer-name
	mkdir -p "$clone" && tar -C "$ROOT" --exclude='./build*' -c . | tar -C "$clone" -x || return 1
	(umask 077; LC_ALL=C TZ=Pacific/Auckland "$clone/data/deb" "$work/debs-again") || return 1
	(cd "$work/debs" && sha256sum -- *.deb) >"$work/sums"
	(cd "$work/debs-again" && sha256sum --quiet -c "$work/sums")
}
[ "${PACKAGES:-}" != long ] || check "the packages are the same bytes, built at another place" again
rm -rf "$work/other" "$work/debs-again"
if command -v lintian >/dev/null; then
	check "lintian finds no error and no warning" lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$work"/debs/*.changes
else
	skip "lintian" "it is not installed"
fi
not_in_loaders_path() {
	! dpkg-deb -c "$work"/debs/libverbena1_*.deb | grep -E '/lib(ibverbs|rdmacm)\.so' | grep -v '/verbena/lib' | grep .
}
check "the replacement libraries are in a private directory alone" not_in_loaders_path
# The earlier version has the same contents: what counts is dpkg's way from one to the other
earlier() {
	local f name
	mkdir "$work/earlier"
	for f in "$work"/debs/*_*.deb; do
		case $f in *-dbgsym_* | *-dev_* | *-doc_*) continue ;; esac
		name=$(basename "$f")
		rm -rf "$work/unpacked"
		dpkg-deb -R "$f" "$work/unpacked" || return 1
		sed -i 's/^Version: .*/Version: 0.0.9/; s/(= [0-9.]*)/(= 0.0.9)/' "$work/unpacked/DEBIAN/control"
		dpkg-deb --root-owner-group -b "$work/unpacked" "$work/earlier/$name" >/dev/null || return 1
	done
}
check "packages of an earlier version are made" earlier

# --- in a fresh Debian ---
# inside COMMAND: in the root $root, in its own namespaces of mounts, processes and network
inside() {
	timeout $((120 * SLOW)) unshare -mnpf --mount-proc bash -uc '
		mount --make-rprivate / && mount --bind "$1" "$1" && mount -t proc proc "$1/proc" && mount -t tmpfs -o mode=755 none "$1/run" &&
			mount -t tmpfs -o mode=1777 none "$1/dev/shm" && mount --rbind /sys "$1/sys" && ip link set lo up &&
			DEBIAN_FRONTEND=noninteractive LC_ALL=C exec chroot "$1" /bin/bash -euc "$2"' bash "$root" "$1"
}
# what a package may not leave: all files but those that dpkg, ldconfig and apt write themselves
contents() {
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./run -o -path ./dev -o -path ./tmp -o -path ./debs -o -path ./earlier \
		-o -path ./var/lib/dpkg -o -path ./etc/machine-id -o -path './var/lib/systemd/[!d]*' -o -path ./var/log -o -path ./var/cache \) -prune -o -print | sort)
}
ping_both='timeout 30 $run ibv_rc_pingpong -d roce_lo -g 1 -n 100 & s=$!
	sleep 1
	timeout 30 $run ibv_rc_pingpong -d roce_lo -g 1 -n 100 127.0.0.1
	wait $s'
installed='dpkg -i /debs/*.deb >/dev/null'
first_install() {
	inside 'dpkg -i /earlier/*.deb >/dev/null; [ -z "$(dpkg --audit)" ]; dpkg-query -W -f "\${Version}\n" verbena | grep -qx 0.0.9' || return 1
	# without the launcher, no program changes
	inside 'if ibv_devices | grep roce_lo; then exit 1; fi; ldd /usr/bin/ibv_devices | grep -v /verbena/ | grep -q "libibverbs.so.1 => /"'
}
upgrade() {
	inside "$installed; [ -z \"\$(dpkg --audit)\" ]; dpkg-query -W verbena libverbena1 | grep -v '	0.0.9' | grep -c ." | grep -qx 2
}
services() {
	inside 'dpkg -L verbena | grep -q systemd/system/verbena-broker.service; dpkg -L verbena-storage | grep -q systemd/system/verbena-target.service
		for u in broker target; do p=$(sed -n "s/^ExecStart=\([^ ]*\).*/\1/p" /lib/systemd/system/verbena-$u.service); [ -x "$p" ] || { echo "$p"; exit 1; }; done
		[ ! -e /etc/systemd/system/multi-user.target.wants/verbena-broker.service ]'
}
# the broker of the unit serves root and a user
broker_serves() {
	inside 'mkdir /run/verbena; $(sed -n "s/^ExecStart=//p" /lib/systemd/system/verbena-broker.service) & b=$!; sleep 1
		run="verbena run"; '"$ping_both"'
		pgrep -c verbena-broker | grep -qx 1
		run="setpriv --reuid 1000 --regid 1000 --clear-groups verbena run"; '"$ping_both"'
		kill $b'
}
# --- with systemd as the first process ---
in_booted() { # COMMAND
	timeout $((60 * SLOW)) nsenter -t "$first" -m -p -n -i -u -C -r -w /bin/bash -euc "$1"
}
first_process() { # systemd itself, once it answers
	local p=$boot child
	while child=$(pgrep -o -P "$p"); do
		p=$child
		[ "$(cat "/proc/$p/comm" 2>/dev/null)" = systemd ] && first=$p && in_booted 'systemctl is-system-running | grep -qE "running|degraded"' && return 0
	done
	return 1
}
unit_broker() {
	in_booted 'systemctl start verbena-broker && systemctl is-active verbena-broker
		run="verbena run"; '"$ping_both"'
		export VERBENA_WIRE=always
		run="setpriv --reuid 1000 --regid 1000 --clear-groups verbena run"; '"${ping_both//ibv_rc_pingpong/ibv_rc_pingpong -e}"'
		[ ! -e /tmp/verbena-1000 ] || ! ls /tmp/verbena-1000 | grep broker
		systemctl is-active verbena-broker'
}
# The keeper has the sockets of programs that run while the broker is restarted. They may start a broker first: the unit's
# follows when they have ended
unit_restarted() {
	in_booted 'export VERBENA_WIRE=always
		timeout 50 verbena run ibv_rc_pingpong -e -d roce_lo -g 1 -n 30000 >/tmp/said & s=$!
		sleep 1
		timeout 50 verbena run ibv_rc_pingpong -e -d roce_lo -g 1 -n 30000 127.0.0.1 & c=$!
		sleep 1
		systemctl restart verbena-broker || true
		kill -0 $c && wait $c && wait $s
		for _ in $(seq 60); do [ "$(systemctl is-active verbena-broker)" = active ] && exit 0; sleep 0.5; done
		systemctl status verbena-broker
		exit 1'
}
unit_target() {
	in_booted 'mkdir -p /etc/verbena /var/lib/verbena
		(umask 077; cat >/etc/verbena/target.json <<-J
			{"listen": [{"transport": "tcp", "address": "127.0.0.1", "port": 4420}, {"transport": "rdma", "address": "127.0.0.1", "port": 4420}],
			"subsystems": [{"nqn": "nqn.2026-01.example:d", "allow_any_host": true, "namespaces": [{"nsid": 1, "backend": "file", "path": "/var/lib/verbena/disk"}]}]}
		J
		truncate -s 16M /var/lib/verbena/disk)
		systemctl start verbena-target && sleep 1 && systemctl is-active verbena-target
		head -c 1000000 /dev/urandom >/tmp/data
		for t in tcp rdma; do
			u=nvme+$t://127.0.0.1:4420/nqn.2026-01.example:d
			verbena run verbena-disk info $u
			verbena run verbena-disk info $u | grep -q 16777216 || verbena run verbena-disk info $u | grep -q "16 MiB"
		done
		verbena-target status | grep -q io_uring
		systemctl reload verbena-target && sleep 0.5 && systemctl is-active verbena-target
		systemctl stop verbena-target
		systemctl show -p Result verbena-target | grep -qx Result=success
		rm -rf /etc/verbena /var/lib/verbena'
}
units_run() { # SUITE
	"$ROOT/tests/support/boot-root" "$root" >"$work/boot.log" 2>&1 </dev/null &
	boot=$!
	if wait_for 30 first_process 2>/dev/null; then
		check "$1: systemd starts the broker, which serves root and a user" unit_broker
		check "$1: systemd restarts the broker while two programs use the network" unit_restarted
		check "$1: systemd starts, reloads and stops a target, for TCP and RDMA" unit_target
	else
		skip "$1: the units, with systemd" "systemd cannot be the first process of a namespace here: $(tail -1 "$work/boot.log")"
	fi
	kill "$boot"
	wait "$boot"
	rmdir "$root/old" 2>/dev/null
	rm -rf "$root"/var/tmp/systemd-private-*
}
enabled_upgrade() { # it stays on over an upgrade, and the removal switches it off
	inside "verbena enable; $installed; verbena enable --status; ibv_devices | grep -q roce_lo; run=; $ping_both; dpkg -r verbena
		[ ! -e /etc/ld.so.conf.d/00-verbena.conf ]; ldd /usr/bin/ibv_devices | grep -v /verbena/ | grep -q 'libibverbs.so.1 => /'; $installed"
}
target_works() {
	inside 'truncate -s 16M /tmp/disk; verbena run verbena-target --export /tmp/disk --transport auto --port 4420 >/tmp/urls & t=$!; for i in 1 2 3 4 5 6 7 8 9 10; do [ -s /tmp/urls ] && break; sleep 0.5; done
		verbena run verbena-disk info "$(head -1 /tmp/urls)"; kill $t; wait $t || true'
}
removed_and_purged() {
	inside 'dpkg -r verbena-storage verbena libverbena1 libverbena-nvme0 >/dev/null; dpkg -P verbena-storage verbena libverbena1 libverbena-nvme0 >/dev/null
		! dpkg-query -W "*verbena*" 2>/dev/null | grep .' || return 1
	contents >"$work/after"
	diff "$work/before" "$work/after"
}
try_in() { # SUITE PID
	local suite=$1
	root=$work/$suite
	if ! wait "$2"; then
		skip "the packages in a fresh $suite" "no root can be made: $(tail -1 "$work/$suite.log" | sed 's%//[^ /]*%//…%g')"
		return
	fi
	mkdir "$root" && tar -C "$root" -xf "$work/$suite.tar" --exclude=./dev/* && rm "$work/$suite.tar" || return
	mkdir -p "$root/dev/shm"
	for d in null zero urandom random; do cp -a "/dev/$d" "$root/dev/"; done
	mkdir "$root/debs" "$root/earlier"
	cp "$work"/earlier/*.deb "$root/earlier/"
	for f in "$work"/debs/*.deb; do case $f in *-dbgsym_* | *-dev_* | *-doc_*) ;; *) cp "$f" "$root/debs/" ;; esac; done
	contents >"$work/before"
	check "$suite: an earlier version installs, and programs without the launcher do not change" first_install
	check "$suite: the upgrade" upgrade
	check "$suite: verbena devices" inside "verbena devices | grep '^roce_lo '"
	check "$suite: verbena run ibv_rc_pingpong, both ends" inside "run='verbena run'; $ping_both"
	check "$suite: the same as an ordinary user" inside "run='setpriv --reuid 1000 --regid 1000 --clear-groups verbena run'; $ping_both"
	check "$suite: rping" inside "timeout 30 verbena run rping -s -C 5 -a 127.0.0.1 & s=\$!; sleep 1; timeout 30 verbena run rping -c -C 5 -a 127.0.0.1; wait \$s"
	check "$suite: a target and its client" target_works
	check "$suite: units are there, name programs that are there, and are not switched on" services
	check "$suite: the broker that the unit starts serves root and a user" broker_serves
	[ "$suite" != "${suites%% *}" ] || units_run "$suite"
	check "$suite: verbena enable stays over an upgrade, and removal disables it" enabled_upgrade
	check "$suite: removal and purge leave no file" removed_and_purged
	rm -rf "$root"
}
if [ -z "$root_jobs" ]; then
	skip "the packages in a fresh Debian" "mmdebstrap is not installed"
fi
for job in $root_jobs; do try_in "${job%=*}" "${job#*=}"; done
export VERBENA_RUNTIME=$work/run
finish
