// set.c - the rules of this process
// see: docs/faults.md
// SPDX-License-Identifier: MIT
#include "fault/set.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "util/lock.h"
#include "util/log.h"

static struct {
	struct vb_lock lock;
	unsigned n, last_id;
	struct vb_fault_rule rules[VB_FAULT_RULES_MAX];
	void (*changed)(void);
} the_set = {.lock = VB_LOCK_INITIALIZER(VB_RANK_FAULT)};

_Atomic uint32_t vb_fault_armed;

uint64_t vb_fault_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void vb_fault_in_child(void)
{
	vb_lock_reset(&the_set.lock);
}

/* --- changes --- */

static uint32_t arms_of_wire(const struct vb_fault_rule *r)
{
	uint32_t arm = 0;

	if (r->paths & VB_FAULT_ROCE)
		arm |= (r->dirs & VB_FAULT_TX ? VB_FAULT_ARM_ROCE_TX : 0) |
		       (r->dirs & VB_FAULT_RX ? VB_FAULT_ARM_ROCE_RX : 0);
	if (r->dirs & VB_FAULT_TX)
		arm |= (r->paths & VB_FAULT_IWARP ? VB_FAULT_ARM_IWARP : 0) |
		       (r->paths & VB_FAULT_HERE ? VB_FAULT_ARM_QUEUE : 0);
	return arm;
}

static uint32_t arms_of(const struct vb_fault_rule *r)
{
	switch (vb_fault_class_of(r)) {
	case VB_FAULT_CLASS_WIRE:
		return arms_of_wire(r);
	case VB_FAULT_CLASS_WORK:
		return (r->kinds >> VB_FAULT_KIND_RECV & 1 ? VB_FAULT_ARM_RECV : 0) |
		       (r->kinds == 1u << VB_FAULT_KIND_RECV ? 0 : VB_FAULT_ARM_QUEUE);
	case VB_FAULT_CLASS_STATE:
		return VB_FAULT_ARM_STATE | VB_FAULT_ARM_ROCE_TX | VB_FAULT_ARM_ROCE_RX | VB_FAULT_ARM_IWARP |
		       VB_FAULT_ARM_QUEUE | VB_FAULT_ARM_VERB;
	case VB_FAULT_CLASS_CM:
		return VB_FAULT_ARM_CM;
	default:
		return VB_FAULT_ARM_VERB;
	}
}

/* Under lock. */
static void arm_hooks(void)
{
	uint32_t arm = 0;

	for (unsigned i = 0; i < the_set.n; i++)
		arm |= arms_of(&the_set.rules[i]);
	atomic_store_explicit(&vb_fault_armed, arm, memory_order_relaxed);
}

static void tell_change(void)
{
	if (the_set.changed)
		the_set.changed();
}

void vb_fault_on_change(void (*fn)(void))
{
	the_set.changed = fn;
}

unsigned vb_fault_add(const struct vb_fault_rule *rule)
{
	uint64_t seed = 0, now = vb_fault_now();
	unsigned id = 0;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = now;
	seed &= 0xffffffff; /* short enough to copy by hand */
	vb_lock(&the_set.lock);
	if (the_set.n < VB_FAULT_RULES_MAX) {
		struct vb_fault_rule *r = &the_set.rules[the_set.n++];

		*r = *rule;
		vb_fault_begin(r, ++the_set.last_id, now, seed);
		id = r->id;
		seed = r->seed;
		arm_hooks();
	}
	vb_unlock(&the_set.lock);
	if (!id)
		return 0;
	vb_log(VB_LOG_INFO, "fault %u: %s (seed=%llu)", id, rule->text, (unsigned long long)seed);
	tell_change();
	return id;
}

