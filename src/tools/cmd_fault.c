// cmd_fault.c - verbena fault: adds, lists and removes rules of running programs, checks scenario files
// see: man/verbena-fault.1, docs/faults.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/script.h"
#include "tools/control.h"
#include "tools/stat_options.h"
#include "tools/stat_parse.h"
#include "tools/verbena.h"
#include "util/env.h"

#define ANSWER_MS 2000

enum { EXIT_NOT_ALL = 1, EXIT_USAGE = 2 };

struct request {
	int pid; /* 0: not given */
	bool all, json;
	char words[VB_FAULT_TEXT_LEN * 2]; /* the rule, or the id */
	char line[VB_FAULT_TEXT_LEN * 2 + 32];
};

static int complain_usage(const char *what)
{
	cmd_complain("fault", "%s", what);
	return EXIT_USAGE;
}

static bool take_pid(struct request *r, const char *text)
{
	char *end;
	long pid = text ? strtol(text, &end, 10) : 0;

	if (!text || end == text || *end || pid < 1 || pid > 0x7fffffff)
		return false;
	r->pid = (int)pid;
	return true;
}

/* Reads options and joins the other words with spaces. */
static bool take_words(struct request *r, int argc, char **argv)
{
	const char *value;
	size_t n = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--all")) {
			r->all = true;
		} else if (!strcmp(argv[i], "--json")) {
			r->json = true;
		} else if (stat_option(argv, &i, "--pid", &value)) {
			if (!take_pid(r, value))
				return false;
		} else if (argv[i][0] == '-') {
			return false;
		} else {
			int more = snprintf(r->words + n, sizeof(r->words) - n, "%s%s", n ? " " : "", argv[i]);

			if (more < 0 || (size_t)more >= sizeof(r->words) - n)
				return false;
			n += (size_t)more;
		}
	}
	return !(r->pid && r->all);
}

static int complain_no_process(int pid)
{
	cmd_complain("fault", "no program with an open adapter has the process id %d: 'verbena fault list' shows all",
	             pid);
	return EXIT_NOT_ALL;
}

/* Finds the programs. Without --pid and --all there must be one. */
static int find_programs(struct ctl_list *list, const struct request *r, bool may_be_many)
{
	int err = ctl_find(list, r->pid, false);

	if (err) {
		cmd_complain("fault", "the running programs cannot be found: %s", strerror(err));
		return EXIT_NOT_ALL;
	}
	if (!list->n && r->pid)
		return complain_no_process(r->pid);
	if (!list->n)
		cmd_complain("fault", "no program of yours has an open adapter now");
	else if (list->n > 1 && !may_be_many && !r->all && !r->pid)
		cmd_complain("fault", "%zu programs have an open adapter: choose one with --pid PID, or take --all",
		             list->n);
	else
		return 0;
	return EXIT_NOT_ALL;
}

/* The value of a member of the flat JSON that a program has answered: a string without its quotes, or a number. */
static bool member_of(const char *json, const char *name, char *out, size_t size)
{
	char key[32];

	snprintf(key, sizeof(key), "\"%s\": ", name);
	const char *at = strstr(json, key);

	if (!at)
		return false;
	at += strlen(key);
	bool quoted = *at == '"';

	at += quoted;
	size_t n = 0;

	while (at[n] && n < size - 1 && (quoted ? at[n] != '"' : strspn(at + n, "0123456789") > 0))
		n++;
	for (size_t i = 0; i < n; i++) /* a terminal shows it */
		out[i] = at[i] >= ' ' && at[i] < 127 ? at[i] : '?';
	out[n] = '\0';
	return true;
}

/* Reports what is wrong with an answer. Returns true if nothing is. */
static bool answer_is_good(const struct ctl_program *p)
{
	char text[420];

	if (p->err)
		cmd_complain("fault", "process %d: %s", p->pid,
		             p->err == ESRCH ? "the program has ended" : strerror(p->err));
	else if (member_of(p->text, "refused", text, sizeof(text)) || member_of(p->text, "error", text, sizeof(text)))
		cmd_complain("fault", "process %d: %s", p->pid, text);
	else
		return true;
	return false;
}

/* A program that has a rule more, or less, as JSON. */
static void print_change(const char *between, int pid, const char *member, const char *id)
{
	printf("%s{\"pid\": %d, \"%s\": ", between, pid, member);
	if (strcmp(id, "all") != 0)
		printf("%lu}", strtoul(id, NULL, 10));
	else
		printf("\"all\"}");
}

static int cmd_add(struct request *r)
{
	struct ctl_list list = {0};
	struct vb_fault_rule rule;
	struct vb_fault_error err;
	char id[24];

	if (!r->words[0])
		return complain_usage("add needs a rule: verbena fault add [--pid PID|--all] RULE");
	if (!vb_fault_parse(r->words, strlen(r->words), &rule, &err)) {
		cmd_complain("fault", "rule \"%s\", character %zu: %s", r->words, err.at + 1, err.text);
		return EXIT_USAGE;
	}
	int rc = find_programs(&list, r, false), failed = 0;
	const char *between = "";

	if (!rc) {
		snprintf(r->line, sizeof(r->line), "fault-add %s", rule.text);
		ctl_ask(&list, r->line, -1, ANSWER_MS);
	}
	if (r->json)
		putchar('[');
	for (size_t i = 0; !rc && i < list.n; i++) {
		const struct ctl_program *p = &list.programs[i];

		if (!answer_is_good(p)) {
			failed = EXIT_NOT_ALL;
		} else if (!r->json) {
			printf("process %d: rule %s\n", p->pid, member_of(p->text, "id", id, sizeof(id)) ? id : "?");
		} else if (member_of(p->text, "id", id, sizeof(id))) {
			print_change(between, p->pid, "id", id);
			between = ",\n ";
		}
	}
	if (r->json)
		puts("]");
	ctl_free(&list);
	return rc ? rc : failed;
}

