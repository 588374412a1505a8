#!/bin/bash
# pyverbs.sh - rdma-core's own test suite, from Debian's python3-pyverbs: one line for each of its tests
# follows: rdma-core's Documentation/testing.md
# SPDX-License-Identifier: MIT
# usage: pyverbs.sh [MODULE…]
source "$(dirname "$0")/../../support/lib.sh"
suite=/usr/share/doc/rdma-core/tests
[ -e $suite/run_tests.py ] || { skip pyverbs "python3-pyverbs is not installed"; exit 0; }
/usr/bin/python3 -c 'import pyverbs.device' 2>/dev/null || { skip pyverbs "Debian's python cannot import pyverbs"; exit 0; }
chosen=$*
modules=${*:-addr atomic cq cq_events cqex device flow fork mr odp parent_domain pd qp qpex rdmacm relaxed_ordering rss_traffic shared_pd tag_matching}
declare -A apply=() tests=([addr]=3 [atomic]=9 [cq]=4 [cq_events]=2 [cqex]=5 [device]=22 [flow]=5 [fork]=1 [mr]=27 [odp]=17 [parent_domain]=6 [pd]=4 [qp]=26 [qpex]=20
	[rdmacm]=10 [relaxed_ordering]=3 [rss_traffic]=1 [shared_pd]=1 [tag_matching]=4)

# Tests that may be skipped, with reasons. All others must pass.
cat >"$work/may_skip" <<'EOF'
DmaBuf.*: dmabuf, needs a graphics adapter
ParentDomainTrafficTest.test_huge_page_traffic: huge pages
EOF
[ "$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages 2>/dev/null || echo 0)" != 0 ] ||
	echo 'OdpTestCase.test_odp_rc_huge_.*: this machine has no huge pages' >>"$work/may_skip"

