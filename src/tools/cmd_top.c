// cmd_top.c - verbena top: what running programs send, live in the terminal
// follows: verbena-top(1); ncurses(3NCURSES)
// SPDX-License-Identifier: MIT
#include <json-c/json.h>
#include <locale.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/progress.h"
#include "tools/stat_options.h"
#include "tools/stat_table.h"
#include "tools/verbena.h"
#include "util/env.h"

#define COLUMNS_MOST 16
#define CELL 80
#define LINES_LEAST 6
#define WIDTH_LEAST 40
#define WIDTH_OF_TITLE 60 /* a narrower terminal has no room for the name and the time */
#define HEAD_LINES 3
#define LINES_WITH_KEYS 8 /* a smaller terminal has no line for the keys */
#define SECOND_LOOK 0.5   /* s */

static const char *const usage = "Usage: verbena top [qps|devices|processes] [OPTION...]\n"
                                 "Shows what running programs send, live, the busiest first.\n"
                                 "\n"
                                 "  --pid N            only this process\n"
                                 "  --device NAME      only this adapter\n"
                                 "  --delay SECONDS    between two looks (default: 1)\n"
                                 "  --once             print one look as a table, without a terminal\n"
                                 "  --json             the same as JSON\n"
                                 "  --help             show this\n"
                                 "\n"
                                 "Keys: q quit; d devices, p processes, c queue pairs; s, r, n sort by sent,\n"
                                 "received, packets; arrows and page keys scroll; space looks at once.\n"
                                 "\n"
                                 "Exit status: 0 success, 1 failure, no terminal, or a program did not answer\n"
                                 "(--once), 2 wrong usage.\n";

struct top {
	const char *what;
	const char *sort; /* the counter whose rate decides */
	struct stat_query query;
	double delay;
	bool once, json;
	struct stat_rows rows;
	struct json_object *before; /* the rows of the last look; or NULL */
	double looked_at;
	bool first; /* there was one look at these objects */
	size_t scroll;
};

static double top_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* qsort has no argument for its comparison. */
static const char *sort_by;

static int busier_first(const void *a, const void *b)
{
	struct json_object *p = *(struct json_object *const *)a, *q = *(struct json_object *const *)b;
	double x = stat_row_rate(p, sort_by), y = stat_row_rate(q, sort_by);
	long long pid_p = stat_row_number(p, "pid"), pid_q = stat_row_number(q, "pid");

	if (x != y)
		return x > y ? -1 : 1;
	return pid_p < pid_q ? -1 : pid_p > pid_q;
}

/* Asks the programs. Their messages about silent programs would disturb the screen, so the count says it. */
static int look(struct top *t)
{
	struct stat_rows rows;
	double now = top_seconds();
	const char *name = t->once ? "top" : NULL;
	int err = strcmp(t->what, "devices") ? stat_rows_get(&rows, name, t->what, &t->query)
	                                     : stat_rows_devices(&rows, name, &t->query);

	if (err)
		return err;
	t->first = !t->before;
	if (t->before)
		stat_rows_rates(rows.rows, t->before, strcmp(t->what, "devices") ? t->what : "adapters",
		                now - t->looked_at);
	json_object_put(t->before);
	json_object_put(t->rows.rows);
	t->before = json_object_get(rows.rows);
	t->rows = rows;
	t->looked_at = now;
	return 0;
}

static void sort_rows(struct top *t)
{
	sort_by = t->sort;
	json_object_array_sort(t->rows.rows, busier_first);
}

/* --- the screen --- */

static void column_widths(const struct top *t, int width[COLUMNS_MOST])
{
	char cell[CELL];

	for (unsigned c = 0; c < COLUMNS_MOST && stat_table_head(t->what, c); c++) {
		width[c] = (int)strlen(stat_table_head(t->what, c));
		for (size_t i = 0; i < json_object_array_length(t->rows.rows); i++) {
			stat_table_cell(t->what, c, json_object_array_get_idx(t->rows.rows, i), true, cell, CELL);
			if ((int)strlen(cell) > width[c])
				width[c] = (int)strlen(cell);
		}
	}
}

