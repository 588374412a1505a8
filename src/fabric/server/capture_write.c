// capture_write.c - verbena-fabric ctl capture: writes the records that come to standard output
// follows: pcap-savefile(5), LINKTYPE_ERF
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/server/capture.h"
#include "fabric/server/server.h"

enum { LINKTYPE_ERF = 197 };

struct file_head {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t zone, accuracy, longest, linktype;
};

static bool write_whole(const void *bytes, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = write(STDOUT_FILENO, (const char *)bytes + at, len - at);

		if (n < 0 && errno != EINTR)
			return false;
		at += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* Without a buffer, so that a signal may end it between two records. */
int capture_write(int sock)
{
	static const struct file_head head = {.magic = 0xa1b23c4d, /* with nanoseconds */
	                                      .major = 2,
	                                      .minor = 4,
	                                      .longest = 65535,
	                                      .linktype = LINKTYPE_ERF};
	uint8_t record[sizeof(struct capture_head) + 4 * VB_LRH_WORDS_MOST + VB_VCRC_LEN];
	ssize_t n;

	if (isatty(STDOUT_FILENO)) {
		fputs("verbena-fabric: ctl capture writes a file to standard output: … >FILE, or … | wireshark -k -i -\n",
		      stderr);
		return 2;
	}
	if (!write_whole(&head, sizeof(head)))
		return 1;
	while ((n = recv(sock, record, sizeof(record), 0)) > 0 || (n < 0 && errno == EINTR))
		if (n > 0 && !write_whole(record, (size_t)n))
			return 1;
	return 0;
}