bool vb_fault_remove(unsigned id)
{
	unsigned kept = 0;

	vb_lock(&the_set.lock);
	unsigned before = the_set.n;

	for (unsigned i = 0; i < before; i++) {
		const struct vb_fault_rule *r = &the_set.rules[i];

		if (id && r->id != id)
			the_set.rules[kept++] = *r;
		else if (vb_fault_class_of(r) == VB_FAULT_CLASS_STATE)
			vb_log(VB_LOG_INFO, "fault %u: removed", r->id);
		else
			vb_log(VB_LOG_INFO, "fault %u: removed, has acted %llu times", r->id,
			       (unsigned long long)r->hits);
	}
	the_set.n = kept;
	arm_hooks();
	vb_unlock(&the_set.lock);
	if (kept == before)
		return !id;
	tell_change();
	return true;
}

unsigned vb_fault_copy(struct vb_fault_rule *out)
{
	vb_lock(&the_set.lock);
	unsigned n = the_set.n;

	if (out)
		memcpy(out, the_set.rules, n * sizeof(*out));
	vb_unlock(&the_set.lock);
	return n;
}

/* --- ports and devices --- */

static bool names_device(const struct vb_fault_rule *r, const char *device)
{
	return !r->device[0] || (device && !strcmp(r->device, device));
}

/* The rule in force that began last decides. Under lock. */
static struct vb_fault_rule *state_rule(enum vb_fault_action action, const char *device, uint64_t now)
{
	struct vb_fault_rule *last = NULL;

	for (unsigned i = 0; i < the_set.n; i++) {
		struct vb_fault_rule *r = &the_set.rules[i];

		if (r->action == action && names_device(r, device) && vb_fault_in_force(r, now) &&
		    (!last || r->start + r->after >= last->start + last->after))
			last = r;
	}
	return last;
}

/* Under lock. */
static bool is_cut_off(const char *device, uint64_t now)
{
	const struct vb_fault_rule *port = state_rule(VB_FAULT_PORT, device, now);

	return (port && !port->value) || state_rule(VB_FAULT_DEVICE, device, now);
}

bool vb_fault_port_is_down(const char *device)
{
	uint64_t now = vb_fault_now();

	vb_lock(&the_set.lock);
	bool down = is_cut_off(device, now);
	vb_unlock(&the_set.lock);
	return down;
}

bool vb_fault_device_is_gone(const char *device)
{
	uint64_t now = vb_fault_now();

	vb_lock(&the_set.lock);
	bool gone = state_rule(VB_FAULT_DEVICE, device, now) != NULL;
	vb_unlock(&the_set.lock);
	return gone;
}

void vb_fault_count_state(const char *device, enum vb_fault_action action)
{
	uint64_t now = vb_fault_now();

	vb_lock(&the_set.lock);
	struct vb_fault_rule *r = state_rule(action, device, now);

	if (r) {
		r->recent[r->hits++ % VB_FAULT_RECENT] = ++r->seen;
		vb_log(VB_LOG_DEBUG, "fault %u: %s", r->id, r->text);
	}
	vb_unlock(&the_set.lock);
}

static uint64_t next_of(const struct vb_fault_rule *r, uint64_t now)
{
	uint64_t begin = r->start + r->after;

	if (begin > now)
		return begin;
	return r->lasts != VB_FAULT_ALWAYS && begin + r->lasts > now ? begin + r->lasts : UINT64_MAX;
}

uint64_t vb_fault_next_change(uint64_t now)
{
	uint64_t at = UINT64_MAX;

	vb_lock(&the_set.lock);
	for (unsigned i = 0; i < the_set.n; i++) {
		uint64_t next = vb_fault_class_of(&the_set.rules[i]) == VB_FAULT_CLASS_STATE
		                        ? next_of(&the_set.rules[i], now)
		                        : UINT64_MAX;

		at = next < at ? next : at;
	}
	vb_unlock(&the_set.lock);
	return at;
}

/* --- questions --- */

static void log_hit(const struct vb_fault_rule *r)
{
	vb_log(VB_LOG_DEBUG, "fault %u: %s: number %llu", r->id, vb_fault_action_name(r->action),
	       (unsigned long long)r->seen);
}

