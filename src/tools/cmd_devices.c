// cmd_devices.c - verbena devices: the adapters of this machine, as a table or as JSON
// follows: verbena-devices(1)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/device.h"
#include "tools/verbena.h"
#include "util/env.h"
#include "util/links.h"
#include "util/settings.h"

/* A snapshot of an adapter. */
struct view {
	struct vb_device *dev;
	struct vb_netdev nd;
	struct ibv_port_attr port;
	struct ibv_gid_entry gids[VB_GID_TBL_LEN];
	ssize_t n_gids;
	char guid[24], rate[64];
};

static void view_read(struct view *v, struct ibv_device *dev)
{
	v->dev = vb_device_of(dev);
	vb_device_netdev(v->dev, &v->nd);
	vb_query_port_attr(v->dev, 1, &v->port);
	v->n_gids = vb_query_gid_list(v->dev, v->gids, VB_GID_TBL_LEN);
	vb_device_attr_text(v->dev, "node_guid", v->guid, sizeof(v->guid));
	vb_device_attr_text(v->dev, "ports/1/rate", v->rate, sizeof(v->rate));
}

static int mtu_bytes(const struct view *v)
{
	return 128 << v->port.active_mtu;
}

static const char *state_text(const struct view *v)
{
	return v->port.state == IBV_PORT_ACTIVE ? "ACTIVE" : "DOWN";
}

/* inet_ntop prints an IPv4-mapped GID as ::ffff:a.b.c.d. */
static const char *gid_text(const union ibv_gid *gid, char buf[INET6_ADDRSTRLEN])
{
	return inet_ntop(AF_INET6, gid, buf, INET6_ADDRSTRLEN);
}

static void print_table(const struct view *v)
{
	char mtu[32], gid[INET6_ADDRSTRLEN];

	snprintf(mtu, sizeof(mtu), "%d/%u", mtu_bytes(v), v->nd.mtu);
	printf("%-16s %-12s %-7s %-11s %-23s %-20s", v->dev->dev.name, v->nd.name, state_text(v), mtu, v->rate,
	       v->guid);
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
	       v->nd.ifindex, v->dev->iwarp ? "iwarp" : "roce", state_text(v), mtu_bytes(v), v->nd.mtu, v->rate,
	       v->guid);
	for (ssize_t i = 0; i < v->n_gids; i++)
		printf("%s{\"index\": %u, \"gid\": \"%s\", \"type\": \"%s\"}", i ? ", " : "", v->gids[i].gid_index,
		       gid_text(&v->gids[i].gid, gid), v->dev->iwarp ? "IB" : "RoCE v2");
	printf("]}");
}

static bool has_wrong_line(void)
{
	const char *spec = vb_env("VERBENA_DEVICES");
	static struct vb_links links;
	char path[VB_LINKS_ROOM];

	return !(spec && *spec) && vb_links_load(&links, path, false);
}

int cmd_devices(int argc, char **argv)
{
	bool json = argc == 2 && !strcmp(argv[1], "--json");
	struct view v;
	size_t wrong;
	int n;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		puts("usage: verbena devices [--json]\nShows the adapters of this machine, as a table or as JSON.\n"
		     "Exit status: 0 success, 1 failure, 2 wrong usage.\nMore: man verbena-devices");
		return 0;
	}
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
	else if (n)
		printf("%-16s %-12s %-7s %-11s %-23s %-20s %3s  %s\n", "DEVICE", "INTERFACE", "STATE", "MTU IB/IP",
		       "SPEED", "NODE GUID", "GID", "ADDRESS");
	for (int i = 0; i < n; i++) {
		view_read(&v, devices[i]);
		if (json && i)
			printf(",\n ");
		(json ? print_json : print_table)(&v);
	}
	if (json)
		puts("]");
	else if (!n)
		fputs("No adapters: VERBENA_DEVICES (or the file of verbena link) selects no Ethernet or loopback interface of this machine.\n",
		      stderr);
	vb_device_list_free(devices);
	return vb_settings_devices_word(vb_env("VERBENA_DEVICES"), &wrong) || has_wrong_line() ? 1 : 0;
}