/* A row, or the heads if row is NULL. Columns that do not fit are left out. */
static void draw_row(const struct top *t, int y, struct json_object *row, const int width[COLUMNS_MOST])
{
	char cell[CELL];
	int x = 0;

	for (unsigned c = 0; c < COLUMNS_MOST && stat_table_head(t->what, c) && x + width[c] <= COLS; c++) {
		if (row)
			stat_table_cell(t->what, c, row, true, cell, CELL);
		else
			snprintf(cell, CELL, "%s", stat_table_head(t->what, c));
		mvprintw(y, x, stat_table_is_number(t->what, c) ? "%*s" : "%-*s", width[c], cell);
		x += width[c] + 2;
	}
}

static void draw_heading(const struct top *t)
{
	char when[48], text[160];
	time_t now = time(NULL);
	struct tm tm;

	*when = '\0';
	if (COLS >= WIDTH_OF_TITLE)
		strftime(when, sizeof(when), "verbena top  %H:%M:%S  ", localtime_r(&now, &tm));
	snprintf(text, sizeof(text), "%s%s, by %s  %zu program%s%s", when,
	         strcmp(t->what, "qps") ? t->what : "queue pairs",
	         !strcmp(t->sort, "xmit_bytes")  ? "sent"
	         : !strcmp(t->sort, "rcv_bytes") ? "received"
	                                         : "packets",
	         t->rows.programs, t->rows.programs == 1 ? "" : "s", t->rows.silent ? " (some do not answer)" : "");
	mvaddnstr(0, 0, text, COLS);
}

/* As long as the terminal has room for them, in the last line. */
static void draw_keys(void)
{
	static const char *const keys[] = {
	        "q quit   c queue pairs   p processes   d devices   sort by: s sent   r received   n packets",
	        "q quit  c qps  p processes  d devices"};

	attron(A_DIM);
	mvaddnstr(LINES - 1, 0, keys[(size_t)COLS < strlen(keys[0])], COLS);
	attroff(A_DIM);
}

/* How many rows fit. */
static int rows_shown(void)
{
	int room = LINES - HEAD_LINES - (LINES >= LINES_WITH_KEYS);

	return room > 0 ? room : 0;
}

static void draw(struct top *t)
{
	size_t n = json_object_array_length(t->rows.rows), room = (size_t)rows_shown();
	int width[COLUMNS_MOST] = {0};

	erase();
	if (LINES < LINES_LEAST || COLS < WIDTH_LEAST) {
		mvprintw(0, 0, "terminal too small");
		refresh();
		return;
	}
	if (t->scroll + room > n)
		t->scroll = n > room ? n - room : 0;
	draw_heading(t);
	column_widths(t, width);
	attron(A_BOLD);
	draw_row(t, HEAD_LINES - 1, NULL, width);
	attroff(A_BOLD);
	for (size_t i = 0; i < room && t->scroll + i < n; i++)
		draw_row(t, HEAD_LINES + (int)i, json_object_array_get_idx(t->rows.rows, t->scroll + i), width);
	if (!n)
		mvaddnstr(HEAD_LINES, 0, "no program with an open adapter", COLS);
	if (LINES >= LINES_WITH_KEYS)
		draw_keys();
	refresh();
}

static void show_what(struct top *t, const char *what)
{
	if (!strcmp(t->what, what))
		return;
	t->what = what;
	t->scroll = 0;
	json_object_put(t->before);
	t->before = NULL;
}

static void scroll_by(struct top *t, int lines)
{
	if (lines < 0 && t->scroll < (size_t)-lines)
		t->scroll = 0;
	else
		t->scroll += (size_t)lines;
}

/* Returns false if the person wants to leave; *again: look at once. */
static bool obey_key(struct top *t, int key, bool *again)
{
	switch (key) {
	case 'q':
	case 'Q':
		return false;
	case 'd':
	case 'p':
	case 'c':
		show_what(t, key == 'd' ? "devices" : key == 'p' ? "processes" : "qps");
		*again = true;
		break;
	case ' ':
		*again = true;
		break;
	case 's':
	case 'r':
	case 'n':
		t->sort = key == 's' ? "xmit_bytes" : key == 'r' ? "rcv_bytes" : "port_xmit_packets";
		break;
	case KEY_UP:
	case KEY_DOWN:
		scroll_by(t, key == KEY_UP ? -1 : 1);
		break;
	case KEY_PPAGE:
	case KEY_NPAGE:
		scroll_by(t, key == KEY_PPAGE ? -rows_shown() : rows_shown());
		break;
	default:
		break;
	}
	return true;
}

/* The first look shows no rates, so the second one comes soon. */
static double pause_of(const struct top *t)
{
	return t->first && t->delay > SECOND_LOOK ? SECOND_LOOK : t->delay;
}

