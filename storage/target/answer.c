// answer.c - answers the lines of verbena-target's control socket
// see: man/verbena-target.8
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "target/server.h"

static char *set_ana(struct nt_server *s, char *args)
{
	static const struct {
		const char *name;
		enum nv_ana_state state;
	} states[] = {{"optimized", NV_ANA_OPTIMIZED},
	              {"non-optimized", NV_ANA_NON_OPTIMIZED},
	              {"inaccessible", NV_ANA_INACCESSIBLE},
	              {"persistent-loss", NV_ANA_LOSS},
	              {"change", NV_ANA_CHANGE}};
	char *rest, *nqn = strtok_r(args, " ", &rest), *group = strtok_r(NULL, " ", &rest),
	            *state = strtok_r(NULL, " ", &rest);
	struct nt_subsystem *x = nqn ? nt_subsystem_find(&s->target, nqn) : NULL;
	unsigned long g = group ? strtoul(group, NULL, 10) : 0;

	for (size_t i = 0; x && state && g >= 1 && g <= NT_ANA_GROUPS && i < sizeof(states) / sizeof(*states); i++) {
		if (strcmp(states[i].name, state))
			continue;
		nt_ana_set(x, (uint32_t)g, states[i].state);
		return strdup("ok\n");
	}
	return strdup("error: ana NQN GROUP optimized|non-optimized|inaccessible|persistent-loss|change\n");
}

char *nt_answer_line(void *server, char *line)
{
	struct nt_server *s = server;

	if (!s->serving && strcmp(line, "status") && strcmp(line, "metrics") && strcmp(line, "stop"))
		return strdup("error: the target opens its images\n");
	if (!strcmp(line, "status"))
		return nt_status_json(s);
	if (!strcmp(line, "reload")) {
		s->reload = true;
		return strdup(s->file ? "ok\n" : "error: there is no configuration file\n");
	}
	if (!strcmp(line, "stop")) {
		s->stop = true;
		return strdup("ok\n");
	}
	if (!strcmp(line, "metrics"))
		return nt_metrics(s);
	if (!strncmp(line, "ana ", 4))
		return set_ana(s, line + 4);
	char *answer = nt_change(s, line);

	return answer ? answer : strdup("error: status, metrics, reload, stop, add, remove, limit, or ana\n");
}
