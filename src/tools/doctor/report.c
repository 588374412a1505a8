// report.c - the findings, as lines or as JSON
// follows: verbena-doctor(1)
// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <stdio.h>

#include "tools/doctor/doctor.h"
#include "tools/verbena.h"

static struct {
	bool json;
	int count[DOC_FAIL + 1];
	enum doc_mark worst;
} report;

static const char *const mark_names[] = {"ok", "warn", "fail"};

void doc_report_open(bool json)
{
	report.json = json;
	if (json)
		fputs("{\"findings\": [", stdout);
}

/* ASCII alone, because other bytes may be no UTF-8, which JSON needs. */
static void make_printable(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

static void print_finding_json(enum doc_mark mark, const char *about, const char *mend, const char *text)
{
	int before = report.count[DOC_OK] + report.count[DOC_WARN] + report.count[DOC_FAIL];

	printf("%s{\"status\": \"%s\", \"check\": \"%s\", \"text\": ", before ? ",\n " : "", mark_names[mark], about);
	cmd_print_json_string(text);
	if (mend) {
		fputs(", \"mend\": ", stdout);
		cmd_print_json_string(mend);
	}
	putchar('}');
}

void doc_find(enum doc_mark mark, const char *about, const char *mend, const char *fmt, ...)
{
	char text[768];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	make_printable(text);
	if (report.json) {
		print_finding_json(mark, about, mend, text);
	} else {
		printf("[%s]%*s %s: %s\n", mark_names[mark], mark == DOC_OK ? 2 : 0, "", about, text);
		if (mend)
			printf("       mend: %s\n", mend);
		fflush(stdout);
	}
	report.count[mark]++;
	if (mark > report.worst)
		report.worst = mark;
}

const char *doc_mend(const char *fmt, ...)
{
	static char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	make_printable(text);
	return text;
}

int doc_report_close(void)
{
	if (report.json)
		printf("], \"status\": \"%s\"}\n", mark_names[report.worst]);
	else
		printf("%d ok, %d warnings, %d failures\n", report.count[DOC_OK], report.count[DOC_WARN],
		       report.count[DOC_FAIL]);
	return (int)report.worst;
}
