// reservation_test.c - the persistent reservation of a medium: keys, types, preemption
// follows: NVM Express Base 1.4, 8.8
// SPDX-License-Identifier: MIT
#include "backend/reservation.h"

#include <string.h>

#include "../../support/check.h"

static struct nr_state s;

static struct nr_host host(uint8_t n)
{
	struct nr_host h;

	memset(&h, n, sizeof(h));
	return h;
}

static enum nr_result enter(uint8_t n, uint64_t key)
{
	return nr_apply(&s, &(struct nr_change){.op = NR_REGISTER, .by = host(n), .other = key});
}

static enum nr_result acquire(uint8_t n, uint64_t key, uint8_t type)
{
	return nr_apply(&s, &(struct nr_change){.op = NR_ACQUIRE, .by = host(n), .key = key, .type = type});
}

static enum nr_result preempt(uint8_t n, uint64_t key, uint64_t victim, uint8_t type)
{
	return nr_apply(
	        &s, &(struct nr_change){.op = NR_PREEMPT, .by = host(n), .key = key, .other = victim, .type = type});
}

static enum nr_result act(enum nr_op op, uint8_t n, uint64_t key, uint64_t other, bool ignore)
{
	return nr_apply(&s,
	                &(struct nr_change){.op = op, .by = host(n), .key = key, .other = other, .ignore_key = ignore});
}

static enum nr_result release(uint8_t n, uint64_t key, uint8_t type)
{
	return nr_apply(&s, &(struct nr_change){.op = NR_RELEASE, .by = host(n), .key = key, .type = type});
}

static bool forbids(uint8_t n, bool writes)
{
	struct nr_host h = host(n);

	return nr_forbids(&s, &h, writes);
}

static uint64_t key_of(uint8_t n)
{
	struct nr_host h = host(n);
	const struct nr_registrant *r = nr_find(&s, &h);

	return r ? r->key : 0;
}

static void begin(void)
{
	s = (struct nr_state){0};
	for (uint8_t n = 1; n <= 3; n++)
		SAME(enter(n, n * 10), NR_OK);
}

static void keys_are_registered_replaced_and_taken_back(void)
{
	begin();
	SAME(s.generation, 3);
	SAME(enter(1, 10), NR_OK); /* the same again */
	SAME(enter(1, 11), NR_CONFLICT);
	SAME(enter(4, 0), NR_INVALID);
	SAME(act(NR_REPLACE, 1, 11, 12, false), NR_CONFLICT);
	SAME(act(NR_REPLACE, 1, 10, 12, false), NR_OK);
	SAME(act(NR_REPLACE, 1, 99, 13, true), NR_OK);
	SAME(key_of(1), 13);
	SAME(act(NR_REPLACE, 5, 0, 50, false), NR_CONFLICT);
	SAME(act(NR_REPLACE, 5, 0, 50, true), NR_OK); /* it need not be registered */
	SAME(key_of(5), 50);
	SAME(act(NR_UNREGISTER, 5, 51, 0, false), NR_CONFLICT);
	SAME(act(NR_UNREGISTER, 5, 51, 0, true), NR_OK);
	SAME(act(NR_UNREGISTER, 5, 50, 0, false), NR_CONFLICT);
	SAME(s.count, 3);
	struct nr_host same_id = host(1);

	memset(same_id.name, 9, sizeof(same_id.name)); /* another host that gives the identifier of the first */
	CHECK(!nr_find(&s, &same_id));
}

static void registrants_are_limited(void)
{
	s = (struct nr_state){0};
	for (uint32_t n = 1; n <= NR_REGISTRANTS; n++)
		SAME(enter((uint8_t)n, n), NR_OK);
	struct nr_state before = s;

	SAME(enter(100, 1), NR_FULL);
	SAME(act(NR_REPLACE, 100, 0, 1, true), NR_FULL);
	CHECK(!memcmp(&before, &s, sizeof(s)));
	SAME(act(NR_UNREGISTER, 7, 7, 0, false), NR_OK);
	SAME(enter(100, 1), NR_OK);
}

