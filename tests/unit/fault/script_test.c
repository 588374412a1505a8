// script_test.c - VERBENA_FAULT and scenario files
// see: man/verbena-fault.1
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "fault/script.h"

#include <locale.h>

static struct vb_fault_script rules_of(const char *text)
{
	struct vb_fault_script s;
	struct vb_fault_complaint c;

	if (!vb_fault_read_rules("VERBENA_FAULT", text, &s, &c))
		CHECK_FAILED("%s", c.line);
	return s;
}

static void rules_stand_between_semicolons(void)
{
	struct vb_fault_script s = rules_of(" drop p=0.1 ;; delay=1ms path=roce; ");

	SAME(s.n, 2);
	CHECK(!strcmp(s.steps[0].rule.text, "drop p=0.1"));
	CHECK(!strcmp(s.steps[1].rule.text, "delay=1ms path=roce"));
	vb_fault_script_free(&s);
}

static void the_older_form_is_understood(void)
{
	struct vb_fault_script s = rules_of("loss=1,dup=5,reorder=0,corrupt=0.1,seed=7");

	SAME(s.n, 3);
	SAME(s.steps[0].rule.action, VB_FAULT_DROP);
	SAME(s.steps[1].rule.action, VB_FAULT_DUPLICATE);
	SAME(s.steps[2].rule.action, VB_FAULT_CORRUPT);
	CHECK(s.steps[0].rule.p == 0.01);
	CHECK(s.steps[2].rule.p == 0.001);
	SAME(s.steps[0].rule.seed, 7);
	CHECK(s.steps[0].rule.has_seed && s.steps[0].rule.paths == VB_FAULT_ROCE);
	vb_fault_script_free(&s);
	s = rules_of("loss=100");
	CHECK(s.steps[0].rule.p == 1);
	vb_fault_script_free(&s);
}

static void complaint_is(const char *text, const char *want)
{
	struct vb_fault_script s;
	struct vb_fault_complaint c;

	CHECK(!vb_fault_read_rules("VERBENA_FAULT", text, &s, &c));
	CHECK(!s.n && !s.steps);
	if (!strstr(c.line, want) || strchr(c.line, '\n'))
		CHECK_FAILED("%s", c.line);
}

static void a_complaint_names_the_rule_and_the_place(void)
{
	complaint_is("drop; drop p=3", "VERBENA_FAULT: rule 2 \"drop p=3\", character 6: a probability");
	complaint_is("loss=101", "\"loss=101\" is not loss=, dup=, reorder= or corrupt= and a percentage");
	complaint_is("loss=1,lose=2", "\"lose=2\"");
	complaint_is("seed=x,loss=1", "\"seed=x\"");
}

static void a_complaint_has_no_bytes_for_a_terminal(void)
{
	complaint_is("dr\033]0,title\007op", "\"dr?]0,title?op\"");
	complaint_is("drop \x9b\x31m=\xc3\xa4", "\"drop ?1m=??\"");
	complaint_is("loss=1,\033[2J=2", "\"?[2J=2\"");
}

/* A locale with a decimal comma, made in a directory of its own. */
static bool use_german_numbers(char dir[64])
{
	char command[200];

	strcpy(dir, "/tmp/verbena-locale-XXXXXX");
	CHECK(mkdtemp(dir));
	snprintf(command, sizeof(command), "localedef -c --no-archive -i de_DE -f UTF-8 %s/de_DE >%s/log 2>&1", dir,
	         dir);
	return !system(command) && !setenv("LOCPATH", dir, 1) && setlocale(LC_NUMERIC, "de_DE");
}

static void numbers_have_a_point_in_every_locale(void)
{
	char dir[64], command[100];

	if (use_german_numbers(dir)) {
		struct vb_fault_script s = rules_of("drop p=0.01; delay=1.5ms");

		CHECK(s.n == 2 && s.steps[0].rule.p == 0.01 && s.steps[1].rule.value == 1500000);
		vb_fault_script_free(&s);
		the_older_form_is_understood();
	} else {
		printf("skip: localedef(1) cannot make de_DE\n");
	}
	setlocale(LC_ALL, "C");
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	CHECK(!system(command));
}

static bool scenario(const char *text, struct vb_fault_script *s, struct vb_fault_complaint *c)
{
	return vb_fault_read_scenario("file", text, strlen(text), s, c);
}

static void steps_are_taken_in_the_order_of_their_times(void)
{
	struct vb_fault_script s;
	struct vb_fault_complaint c;

	CHECK(scenario("# a bad afternoon\nat 5s remove 1\nat 2s add drop p=0.1 # now\n\ndelay=1ms\r\nat 2s remove all",
	               &s, &c));
	SAME(s.n, 4);
	SAME(s.steps[0].at, 0);
	SAME(s.steps[0].rule.action, VB_FAULT_DELAY);
	SAME(s.steps[1].at, 2000000000);
	SAME(s.steps[1].rule.action, VB_FAULT_DROP);
	CHECK(s.steps[2].removes && s.steps[2].remove == 0);
	CHECK(s.steps[3].removes && s.steps[3].remove == 1 && s.steps[3].at == 5000000000);
	vb_fault_script_free(&s);
}

static void a_line_that_makes_no_sense_is_named(void)
{
	static const char *const lines[] = {"at 5 add drop", "at add drop", "at 1s remove", "at 1s remove x",
	                                    "remove 0",      "add",         "at 1s"};
	struct vb_fault_script s;
	struct vb_fault_complaint c;
	char text[64];

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		snprintf(text, sizeof(text), "drop\n%s\n", lines[i]);
		if (scenario(text, &s, &c) || !strstr(c.line, "file: line 2 ") || s.n)
			CHECK_FAILED("\"%s\": %s", lines[i], c.line);
	}
}

static void too_many_steps_are_refused(void)
{
	struct vb_fault_script s;
	struct vb_fault_complaint c;
	char text[5 * 300 + 1] = "";

	for (int i = 0; i < 300; i++)
		strcat(text, "drop\n");
	CHECK(!scenario(text, &s, &c) && strstr(c.line, "at most 256"));
}

int main(void)
{
	RUN(rules_stand_between_semicolons);
	RUN(the_older_form_is_understood);
	RUN(a_complaint_names_the_rule_and_the_place);
	RUN(a_complaint_has_no_bytes_for_a_terminal);
	RUN(numbers_have_a_point_in_every_locale);
	RUN(steps_are_taken_in_the_order_of_their_times);
	RUN(a_line_that_makes_no_sense_is_named);
	RUN(too_many_steps_are_refused);
	return 0;
}