cp -r $suite "$work/suite"
gunzip -f "$work"/suite/*.gz
cat >"$work/suite/lines.py" <<'EOF'
# One line for each test: verdict, name, reason or trace
import os, re, sys, unittest
from importlib.machinery import SourceFileLoader
from args_parser import parser
sys.modules['tests'] = SourceFileLoader('tests', os.path.join(os.path.dirname(__file__), '__init__.py')).load_module()
parser.parse_args()

class Lines(unittest.TestResult):
    def say(self, verdict, test, why=''):
        print(verdict, '.'.join(test.id().split('.')[-2:]), why.replace('\n', '~'), sep='\t', file=out, flush=True)
    def startTest(self, test): super().startTest(test); self.say('begin', test)
    def addSuccess(self, test): self.say('pass', test)
    def addSkip(self, test, reason): self.say('skip', test, reason)
    def addError(self, test, err): self.say('fail', test, self._exc_info_to_string(err, test))
    def addFailure(self, test, err): self.say('fail', test, self._exc_info_to_string(err, test))

def wanted(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite): yield from wanted(test)
        elif re.fullmatch(os.environ['APPLY'], test.id().split('.')[-1]): yield test

out = open(os.environ['LINES'], 'w')
found = unittest.defaultTestLoader.loadTestsFromName(os.environ['MODULE'], sys.modules['tests'])
unittest.TestSuite(wanted(found)).run(Lines())
EOF

# one module: prints a line for each test
module() { # NAME WHAT ARGS…
	local name=$1 what=$2 verdict test why reason last="" n=0 status
	shift 2
	APPLY=${apply[$name]:-.*} LINES=$work/lines MODULE=test_$name timeout -k 2 $((120 * SLOW)) "${run[@]}" /usr/bin/python3 "$work/suite/lines.py" "$@" \
		>"$work/suite.out" 2>&1 </dev/null
	status=$?
	while IFS=$'\t' read -r verdict test why; do
		[ "$verdict" = begin ] && { last=$test n=$((n + 1)); continue; }
		last=
		case $verdict in
		pass) echo "ok $name: $test$what" ;;
		skip)
			reason=$(awk -F ': ' -v t="$test" 't ~ "^" $1 "$" { print $2; exit }' "$work/may_skip")
			if [ -n "$reason" ]; then
				skip "$name: $test$what" "not there yet: $reason"
			else
				check "$name: $test$what" eval "echo 'skipped, and should pass:' $(printf %q "$why"); false"
			fi ;;
		*) check "$name: $test$what" eval "tr '~' '\n' <<<$(printf %q "$why"); false" ;;
		esac
	done <"$work/lines"
	[ -z "$last" ] || check "$name: $last$what" eval "echo 'it did not end (status $status)'; false"
	[ $n = "${tests[$name]:-$n}" ] || check "$name has ${tests[$name]} tests$what" eval "echo '$n were run'; cat '$work/suite.out'; false"
}

cd "$work/suite" || exit 1
on_loopback() {
	for m in $modules; do module "$m" "" --dev roce_lo --gid 1; done
	echo $failed >"$work/failed"
}
on_ethernet() {
	ip link add v0 type veth peer name v1
	ip addr add 10.1.1.1/24 dev v0
	ip link set v0 up
	ip link set v1 up
	for _ in $(seq 200); do ip -o link show v0 | grep -q LOWER_UP && break; sleep 0.1; done
	export VERBENA_WIRE=always
	for m in $modules; do module "$m" ", packet by packet on Ethernet" --dev roce_v0 --gid 1; done
	[ -n "$chosen" ] || by_iwarp
	echo $failed >"$work/failed"
}
# iWARP has no UD, UC, XRC, raw packets and multicast, and rdma_cm alone connects its queue pairs. These are the tests
# that use neither; of device, one needs a GID table with an empty entry. test_rdmacm_async_traffic_external_qp waits for
# an event of InfiniBand's connection management.
by_iwarp() {
	modules="cq cqex device fork mr pd qp rdmacm"
	tests=([cq]=3 [cqex]=2 [device]=21 [fork]=1 [mr]=5 [pd]=4 [qp]=5 [rdmacm]=5)
	apply=([cq]='test_create_cq.*' [cqex]='test_create_cq_ex.*' [device]='test_(?!query_gid_ex_bad_flow).*'
		[mr]='test_(reg_mr_bad_flags|reg_mw_wrong_type|create_dm_mr|dm_bad_access|dm_bad_registration)'
		[qp]='test_(create|query)_rc_qp.*' [rdmacm]='test_rdmacm_(sync_traffic|async_(traffic|read|write|reject_traffic))')
	export VERBENA_DEVICES=iwarp:v0
	unset VERBENA_WIRE
	for m in $modules; do module "$m" ", by iWARP" --dev iwarp_v0 --gid 0; done
	echo $failed >"$work/failed"
}
# One program with an InfiniBand port: its queue pairs are connected by LID. The manager configures the fabric, and ends.
# rdmacm needs one that stays; flow, rss_traffic and some tests of addr and qp need Ethernet. Without arguments it has the
# modules that see addresses, ports and most kinds of traffic
on_fabric() {
	export VERBENA_FABRIC=$work/fabric VERBENA_NODE=host1
	local fabric ready i
	"$BUILD/src/fabric/verbena-fabric" --generate switch:2 --socket "$VERBENA_FABRIC" >"$work/fabric.out" 2>&1 &
	fabric=$!
	for ((i = 0; i < 200; i++)); do [ -S "$VERBENA_FABRIC" ] && break; sleep 0.05; done
	mkdir "$work/sm"
	OSM_CACHE_DIR=$work/sm OSM_TMP_DIR=$work/sm timeout 60 "${run[@]}" opensm -o -f "$work/sm/log" >"$work/sm/out" 2>&1
	ready() { "$BUILD/src/fabric/verbena-fabric" ctl show host1 | grep -q ' Active '; }
	for ((i = 0; i < 200; i++)); do ready && break; sleep 0.05; done
	check "opensm has configured the fabric" ready
	apply=([addr]='test_(?!create_ah_roce).*' [qp]='test_(?!create_raw_qp_(ex_)?(no|with)_attr|query_raw_qp).*')
	tests[addr]=2 tests[qp]=21
	for m in ${chosen:-addr atomic cqex device qp qpex}; do
		case $m in rdmacm | flow | rss_traffic) continue ;; esac
		module "$m" ", by LID on a fabric" --dev ib0 --gid 0
	done
	kill $fabric
	wait $fabric
	echo $failed >"$work/failed"
}
# apart FUNCTION: runs it in its own network namespace, where the port is free, with its own broker
apart() {
	mkdir -m 700 "$work/run/$1"
	declare -p run tests apply chosen SLOW modules failed >"$work/state"
	VERBENA_RUNTIME=$work/run/$1 unshare -n bash -uc 'trap - EXIT; source "$work/state"; ip link set lo up; "$1"' bash "$1"
	failed=$(cat "$work/failed" || echo 1)
}
export work BUILD
export -f on_loopback on_ethernet on_fabric by_iwarp module skip check
if unshare -n ip link add v0 type veth peer name v1 2>/dev/null; then
	apart on_loopback
	apart on_ethernet
	command -v opensm >/dev/null && apart on_fabric || skip "the suite on a fabric" "opensm is not installed"
else
	on_loopback
	skip "the suite on Ethernet" "no right to make network namespaces with veth"
fi
finish
