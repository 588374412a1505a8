// cmd_devices.c - verbena devices: the adapters of this machine, as a table or as JSON
// follows: verbena-devices(1)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/rdma_link.h"
#include "tools/verbena.h"
#include "util/env.h"
#include "util/hardware.h"
#include "util/links.h"
#include "util/settings.h"

/* A snapshot of an adapter. */
struct view {
	struct vb_device *dev;
	struct vb_netdev nd;
	struct ibv_port_attr port;
	struct ibv_gid_entry gids[VB_GID_TBL_LEN];
	ssize_t n_gids;
	char guid[24], rate[64], state[32];
};

static void view_read(struct view *v, struct ibv_device *dev)
{
	v->dev = vb_device_of(dev);
	vb_device_netdev(v->dev, &v->nd);
	vb_query_port_attr(v->dev, 1, &v->port);
	v->n_gids = vb_query_gid_list(v->dev, v->gids, VB_GID_TBL_LEN);
	vb_device_attr_text(v->dev, "node_guid", v->guid, sizeof(v->guid));
	vb_device_attr_text(v->dev, "ports/1/rate", v->rate, sizeof(v->rate));
	vb_device_attr_text(v->dev, "ports/1/state", v->state, sizeof(v->state));
}

static int mtu_bytes(const struct view *v)
{
	return 128 << v->port.active_mtu;
}

/* Without the number in front of it. */
static const char *state_text(const struct view *v)
{
	const char *colon = strchr(v->state, ':');

	return colon ? colon + 2 : "DOWN";
}

/* inet_ntop prints an IPv4-mapped GID as ::ffff:a.b.c.d. */
static const char *gid_text(const union ibv_gid *gid, char buf[INET6_ADDRSTRLEN])
{
	return inet_ntop(AF_INET6, gid, buf, INET6_ADDRSTRLEN);
}

static void print_table(const struct view *v)
{
	char mtu[32], gid[INET6_ADDRSTRLEN];

	snprintf(mtu, sizeof(mtu), v->dev->ib ? "%d" : "%d/%u", mtu_bytes(v), v->nd.mtu);
	printf("%-16s %-12s %-7s %-11s %-23s %-20s", v->dev->dev.name, v->dev->ib ? "-" : v->nd.name, state_text(v),
	       mtu, v->rate, v->guid);
	for (ssize_t i = 0; i < v->n_gids; i++)
		printf("%*s%3u  %s\n", i ? 95 : 1, "", v->gids[i].gid_index, gid_text(&v->gids[i].gid, gid));
}

static void print_json(const struct view *v)
{
	char gid[INET6_ADDRSTRLEN];

	printf("{\"device\": \"%s\", \"interface\": ", v->dev->dev.name);
	cmd_print_json_string(v->nd.name);
	printf(", \"ifindex\": %d, \"transport\": \"%s\", \"state\": \"%s\", \"mtu\": %d, \"interface_mtu\": %u, \"rate\": \"%s\", "
	       "\"node_guid\": \"%s\", \"gids\": [",
	       v->nd.ifindex,
	       v->dev->ib      ? "infiniband"
	       : v->dev->iwarp ? "iwarp"
	                       : "roce",
	       state_text(v), mtu_bytes(v), v->nd.mtu, v->rate, v->guid);
	for (ssize_t i = 0; i < v->n_gids; i++)
		printf("%s{\"index\": %u, \"gid\": \"%s\", \"type\": \"%s\"}", i ? ", " : "", v->gids[i].gid_index,
		       gid_text(&v->gids[i].gid, gid), v->dev->iwarp || v->dev->ib ? "IB" : "RoCE v2");
	printf("]}");
}

static bool has_wrong_line(void)
{
	const char *spec = vb_env("VERBENA_DEVICES");
	static struct vb_links links;
	char path[VB_LINKS_ROOM];

	return !(spec && *spec) && vb_links_load(&links, path, false);
}

/* A port of a device of the kernel. Programs get it unless VERBENA_HARDWARE is off. */
static void print_link(const struct vb_rdma_link *link, bool json)
{
	const char *state = link->state == IBV_PORT_ACTIVE ? "ACTIVE" : "DOWN";
	bool used = vb_hardware_wanted() != VB_HARDWARE_OFF;
	char name[IF_NAMESIZE] = "";

	if (link->ifindex)
		if_indextoname((unsigned)link->ifindex, name);
	if (!json) {
		printf("%-16s %-12s %-7s hardware of the kernel, %s\n", link->name, name[0] ? name : "-", state,
		       used ? "which programs get first" : "not used (VERBENA_HARDWARE=off)");
		return;
	}
	printf("{\"device\": ");
	cmd_print_json_string(link->name);
	printf(", \"interface\": ");
	cmd_print_json_string(name);
	printf(", \"ifindex\": %d, \"port\": %u, \"state\": \"%s\", \"hardware\": true, \"used\": %s}", link->ifindex,
	       link->port, state, used ? "true" : "false");
}

/* Returns how many it has printed. */
static size_t print_hardware(bool json)
{
	struct vb_rdma_link *links = calloc(VB_RDMA_LINKS_MAX, sizeof(*links));
	size_t n = links ? vb_rdma_link_list(links, VB_RDMA_LINKS_MAX) : 0;

	for (size_t i = 0; i < n; i++) {
		if (json && i)
			printf(",\n ");
		print_link(&links[i], json);
	}
	free(links);
	return n;
}

int cmd_devices(int argc, char **argv)
{
	bool json = argc == 2 && !strcmp(argv[1], "--json");
	struct view v;
	size_t wrong;
	int n;

	if (argc > 1 && !json) {
		cmd_complain("devices", "the only option is --json");
		return 2;
	}
	struct ibv_device **devices = vb_device_list(&n);
	if (!devices) {
		cmd_complain("devices", "the network interfaces cannot be listed: %s", strerror(errno));
		return 1;
	}
	if (json)
		putchar('[');
	else if (n || vb_rdma_link_exists())
		printf("%-16s %-12s %-7s %-11s %-23s %-20s %3s  %s\n", "DEVICE", "INTERFACE", "STATE", "MTU IB/IP",
		       "SPEED", "NODE GUID", "GID", "ADDRESS");
	size_t n_hardware = print_hardware(json);
	for (int i = 0; i < n; i++) {
		view_read(&v, devices[i]);
		if (json && (i || n_hardware))
			printf(",\n ");
		(json ? print_json : print_table)(&v);
	}
	if (json)
		puts("]");
	else if (!n && !n_hardware)
		fputs("No adapters: VERBENA_DEVICES (or the file of verbena link) selects no Ethernet or loopback interface of this machine.\n",
		      stderr);
	vb_device_list_free(devices);
	return vb_settings_devices_word(vb_env("VERBENA_DEVICES"), &wrong) || has_wrong_line() ? 1 : 0;
}
