// interfaces.c - the network interfaces, their adapters and addresses
// follows: verbena-devices(1); rtnetlink(7)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>

#include "core/device.h"
#include "tools/doctor/doctor.h"
#include "util/env.h"
#include "util/settings.h"

#define IP_FOR_4096 (4096 + 80)

struct adapter_view {
	struct vb_device *dev;
	struct vb_netdev nd;
	struct ibv_port_attr port;
};

/* At most three addresses, so that the line stays short. */
static void list_addresses(const struct vb_netdev *nd, char *text, size_t size)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	size_t n = 0;

	text[0] = '\0';
	for (size_t i = 0; i < nd->n_addrs && i < 3; i++) {
		char one[INET6_ADDRSTRLEN];
		bool v4 = !memcmp(nd->addrs[i], mapped, sizeof(mapped));

		inet_ntop(v4 ? AF_INET : AF_INET6, nd->addrs[i] + (v4 ? 12 : 0), one, sizeof(one));
		n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", one);
	}
	if (nd->n_addrs > 3)
		snprintf(text + n, size - n, " and %zu more", nd->n_addrs - 3);
}

static void find_adapter(const struct adapter_view *v)
{
	const char *name = v->nd.name, *dev = v->dev->dev.name;
	unsigned mtu = 128u << v->port.active_mtu;
	char addresses[256];

	list_addresses(&v->nd, addresses, sizeof(addresses));
	if (!vb_netdev_is_up(&v->nd))
		doc_find(DOC_WARN, "adapters", doc_mend("ip link set %s up (or plug in its cable)", name),
		         "%s on %s: the interface is down", dev, name);
	else if (!v->nd.n_addrs)
		doc_find(DOC_WARN, "adapters", doc_mend("ip addr add ADDRESS/BITS dev %s", name),
		         "%s on %s: the interface has no address, so it reaches nobody", dev, name);
	else
		doc_find(DOC_OK, "adapters", NULL, "%s on %s: %s; messages in packets of %u bytes (interface MTU %u)",
		         dev, name, addresses, mtu, v->nd.mtu);
	if (vb_netdev_is_up(&v->nd) && v->port.active_mtu < IBV_MTU_1024)
		doc_find(DOC_WARN, "mtu", doc_mend("ip link set %s mtu 1500", name),
		         "%s: an interface MTU of %u leaves room for packets of %u bytes only; some programs need 1024",
		         dev, v->nd.mtu, mtu);
	else if (vb_netdev_is_up(&v->nd) && v->nd.arphrd == ARPHRD_ETHER && v->nd.mtu > 1500 && v->nd.mtu < IP_FOR_4096)
		doc_find(DOC_OK, "mtu", NULL, "%s: with an interface MTU of %d it could send packets of 4096 bytes",
		         dev, IP_FOR_4096);
}

static void find_versions_of_ip(void)
{
	long long off = 0;

	if (doc_read_number("/proc/sys/net/ipv6/conf/all/disable_ipv6", &off) && off)
		doc_find(DOC_OK, "ip", NULL, "IPv6 is switched off (net.ipv6.conf.all.disable_ipv6); IPv4 suffices");
}

void doc_check_interfaces(void)
{
	const char *list = vb_env("VERBENA_DEVICES");
	size_t len;
	const char *wrong = vb_settings_devices_word(list, &len);
	int n;
	struct ibv_device **devices = vb_device_list(&n);

	if (wrong)
		doc_find(DOC_FAIL, "adapters", "unset VERBENA_DEVICES, or say roce:INTERFACE or iwarp:INTERFACE",
		         "VERBENA_DEVICES: \"%.*s\" names no adapter", (int)(len < 64 ? len : 64), wrong);
	if (!devices) {
		doc_find(DOC_FAIL, "adapters", NULL, "the network interfaces cannot be listed: %s", strerror(errno));
		return;
	}
	if (!n)
		doc_find(DOC_FAIL, "adapters", list && *list ? "unset VERBENA_DEVICES" : "ip link set lo up",
		         "there are no adapters");
	for (int i = 0; i < n; i++) {
		struct adapter_view v = {.dev = vb_device_of(devices[i])};

		vb_device_netdev(v.dev, &v.nd);
		vb_query_port_attr(v.dev, 1, &v.port);
		find_adapter(&v);
	}
	vb_device_list_free(devices);
	find_versions_of_ip();
}
