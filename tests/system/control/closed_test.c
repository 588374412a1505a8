// closed_test.c - an adapter that a program has closed keeps its counters, in the answers and in the sums
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <stdint.h>
#include <unistd.h>

#include "../fault/matrix.h"

enum { MESSAGES = 8 };

static char runtime[] = "/tmp/verbena-closed.XXXXXX";
static struct pair pair;

/* The number of this member behind the device's name. */
static uint64_t member_of(const char *text, const char *device, const char *member)
{
	char key[64];

	snprintf(key, sizeof(key), "\"device\": \"%s\"", device);
	const char *at = strstr(text, key);
	snprintf(key, sizeof(key), "\"%s\": ", member);
	at = at ? strstr(at, key) : NULL;
	if (!at)
		CHECK_FAILED("no %s of %s: %s", member, device, text);
	return strtoull(at + strlen(key), NULL, 10);
}

static uint64_t answered(const char *member)
{
	static char text[65536];

	pair_ask("devices\n", text, sizeof(text));
	return member_of(text, "roce_lo", member);
}

static void exchange(void)
{
	pair_open(&pair, LOCAL, IBV_QPT_RC, false);
	for (int i = 0; i < MESSAGES; i++) {
		CHECK(!pair_receive(&pair, i) && !pair_send(&pair, i));
		SAME(pair_await(&pair, 0).status, IBV_WC_SUCCESS);
		SAME(pair_await(&pair, 1).status, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

/* The only file of sums in the runtime directory. */
static uint64_t summed(void)
{
	static char text[65536];
	char path[400] = "";
	unsigned files = 0;

	snprintf(path, sizeof(path), "%s/control-%u", runtime, (unsigned)geteuid());
	DIR *d = opendir(path);
	size_t len = strlen(path);

	CHECK(d);
	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		files++;
		CHECK(!strncmp(e->d_name, "ended-", 6)); /* nothing else is left */
		snprintf(path + len, sizeof(path) - len, "/%s", e->d_name);
	}
	closedir(d);
	SAME(files, 1);
	FILE *f = fopen(path, "re");
	CHECK(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	return member_of(text, "roce_lo", "port_xmit_packets");
}

int main(void)
{
	char command[80];

	CHECK(mkdtemp(runtime) && !setenv("VERBENA_RUNTIME", runtime, 1));
	setenv("VERBENA_DEVICES", "roce:lo,iwarp:lo", 1);
	struct ibv_context *other = pair_device("iwarp_lo"); /* so that the program still answers */

	for (uint64_t turn = 1; turn <= 3; turn++) {
		exchange();
		SAME(answered("contexts"), 0);
		SAME(answered("port_xmit_packets"), turn * MESSAGES);
		SAME(answered("port_xmit_packets"), turn * MESSAGES);
	}
	struct ibv_context *again = pair_device("roce_lo");

	SAME(answered("contexts"), 1);
	SAME(answered("port_xmit_packets"), 3 * MESSAGES);
	CHECK(!ibv_close_device(again) && !ibv_close_device(other));
	SAME(summed(), 3 * MESSAGES);
	snprintf(command, sizeof(command), "rm -rf %s", runtime);
	CHECK(!system(command));
	printf("ok counters outlive what a program has closed\n");
	return 0;
}
