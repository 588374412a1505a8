// netns_test.c - adapters follow the interfaces of a network namespace as they appear, change and disappear
// follows: rtnetlink(7), ibv_get_device_list(3)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"
#include "core/device.h"
#include "core/rdma_link.h"
#include "net/netdev.h"
#include "net/netdev_parse.h"

static void ip(const char *args)
{
	char cmd[256];

	snprintf(cmd, sizeof(cmd), "ip %s", args);
	if (system(cmd)) {
		fprintf(stderr, "failed: %s\n", cmd);
		exit(1);
	}
}

/* A plain Ethernet interface: the first of these kinds that the kernel supports. */
static const char *kind;

static void add(const char *name)
{
	char args[64];

	snprintf(args, sizeof(args), "link add %s type %s", name, kind);
	ip(args);
}

static struct vb_device *find(struct ibv_device **list, const char *name)
{
	for (; *list; list++)
		if (!strcmp((*list)->name, name))
			return vb_device_of(*list);
	return NULL;
}

static struct vb_device *hold(const char *name)
{
	struct ibv_device **list = vb_device_list(NULL);
	struct vb_device *dev = list ? find(list, name) : NULL;

	if (dev)
		vb_device_get(dev);
	vb_device_list_free(list);
	return dev;
}

/* The kernel reports a carrier with a delay (linkwatch): polls for at most twenty seconds. */
static bool happens(struct vb_device *dev, unsigned change)
{
	unsigned seen = 0;

	for (int i = 0; i < 2000 && !(seen & change); i++) {
		seen |= vb_device_refresh(dev);
		if (!(seen & change))
			usleep(10000);
	}
	return seen & change;
}

static bool becomes_active(struct vb_device *dev)
{
	struct ibv_port_attr port;

	for (int i = 0; i < 2000; i++) {
		vb_device_refresh(dev);
		if (!vb_query_port_attr(dev, 1, &port) && port.state == IBV_PORT_ACTIVE)
			return true;
		usleep(10000);
	}
	return false;
}

static union ibv_gid gid(const char *text)
{
	union ibv_gid g;

	CHECK(inet_pton(AF_INET6, text, &g) == 1);
	return g;
}

static int index_of(struct vb_device *dev, const char *text)
{
	union ibv_gid g = gid(text);

	return vb_query_gid_index(dev, 1, &g);
}

static void lo_alone_makes_an_adapter(void)
{
	int n;
	struct ibv_port_attr port;
	struct ibv_device **list = vb_device_list(&n);

	CHECK(list && n == 1 && !list[1] && find(list, "roce_lo"));
	CHECK(!strcmp(list[0]->dev_name, "uverbs0"));
	struct vb_device *lo = vb_device_of(list[0]);
	vb_query_port_attr(lo, 1, &port);
	CHECK(port.state == IBV_PORT_DOWN);
	ip("link set lo up");
	CHECK(vb_device_refresh(lo) == (VB_DEV_PORT_UP | VB_DEV_GID_CHANGE));
	vb_query_port_attr(lo, 1, &port);
	CHECK(port.state == IBV_PORT_ACTIVE && port.active_mtu == IBV_MTU_4096);
	CHECK(index_of(lo, "::ffff:127.0.0.1") == 1 && index_of(lo, "fe80::200:ff:fe00:0") == 0);
	vb_device_list_free(list);
}

static void ethernet_veth_and_vlan_interfaces_are_adapters_and_tunnels_are_not(void)
{
	add("d0");
	ip("link add v0 type veth peer name v1");
	if (!system("ip link add link v0 name v0.100 type vlan id 100 2>/dev/null"))
		CHECK(({
			struct vb_device *d = hold("roce_v0.100");
			vb_device_put(d);
			d;
		}));
	system("ip tuntap add t0 mode tun 2>/dev/null");
	struct ibv_device **list = vb_device_list(NULL);
	CHECK(find(list, "roce_d0") && find(list, "roce_v0") && find(list, "roce_v1") && find(list, "roce_lo"));
	CHECK(!find(list, "roce_t0"));
	/* lo is up, the others are not yet */
	CHECK(!strcmp(list[0]->name, "roce_lo"));
	vb_device_list_free(list);
	ip("addr add 10.9.0.1/24 dev d0");
	ip("link set d0 up");
	struct vb_device *d0 = hold("roce_d0");
	CHECK(becomes_active(d0));
	vb_device_put(d0);
	list = vb_device_list(NULL);
	CHECK(!strcmp(list[0]->name, "roce_d0") && !strcmp(list[1]->name, "roce_lo"));
	vb_device_list_free(list);
}

