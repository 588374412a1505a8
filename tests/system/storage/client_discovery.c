// client_discovery.c - paths by discovery: they come and go with the discovery log of any target that lives
// follows: verbena_nvme.h, "Paths by discovery"; NVMe over Fabrics 1.1, 5.3
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client/verbena_nvme.h"
#include "nvme/nvme.h"
#include "ports.h"

#define LENGTH 4096u
#define ALL 7u
#define PATHS_MAX 8u

static uint8_t data[LENGTH], back[LENGTH];

/* Each lists all three, and gives access. */
static void begin_ports(void)
{
	for (unsigned i = 0; i < PORTS; i++) {
		struct port *p = &ports[i];

		if (p->number)
			port_kill(p);
		p->name = 7;
		p->blocks = PORTS_BLOCKS;
		p->served = p->connects = 0;
		p->lists = ALL;
		p->mute = false;
		p->restless = 0;
		port_lie(p, NV_ANA_OPTIMIZED);
		port_open(p);
	}
}

/* With a bit for each port that is in the address */
static int open_by(unsigned services, struct vn_disk **d, char why[200])
{
	char url[200];
	int n = snprintf(url, sizeof(url), "nvme+tcp://");
	struct vn_options o;

	vn_options_init(&o);
	o.max_transfer = LENGTH;
	o.path_ms = 1000;
	o.reconnect_pause_ms = 20;
	for (unsigned i = 0; i < PORTS; i++)
		if (services & 1u << i)
			n += snprintf(url + n, sizeof(url) - (size_t)n, "%s127.0.0.1:%u",
			              services & ((1u << i) - 1) ? "," : "", ports[i].number);
	snprintf(url + n, sizeof(url) - (size_t)n, "/" PORTS_NQN "?nsid=1&discover");
	return vn_open(url, &o, d, why, 200);
}

static struct vn_disk *disk_by(unsigned services)
{
	struct vn_disk *d = NULL;
	char why[200] = "";

	if (open_by(services, &d, why))
		CHECK_FAILED("%s", why);
	return d;
}

enum { LISTED, CONNECTED, USED };

/* Bits of the ports that the disk has a path to: a connected one, the one in use. Each port has one path at most. */
static unsigned has_paths(struct vn_disk *d, int kind)
{
	struct vn_path_info all[PATHS_MAX];
	size_t n = vn_paths(d, all, PATHS_MAX);
	unsigned found = 0, bits = 0;

	CHECK(n <= PATHS_MAX);
	for (size_t k = 0; k < n; k++)
		for (unsigned i = 0; i < PORTS; i++) {
			if (strtoul(all[k].service, NULL, 10) != ports[i].number)
				continue;
			CHECK(!strcmp(all[k].address, "127.0.0.1") && !(found & 1u << i));
			found |= 1u << i;
			if (kind == LISTED || (kind == USED ? all[k].used : all[k].connected))
				bits |= 1u << i;
		}
	SAME(n, __builtin_popcount(found)); /* nothing else in the log is a path */
	return bits;
}

static void write_then_read(struct vn_disk *d)
{
	static uint8_t value;

	memset(data, ++value, LENGTH);
	SAME(vn_write_wait(d, data, LENGTH, 0, 0), 0);
	memset(back, ~value, LENGTH);
	SAME(vn_read_wait(d, back, LENGTH, 0), 0);
	CHECK(!memcmp(back, data, LENGTH));
}

/* ---- tests ---- */

static void addresses_with_a_wrong_query_are_refused(void)
{
	static const char *const wrong[] = {"nvme+tcp://127.0.0.1/nqn.2026-01.test:x?discover=1",
	                                    "nvme+tcp://127.0.0.1/nqn.2026-01.test:x?discovery",
	                                    "nvme+tcp://127.0.0.1/nqn.2026-01.test:x?discover&discover",
	                                    "nvme+tcp://127.0.0.1/nqn.2026-01.test:x?discover&",
	                                    "nvme+tcp://127.0.0.1/nqn.2026-01.test:x?nsid=0&discover",
	                                    "srp://127.0.0.1/1?discover"};
	struct vn_disk *d;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		SAME(vn_open(wrong[i], NULL, &d, NULL, 0), -EINVAL);
}