/* The values of the rules, which are one a line in the answer. */
static void print_rules(const struct ctl_program *p)
{
	char id[24], matched[24], hits[24], seed[24], text[VB_FAULT_TEXT_LEN];
	char *copy = strdup(p->text), *rest = copy;

	for (char *line; copy && (line = strsep(&rest, "\n"));) {
		if (!member_of(line, "id", id, sizeof(id)) || !member_of(line, "rule", text, sizeof(text)) ||
		    !member_of(line, "matched", matched, sizeof(matched)) ||
		    !member_of(line, "hits", hits, sizeof(hits)) || !member_of(line, "seed", seed, sizeof(seed)))
			continue;
		printf("  %-4s %8s hits of %8s  seed=%s  %s\n", id, hits, matched, seed, text);
	}
	free(copy);
}

/* Parses what a program has answered and prints it again, in ASCII, because a program may be hostile. Returns false if it
 * is no list. */
static bool print_json(const char *between, const struct ctl_program *p)
{
	struct json_object *rules = stat_parse_list(p->text, p->len);

	if (!rules) {
		cmd_complain("fault", "process %d: the answer is no list of rules", p->pid);
		return false;
	}
	printf("%s{\"pid\": %d, \"rules\": ", between, p->pid);
	for (const char *c = json_object_to_json_string_ext(rules, JSON_C_TO_STRING_SPACED); c && *c; c++)
		putchar(*c >= ' ' && *c < 127 ? *c : '?');
	putchar('}');
	json_object_put(rules);
	return true;
}

static int cmd_list(struct request *r)
{
	struct ctl_list list = {0};
	int rc = 0;

	if (r->words[0])
		return complain_usage("list takes --pid PID and --json only");
	int err = ctl_find(&list, r->pid, false);

	if (err) {
		cmd_complain("fault", "the running programs cannot be found: %s", strerror(err));
		return EXIT_NOT_ALL;
	}
	if (!list.n && r->pid)
		return complain_no_process(r->pid);
	ctl_ask(&list, "fault-list", -1, ANSWER_MS);
	const char *between = "";

	if (r->json)
		printf("[");
	for (size_t i = 0; i < list.n; i++) {
		const struct ctl_program *p = &list.programs[i];

		if (!answer_is_good(p)) {
			rc = EXIT_NOT_ALL;
		} else if (r->json) {
			if (print_json(between, p))
				between = ",\n ";
			else
				rc = EXIT_NOT_ALL;
		} else {
			printf("process %d:%s\n", p->pid, strchr(p->text, '{') ? "" : " no rules");
			print_rules(p);
		}
	}
	if (r->json)
		printf("]\n");
	else if (!list.n)
		puts("no program of yours has an open adapter now");
	ctl_free(&list);
	return rc;
}

static int cmd_remove(struct request *r)
{
	struct ctl_list list = {0};
	bool all = !strcmp(r->words, "all");

	if (!all && (!r->words[0] || strspn(r->words, "0123456789") != strlen(r->words) || strlen(r->words) > 9))
		return complain_usage("remove takes a rule's number, as 'verbena fault list' shows it, or all");
	int rc = find_programs(&list, r, all), failed = 0;
	const char *between = "";

	if (!rc) {
		snprintf(r->line, sizeof(r->line), "fault-remove id=%s", r->words);
		ctl_ask(&list, r->line, -1, ANSWER_MS);
	}
	if (r->json)
		putchar('[');
	for (size_t i = 0; !rc && i < list.n; i++) {
		if (!answer_is_good(&list.programs[i])) {
			failed = EXIT_NOT_ALL;
		} else if (r->json) {
			print_change(between, list.programs[i].pid, "removed", r->words);
			between = ",\n ";
		}
	}
	if (r->json)
		puts("]");
	ctl_free(&list);
	return rc ? rc : failed;
}

static int cmd_check(int argc, char **argv)
{
	struct vb_fault_script s;
	struct vb_fault_complaint c;

	bool json = argc > 1 && !strcmp(argv[argc - 1], "--json");

	if (argc > 2 && !strcmp(argv[1], "--json")) {
		json = true;
		argv++;
	}
	if (argc != 2 + json)
		return complain_usage("check takes one file: verbena fault check FILE [--json]");
	if (!vb_fault_read_file(argv[1], &s, &c)) {
		cmd_complain("fault", "%s", c.line);
		return EXIT_USAGE;
	}
	if (json) {
		printf("{\"file\": ");
		cmd_print_json_string(argv[1]);
		printf(", \"steps\": %u}\n", s.n);
	} else {
		printf("%s: %u steps\n", argv[1], s.n);
	}
	vb_fault_script_free(&s);
	return 0;
}

int cmd_fault(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(struct request *r);
	} verbs[] = {{"add", cmd_add}, {"list", cmd_list}, {"remove", cmd_remove}};
	struct request r = {0};

	if (argc > 1 && !strcmp(argv[1], "check"))
		return cmd_check(argc - 1, argv + 1);
	for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(argv[1], verbs[i].name) != 0)
			continue;
		if (!take_words(&r, argc - 1, argv + 1))
			return complain_usage(
			        "add [--pid PID|--all] RULE, list [--pid PID], remove [--pid PID|--all] ID|all, "
			        "check FILE; each with --json");
		return verbs[i].run(&r);
	}
	return complain_usage(
	        "say what to do: add [--pid PID|--all] RULE, list [--pid PID], remove [--pid PID|--all] ID|all, check FILE");
}