static void a_vlan_names_the_interface_under_it(void)
{
	struct vb_netdev *list;
	size_t n;
	int under = 0, vlan_on = -1;

	if (system("ip link add link v0 name v0.7 type vlan id 7 2>/dev/null"))
		return;
	CHECK(!vb_netdev_scan(&list, &n));
	for (size_t i = 0; i < n; i++) {
		under = strcmp(list[i].name, "v0") ? under : list[i].ifindex;
		vlan_on = strcmp(list[i].name, "v0.7") ? vlan_on : list[i].vlan_on;
		CHECK(!strncmp(list[i].name, "v0.", 3) || !list[i].vlan_on); /* a veth has a link, too */
	}
	CHECK(under && vlan_on == under);
	free(list);
	ip("link del v0.7");
}

static size_t put_attribute(uint8_t *at, uint16_t type, const void *value, size_t len)
{
	struct rtattr a = {.rta_len = (uint16_t)RTA_LENGTH(len), .rta_type = type};

	memcpy(at, &a, sizeof(a));
	memcpy(at + RTA_LENGTH(0), value, len);
	return RTA_SPACE(len);
}

/* What is read from a message of the kernel about interface 7, with these attributes. */
static struct vb_netdev link_of_message(const void *attributes, size_t len)
{
	struct vb_netdev_gather g = {0};
	struct nlmsghdr h = {.nlmsg_type = RTM_NEWLINK};
	struct ifinfomsg m = {.ifi_index = 7};
	uint8_t message[256] = {0};

	h.nlmsg_len = (uint32_t)(NLMSG_SPACE(sizeof(m)) + len);
	CHECK(h.nlmsg_len <= sizeof(message));
	memcpy(message, &h, sizeof(h));
	memcpy(message + NLMSG_HDRLEN, &m, sizeof(m));
	memcpy(message + NLMSG_SPACE(sizeof(m)), attributes, len);
	vb_netdev_parse(&g, message, h.nlmsg_len);
	CHECK(g.n == 1 && g.list[0].ifindex == 7);
	struct vb_netdev nd = g.list[0];

	free(g.list);
	return nd;
}

/* A link on interface 3. */
static int vlan_of_message(const char *link_kind, bool elsewhere)
{
	uint8_t attributes[128] = {0}, info[64] = {0};
	int below = 3, network = 0;
	size_t n_info = put_attribute(info, IFLA_INFO_KIND, link_kind, strlen(link_kind)),
	       n = put_attribute(attributes, IFLA_LINK, &below, sizeof(below));

	n += put_attribute(attributes + n, IFLA_LINKINFO | NLA_F_NESTED, info, n_info);
	if (elsewhere)
		n += put_attribute(attributes + n, IFLA_LINK_NETNSID, &network, sizeof(network));
	return link_of_message(attributes, n).vlan_on;
}

static void only_a_vlan_of_this_network_is_on_another_interface(void)
{
	CHECK(vlan_of_message("vlan", false) == 3);
	CHECK(!vlan_of_message("vlan", true));
	CHECK(!vlan_of_message("veth", false));
	CHECK(!vlan_of_message("macvlan", false) && !vlan_of_message("vla", false));
}

/* A bond with this active port. */
static int active_of_message(const char *link_kind, int port)
{
	uint8_t attributes[128] = {0}, info[64] = {0}, data[32] = {0};
	size_t n_info = put_attribute(info, IFLA_INFO_KIND, link_kind, strlen(link_kind)),
	       n_data = port ? put_attribute(data, IFLA_BOND_ACTIVE_SLAVE, &port, sizeof(port)) : 0;

	n_info += put_attribute(info + n_info, IFLA_INFO_DATA, data, n_data);
	return link_of_message(attributes, put_attribute(attributes, IFLA_LINKINFO | NLA_F_NESTED, info, n_info))
	        .active;
}

static void a_bond_names_its_active_port(void)
{
	CHECK(active_of_message("bond", 4) == 4);
	CHECK(!active_of_message("bond", 0));
	CHECK(!active_of_message("bridge", 4)); /* the attribute's number means something else there */
}