/* Nobody is there any more: the terminal has gone, and its SIGHUP was ignored, as by nohup(1). */
static bool is_hung_up(void)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR | POLLNVAL);
}

/* Waits for keys until it is time for the next look. False: to end. */
static bool serve_keys(struct top *t)
{
	bool again = false;

	while (!again) {
		double left = t->looked_at + pause_of(t) - top_seconds();

		if (left <= 0)
			return true;
		timeout((int)(left * 1000) + 1);
		int key = getch();
		if (key == ERR) /* time is over, or a signal came */
			return !is_hung_up();
		if (!obey_key(t, key, &again))
			return false;
		sort_rows(t);
		draw(t);
	}
	return true;
}

static volatile sig_atomic_t ended;

static void end_top(int sig)
{
	(void)sig;
	ended = 1;
}

static int run_screen(struct top *t)
{
	struct sigaction act = {.sa_handler = end_top};
	int err = 0;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		cmd_complain("top", "this is no terminal; 'verbena top --once' prints one look, 'verbena stat' totals");
		return 1;
	}
	setlocale(LC_CTYPE, "");
	SCREEN *screen = newterm(NULL, stdout, stdin);
	if (!screen) {
		cmd_complain("top",
		             "the terminal type '%s' is not known: set TERM to one that is, such as xterm or linux",
		             vb_env("TERM") ? vb_env("TERM") : "");
		return 1;
	}
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	cbreak();
	noecho();
	curs_set(0);
	keypad(stdscr, TRUE);
	do {
		err = look(t);
		if (err)
			break;
		sort_rows(t);
		draw(t);
	} while (serve_keys(t) && !ended);
	endwin();
	delscreen(screen);
	if (err)
		cmd_complain("top", "the control sockets of running programs cannot be listed: %s", strerror(err));
	return err != 0;
}

/* Two looks, and the rates between them. */
static int run_once(struct top *t)
{
	int err = look(t);

	if (!err) {
		cmd_progress_sleep(t->delay, "rates");
		err = look(t);
	}
	if (err) {
		cmd_complain("top", "the control sockets of running programs cannot be listed: %s", strerror(err));
		return 1;
	}
	sort_rows(t);
	if (t->json)
		stat_table_json(stdout, t->what, t->rows.rows);
	else
		stat_table_print(stdout, t->what, t->rows.rows, true, cmd_may_be_bold());
	return t->rows.silent;
}

/* False, after a message, if there is no such process or adapter. */
static bool has_what_is_asked(const struct top *t)
{
	struct stat_rows rows;

	if ((!t->query.pid && !t->query.device) || stat_rows_get(&rows, NULL, "devices", &t->query))
		return true;
	bool has = stat_found_pid("top", &t->query, &rows) &&
	           stat_found_device("top", &t->query, json_object_array_length(rows.rows) > 0);

	json_object_put(rows.rows);
	return has;
}

/* Returns 0, 1 to show the usage, or 2. */
static int read_top_words(int argc, char **argv, struct top *t)
{
	const char *value;

	for (int i = 1; i < argc; i++) {
		int r = stat_option_query("top", argv, &i, &t->query);

		if (r < 0)
			return 2;
		if (r)
			continue;
		if (stat_option(argv, &i, "--delay", &value)) {
			if (!stat_option_seconds("top", "--delay", value, &t->delay))
				return 2;
		} else if (!strcmp(argv[i], "--once")) {
			t->once = true;
		} else if (!strcmp(argv[i], "--json")) {
			t->once = t->json = true;
		} else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			return 1;
		} else if (!strcmp(argv[i], "qps") || !strcmp(argv[i], "devices") || !strcmp(argv[i], "processes")) {
			t->what = argv[i];
		} else {
			cmd_complain("top", "unknown argument '%s'; 'verbena top --help' lists them", argv[i]);
			return 2;
		}
	}
	return 0;
}

int cmd_top(int argc, char **argv)
{
	struct top t = {.what = "qps", .sort = "xmit_bytes", .delay = 1};
	int status = read_top_words(argc, argv, &t);

	if (status == 1) {
		fputs(usage, stdout);
		cmd_name_manual(stdout, "verbena-top");
		return 0;
	}
	if (!status && !has_what_is_asked(&t))
		status = 1;
	else if (!status)
		status = t.once ? run_once(&t) : run_screen(&t);
	json_object_put(t.before);
	json_object_put(t.rows.rows);
	return status;
}
