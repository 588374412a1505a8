// stat_table.c - rows of programs' objects as a table
// follows: verbena-stat(1)
// SPDX-License-Identifier: MIT
#include "tools/stat_table.h"

#include <json-c/json.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "tools/stat_rows.h"
#include "tools/verbena.h"

#define COLUMNS_MOST 16
#define CELL 80

/* How a column shows its member. */
enum kind { TEXT, NUMBER, HEX, USER, BYTES, EVENTS, LIST, YES, ADDRESS };

struct column {
	const char *head, *member;
	enum kind kind;
};

static const struct column device_columns[] = {{"DEVICE", "device", TEXT},
                                               {"PROGRAMS", "programs", NUMBER},
                                               {"QPS", "qps", NUMBER},
                                               {"SENT", "xmit_bytes", BYTES},
                                               {"RECEIVED", "rcv_bytes", BYTES},
                                               {"PKTS SENT", "port_xmit_packets", EVENTS},
                                               {"PKTS RCVD", "port_rcv_packets", EVENTS},
                                               {"TIMEOUTS", "local_ack_timeout_err", EVENTS},
                                               {"SEQ ERR", "packet_seq_err", EVENTS},
                                               {"RNR", "rnr_nak_retry_err", EVENTS},
                                               {0}};
static const struct column qp_columns[] = {
        {"PID", "pid", NUMBER},        {"PROGRAM", "program", TEXT},     {"DEVICE", "device", TEXT},
        {"QPN", "qpn", HEX},           {"TYPE", "type", TEXT},           {"STATE", "state", TEXT},
        {"PATH", "path", TEXT},        {"PEER QPN", "peer_qpn", HEX},    {"PEER", "peer", ADDRESS},
        {"SQ PSN", "sq_psn", NUMBER},  {"RQ PSN", "rq_psn", NUMBER},     {"OUT", "outstanding", NUMBER},
        {"SENT", "xmit_bytes", BYTES}, {"RECEIVED", "rcv_bytes", BYTES}, {0}};
static const struct column cq_columns[] = {{"PID", "pid", NUMBER},
                                           {"PROGRAM", "program", TEXT},
                                           {"DEVICE", "device", TEXT},
                                           {"CQN", "cqn", NUMBER},
                                           {"SIZE", "capacity", NUMBER},
                                           {"ENTRIES", "entries", NUMBER},
                                           {"ARMED", "armed", TEXT},
                                           {"CHANNEL", "channel", YES},
                                           {"USERS", "users", NUMBER},
                                           {"OVERRUN", "overrun", YES},
                                           {0}};
static const struct column mr_columns[] = {
        {"PID", "pid", NUMBER}, {"PROGRAM", "program", TEXT}, {"DEVICE", "device", TEXT},
        {"KEY", "key", HEX},    {"ADDRESS", "address", HEX},  {"LENGTH", "length", NUMBER},
        {"PD", "pd", NUMBER},   {"ACCESS", "access", LIST},   {0}};
static const struct column connection_columns[] = {{"PID", "pid", NUMBER},
                                                   {"PROGRAM", "program", TEXT},
                                                   {"DEVICE", "device", TEXT},
                                                   {"PORT SPACE", "port_space", TEXT},
                                                   {"STATE", "state", TEXT},
                                                   {"PEER QPN", "peer_qpn", HEX},
                                                   {"LOCAL", "local", TEXT},
                                                   {"REMOTE", "remote", TEXT},
                                                   {0}};
static const struct column process_columns[] = {{"PID", "pid", NUMBER},           {"USER", "user", USER},
                                                {"PROGRAM", "program", TEXT},     {"DEVICES", "devices", LIST},
                                                {"QPS", "qps", NUMBER},           {"CQS", "cqs", NUMBER},
                                                {"MRS", "mrs", NUMBER},           {"SENT", "xmit_bytes", BYTES},
                                                {"RECEIVED", "rcv_bytes", BYTES}, {0}};

static const struct column *columns_of(const char *what)
{
	static const struct {
		const char *what;
		const struct column *columns;
	} all[] = {{"devices", device_columns},
	           {"qps", qp_columns},
	           {"cqs", cq_columns},
	           {"mrs", mr_columns},
	           {"connections", connection_columns}};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i].what, what))
			return all[i].columns;
	return process_columns;
}

/* 1234567 as "1.2 M": a short number with a unit. */
static void scaled_text(char *buf, size_t size, double n, const char *unit)
{
	static const char scale[] = " kMGTPE";
	int i = 0;

	for (; n >= 9999.5 && i < 6; i++)
		n /= 1000;
	if (i || *unit)
		snprintf(buf, size, n < 99.95 && i ? "%.1f %.*s%s" : "%.0f %.*s%s", n, i > 0, scale + i, unit);
	else
		snprintf(buf, size, "%.0f", n);
}