static void a_port_names_its_bridge(void)
{
	struct vb_netdev *list;
	size_t n;
	int bridge = 0, master = -1;

	if (system("ip link add br0 type bridge 2>/dev/null"))
		return;
	ip("link set v0 master br0");
	CHECK(!vb_netdev_scan(&list, &n));
	for (size_t i = 0; i < n; i++) {
		bridge = strcmp(list[i].name, "br0") ? bridge : list[i].ifindex;
		master = strcmp(list[i].name, "v0") ? master : list[i].master;
		CHECK(!strcmp(list[i].name, "v0") || !list[i].master);
	}
	CHECK(bridge && master == bridge);
	free(list);
	ip("link del br0");
}

/* Interface 1 is that of a device of the kernel. 2 has none. */
static void a_roce_device_has_what_is_above_its_interface(void)
{
	enum { HARDWARE = 1, OTHER, BRIDGE, BOND, VLAN, FAR };
	struct vb_netdev all[] = {
	        {.ifindex = HARDWARE, .master = BOND}, {.ifindex = OTHER, .master = BOND},
	        {.ifindex = BOND, .master = BRIDGE},   {.ifindex = BRIDGE},
	        {.ifindex = VLAN, .vlan_on = BRIDGE},  {.ifindex = FAR},
	};
	const size_t n = sizeof(all) / sizeof(*all);
	struct vb_rdma_link roce = {.ifindex = HARDWARE, .roce = true}, iwarp = {.ifindex = HARDWARE},
	                    none = {.roce = true};

	for (size_t i = 0; i < n; i++) {
		int at = all[i].ifindex;

		CHECK(vb_rdma_link_has(&roce, all, n, &all[i]) == (at != OTHER && at != FAR));
		CHECK(vb_rdma_link_has(&iwarp, all, n, &all[i]) == (at == HARDWARE));
		CHECK(!vb_rdma_link_has(&none, all, n, &all[i]));
	}
	all[2].active = OTHER;
	CHECK(!vb_rdma_link_has(&roce, all, n, &all[2]) && !vb_rdma_link_has(&roce, all, n, &all[4]));
	all[2].active = HARDWARE;
	CHECK(vb_rdma_link_has(&roce, all, n, &all[2]) && vb_rdma_link_has(&roce, all, n, &all[4]));
	all[0].master = 0;
	all[3].master = HARDWARE; /* a ring, which the kernel does not allow */
	CHECK(!vb_rdma_link_has(&roce, all, n, &all[5]) && !vb_rdma_link_has(&roce, all, n, &all[1]));
}

static void the_same_interface_gives_the_same_pointer(void)
{
	struct vb_device *a = hold("roce_d0"), *b = hold("roce_d0");

	CHECK(a && a == b);
	vb_device_put(a);
	vb_device_put(b);
}

static void addresses_come_and_go_without_moving_others(void)
{
	struct vb_device *dev = hold("roce_d0");

	vb_device_refresh(dev);
	int one = index_of(dev, "::ffff:10.9.0.1");
	CHECK(one > 0);
	ip("addr add 10.9.0.2/24 dev d0");
	ip("addr add fd09::1/64 dev d0 nodad");
	CHECK(vb_device_refresh(dev) == VB_DEV_GID_CHANGE);
	int six = index_of(dev, "fd09::1"), two = index_of(dev, "::ffff:10.9.0.2");
	CHECK(six > 0 && two > 0 && index_of(dev, "::ffff:10.9.0.1") == one);
	ip("addr del 10.9.0.2/24 dev d0");
	CHECK(vb_device_refresh(dev) == VB_DEV_GID_CHANGE);
	CHECK(index_of(dev, "fd09::1") == six && index_of(dev, "::ffff:10.9.0.2") == -1);
	ip("addr add 10.9.0.3/24 dev d0");
	vb_device_refresh(dev);
	CHECK(index_of(dev, "::ffff:10.9.0.3") == two);
	CHECK(vb_device_refresh(dev) == 0);
	vb_device_put(dev);
}

static void a_point_to_point_address_is_the_local_one(void)
{
	struct vb_device *dev = hold("roce_d0");

	ip("addr add 10.77.0.1 peer 10.77.0.2 dev d0");
	vb_device_refresh(dev);
	CHECK(index_of(dev, "::ffff:10.77.0.1") > 0 && index_of(dev, "::ffff:10.77.0.2") == -1);
	vb_device_put(dev);
}

