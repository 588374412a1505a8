// fuzz_nvme_ctl.c - lines of verbena-target's control socket that change namespaces and limits. Each gets an answer of one
// line, and what was added can be removed
// see: storage/target/change.c
// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "target/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NQN "nqn.2026-01.test:one"

void nt_say(const char *fmt, ...)
{
}

/* Words that most commands need; arbitrary text would be refused at once. */
static const char *const words[] = {"limit ",      "add ",
                                    "remove ",     "namespace ",
                                    "host ",       "hosts ",
                                    NQN " ",       "nsid=",
                                    "1 ",          "2 ",
                                    "3 ",          "backend=",
                                    "memory ",     "null ",
                                    "size=",       "64K ",
                                    "1M ",         "iops=",
                                    "riops=",      "wiops=",
                                    "bps=",        "rbps=",
                                    "wbps=",       "max ",
                                    "burst=",      "weight=",
                                    "depth=",      "default ",
                                    "path=",       "file ",
                                    "readonly=",   "true ",
                                    "uuid=",       "4096 ",
                                    "block_size=", "ana_group=",
                                    "buffered=",   "nqn.2026-01.test:host "};
#define WORDS (sizeof(words) / sizeof(*words))

/* A byte below 200 is a word, others begin text, of which the next byte is the length. No path leads anywhere. */
static void make_line(char *line, size_t room, const uint8_t **at, const uint8_t *end)
{
	line[0] = 0;
	while (*at < end) {
		uint8_t b = *(*at)++;
		size_t have = strlen(line);

		if (b == 199)
			return;
		if (b < 200) {
			if (have + strlen(words[b % WORDS]) + 1 < room)
				strcat(line, words[b % WORDS]);
			continue;
		}
		for (size_t n = b - 200; n && *at < end && have + 1 < room; n--, (*at)++)
			if (**at && **at != '/' && **at != '\n')
				line[have++] = (char)**at;
		line[have] = 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct nt_server s;
	const uint8_t *at = data, *end = data + size;
	char line[1024];

	memset(&s, 0, sizeof(s));
	CHECK(!nb_ring_open(&s.ring, true));
	CHECK(!nt_target_init(&s.target, 16 << 20));
	struct nt_config c;

	nt_config_default(&c);
	struct nt_config_subsystem *x = nt_config_subsystem(&c);

	CHECK(x && (x->nqn = strdup(NQN)));
	x->any_host = true;
	CHECK(!nt_apply(&s, &c));
	for (int n = 0; at < end && n < 50; n++) {
		make_line(line, sizeof(line), &at, end);
		char *answer = nt_change(&s, line);

		CHECK(!answer || (strchr(answer, '\n') && !strchr(answer, '\n')[1]));
		free(answer);
	}
	char *status = nt_status_json(&s), *metrics = nt_metrics(&s);

	CHECK(status && metrics && strstr(metrics, "# EOF\n"));
	free(status);
	free(metrics);
	struct nt_subsystem *served = nt_subsystem_find(&s.target, NQN);

	for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++) {
		if (!served->ns[i])
			continue;
		snprintf(line, sizeof(line), "remove " NQN " %u", i);
		char *answer = nt_change(&s, line);

		CHECK(answer && !strcmp(answer, "ok\n"));
		free(answer);
	}
	SAME(s.config.subsystems[0].ns_count, 0);
	nt_target_fini(&s.target);
	nt_config_free(&s.config);
	nb_ring_close(s.ring);
	return 0;
}
