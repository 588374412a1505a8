// faults.c - fault injection in this process: VERBENA_FAULT, scenarios, ports and devices, the control verbs
// see: man/verbena-fault.1, docs/faults.md
// SPDX-License-Identifier: MIT
#include "node/faults.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/qp.h"
#include "core/verbs.h"
#include "core/wq.h"
#include "fault/script.h"
#include "fault/set.h"
#include "fault/text.h"
#include "fault/timer.h"
#include "node/control.h"
#include "util/env.h"
#include "util/log.h"

/* All under lock but the node, which is set before the timer starts and cleared after it has ended. */
static struct {
	pthread_mutex_t lock; /* steps */
	bool loaded;
	struct vb_node *_Atomic node;
	struct vb_fault_script script;
	unsigned next_step;
	uint64_t began;
	atomic_bool changed;
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define PORT ((void *)(intptr_t)1)

/* --- a scenario --- */

static void take_step(const struct vb_fault_step *s)
{
	if (!s->removes) {
		if (!vb_fault_add(&s->rule))
			vb_log(VB_LOG_ERROR, "VERBENA_FAULT: too many rules: at most %d", VB_FAULT_RULES_MAX);
	} else if (!vb_fault_remove(s->remove)) {
		vb_log(VB_LOG_WARN, "VERBENA_FAULT: there is no rule %u to remove", s->remove);
	}
}

/* Takes the steps whose time has come. Returns the time of the next. */
static uint64_t take_steps(uint64_t now)
{
	uint64_t next = UINT64_MAX;

	vb_mutex_lock(&faults.lock, VB_RANK_FAULTS);
	while (faults.next_step < faults.script.n && faults.began + faults.script.steps[faults.next_step].at <= now)
		take_step(&faults.script.steps[faults.next_step++]);
	if (faults.next_step < faults.script.n)
		next = faults.began + faults.script.steps[faults.next_step].at;
	vb_mutex_unlock(&faults.lock);
	return next;
}

/* --- ports and devices --- */

/* A removed device: its queue pairs go to ERR, as if the hardware had gone. */
static void end_queue_pair(struct vb_qp *qp, void *dev)
{
	if (VB_CONTEXT_OF(qp)->dev == dev)
		vb_qp_error(qp);
}

/* Under no lock. */
static void end_queue_pairs(struct vb_node *node, struct vb_device *dev)
{
	vb_lock(&node->progress);
	vb_node_each_qp(node, end_queue_pair, dev);
	vb_wq_end_device(node, dev);
	vb_unlock(&node->progress);
}

/* Raises the events of a context whose port or device is not what it was. Under ctx_lock. Returns whether the device has
 * gone. */
static bool follow_state(struct vb_context *c)
{
	const char *name = c->dev->dev.name;
	bool gone = vb_fault_device_is_gone(name), down = vb_fault_port_is_down(name);
	bool was_gone = c->fault_gone, was_down = c->fault_down;

	c->fault_gone = gone;
	c->fault_down = down;
	if (gone && !was_gone) {
		vb_fault_count_state(name, VB_FAULT_DEVICE);
		vb_async_raise(c, IBV_EVENT_DEVICE_FATAL, NULL);
	} else if (!gone && down != was_down) {
		vb_fault_count_state(name, VB_FAULT_PORT);
		vb_async_raise(c, down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, PORT);
	}
	return gone && !was_gone;
}

static void follow_states(struct vb_node *node)
{
	struct vb_device *gone[16];
	unsigned n = 0;

	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	vb_cq_arm_all(node);
	vb_wq_arm_all(node);
	for (struct vb_context *c = node->contexts; c; c = c->next) {
		vb_arm_ops(c);
		if (follow_state(c) && n < 16)
			gone[n++] = vb_device_get(c->dev);
	}
	vb_mutex_unlock(&node->ctx_lock);
	while (n) {
		end_queue_pairs(node, gone[--n]);
		vb_device_put(gone[n]);
	}
}

/* --- the timer --- */

static uint64_t least_time(uint64_t a, uint64_t b)
{
	return b && b < a ? b : a;
}

static uint64_t serve_faults(uint64_t now)
{
	struct vb_node *node = atomic_load(&faults.node);
	uint64_t next = take_steps(now);

	if (atomic_exchange(&faults.changed, false)) {
		vb_path_arm(node);
		for (unsigned i = 0; i < VB_TRANSPORTS; i++)
			vb_transports[i]->arm(node);
	}
	follow_states(node);
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		next = least_time(next, vb_transports[i]->serve_faults(node));
	return least_time(next, vb_fault_next_change(now));
}

/* The hooks are told by the timer, because the rules may change under any lock. */
static void rules_changed(void)
{
	atomic_store(&faults.changed, true);
	vb_fault_wake(0);
}

void vb_faults_opened(void)
{
	if (vb_fault_is_armed(VB_FAULT_ARM_STATE))
		vb_fault_wake(0);
}

/* --- control verbs --- */

static int ensure_timer(void)
{
	vb_mutex_lock(&faults.lock, VB_RANK_FAULTS);
	int err = vb_fault_timer_start(serve_faults);
	vb_mutex_unlock(&faults.lock);
	return err;
}

static int serve_add(struct vb_control_call *c)
{
	struct vb_fault_rule rule;
	struct vb_fault_error bad;

	if (!vb_fault_parse(c->args, strlen(c->args), &rule, &bad)) {
		vb_text_put(c->out, "{\"refused\": ");
		vb_text_quote(c->out, bad.text);
		vb_text_format(c->out, ", \"character\": %zu}\n", bad.at + 1);
		return 0;
	}
	int err = ensure_timer();
	unsigned id = err ? 0 : vb_fault_add(&rule);

	if (!id)
		return err ? err : ENOSPC;
	vb_text_format(c->out, "{\"id\": %u}\n", id);
	return 0;
}

static int serve_list(struct vb_control_call *c)
{
	struct vb_fault_rule *rules = calloc(VB_FAULT_RULES_MAX, sizeof(*rules));

	if (!rules)
		return ENOMEM;
	unsigned n = vb_fault_copy(rules);

	vb_text_put(c->out, "[");
	for (unsigned i = 0; i < n; i++) {
		char *text = NULL;
		size_t len;
		FILE *f = open_memstream(&text, &len);

		if (!f)
			break;
		vb_fault_print_json(f, &rules[i]);
		fclose(f);
		vb_text_put(c->out, i ? ",\n " : "");
		vb_text_put(c->out, text);
		free(text);
	}
	vb_text_put(c->out, "]\n");
	free(rules);
	return 0;
}

static int serve_remove(struct vb_control_call *c)
{
	uint64_t id = 0;

	if (!strcmp(c->args, "id=all"))
		id = 0;
	else if (!vb_control_number(c->args, "id", &id) || !id || id > UINT32_MAX)
		return EINVAL;
	if (!vb_fault_remove((unsigned)id))
		return ENOENT;
	vb_text_put(c->out, "{}\n");
	return 0;
}

/* --- start and end --- */

/* Reads VERBENA_FAULT once in a process. A value that makes no sense is reported once. */
static void load_environment(void)
{
	const char *value = vb_env("VERBENA_FAULT");
	struct vb_fault_complaint c;

	faults.loaded = true;
	faults.began = vb_fault_now();
	if (!value || !*value)
		return;
	if (!vb_fault_read_env(value, &faults.script, &c))
		vb_log(VB_LOG_ERROR, "%s", c.line);
}

void vb_faults_start(struct vb_node *node)
{
	vb_fault_on_change(rules_changed);
	vb_control_add("fault-add", serve_add);
	vb_control_add("fault-list", serve_list);
	vb_control_add("fault-remove", serve_remove);
	atomic_store(&faults.node, node);
	vb_mutex_lock(&faults.lock, VB_RANK_FAULTS);
	if (!faults.loaded)
		load_environment();
	vb_mutex_unlock(&faults.lock);
	if (!faults.script.n && !vb_fault_copy(NULL))
		return;
	take_steps(vb_fault_now()); /* so that the first calls find the rules */
	int err = ensure_timer();

	if (err)
		vb_log(VB_LOG_ERROR, "VERBENA_FAULT: no thread for the times of rules: %s", strerror(err));
}

void vb_faults_stop(void)
{
	vb_fault_timer_stop();
}

void vb_faults_in_child(void)
{
	pthread_mutex_init(&faults.lock, NULL);
	vb_fault_in_child();
	vb_path_faulty_in_child();
	vb_path_limited_in_child();
	vb_fault_timer_in_child();
}