static void the_default_gid_stands_with_ipv6_off(void)
{
	if (system("sysctl -qw net.ipv6.conf.d0.disable_ipv6=1 2>/dev/null"))
		return;
	struct vb_device *dev = hold("roce_d0");
	union ibv_gid g0;

	vb_device_refresh(dev);
	CHECK(!vb_query_gid_at(dev, 1, 0, &g0) && g0.raw[0] == 0xfe && g0.raw[1] == 0x80);
	CHECK(index_of(dev, "fd09::1") == -1);
	vb_device_put(dev);
}

static void down_up_and_mtu_are_told_apart(void)
{
	struct vb_device *dev = hold("roce_v0");
	struct ibv_port_attr port;

	ip("link set v1 up");
	ip("link set v0 up");
	CHECK(happens(dev, VB_DEV_PORT_UP));
	ip("link set v1 down"); /* v0 loses its carrier */
	CHECK(happens(dev, VB_DEV_PORT_DOWN));
	ip("link set v0 mtu 9000");
	CHECK(happens(dev, VB_DEV_MTU));
	vb_query_port_attr(dev, 1, &port);
	CHECK(port.active_mtu == IBV_MTU_4096 && port.state == IBV_PORT_DOWN);
	vb_device_put(dev);
}

static void a_listing_in_between_takes_no_event_away(void)
{
	struct vb_device *dev = hold("roce_d0");

	CHECK(becomes_active(dev));
	ip("link set d0 down");
	vb_device_list_free(vb_device_list(NULL));
	CHECK(happens(dev, VB_DEV_PORT_DOWN));
	ip("link set d0 up");
	CHECK(happens(dev, VB_DEV_PORT_UP));
	vb_device_put(dev);
}

static void local_gids_are_known(void)
{
	union ibv_gid g;

	CHECK((g = gid("::ffff:10.9.0.1"), vb_gid_is_local(&g) && vb_gid_to_ifindex(&g) > 1));
	CHECK((g = gid("::ffff:127.3.2.1"), vb_gid_is_local(&g) && vb_gid_to_ifindex(&g) == 1));
	CHECK((g = gid("::1"), vb_gid_is_local(&g)));
	CHECK((g = gid("fe80::200:ff:fe00:0"), vb_gid_is_local(&g)));
	CHECK((g = gid("::ffff:10.9.0.200"), !vb_gid_is_local(&g) && !vb_gid_to_ifindex(&g)));
	CHECK((g = gid("::"), !vb_gid_is_local(&g)));
}

static void a_removed_interface_is_gone_for_good_and_its_device_stays_valid(void)
{
	struct vb_device *dev = hold("roce_d0");
	struct ibv_port_attr port;

	CHECK(becomes_active(dev));
	ip("link del d0");
	CHECK(!hold("roce_d0"));
	unsigned changes = vb_device_refresh(dev);
	CHECK((changes & VB_DEV_GONE) && (changes & VB_DEV_PORT_DOWN));
	add("d0");
	CHECK(vb_device_refresh(dev) == 0);
	struct vb_device *again = hold("roce_d0");
	CHECK(again && again != dev && strcmp(again->dev.dev_name, dev->dev.dev_name));
	CHECK(!vb_query_port_attr(dev, 1, &port) && port.state == IBV_PORT_DOWN);
	vb_device_put(again);
	vb_device_put(dev);
}

static bool wait_for(struct vb_netmon *mon)
{
	struct pollfd p = {.fd = vb_netmon_fd(mon), .events = POLLIN};

	return poll(&p, 1, 20000) == 1;
}

/* Duplicate address detection and carriers are reported late: waits until there was no event for half a second. */
static void calm(struct vb_netmon *mon)
{
	struct pollfd p = {.fd = vb_netmon_fd(mon), .events = POLLIN};

	for (int i = 0; i < 100 && poll(&p, 1, 500) == 1; i++)
		vb_netmon_drain(mon);
}