static void judge_wire(struct vb_fault_rule *r, const struct vb_fault_subject *s, struct vb_fault_verdict *v,
                       uint64_t now)
{
	uint64_t wait;

	switch (r->action) {
	case VB_FAULT_DROP:
		v->drop = true;
		break;
	case VB_FAULT_DUPLICATE:
		v->duplicate = true;
		break;
	case VB_FAULT_REORDER:
		v->reorder = true;
		v->random = vb_fault_draw(r);
		break;
	case VB_FAULT_CORRUPT:
		v->corrupt = true;
		v->icrc_right = r->icrc_right;
		v->random = vb_fault_draw(r);
		break;
	case VB_FAULT_CUT:
		v->cut = true;
		break;
	default:
		wait = r->action == VB_FAULT_RATE ? vb_fault_pace(r, s->len, now) : r->value;
		v->delay = wait > v->delay ? wait : v->delay;
	}
}

#define CUT_OFF_LOOK 10000000u /* ns: how often a stream looks whether its port is up again */

bool vb_fault_ask_wire(const struct vb_fault_subject *s, struct vb_fault_verdict *v)
{
	uint64_t now = vb_fault_now() + s->later;
	bool any = false;

	*v = (struct vb_fault_verdict){0};
	vb_lock(&the_set.lock);
	if (is_cut_off(s->device, now)) {
		any = v->drop = true;
		v->delay = CUT_OFF_LOOK;
	}
	for (unsigned i = 0; !v->drop && i < the_set.n; i++) {
		struct vb_fault_rule *r = &the_set.rules[i];

		if (vb_fault_class_of(r) != VB_FAULT_CLASS_WIRE || !vb_fault_hits(r, s, now))
			continue;
		any = true;
		judge_wire(r, s, v, now);
		if (r->action != VB_FAULT_RATE && r->action != VB_FAULT_DELAY)
			log_hit(r);
	}
	vb_unlock(&the_set.lock);
	return any;
}

bool vb_fault_ask_work(const struct vb_fault_subject *s, struct vb_fault_verdict *v)
{
	uint64_t now = vb_fault_now();
	bool any = false;

	*v = (struct vb_fault_verdict){0};
	vb_lock(&the_set.lock);
	for (unsigned i = 0; !any && i < the_set.n; i++) {
		struct vb_fault_rule *r = &the_set.rules[i];

		if (vb_fault_class_of(r) != VB_FAULT_CLASS_WORK || !vb_fault_hits(r, s, now))
			continue;
		any = true;
		v->status = r->action == VB_FAULT_WC ? (uint8_t)r->value : 0;
		v->overflow = r->action == VB_FAULT_CQ_OVERFLOW;
		v->fatal = r->action == VB_FAULT_QP_FATAL;
		log_hit(r);
	}
	vb_unlock(&the_set.lock);
	return any;
}

/* The first rule of this action that acts; its value. */
static uint64_t ask_simple(enum vb_fault_action action, const struct vb_fault_subject *s)
{
	uint64_t now = vb_fault_now(), value = 0;

	vb_lock(&the_set.lock);
	for (unsigned i = 0; !value && i < the_set.n; i++) {
		struct vb_fault_rule *r = &the_set.rules[i];

		if (r->action != action || !vb_fault_hits(r, s, now))
			continue;
		value = r->value;
		log_hit(r);
	}
	vb_unlock(&the_set.lock);
	return value;
}

int vb_fault_ask_verb(enum vb_fault_action call, const char *device)
{
	const struct vb_fault_subject s = {.device = device, .opcode = -1};

	if (vb_fault_device_is_gone(device))
		return EIO;
	return (int)ask_simple(call, &s);
}

uint64_t vb_fault_ask_cm(const uint8_t peer[16])
{
	const struct vb_fault_subject s = {.peer = peer, .opcode = -1};

	return vb_fault_is_armed(VB_FAULT_ARM_CM) ? ask_simple(VB_FAULT_CM, &s) : 0;
}
