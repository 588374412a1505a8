#!/bin/bash
# prometheus.sh - a real Prometheus reads the exporter, and the dashboard of docs/grafana shows families that exist
# follows: verbena-exporter(1), OpenMetrics 1.0.0
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need python3 curl ibv_rc_pingpong

"$VERBENA" stat --openmetrics >"$work/metrics" || exit 1
target_says() { # adds the families of verbena-target
	local target
	echo '{"listen": [{"transport": "tcp", "address": "127.0.0.1", "port": 0}], "subsystems": [{"nqn": "nqn.2026-01.test:d", "allow_any_host": true,
		"namespaces": [{"nsid": 1, "backend": "memory", "size": "1M"}]}]}' >"$work/target.json"
	"${run[@]}" "$BUILD/storage/verbena-target" --config "$work/target.json" --control "$work/target.sock" >"$work/target.out" 2>&1 </dev/null &
	target=$!
	wait_for 20 test -S "$work/target.sock" && "$BUILD/storage/verbena-target" metrics --control "$work/target.sock" >>"$work/metrics"
	local status=$?
	kill $target
	wait $target
	return $status
}
if [ -x "$BUILD/storage/verbena-target" ]; then
	check "verbena-target has metrics" target_says
else
	skip "the panels of verbena-target" "it is not built"
fi
dashboard_names() {
	python3 - "$ROOT/docs/grafana/verbena.json" "$work/metrics" <<-'PY'
		import re, sys
		import json
		panels = json.load(open(sys.argv[1]))["panels"]
		assert len({p["id"] for p in panels}) == len(panels) and all(t["expr"].count("(") == t["expr"].count(")") for p in panels for t in p["targets"])
		shown = set(re.findall(r"verbena_[a-z_]+", open(sys.argv[1]).read()))
		there = set()
		for line in open(sys.argv[2]):
		    m = re.match(r"# TYPE (\S+) (\S+)", line)
		    if m:
		        there.add(m[1] + ("_total" if m[2] == "counter" else ""))
		if not any(n.startswith("verbena_target") for n in there):
		    shown = {n for n in shown if not n.startswith("verbena_target")}
		print(sorted(shown - there))
		sys.exit(not shown or bool(shown - there))
	PY
}
check "each query of the dashboard names a family of the exporter" dashboard_names
command -v promtool >/dev/null && command -v prometheus >/dev/null ||
	{ skip "Prometheus" "prometheus and promtool are not installed"; finish; }

free_port
exported=127.0.0.1:$port
timeout 200 "$VERBENA" exporter --listen "$exported" 2>"$work/exporter.out" &
exporter=$!
wait_for 20 curl -sf -o "$work/page" "http://$exported/metrics"
# the lint of promtool knows the older text format: _total is in the name of a family there
judged() { curl -s "http://$exported/metrics" | grep -v '^# EOF' | promtool check metrics 2>&1 | tee "$work/lint"; ! grep -qi "error while\|parse error\|invalid" "$work/lint"; }
check "promtool reads the metrics" judged
free_port
api=127.0.0.1:$port
cat >"$work/prometheus.yml" <<-END
	global: {scrape_interval: 1s, scrape_timeout: 1s}
	scrape_configs:
	  - job_name: verbena
	    static_configs: [{targets: ['$exported']}]
END
check "its configuration is right" promtool check config "$work/prometheus.yml"
timeout 200 prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address="$api" >"$work/prometheus.out" 2>&1 &
prometheus=$!
ask() { curl -s --max-time 10 "http://$api/api/v1/query" --data-urlencode "query=$1"; }
value_is() { # QUERY CONDITION of v
	ask "$1" | tee "$work/answer" | python3 -c 'import json, sys
v = [float(r["value"][1]) for r in json.load(sys.stdin)["data"]["result"]]
sys.exit(not eval(sys.argv[1]))' "$2" 2>/dev/null
}
check "Prometheus scrapes the exporter" wait_for 60 value_is 'up{job="verbena"}' 'v == [1.0]'
check "programs send" pair ibv_rc_pingpong -d roce_lo -g 1 -n 100
check "its API has the sum of programs that have ended" wait_for 60 value_is 'verbena_device_port_xmit_packets_total{device="roce_lo",user="'"$(id -u)"'"}' 'v == [200.0]'
check "and no counter went back" value_is 'resets(verbena_device_port_xmit_packets_total[10m])' 'v == [0.0]'
kill $prometheus $exporter
wait $prometheus $exporter
finish
