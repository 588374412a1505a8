# ceph_wait.py - waits until a cluster is in a state, by one connection: ceph(8) takes longer to start than to ask
# follows: Ceph 16's Python interface of librados; ceph(8): osd stat, pg stat, pg dump, mds stat
# SPDX-License-Identifier: MIT
# ceph_wait.py SECONDS STATE [ARGUMENT] --conf FILE. States: up N (OSDs), clean, scrubbed SINCE, mds
import json, sys, time

import rados

seconds, state, *argument = sys.argv[1:-2]
end = time.monotonic() + float(seconds)
cluster = rados.Rados(conffile=sys.argv[-1])
cluster.connect(timeout=float(seconds))


def ask(send, **command):
    status, said, why = send(json.dumps(dict(command, format="json")), b"")
    if status:
        print(command["prefix"], status, why, file=sys.stderr)
    return None if status else json.loads(said)


def is_up():
    said = ask(cluster.mon_command, prefix="osd stat")
    return bool(said) and said.get("osdmap", said)["num_up_osds"] == int(argument[0])


def is_clean():  # all placement groups are active and have all their copies
    said = ask(cluster.mgr_command, prefix="pg stat")
    summary = said and said["pg_summary"]
    return bool(summary and summary["num_pgs"] and all(s["name"] == "active+clean" for s in summary["num_pg_by_state"]))


def is_scrubbed():  # every placement group was read and compared by all its OSDs since then. pg dump writes local times
    said = ask(cluster.mgr_command, prefix="pg dump", dumpcontents=["pgs"])
    return bool(said and said["pg_stats"]) and all(pg["last_deep_scrub_stamp"] >= argument[0] for pg in said["pg_stats"])


def has_mds():
    said = ask(cluster.mon_command, prefix="mds stat")
    return bool(said) and "up:active" in json.dumps(said)


states = {"up": is_up, "clean": is_clean, "scrubbed": is_scrubbed, "mds": has_mds}
failure = None
while not failure and not states[state]():
    if time.monotonic() > end:
        failure = "not %s within %s s" % (" ".join([state, *argument]), seconds)
    time.sleep(0.1)
cluster.shutdown()  # ends the messenger's threads: at the end of the process OpenSSL takes their locks away
sys.exit(failure)