static void list_text(struct json_object *row, const char *member, char *buf, size_t size)
{
	struct json_object *list;
	size_t len = 0;

	buf[0] = '\0';
	if (!json_object_object_get_ex(row, member, &list) || !json_object_is_type(list, json_type_array))
		return;
	for (size_t i = 0; i < json_object_array_length(list) && len + 1 < size; i++) {
		const char *text = json_object_get_string(json_object_array_get_idx(list, i));
		int n = snprintf(buf + len, size - len, "%s%s", i ? "," : "", text ? text : "");

		len += n > 0 ? (size_t)n : 0;
	}
	for (char *c = buf; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
			*c = '?';
}

static void user_text(long long uid, char *buf, size_t size)
{
	const struct passwd *pw = getpwuid((uid_t)uid);

	if (pw)
		snprintf(buf, size, "%s", pw->pw_name);
	else
		snprintf(buf, size, "%lld", uid);
}

/* The peer's address, or its process on this host. */
static void address_text(struct json_object *row, const char *member, char *buf, size_t size)
{
	long long pid = stat_row_number(row, "peer_pid");

	stat_row_text(row, member, buf, size);
	if (!*buf && pid)
		snprintf(buf, size, "pid %lld", pid);
}

void stat_table_cell(const char *what, unsigned column, struct json_object *row, bool rates, char *buf, size_t size)
{
	const struct column *c = &columns_of(what)[column];
	struct json_object *value;

	buf[0] = '\0';
	if (rates && (c->kind == BYTES || c->kind == EVENTS) && !json_object_object_get_ex(row, "rates", NULL)) {
		snprintf(buf, size, "-"); /* it is new */
		return;
	}
	switch (c->kind) {
	case BYTES:
		if (rates)
			scaled_text(buf, size, stat_row_rate(row, c->member) * 8, "b/s");
		else
			scaled_text(buf, size, stat_row_counter(row, c->member), "B");
		return;
	case EVENTS:
		scaled_text(buf, size, rates ? stat_row_rate(row, c->member) : stat_row_counter(row, c->member),
		            rates ? "/s" : "");
		return;
	case LIST:
		list_text(row, c->member, buf, size);
		return;
	case ADDRESS:
		address_text(row, c->member, buf, size);
		return;
	default:
		break;
	}
	if (!json_object_object_get_ex(row, c->member, &value)) {
		snprintf(buf, size, "%s", c->kind == NUMBER && !strcmp(what, "devices") ? "0" : "-");
		return;
	}
	if (c->kind == USER)
		user_text(json_object_get_int64(value), buf, size);
	else if (c->kind == YES)
		snprintf(buf, size, "%s", json_object_get_boolean(value) ? "yes" : "no");
	else if (c->kind == NUMBER)
		snprintf(buf, size, "%lld", (long long)json_object_get_int64(value));
	else if (c->kind == HEX)
		snprintf(buf, size, "0x%llx", (unsigned long long)json_object_get_int64(value));
	else
		stat_row_text(row, c->member, buf, size);
}

const char *stat_table_head(const char *what, unsigned column)
{
	return columns_of(what)[column].head;
}

bool stat_table_is_number(const char *what, unsigned column)
{
	enum kind kind = columns_of(what)[column].kind;

	return kind == NUMBER || kind == HEX || kind == BYTES || kind == EVENTS;
}

void stat_table_json(FILE *f, const char *what, struct json_object *rows)
{
	struct json_object *all = json_object_new_object();

	json_object_object_add(all, what, json_object_get(rows));
	const char *text =
	        json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);

	cmd_print_utf8(f, text ? text : "{}");
	fputc('\n', f);
	json_object_put(all);
}

static void print_cell(FILE *f, const char *text, int width, bool right, bool last)
{
	if (right)
		fprintf(f, "%*s", width, text);
	else if (last)
		fputs(text, f);
	else
		fprintf(f, "%-*s", width, text);
	fputs(last ? "\n" : "  ", f);
}

void stat_table_print(FILE *f, const char *what, struct json_object *rows, bool rates, bool bold)
{
	int width[COLUMNS_MOST] = {0};
	size_t n = json_object_array_length(rows), columns = 0;
	char cell[CELL];

	for (; stat_table_head(what, (unsigned)columns); columns++) {
		width[columns] = (int)strlen(stat_table_head(what, (unsigned)columns));
		for (size_t i = 0; i < n; i++) {
			stat_table_cell(what, (unsigned)columns, json_object_array_get_idx(rows, i), rates, cell, CELL);
			if ((int)strlen(cell) > width[columns])
				width[columns] = (int)strlen(cell);
		}
	}
	if (bold)
		fputs("\033[1m", f);
	for (unsigned c = 0; c < columns; c++)
		print_cell(f, stat_table_head(what, c), width[c], stat_table_is_number(what, c), c + 1 == columns);
	if (bold)
		fputs("\033[0m", f);
	for (size_t i = 0; i < n; i++)
		for (unsigned c = 0; c < columns; c++) {
			stat_table_cell(what, c, json_object_array_get_idx(rows, i), rates, cell, CELL);
			print_cell(f, cell, width[c], stat_table_is_number(what, c), c + 1 == columns);
		}
}