/* Who may read and write, by type: the holder, another registrant, a stranger. Base 1.4, figure 436 */
static void each_type_forbids_what_it_should(void)
{
	static const struct {
		uint8_t type;
		bool reads[3], writes[3]; /* forbidden */
	} rows[] = {{NR_WRITES, {0, 0, 0}, {0, 1, 1}},
	            {NR_ACCESS, {0, 1, 1}, {0, 1, 1}},
	            {NR_WRITES_REGISTRANTS, {0, 0, 0}, {0, 0, 1}},
	            {NR_ACCESS_REGISTRANTS, {0, 0, 1}, {0, 0, 1}},
	            {NR_WRITES_ALL_REGISTRANTS, {0, 0, 0}, {0, 0, 1}},
	            {NR_ACCESS_ALL_REGISTRANTS, {0, 0, 1}, {0, 0, 1}}};
	static const uint8_t who[] = {1, 2, 9};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		begin();
		for (int k = 0; k < 3; k++)
			CHECK(!forbids(who[k], true));
		SAME(acquire(1, 10, rows[i].type), NR_OK);
		for (int k = 0; k < 3; k++) {
			SAME(forbids(who[k], false), rows[i].reads[k]);
			SAME(forbids(who[k], true), rows[i].writes[k]);
		}
	}
}

static void a_reservation_is_taken_once_and_released_by_its_holder(void)
{
	begin();
	SAME(acquire(9, 0, NR_WRITES), NR_CONFLICT); /* not registered */
	SAME(acquire(1, 11, NR_WRITES), NR_CONFLICT);
	SAME(acquire(1, 10, NR_WRITES), NR_OK);
	SAME(acquire(1, 10, NR_WRITES), NR_OK);
	SAME(acquire(1, 10, NR_ACCESS), NR_CONFLICT);
	SAME(acquire(2, 20, NR_WRITES), NR_CONFLICT);
	SAME(release(2, 20, NR_WRITES), NR_OK); /* without effect */
	SAME(s.type, NR_WRITES);
	SAME(release(1, 10, NR_ACCESS), NR_INVALID);
	SAME(release(1, 10, NR_WRITES), NR_OK);
	SAME(s.type, NR_NONE);
	SAME(s.notice_count, 0); /* others could not write meanwhile: nobody is told */
	SAME(acquire(1, 10, NR_WRITES_ALL_REGISTRANTS), NR_OK);
	SAME(acquire(2, 20, NR_WRITES_ALL_REGISTRANTS), NR_OK); /* it holds it, too */
	SAME(release(2, 20, NR_WRITES_ALL_REGISTRANTS), NR_OK);
	SAME(s.type, NR_NONE);
	SAME(s.notices[0].event, NR_RELEASED);
	SAME(s.generation, 3); /* neither of them counts */
}

static void a_reservation_ends_with_its_holder(void)
{
	begin();
	SAME(acquire(1, 10, NR_ACCESS_REGISTRANTS), NR_OK);
	SAME(act(NR_UNREGISTER, 2, 20, 0, false), NR_OK);
	SAME(s.type, NR_ACCESS_REGISTRANTS);
	SAME(act(NR_UNREGISTER, 1, 10, 0, false), NR_OK);
	SAME(s.type, NR_NONE);
	SAME(acquire(3, 30, NR_ACCESS_ALL_REGISTRANTS), NR_OK);
	SAME(enter(1, 10), NR_OK);
	SAME(act(NR_UNREGISTER, 3, 30, 0, false), NR_OK); /* another one holds it, too */
	SAME(s.type, NR_ACCESS_ALL_REGISTRANTS);
	SAME(act(NR_UNREGISTER, 1, 10, 0, false), NR_OK);
	SAME(s.type, NR_NONE);
	begin();
	SAME(acquire(1, 10, NR_ACCESS), NR_OK);
	SAME(act(NR_CLEAR, 2, 21, 0, false), NR_CONFLICT);
	SAME(act(NR_CLEAR, 2, 20, 0, false), NR_OK); /* any registrant may */
	SAME(s.count, 0);
	SAME(s.type, NR_NONE);
	SAME(s.notices[s.notice_count - 1].event, NR_PREEMPTED);
}

