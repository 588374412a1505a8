// fuzz_control.c - arbitrary bytes as a request of the control socket, as a program's answer, and as an HTTP request
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "node/control_verbs.h"
#include "core/node.h"
#include "tools/http_request.h"
#include "tools/stat_parse.h"
#include "tools/stat_rows.h"
#include "util/control_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int serve_words(struct vb_control_call *call)
{
	char value[16];
	uint64_t n = 0;

	if (!vb_control_number(call->args, "from", &n))
		return EINVAL;
	if (vb_control_word(call->args, "word", value, sizeof(value)))
		assert(strlen(value) < sizeof(value));
	vb_text_put(call->out, "{\"args\": ");
	vb_text_quote(call->out, call->args);
	vb_text_put(call->out, "}\n");
	return 0;
}

/* Whatever the request, the answer is JSON. */
static void ask(char *line)
{
	static struct vb_node node;
	struct vb_text out = {0};
	struct vb_control_call call = {.node = &node, .fd = -1, .out = &out, .args = line};

	vb_control_serve(&call);
	assert(out.len);
	struct json_object *o = json_tokener_parse(out.at);
	assert(o);
	json_object_put(o);
	vb_text_free(&out);
}

static void read_answer(const char *text, size_t size)
{
	struct json_object *o = stat_parse(text, size);
	char buf[32];

	json_object_put(stat_parse_list(text, size));
	if (!o)
		return;
	stat_row_text(o, "device", buf, sizeof(buf));
	(void)stat_row_number(o, "qps");
	(void)stat_row_counter(o, "xmit_bytes");
	json_object_put(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *line = malloc(size + 1);
	struct http_request r;
	struct vb_control_name name;

	vb_control_add("words", serve_words);
	vb_control_add("about", vb_control_about);
	memcpy(line, data, size);
	line[size] = '\0';
	vb_control_name_read(line, &name);
	read_answer(line, size);
	if (http_head_ends(line, size)) {
		http_request_read(line, size, &r);
		assert(r.status != 200 || r.path[0] == '/');
	}
	ask(line);
	free(line);
	return 0;
}
