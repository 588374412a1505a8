// text.c - names of states and events, for logs
// SPDX-License-Identifier: MIT
#include "engine/cm/cm.h"

const char *vb_cm_event_text(enum vb_cm_event_kind kind)
{
	static const char *const text[] = {
#define X(name) #name,
	        VB_CM_EVENTS(X)
#undef X
	};

	return (size_t)kind < sizeof(text) / sizeof(*text) ? text[kind] : "?";
}

const char *vb_cm_state_text(enum vb_cm_state state)
{
	static const char *const text[] = {
#define X(name) #name,
	        VB_CM_STATES(X)
#undef X
	};

	return (size_t)state < sizeof(text) / sizeof(*text) ? text[state] : "?";
}
