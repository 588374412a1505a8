// client_outage.c - a write that is sent again after an outage does not overwrite a later one
// see: storage/client/verbena_nvme.h, "Reconnects"
// SPDX-License-Identifier: MIT
// usage: client_outage URL. Prints "begun" and waits for a line, "sent", "answered" and waits for another. See
// outage.sh
#include "../../support/check.h"
#include "client/verbena_nvme.h"

#define LENGTH 4096

static int over = 1; /* bytes of the write */

static void written(void *arg, int error)
{
	over = error;
}

static void say(const char *what)
{
	char line[16];

	printf("%s\n", what);
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin));
}

static void fill(uint8_t *at, uint8_t with)
{
	memset(at, with, LENGTH);
}

int main(int argc, char **argv)
{
	static uint8_t first[LENGTH], second[LENGTH], back[LENGTH];
	struct vn_options o;
	struct vn_statistics s;
	struct vn_disk *d;
	char why[200] = "";
	int e = -1;

	CHECK(argc == 2);
	vn_options_init(&o);
	o.numeric = 1;
	o.io_ms = 1000;
	o.connect_ms = 1000; /* the client tries to reconnect once a second */
	for (int i = 0; i < 30 && e; i++)
		e = vn_open(argv[1], &o, &d, why, sizeof(why));
	if (e)
		fprintf(stderr, "%s: %s\n", argv[1], why);
	CHECK(!e);
	fill(first, '.');
	CHECK(!vn_write_wait(d, first, LENGTH, 0, 0));
	say("begun");
	fill(first, 'A');
	CHECK(!vn_write(d, first, LENGTH, 0, 0, written, NULL));
	printf("sent\n");
	fflush(stdout);
	while (over > 0)
		vn_poll(d, -1);
	SAME(over, 0);
	fill(second, 'B');
	CHECK(!vn_write_wait(d, second, LENGTH, 0, 0));
	say("answered");
	CHECK(!vn_read_wait(d, back, LENGTH, 0));
	SAME(back[0], 'B');
	CHECK(!memcmp(back, second, LENGTH));
	vn_statistics(d, &s);
	CHECK(s.retries && s.reconnects);
	vn_close(d);
	return 0;
}
