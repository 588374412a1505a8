#!/bin/bash
# enable.sh - verbena enable and disable, in a copy of /etc
# follows: verbena-enable(8), ldconfig(8)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need meson ibv_rc_pingpong ibv_devices
sanitized && { skip "enable" "a sanitized build is not installed"; exit 0; }
[ "$(id -u)" = 0 ] && unshare -nm true 2>/dev/null || { skip "enable" "needs root"; exit 0; }

DESTDIR=$work/staged meson install -C "$BUILD" --no-rebuild >"$work/install.log" || { tail "$work/install.log"; exit 1; }
find "$work/staged" -name verbena -path '*/bin/verbena' -printf '%h\n' | sed 's%/bin$%%' >"$work/prefix"

# The switch's files are copies that nobody else sees: a name for what each case finds. /opt, because nobody but root can
# write there
cat >"$work/inside" <<'IN'
mount --make-rprivate /
mkdir "$work/etc"
mount -t tmpfs -o mode=755 none "$work/etc"
cp -a /etc/. "$work/etc/"
mount --bind "$work/etc" /etc
rm -f /etc/ld.so.conf.d/00-verbena.conf
mount -t tmpfs none /var/cache/ldconfig 2>/dev/null
mount -t tmpfs -o mode=755 none /opt
cp -a --no-preserve=ownership "$(cat "$work/prefix")" /opt/verbena
chmod -R go-w /opt/verbena
ip link set lo up
v=/opt/verbena/bin/verbena conf=/etc/ld.so.conf.d/00-verbena.conf
IN
alone() { # COMMAND: in such a copy
	work=$work timeout $((120 * SLOW)) unshare -nm bash -uc "source $work/inside; $1"
}
on_and_off='ldconfig; before=$(ldconfig -p | sort | md5sum)
	$v enable --status && exit 1
	$v enable && $v enable --status && ibv_devices | grep -q roce_lo || exit 2
	ldd $(command -v ibv_devices) | grep -q "/opt/verbena/.*/libibverbs.so.1" || exit 3
	$v disable && [ ! -e $conf ] && ! $v enable --status || exit 4
	[ "$before" = "$(ldconfig -p | sort | md5sum)" ]'
check "enable gives the adapters to programs without the launcher, and disable restores the cache" alone "$on_and_off"
check "stock programs at both ends need no launcher when it is enabled" alone '$v enable || exit 1
	timeout 30 ibv_rc_pingpong -d roce_lo -g 1 -p 18601 -n 100 & s=$!
	sleep 1
	timeout 30 ibv_rc_pingpong -d roce_lo -g 1 -p 18601 -n 100 127.0.0.1 && wait $s'
check "enable and disable may be repeated" alone '$v enable && $v enable && $v disable && $v disable | grep -q "not enabled"'
check "a user is refused, and nothing changes" alone 'setpriv --reuid 47113 --regid 47113 --clear-groups $v enable; [ $? = 1 ] && [ ! -e $conf ]'
check "libraries that others than root can write are refused" alone 'chmod o+w /opt/verbena/lib; $v enable; [ $? = 1 ] && [ ! -e $conf ]'
check "libraries that belong to a user are refused" alone 'chown 47113 /opt/verbena/lib; $v enable; [ $? = 1 ] && [ ! -e $conf ]'
check "safe libraries behind links in a directory that others can write are refused" alone \
	'd=$(dirname "$(find /opt/verbena -name libibverbs.so.1)"); cp -a "$d" /opt/real; rm "$d"/lib*.so.1; ln -s /opt/real/lib*.so.1 "$d"; chmod o+w "$d"
	$v enable 2>"$work/words"; [ $? = 1 ] && grep "can be changed" "$work/words" && [ ! -e $conf ]'
check "a directory that the linker would take first is named, and the switch is taken back" alone \
	'mkdir /opt/other; cp -a "$(readlink -f /usr/lib/*/libibverbs.so.1)" /opt/other/libibverbs.so.1; echo /opt/other >/etc/ld.so.conf.d/00-a.conf
	$v enable 2>"$work/words"; [ $? = 1 ] && cat "$work/words" && grep -q /opt/other "$work/words" && [ ! -e $conf ]'
check "a ldconfig that fails takes the switch back" alone \
	'mkdir "$work/bin"; printf "#!/bin/sh\nexit 1\n" >"$work/bin/ldconfig"; chmod 755 "$work/bin/ldconfig"; mount --bind "$work/bin/ldconfig" "$(readlink -f /sbin/ldconfig)"
	$v enable; [ $? = 1 ] && [ ! -e $conf ]'
check "a kernel's adapter is named and refused, unless --force is given" alone \
	'mount -t tmpfs none /sys && mkdir -p /sys/class/infiniband/mlx5_0; $v enable 2>"$work/words"; [ $? = 1 ] && grep -q mlx5_0 "$work/words" && [ ! -e $conf ] && $v enable --force && [ -e $conf ]'
check "below the launcher, its own adapters are not mistaken for the kernel's" alone '$v run $v enable && [ -e $conf ]'
check "a wrong option is refused" alone '$v enable --frce; [ $? = 2 ] && ! { $v disable now; } && [ ! -e $conf ]'
check "a link in the place of the file is replaced, not followed" alone \
	'echo data >"$work/victim"; ln -s "$work/victim" /etc/ld.so.conf.d/.00-verbena.conf.new; ln -s "$work/victim" $conf; $v enable && [ "$(cat "$work/victim")" = data ] && [ ! -L $conf ]'
check "the status names a switch whose libraries are gone" alone '$v enable && rm -rf /opt/verbena/lib && ldconfig; $v enable --status >"$work/words"; [ $? = 1 ] && grep repairs "$work/words"'
finish
