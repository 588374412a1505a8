#!/bin/bash
# manuals.sh - every page in man/ is installed if its program is built, and groff has nothing to say about any
# SPDX-License-Identifier: MIT
# usage: manuals.sh SOURCE BUILD
set -u
source=$1 build=$2
command -v meson >/dev/null || { echo "skipped: no meson"; exit 77; }
installed=$(meson introspect --installed "$build") || { echo "FAILED: meson does not say what is installed"; exit 1; }
optional=(verbena-target verbena-srp-host verbena-srp-target verbena-disk nbdkit-verbena-plugin) # built if their libraries exist
failed=0
is_built() { # NAME: or it is always built
	[[ " ${optional[*]} " != *" $1 "* ]] || grep -qF "/$1" <<<"$installed"
}
for page in "$source"/man/*.[1-9]; do
	name=$(basename "${page%.*}")
	is_built "$name" || { echo "left out $name: it is not built"; continue; }
	if grep -qF "/man${page##*.}/$(basename "$page")\"" <<<"$installed"; then
		echo "ok $(basename "$page")"
	else
		echo "FAILED $(basename "$page") is not installed"
		failed=1
	fi
done
if command -v groff >/dev/null; then
	# a long word in a narrow column is no mistake of the page
	said=$(for page in "$source"/man/*.[1-9]; do groff -man -Tascii -ww -z "$page" 2>&1; done | grep -v "can't break line\|cannot break line\|cannot adjust line")
	[ -z "$said" ] || { echo "FAILED $said"; failed=1; }
fi
exit $failed