static void a_preempted_holder_loses_all(void)
{
	begin();
	SAME(acquire(1, 10, NR_WRITES), NR_OK);
	SAME(preempt(2, 20, 0, NR_WRITES), NR_INVALID);
	SAME(preempt(2, 20, 99, NR_WRITES), NR_CONFLICT); /* nobody has that key */
	SAME(preempt(9, 90, 10, NR_WRITES), NR_CONFLICT);
	SAME(preempt(2, 20, 10, NR_ACCESS), NR_OK);
	SAME(key_of(1), 0);
	SAME(s.type, NR_ACCESS);
	CHECK(!forbids(2, true) && forbids(1, true) && forbids(3, false));
	SAME(preempt(2, 20, 30, NR_WRITES), NR_OK); /* not the holder: its registration alone */
	SAME(key_of(3), 0);
	SAME(s.type, NR_ACCESS);
	SAME(preempt(2, 20, 20, NR_WRITES), NR_OK); /* itself: another type */
	SAME(s.type, NR_WRITES);
	SAME(key_of(2), 20);
	begin();
	SAME(acquire(1, 10, NR_WRITES_ALL_REGISTRANTS), NR_OK);
	SAME(preempt(2, 20, 30, NR_ACCESS), NR_OK);
	SAME(s.type, NR_WRITES_ALL_REGISTRANTS);
	SAME(s.count, 2);
	SAME(preempt(2, 20, 0, NR_ACCESS), NR_OK); /* 0: all the others */
	SAME(s.type, NR_ACCESS);
	SAME(s.count, 1);
}

static void power_loss_ends_what_does_not_persist(void)
{
	begin();
	SAME(acquire(1, 10, NR_ACCESS), NR_OK);
	uint64_t version = s.version;

	SAME(nr_apply(&s, &(struct nr_change){.op = NR_PERSIST, .by = host(1), .persist = NR_YES}), NR_OK);
	nr_power_lost(&s);
	SAME(s.type, NR_ACCESS);
	SAME(nr_apply(&s, &(struct nr_change){.op = NR_REGISTER, .by = host(1), .other = 10, .persist = NR_NO}), NR_OK);
	nr_power_lost(&s);
	SAME(s.count, 0);
	SAME(s.type, NR_NONE);
	CHECK(s.version > version + 2);
}

static void whatever_comes_the_state_stays_sound(void)
{
	uint64_t seed = 1, results[4] = {0};

	s = (struct nr_state){0};
	for (int i = 0; i < 300000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		uint32_t x = (uint32_t)(seed >> 33);
		struct nr_change c = {.op = x % 8,
		                      .by = host((uint8_t)(1 + (x >> 3) % 6)),
		                      .key = (x >> 8) % 4,
		                      .other = (x >> 10) % 4,
		                      .type = (uint8_t)(1 + (x >> 12) % 6),
		                      .persist = (x >> 15) % 4,
		                      .ignore_key = (x >> 17) % 4 == 0};
		struct nr_state before = s;
		enum nr_result result = nr_apply(&s, &c);

		results[result]++;
		CHECK(nr_valid(&s));
		SAME(s.version, before.version + (result == NR_OK));
		CHECK(result == NR_OK || !memcmp(&before, &s, sizeof(s)));
	}
	CHECK(results[NR_OK] > 1000 && results[NR_CONFLICT] > 1000 && results[NR_INVALID] > 1000);
}

int main(void)
{
	RUN(keys_are_registered_replaced_and_taken_back);
	RUN(registrants_are_limited);
	RUN(each_type_forbids_what_it_should);
	RUN(a_reservation_is_taken_once_and_released_by_its_holder);
	RUN(a_reservation_ends_with_its_holder);
	RUN(a_preempted_holder_loses_all);
	RUN(power_loss_ends_what_does_not_persist);
	RUN(whatever_comes_the_state_stays_sound);
	return 0;
}