static void the_paths_are_those_that_the_log_lists(void)
{
	begin_ports();
	ports[0].lists = 1 << 1 | 1 << 2; /* the service itself need not be a path */
	struct vn_disk *d = disk_by(1 << 0);

	UNTIL(has_paths(d, CONNECTED) == (1 << 1 | 1 << 2));
	SAME(has_paths(d, LISTED), 1 << 1 | 1 << 2);
	write_then_read(d);
	SAME(ports[0].connects + ports[0].served, 0);
	vn_close(d);
}

static void without_a_path_in_the_log_a_disk_does_not_open(void)
{
	struct vn_disk *d;
	char why[200] = "";

	begin_ports();
	ports[0].lists = 0;
	SAME(open_by(1 << 0, &d, why), -ENXIO);
	CHECK(strstr(why, "lists no path"));
	port_kill(&ports[0]);
	SAME(open_by(1 << 0, &d, why), -ECONNREFUSED);
	d = disk_by(1 << 0 | 1 << 1); /* the second service answers */
	UNTIL(has_paths(d, CONNECTED) == (1 << 1 | 1 << 2));
	vn_close(d);
	port_open(&ports[0]);
}

static void paths_come_and_go_with_events(void)
{
	begin_ports();
	for (unsigned i = 0; i < PORTS; i++)
		ports[i].lists = 1 << 0 | 1 << 1;
	struct vn_disk *d = disk_by(1 << 0);

	UNTIL(has_paths(d, CONNECTED) == (1 << 0 | 1 << 1));
	for (unsigned round = 0; round < 3; round++) { /* each event is reported again, places are used again */
		for (unsigned i = 0; i < PORTS; i++)
			port_list(&ports[i], ALL);
		UNTIL(has_paths(d, CONNECTED) == ALL);
		for (unsigned i = 0; i < PORTS; i++)
			port_list(&ports[i], 1 << 0 | 1 << 2);
		usleep(100000);
		SAME(has_paths(d, CONNECTED), ALL); /* one that works is used until it breaks */
		write_then_read(d);
		port_kill(&ports[1]);
		UNTIL(has_paths(d, LISTED) == (1 << 0 | 1 << 2));
		write_then_read(d);
		port_open(&ports[1]);
		usleep(100000);
		SAME(has_paths(d, LISTED), 1 << 0 | 1 << 2); /* nobody asks it any more */
	}
	vn_close(d);
}

static void when_the_service_dies_another_target_is_asked(void)
{
	begin_ports();
	ports[1].lists = ports[2].lists = 1 << 1 | 1 << 2; /* as the others see it after a while */
	struct vn_disk *d = disk_by(1 << 0);

	UNTIL(has_paths(d, CONNECTED) == ALL);
	port_kill(&ports[0]);
	UNTIL(has_paths(d, LISTED) == (1 << 1 | 1 << 2));
	write_then_read(d);
	port_open(&ports[0]);
	ports[0].lists = 0; /* it is starting */
	port_list(&ports[1], ALL);
	port_list(&ports[2], ALL);
	UNTIL(has_paths(d, CONNECTED) == ALL);
	write_then_read(d);
	vn_close(d);
}

static void a_log_without_paths_ends_none(void)
{
	begin_ports();
	struct vn_disk *d = disk_by(ALL);

	UNTIL(has_paths(d, CONNECTED) == ALL);
	for (unsigned i = 0; i < PORTS; i++)
		port_list(&ports[i], 0);
	usleep(100000);
	SAME(has_paths(d, CONNECTED), ALL);
	for (unsigned i = 0; i < 2; i++) /* they are tried again, too */
		port_kill(&ports[i]);
	write_then_read(d);
	port_open(&ports[0]);
	UNTIL(has_paths(d, CONNECTED) == (1 << 0 | 1 << 2));
	SAME(has_paths(d, LISTED), ALL);
	vn_close(d);
	port_open(&ports[1]);
}

