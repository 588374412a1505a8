# ceph_caps.sh - verbena-target with keys that lack capabilities, on the cluster that ceph.sh has started with cephx
# follows: docs/ceph.md, "Images as NVMe disks"; ceph(8), "auth"
# SPDX-License-Identifier: MIT
# sourced, not run; after ceph_gateway.sh
keys=$work/keys

caps_made() {
	printf 'auth get-or-create client.%s\n' "none" "noosd mon 'profile rbd'" "reader mon 'profile rbd' osd 'profile rbd-read-only pool=disks'" \
		"elsewhere mon 'profile rbd' osd 'profile rbd pool=p'" "nofence mon 'allow r' osd 'profile rbd pool=disks'" \
		"right mon 'profile rbd' osd 'profile rbd pool=disks'" | ceph >"$keys" && [ "$(grep -c '^.client' "$keys")" = 6 ] || { cat "$keys"; return 1; }
}
lacks() { # CLIENT MESSAGE ARGS…
	refused_with "$2" --ceph-user "$1" --ceph-keyring "$keys" --export "${@:3}"
}
caps_missing() {
	local osd="needs the capability osd 'profile rbd" mon="needs the capability mon 'profile rbd'"
	at_once 'lacks stranger "lets client.stranger not in" rbd:disks/g' 'lacks none "lets client.none not in" rbd:disks/g' \
		'lacks noosd "client.noosd $osd pool=disks" rbd:disks/g' 'lacks elsewhere "client.elsewhere $osd pool=disks" rbd:disks/g' &&
		at_once 'lacks elsewhere "client.elsewhere $osd-read-only pool=disks" rbd:disks/g --read-only' \
			'lacks reader "client.reader $osd pool=disks" rbd:disks/g' \
			'lacks nofence "client.nofence $mon" rbd:disks/g' \
			'lacks nofence "client.nofence $mon" rbd:disks/g --gateway n --nqn "$gateway_url"'
}
# The target that runs: what it cannot add is said in a line, the rest goes on
caps_others() {
	local said
	gateway_config disks/g disks/old
	python3 - "$work/gateway.json" "$cluster/ceph.conf" "$keys" <<-'END' || return 1
		import json, sys
		file, conf, keys = sys.argv[1:]
		c = json.load(open(file))
		for n, (user, readonly) in enumerate([("none", 0), ("noosd", 0), ("reader", 0), ("nofence", 0), ("reader", 1), ("right", 0)]):
		    c["subsystems"][0]["namespaces"].append({"nsid": 3 + n, "backend": "rbd", "path": "disks/old", "ceph_conf": conf, "ceph_user": user,
		                                             "ceph_keyring": keys, "readonly": bool(readonly)})
		json.dump(c, open(file, "w"))
	END
	said=$(wc -l <"$work/gateway.err")
	kill -HUP "$(program_of "$gateway")" && wait_for 60 gateway_said 4 "$said" || { cat "$work/gateway.err"; return 1; }
	tail -n +$((said + 1)) "$work/gateway.err" | tee "$work/caps.said"
	[ "$(grep -c 'capability\|not in' "$work/caps.said")" = 4 ] && gateway_says '"nsid": 7' && grep '"nsid": 8' "$work/status" && ! grep '"nsid": [3456]' "$work/status" &&
		on_disk tcp read @ 0 1m | cmp - "$work/zeros" && on_disk tcp read "@?nsid=7" 0 4k >"$work/read" && on_disk tcp write "@?nsid=8" 4k < <(head -c 4096 "$work/zeros") &&
		gateway_config disks/g && kill -HUP "$(program_of "$gateway")" && wait_for 60 gateway_lacks_old
}
gateway_said() { tail -n +$(($2 + 1)) "$work/gateway.err" | grep "read again.*$1 items failed"; } # N LINES
gateway_lacks_old() { ! gateway_says '"nsid": 8'; }

caps_cases() { # HOW
	check "$1: keys with less than they need" caps_made
	check "$1: … are refused in one line each" caps_missing
	check "$1: … also by a target that runs, which serves what it can" caps_others
}