static void the_monitor_tells_of_links_and_addresses_and_of_overruns(void)
{
	struct vb_netmon *mon;
	bool quiet = false;

	CHECK(!vb_netmon_open(&mon));
	calm(mon);
	ip("link set d0 up");
	CHECK(wait_for(mon) && vb_netmon_drain(mon));
	ip("addr add 10.10.0.1/24 dev d0");
	CHECK(wait_for(mon) && vb_netmon_drain(mon));
	for (int i = 0; i < 20 && !quiet; i++) { /* linkwatch may interfere, a second late or more */
		calm(mon);
		ip(i % 2 ? "route del 10.11.0.0/16 dev d0" : "route add 10.11.0.0/16 dev d0");
		quiet = !vb_netmon_drain(mon);
	}
	CHECK(quiet);
	CHECK(!system("for i in $(seq 400); do echo link set d0 down; echo link set d0 up; done | ip -batch -"));
	CHECK(wait_for(mon) && vb_netmon_drain(mon));
	calm(mon);
	vb_netmon_close(mon);
}

static void *list_often(void *arg)
{
	for (int i = 0; i < 200; i++) {
		struct ibv_device **list = vb_device_list(NULL);
		CHECK(list);
		for (struct ibv_device **d = list; *d; d++)
			vb_device_refresh(vb_device_of(*d));
		vb_device_list_free(list);
	}
	return NULL;
}

static void threads_and_forks_may_list_while_interfaces_change(void)
{
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&t[i], NULL, list_often, NULL));
	for (int i = 0; i < 10; i++) {
		add("x0");
		pid_t pid = fork();
		if (!pid) {
			alarm(60);
#ifdef __SANITIZE_ADDRESS__ /* fork() leaves the locks of its allocator to threads that the child does not have */
			_exit(0);
#else
			_exit(vb_device_list(NULL) ? 0 : 1);
#endif
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		ip("link del x0");
	}
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}

static void many_interfaces_are_all_seen(void)
{
	int n;

	setenv("KIND", kind, 1);
	CHECK(!system("for i in $(seq 150); do echo link add m$i type $KIND; done | ip -batch -"));
	struct ibv_device **list = vb_device_list(&n);
	CHECK(n > 150 && find(list, "roce_m1") && find(list, "roce_m150"));
	vb_device_list_free(list);
	CHECK(!system("for i in $(seq 150); do echo link del m$i; done | ip -batch -"));
}

static void verbena_devices_limits_the_list(void)
{
	int n;

	setenv("VERBENA_DEVICES", "roce:lo,iwarp:d0", 1);
	struct ibv_device **list = vb_device_list(&n);
	CHECK(n == 2 && find(list, "roce_lo") && find(list, "iwarp_d0"));
	vb_device_list_free(list);
	setenv("VERBENA_DEVICES", "nothing", 1);
	list = vb_device_list(&n);
	CHECK(list && n == 0 && !list[0]);
	vb_device_list_free(list);
	unsetenv("VERBENA_DEVICES");
}

int main(void)
{
	if (system("ip -V >/dev/null 2>&1"))
		SKIP("no iproute2");
	if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNET : CLONE_NEWNET))
		SKIP("no network namespaces here");
	if (!system("ip link add probe0 type dummy 2>/dev/null"))
		kind = "dummy";
	else if (!system("ip link add probe0 type ifb 2>/dev/null"))
		kind = "ifb";
	else
		SKIP("neither dummy nor ifb interfaces here");
	ip("link del probe0");
	setenv("VERBENA_RUNTIME", "/nonexistent", 1);
	RUN(lo_alone_makes_an_adapter);
	RUN(ethernet_veth_and_vlan_interfaces_are_adapters_and_tunnels_are_not);
	RUN(only_a_vlan_of_this_network_is_on_another_interface);
	RUN(a_bond_names_its_active_port);
	RUN(a_port_names_its_bridge);
	RUN(a_roce_device_has_what_is_above_its_interface);
	RUN(a_vlan_names_the_interface_under_it);
	RUN(the_same_interface_gives_the_same_pointer);
	RUN(addresses_come_and_go_without_moving_others);
	RUN(a_point_to_point_address_is_the_local_one);
	RUN(the_default_gid_stands_with_ipv6_off);
	RUN(down_up_and_mtu_are_told_apart);
	RUN(a_listing_in_between_takes_no_event_away);
	RUN(local_gids_are_known);
	RUN(a_removed_interface_is_gone_for_good_and_its_device_stays_valid);
	RUN(the_monitor_tells_of_links_and_addresses_and_of_overruns);
	RUN(threads_and_forks_may_list_while_interfaces_change);
	RUN(many_interfaces_are_all_seen);
	RUN(verbena_devices_limits_the_list);
	return 0;
}
