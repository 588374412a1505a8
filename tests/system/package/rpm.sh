#!/bin/bash
# rpm.sh - the RPM packages: built from verbena.spec, divided as the Debian packages, and used where they are unpacked
# follows: rpmbuild(8); https://docs.fedoraproject.org/en-US/packaging-guidelines/Meson/
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need rpmbuild rpm rpm2cpio cpio meson ninja ibv_rc_pingpong
sanitized && { skip "RPM packages" "they are built without sanitizers"; exit 0; }
unset CFLAGS LDFLAGS CC
version=$(sed -n 's/^Version: *//p' "$ROOT/verbena.spec")
name=verbena-$version

# The macros of a distribution with RPM that Debian's rpm lacks. %meson gives the directories of the distribution.
# Nothing is optimized: that takes half of the time, and tells nothing about the packages
libdir=/usr/lib64
cat >"$work/macros" <<IN
%_topdir $work/rpm
%_libdir $libdir
%_unitdir /usr/lib/systemd/system
%_smp_mflags -j$(nproc)
%dist .test
%debug_package %{nil}
%__strip /bin/true
%meson meson setup --prefix=/usr --libdir=$libdir --mandir=share/man --wrap-mode=nodownload --buildtype=plain -Doptimization=0 _build
%meson_build ninja -C _build
%meson_install DESTDIR=%{buildroot} meson install -C _build --no-rebuild
%systemd_post() :
%systemd_preun() :
IN
macros="$(rpm --showrc | sed -n 's/^Macro path: //p'):$work/macros"
mkdir -p "$work/rpm/SOURCES" "$work/$name"
# what git knows, and new files that it does not ignore
source_archive() {
	(cd "$ROOT" && git ls-files -coz --exclude-standard | while IFS= read -r -d '' f; do [ ! -f "$f" ] || printf '%s\0' "$f"; done | tar -c --null -T -) |
		tar -x -C "$work/$name" && tar -czf "$work/rpm/SOURCES/$name.tar.gz" -C "$work" "$name"
}
parsed() { rpmspec --macros="$macros" -P "$ROOT/verbena.spec" | grep -q '^%files'; }
check "rpmspec reads the spec" parsed
check "the archive of the source is made" source_archive
# Debian's packages are not in RPM's database, so what the build needs is not looked up there
build_all() { rpmbuild --macros="$macros" --nodeps -ba "$ROOT/verbena.spec" >"$work/log" 2>&1 || { tail -40 "$work/log"; return 1; }; }
check "rpmbuild builds the source package and the binary ones; no installed file is left out" build_all
rpm_of() { # PACKAGE
	compgen -G "$work/rpm/RPMS/*/$1-$version-1.test.*.rpm"
}
[ -n "$(rpm_of verbena)" ] || finish
complete() {
	local p
	for p in verbena verbena-libs verbena-storage verbena-nbdkit-plugin verbena-devel; do
		rpm_of "$p" >/dev/null || { echo "$p is missing"; return 1; }
	done
	[ "$(compgen -G "$work/rpm/SRPMS/*.src.rpm" | wc -l)" = 1 ]
}
check "every package is there" complete
query() { rpm --dbpath "$work/db" -qp "$@" 2>/dev/null; }
no_rdma_core() { ! query --provides "$(rpm_of verbena-libs)" | grep -E 'lib(ibverbs|rdmacm)\.so'; }
check "the libraries with rdma-core's names are offered to no other package" no_rdma_core
once() { # each file is in one package
	local p
	for p in "$work"/rpm/RPMS/*/*.rpm; do query -l "$p"; done | grep -v '/\.build-id\|/licenses/\|^/usr/share/doc/[^/]*$\|^(' | sort | uniq -d >"$work/twice"
	[ ! -s "$work/twice" ] || { cat "$work/twice"; return 1; }
}
check "each file is in one package" once
private() { ! query -l "$(rpm_of verbena-libs)" | grep -E '/lib(ibverbs|rdmacm)\.so' | grep -v "^$libdir/verbena/"; }
check "the replacement libraries are in a private directory alone" private
same_files() { # the packages have what `meson install` gives
	local p
	for p in "$work"/rpm/RPMS/*/*.rpm; do query -l "$p"; done | sed 's/\.gz$//' | sort -u >"$work/listed"
	grep -qx "$libdir/verbena/libibverbs.so.1" "$work/listed" && grep -qx /usr/bin/verbena "$work/listed" &&
		grep -qx "$libdir/verbena/verbena-broker" "$work/listed" && grep -q '/man/man7/verbena\.7$' "$work/listed" && grep -q '/verbena_nvme\.h$' "$work/listed"
}
check "command, broker, libraries, pages and headers are packaged" same_files
unpacked() {
	local p
	mkdir "$work/root" && cd "$work/root" || return 1
	for p in verbena verbena-libs; do rpm2cpio "$(rpm_of $p)" | cpio -id --quiet || return 1; done
	"./usr/bin/verbena" version | grep -q "$version"
}
check "the packages unpack, and the command runs" unpacked
used() {
	VERBENA=$work/root/usr/bin/verbena
	run=("$VERBENA" run)
	pair ibv_rc_pingpong -d roce_lo -g 1 -n 100
}
check "a stock program runs with what was unpacked" used
finish
