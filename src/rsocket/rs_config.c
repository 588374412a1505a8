// rs_config.c - defaults, and the files that change them
// follows: rsocket(7) ("configuration files")
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include "rsocket/conf_file.h"

struct rs_config rs_defaults = {
        .send_size = 1 << 18, .recv_size = 1 << 19, .sq = 384, .rq = 384, .inline_size = 64, .iomap_size = 0};
unsigned rs_spin_us = 50; /* longer than a round trip in a local network, because sleeping and waking take as long */

static void read_conf_number(const char *name, uint32_t *value, uint32_t min, uint32_t max)
{
	FILE *f = rs_open_conf(name);
	unsigned long n;

	if (!f)
		return;
	if (fscanf(f, "%lu", &n) == 1)
		*value = n < min ? min : n > max ? max : (uint32_t)n;
	fclose(f);
}

static void read_files(void)
{
	read_conf_number("polling_time", &rs_spin_us, 0, 1000000);
	read_conf_number("inline_default", &rs_defaults.inline_size, 0, RS_QP_MAX);
	read_conf_number("sqsize_default", &rs_defaults.sq, RS_QP_MIN, RS_QP_MAX);
	read_conf_number("rqsize_default", &rs_defaults.rq, RS_QP_MIN, RS_QP_MAX);
	read_conf_number("mem_default", &rs_defaults.recv_size, 2 * RS_SEND_LOW, 1 << 28);
	read_conf_number("wmem_default", &rs_defaults.send_size, 2 * RS_SEND_LOW, 1 << 28);
	read_conf_number("iomap_size", &rs_defaults.iomap_size, 0, 127 << 8);
	rs_defaults.recv_size &= ~1u;
	rs_defaults.iomap_size = rs_iomap_unscale(rs_iomap_scale(rs_defaults.iomap_size));
}

void rs_configure(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_files);
}
