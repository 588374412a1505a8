#!/bin/bash
# scsi_tools.sh - libiscsi's conformance tests and sg3-utils, unmodified, at verbena-srp-target: they take its units for /dev/sg*
# follows: iscsi-test-cu(1), sg3_utils(8); tests/system/storage/scsi_generic.c
# SPDX-License-Identifier: MIT
# usage: scsi_tools.sh TARGET LIBRARY
source "$(cd "$(dirname "$0")" && pwd)/../../support/lib.sh"
target=$1 library=$2
need iscsi-test-cu sg_inq
GUID=0002c90300001234
A=/dev/sgverbena1.0 B=/dev/sgverbena2.0 F=/dev/sgverbena1.1
truncate -s 64M "$work/image"
"${run[@]}" "$target" --port 0 --guid $GUID --export memory:64M --export "$work/image" --control "$work/control" >"$work/out" 2>"$work/err" &
server=$!
trap 'kill -9 $server 2>/dev/null; rm -rf "$work"' EXIT
wait_for 20 grep -q dest= "$work/out"
port=$(sed 's/.*://' "$work/out")
export SCSI_GENERIC_AT="$port $GUID"
uses() { timeout -k 2 $((60 * SLOW)) "${run[@]}" sh -c 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"' "$library" "$@"; }
all() { # COMMANDS, with the library preloaded
	uses sh -ec "$1"
}
refused() { # PATTERN COMMAND…: fails with this sense data
	! uses "${@:2}" >"$work/refused" 2>&1 && grep -qi "$1" "$work/refused"
}

# CONFORM=SCSI: all of them, which takes minutes. docs/storage.md lists what they skip, and why
conforms() {
	local family
	for family in ${CONFORM:-CompareAndWrite GetLBAStatus ModeSense6 PrinReportCapabilities Prout{Register,Reserve,Clear,Preempt} ReportSupportedOpcodes Unmap}; do
		[ "$family" = SCSI ] || family=SCSI.$family
		uses iscsi-test-cu --dataloss --normal --fail --test="$family" $A $B >"$work/cu" 2>&1 || { cat "$work/cu"; return 1; }
		! grep '\[FAILED\]' "$work/cu" || return 1
	done
}

asked() {
	all "for p in sv sn di ei mpp bl bdc lbpv; do [ \$p = mpp ] || sg_vpd -p \$p $A; done; sg_vpd -a $A; sg_inq $A; sg_inq -e -p 0x80 $A; sg_turs $A; sg_requests $A
		sg_requests -d $A; sg_luns $A | grep '0001000000000000'; sg_readcap $A; sg_readcap --16 $A | grep lbpme=1; sg_modes -a $A; sg_modes -6 $A
		sg_opcodes $A | grep 'Mode select(10)'; sg_opcodes -R $A; sg_opcodes -o 0x5e,0 -t $A; sg_opcodes --tmf $A; sg_get_lba_status -l 0 $A
		sg_verify -l 0 -c 64 $A; sg_sync $A; sg_persist -i -c $A; sg_prevent --allow $A || [ \$? = 9 ]; sg_logs $A || [ \$? = 9 ]"
}
moved() {
	all "head -c 512 /dev/zero >$work/z; head -c 512 /dev/urandom >$work/r; cat $work/z $work/r >$work/zr
		sg_dd if=$work/r of=$A bs=512 count=1; sg_dd if=$A of=$work/back bs=512 count=1; cmp $work/r $work/back
		sg_write_same --16 --ndob -l 0 -n 64 $A; sg_compare_and_write -l 0 -n 1 -i $work/zr -x 1024 $A; sg_dd if=$A of=$work/back bs=512 count=1; cmp $work/r $work/back
		sg_write_same --10 -l 8 -n 8 -i $work/r -x 512 $A; sg_verify -l 8 -c 1 -n 512 -i $work/r $A; sg_unmap --force -l 0 -n 64 $A; sg_dd if=$A of=$work/back bs=512 count=1
		cmp $work/z $work/back; sg_dd if=$F of=/dev/null bs=512 bpt=256 count=4096; sg_write_verify -l 0 -n 1 -i $work/r -I 512 $A || [ \$? = 1 ]"
}
reserved() {
	all "sg_persist -n -o -G -S 11 $A; sg_persist -n -o -R -K 11 -T 3 $A; sg_persist -n -i -r $B | grep 'Exclusive Access'; sg_persist -n -i -s $B
		sg_dd if=$B of=/dev/null bs=512 count=1 && exit 1; sg_persist -n -o -G -S 22 $B; sg_persist -n -o -P -K 22 -S 11 -T 3 $B; sg_dd if=$B of=/dev/null bs=512 count=1
		sg_persist -n -o -C -K 22 $B; sg_persist -n -i -k $A | grep -i 'no registered'"
}
changed() {
	all "sg_wr_mode -p 0xa -c '0a 0a 00 10 08 40 00 00 ff ff 00 00' $A; sg_modes -p 0xa $A | grep WP=1; sg_write_same --16 --ndob -l 0 -n 1 $A && exit 1
		sg_reset -d $A; sg_turs $A || sg_turs $A; sg_modes -p 0xa $A | grep WP=0; sg_write_same --16 --ndob -l 0 -n 1 $A
		sdparm --version >/dev/null 2>&1 || true; sg_wr_mode -p 8 -c '08 12 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00' $F
		sg_modes -p 8 $F | grep -A1 Caching | grep ' 08 12 00'; sg_start --stop $A; sg_turs $A && exit 1; sg_start --start $A; sg_turs $A"
}
refuses() {
	refused 'Illegal request\|not supported\|illegal' sg_format --format --quick $A && refused 'Illegal request\|not supported\|illegal' sg_sanitize --crypto --quick $A &&
		refused 'Illegal request\|not supported\|illegal' sg_sat_identify $A && refused 'Illegal request\|not supported\|illegal' sg_read_buffer -m d $A
}
resized() {
	truncate -s 96M "$work/image" && "$target" resize 1 --control "$work/control" | grep -x $((96 << 20)) && all "sg_readcap --16 $F | grep 'Number of logical blocks=196608'" &&
		"$target" add memory:1M --control "$work/control" | grep -x 2 && all "sg_luns $A | grep 0002000000000000; sg_turs /dev/sgverbena1.2" &&
		"$target" remove 2 --control "$work/control" && all "sg_luns $A | grep 0002000000000000 && exit 1; true"
}
check "libiscsi's conformance tests pass" conforms
check "sg3-utils ask everything that the units have to say" asked
check "… read, write, compare, verify and unmap" moved
check "… reserve, and a second initiator preempts" reserved
check "… change mode pages, reset, stop and start" changed
check "what a disk of files cannot do is refused" refuses
check "units are resized, added and removed" resized
kill "$server"
check "the target ends well" wait "$server"
exit $((failed > 0))