static void while_no_path_is_usable_all_services_are_asked(void)
{
	begin_ports();
	struct vn_disk *d = disk_by(1 << 0);

	UNTIL(has_paths(d, CONNECTED) == ALL);
	port_kill(&ports[1]);
	port_kill(&ports[2]);
	port_list(&ports[0], 1 << 0); /* cut off from the others, it does not see that they return */
	UNTIL(has_paths(d, LISTED) == 1 << 0);
	port_access(&ports[0], NV_ANA_INACCESSIBLE);
	port_open(&ports[2]);
	UNTIL(has_paths(d, USED) == 1 << 2);
	write_then_read(d);
	vn_close(d);
	port_open(&ports[1]);
}

static void a_service_without_events_is_asked_from_time_to_time(void)
{
	begin_ports();
	for (unsigned i = 0; i < PORTS; i++) {
		ports[i].lists = 1 << 0;
		ports[i].mute = true;
	}
	struct vn_disk *d = disk_by(1 << 0);

	SAME(has_paths(d, LISTED), 1 << 0);
	ports[0].lists = ALL;
	UNTIL(has_paths(d, CONNECTED) == ALL);
	vn_close(d);
}

/* The event is reported once, and the reading that follows it fails. */
static void a_log_that_keeps_changing_is_read_again(void)
{
	begin_ports();
	ports[0].lists = 1 << 0;
	struct vn_disk *d = disk_by(1 << 0);

	SAME(has_paths(d, LISTED), 1 << 0);
	ports[0].restless = 10;
	port_list(&ports[0], ALL);
	UNTIL(has_paths(d, CONNECTED) == ALL);
	SAME(ports[0].restless, 0);
	vn_close(d);
}

/* Its caretakers and the thread that follows the log may do anything then. */
static void a_disk_is_closed_while_its_paths_come_and_go(void)
{
	begin_ports();
	for (unsigned round = 0; round < 20; round++) {
		struct vn_disk *d = disk_by(1 << 0);

		port_list(&ports[0], round % 2 ? ALL : 1 << 0 | 1 << 1);
		if (round % 4 == 3)
			port_kill(&ports[0]);
		usleep(7000 * (round % 10));
		vn_close(d);
		if (round % 4 == 3)
			port_open(&ports[0]);
	}
}

static int ended = 1;

static void note_end(void *arg, int error)
{
	(void)arg;
	ended = error;
}

static void a_disk_whose_targets_are_gone_is_given_up(void)
{
	begin_ports();
	struct vn_options o;
	char url[200];
	struct vn_disk *d;

	vn_options_init(&o);
	o.reconnect_ms = 300;
	o.reconnect_pause_ms = 20;
	snprintf(url, sizeof(url), "nvme+tcp://127.0.0.1:%u/" PORTS_NQN "?discover", ports[0].number);
	SAME(vn_open(url, &o, &d, NULL, 0), 0);
	UNTIL(has_paths(d, CONNECTED) == ALL);
	for (unsigned i = 0; i < PORTS; i++)
		port_kill(&ports[i]);
	if (!vn_write(d, data, LENGTH, 0, 0, note_end, NULL)) {
		while (ended == 1)
			vn_poll(d, 1000);
		SAME(ended, -ENOTCONN);
	}
	UNTIL(vn_write_wait(d, data, LENGTH, 0, 0) == -ESHUTDOWN);
	vn_close(d);
	for (unsigned i = 0; i < PORTS; i++)
		port_open(&ports[i]);
}

int main(void)
{
	RUN(addresses_with_a_wrong_query_are_refused);
	RUN(the_paths_are_those_that_the_log_lists);
	RUN(without_a_path_in_the_log_a_disk_does_not_open);
	RUN(paths_come_and_go_with_events);
	RUN(when_the_service_dies_another_target_is_asked);
	RUN(a_log_without_paths_ends_none);
	RUN(while_no_path_is_usable_all_services_are_asked);
	RUN(a_service_without_events_is_asked_from_time_to_time);
	RUN(a_log_that_keeps_changing_is_read_again);
	RUN(a_disk_is_closed_while_its_paths_come_and_go);
	RUN(a_disk_whose_targets_are_gone_is_given_up);
	return 0;
}
