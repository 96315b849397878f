/*
 * The protocol by which one refund goes to a provider that may lose answers: README.md says which function each step is.
 *
 * One operation; WORKERS hands that do to it whatever any process of the service does (submit, resume, reconcile, a human's
 * decision, a provider's webhook), in any order, each stopped anywhere for as long as you like, or killed; and a world around
 * them: time, the wire, the provider, a restore. The breaker is asked as an oracle: it may be open at any moment.
 *
 * Time is counted in ticks, and each timer by what is left of it: 0 is run out. So runs have no end and states are finite.
 * What nobody reads any more is set to 0, which changes nothing but the number of states.
 */

#ifndef WORKERS
#define WORKERS 2
#endif

/* Durations, in ticks. Their order is the service's: call < lease, wire <= margin, lag + lease + wire <= key retention. */
#define CALL   1 /* the deadline of a call to the provider, --provider-timeout */
#define LEASE  3 /* --lease */
#define LAG    2 /* --listing-lag: the provider's books show what was written longer ago */
#define MARGIN 1 /* keyMargin */
#define WIRE   1 /* for so long a request that was written may be on its way */
#define KEY    6 /* the provider's key retention */

/* The states of the operation. */
#define NONE      0
#define RESERVED  1
#define PENDING   2
#define SUCCEEDED 3
#define FAILED    4
#define ATTENTION 5

#define OPEN(s)    (s == RESERVED || s == PENDING)

/* Its failure codes, as far as they decide anything. */
#define ANY_CODE    0
#define BY_PERSON   1 /* FailureResolvedByOperator */
#define OVER_REFUND 2

/* Where the money is. */
#define MERCHANT   0
#define IN_TRANSIT 1
#define CUSTOMER   2

/* What an attempt finds. */
#define F_NOTHING    0
#define F_SUCCEEDED  1
#define F_PENDING    2
#define F_FAILED     3  /* the provider's books show it as failed */
#define F_HUMAN_PAID 4
#define F_HUMAN_NOT  5
#define F_DECLINED   6  /* the answer to a request */
#define F_DISGUISED  7  /* declined with a code that may be our own success: already refunded, exceeds the unrefunded amount */
#define F_NOT_FOUND  8
#define F_UNKNOWN    9
#define F_NO_ACCESS  10 /* 401, 403 */
#define F_BUSY       11 /* 429 */
#define F_NOT_SENT   12 /* not a byte was written */
#define F_UNASKED    13
#define F_GIVE_BACK  14
#define F_NOTED      15

#define HUMAN(f)    (f == F_HUMAN_PAID || f == F_HUMAN_NOT)
#define PROOF(f)    (f == F_SUCCEEDED || f == F_FAILED)
#define ANSWERED(f) (f >= F_SUCCEEDED && f <= F_NOT_FOUND)

/* Where a worker is. */
#define IDLE    0
#define LOOK    1 /* about to read the provider's books */
#define GATE    2 /* about to ask whether it may send */
#define DIAL    3 /* admitted, waiting for a connection */
#define WAIT    4 /* the request is written */
#define RECORD  5 /* with a finding */
#define UNTAKE  6

/* The row of refund_operations. */
byte state, code, lease, key, lag, account;
bool doubted;    /* doubted_decline is set */
bool unsent;     /* not_sent = attempts */
bool first;      /* attempts = 1 */
bool look_first;
bool undue;      /* next_check_at = 'infinity' */
bool overridden; /* failed by a human who overrode the books */
bool named;      /* provider_refund_id is known */
bool unchecked;  /* ... which nobody could read: they have to be read later */
byte holder;     /* the workers whose token is the row's attempts: bits */

/* The workers: their steps, and the Lease of each. */
byte pc[WORKERS], found[WORKERS], taken_in[WORKERS] /* Lease.State */, left[WORKERS] /* until it is too late to write */;
bool by_request[WORKERS]; /* sourceRefund */
bool human[WORKERS], override[WORKERS], lacks[WORKERS] /* unchecked */;
bool all_unsent[WORKERS]; /* Lease.notSent = attempts - 1 */
bool barred[WORKERS], hinted;
bool lag_over[WORKERS];   /* the lease was taken later than the lag after the last send */

/* Lease.before of who is refused by the provider. */
byte be_holder[WORKERS], be_key[WORKERS], be_lag[WORKERS];
bool be_unsent[WORKERS], be_first[WORKERS];

/* The wire and the provider. */
#define KEY_UNKNOWN 0
#define KEY_WORKING 1 /* the same key gets a 409 */
#define KEY_STORED  2
byte wire[WORKERS];      /* 0 nothing, else the ticks that are left + 1 */
byte remembers, keeps, stored; /* what it knows of the key, for how long, and its answer */
byte hides;              /* until its listing surely shows the refund */
byte truth;              /* NONE, PENDING, SUCCEEDED, FAILED: what became of the refund there */
byte executed;           /* how many times */

#define SENDING(w) (pc[w] >= GATE && pc[w] <= DIAL)
#if WORKERS > 2
#define ARRIVING (wire[0] == 1 || wire[1] == 1 || wire[2] == 1)
#define ON_THE_WIRE (wire[0] || wire[1] || wire[2])
#define ON_THE_WAY (SENDING(0) || SENDING(1) || SENDING(2))
#else
#define ARRIVING (wire[0] == 1 || wire[1] == 1)
#define ON_THE_WIRE (wire[0] || wire[1])
#define ON_THE_WAY (SENDING(0) || SENDING(1))
#endif

#define PAID (truth == SUCCEEDED || truth == PENDING)

#ifdef RESTORE
/*
 * The row in the backup: there is none, or it is reserved; nothing is ever sent of another. And restores.look_until: what is
 * approved before is looked up before it is sent. What else but sending becomes of the row in the history that is lost, is lost.
 */
byte b_key;
bool b_reserved, b_doubted, b_unsent, b_first, restored;
#define BEFORE_RESTORE (restored == 0)
#define RESTORES 1 /* without hints, and without holders who are refused: of these the other search tells */
#else
#define BEFORE_RESTORE 0
#define RESTORES 0
#endif
#if defined(RESTORE) && !defined(RESTORE_WITHOUT_LOOK)
#define LOOKS restored
#else
#define LOOKS 0
#endif

#ifdef LIVENESS
#define BEYOND (!(OPEN(state))) /* what has an end never opens again, and is of no interest here */
#else
#define BEYOND 0
#endif
#ifdef LIVENESS
bool old;  /* it has the age at which a human is told */
bool seen; /* what its holder found was recorded in time */
#endif

/* Of single steps. */
hidden byte token, ours, stale, resend, not_sent, is_old, is_poor, n_state, n_code, n_doubted, n_undue, i, j;

/* What must be true whenever it could have become false. */
inline promises() {
	assert(executed <= 1);                             /* it is never executed twice */
#ifndef SLOW_LISTING
	assert(!(state == FAILED && PAID && !overridden)); /* failed is never said of what was paid, unless a human overrode it */
#endif
	assert(!(OPEN(state) && undue));                   /* what has no end is looked at again */
	assert(!(state == FAILED && unchecked && undue))   /* and so is what nobody could check */
}

/* A process ends, or has nothing more to do. */
inline end(w) {
	pc[w] = IDLE; found[w] = 0; taken_in[w] = 0; left[w] = 0; by_request[w] = 0; human[w] = 0; override[w] = 0; lacks[w] = 0;
	all_unsent[w] = 0; barred[w] = 0; lag_over[w] = 0;
	if
	:: w == 0 -> hinted = 0
	:: else
	fi;
	be_holder[w] = 0; be_key[w] = 0; be_lag[w] = 0; be_unsent[w] = 0; be_first[w] = 0;
	holder = holder & ~(1 << w);
	i = 0;
	do
	:: i < WORKERS -> be_holder[i] = be_holder[i] & ~(1 << w); i++
	:: else -> break
	od;
	i = 0
}

inline age() {
#ifdef LIVENESS
	is_old = old
#else
	if
	:: is_old = 0
	:: is_old = 1
	fi
#endif
}

/* A transfer between accounts. */
inline post(from, to) {
	assert(account == from);
	account = to
}

#ifdef LATE_SENDS
#define SENDS_WITHIN(w)   LEASE
#define RESENDS_WITHIN(w) left[w]
#else
#define SENDS_WITHIN(w)   (pc[w] == GATE -> CALL : 0)
#define RESENDS_WITHIN(w) CALL
#endif

/* tx 1 */
inline claim(w) {
	state = RESERVED; first = 1; look_first = LOOKS;
	post(MERCHANT, IN_TRANSIT);
	key = KEY; lag = CALL + LAG; lease = LEASE;
#ifdef CLAIM_WITHOUT_LEASE
	lease = 0;
#endif
	holder = 1 << w;
	pc[w] = (look_first -> LOOK : GATE);
	taken_in[w] = RESERVED; all_unsent[w] = 1; left[w] = SENDS_WITHIN(w)
}

/* What others hold of an operation whose lease they have lost counts no more, unless it is proof. */
inline outdate(w) {
#ifndef NO_FENCING
	j = 0;
	do
	:: j < WORKERS ->
		if
		:: j == w || pc[j] == IDLE
		:: j != w && pc[j] == RECORD && !PROOF(found[j]) && found[j] != F_PENDING -> end(j)
		:: else -> all_unsent[j] = 0; barred[j] = 0; lag_over[j] = 0
		fi;
		j++
	:: else -> break
	od;
	j = 0
#else
	skip
#endif
}

/* The lease is taken. */
inline take(w) {
	all_unsent[w] = unsent;
	if
	:: state == RESERVED && unsent -> key = KEY; lag = CALL + LAG
	:: else
	fi;
	unsent = 0; first = 0; lease = LEASE;
	holder = 1 << w;
	taken_in[w] = state; lag_over[w] = (lag == 0 && (state == RESERVED || state == ATTENTION)); left[w] = SENDS_WITHIN(w)
}

inline attention(why) { n_state = ATTENTION; n_code = why; n_undue = 0 }

inline paid(w) {
	if
#ifdef PROOF_DROPPED
	:: state == FAILED
#else
	:: state == FAILED -> /* what the order's capture has left may be enough, or not */
		post(MERCHANT, IN_TRANSIT);
		attention((is_poor -> OVER_REFUND : ANY_CODE))
#endif
	:: state == ATTENTION && code == OVER_REFUND && !human[w]
	:: state == SUCCEEDED
	:: OPEN(state) || state == ATTENTION && (code != OVER_REFUND || human[w]) ->
		post(IN_TRANSIT, CUSTOMER);
		n_state = SUCCEEDED; n_code = ANY_CODE; n_doubted = 0; n_undue = 0
	fi
}

inline unpaid(w) {
	if
	:: state == FAILED
	:: state == SUCCEEDED -> post(CUSTOMER, MERCHANT)
	:: OPEN(state) || state == ATTENTION -> post(IN_TRANSIT, MERCHANT)
	fi;
	if
	:: state != FAILED ->
		n_state = FAILED; n_doubted = 0; n_code = (human[w] -> BY_PERSON : ANY_CODE); n_undue = !human[w]
	:: else
	fi
}

inline pending() {
	if
	:: state == RESERVED -> n_state = PENDING; n_doubted = 0
	:: state == PENDING && is_old -> attention(ANY_CODE)
	:: else
	fi
}

inline declined(w) {
	if
#ifndef DECLINE_BELIEVED_AT_ONCE
	:: !first || doubted || found[w] == F_DISGUISED -> n_doubted = 1
#endif
	:: else -> post(IN_TRANSIT, MERCHANT); n_state = FAILED; n_undue = 1
	fi
}

#ifdef RESEND_AFTER_EXPIRY
#define KEY_ALIVE (key < 255)
#else
#define KEY_ALIVE (key > CALL + MARGIN)
#endif

#ifdef DECLINE_BELIEVED_WITHIN_LAG
#define BELIEVED(w) (doubted)
#else
#define BELIEVED(w) (doubted && lag_over[w])
#endif

inline not_found(w) {
	if
	:: BELIEVED(w) -> post(IN_TRANSIT, MERCHANT); n_state = FAILED; n_doubted = 0
	:: !BELIEVED(w) && is_old -> too_old()
	:: !BELIEVED(w) && !is_old && doubted
	:: !doubted && !is_old && KEY_ALIVE && barred[w]
	:: !doubted && !is_old && KEY_ALIVE && !barred[w] -> resend = 1; not_sent = 0
	:: !doubted && !is_old && !KEY_ALIVE && lag_over[w] -> attention(ANY_CODE)
	:: !doubted && !is_old && !KEY_ALIVE && !lag_over[w]
	fi
}

inline too_old() {
#ifdef AGE_IGNORED
	skip
#else
#ifdef AGE_FAILS
	post(IN_TRANSIT, MERCHANT); n_state = FAILED; n_undue = 1
#else
	attention(ANY_CODE)
#endif
#endif
}

#define HINTED(w)           (w == 0 && hinted)
#define HINTED_STALE(w)     (HINTED(w) && taken_in[w] != state)
#define FAILED_MEANWHILE(w) (state == FAILED && taken_in[w] != FAILED && code != BY_PERSON && named)

/* What becomes of the operation by a finding. */
inline decide(w) {
	ours = token && taken_in[w] == state && (lease > 0 || by_request[w]);
	n_state = state; n_code = code; n_doubted = doubted; n_undue = (state == FAILED && code != BY_PERSON && ANSWERED(found[w]));
	not_sent = (!by_request[w] || found[w] == F_NOT_SENT);
#ifdef BUSY_IS_NOT_SENT
	not_sent = not_sent || found[w] == F_BUSY;
#endif
	if
	:: found[w] == F_GIVE_BACK
	:: found[w] == F_NOTED -> n_undue = 0
	:: found[w] == F_UNASKED -> n_undue = 0;
#ifdef UNASKED_COUNTS
		if
		:: ours && OPEN(state) && is_old -> too_old()
		:: else
		fi
#endif
	:: HUMAN(found[w]) && !(ours && state == ATTENTION) -> stale = 1
	:: HINTED(w) && taken_in[w] != state -> stale = 1
	:: !HINTED_STALE(w) && found[w] == F_SUCCEEDED && FAILED_MEANWHILE(w) -> stale = 1; n_undue = 0
	:: !HINTED_STALE(w) && found[w] == F_SUCCEEDED && !FAILED_MEANWHILE(w) -> paid(w)
	:: found[w] == F_HUMAN_PAID && ours && state == ATTENTION -> paid(w)
	:: !HINTED_STALE(w) && found[w] == F_FAILED || found[w] == F_HUMAN_NOT && ours && state == ATTENTION -> unpaid(w)
	:: !HINTED_STALE(w) && found[w] == F_PENDING -> pending()
	:: found[w] >= F_DECLINED && found[w] <= F_NOT_SENT && !ours -> stale = 1
	:: (found[w] == F_DECLINED || found[w] == F_DISGUISED) && ours && state == RESERVED -> declined(w)
	:: found[w] == F_NOT_FOUND && ours && state == RESERVED -> not_found(w)
#ifdef UNKNOWN_IS_FAILED
	:: found[w] == F_UNKNOWN && by_request[w] && ours && state == RESERVED ->
		post(IN_TRANSIT, MERCHANT); n_state = FAILED; n_undue = 1
#endif
	:: found[w] >= F_DECLINED && found[w] <= F_NOT_SENT && ours && !(found[w] <= F_NOT_FOUND && state == RESERVED) ->
		if
		:: OPEN(state) && is_old -> too_old()
		:: else
		fi
	fi;
	if
	:: HUMAN(found[w]) && lacks[w] && !stale ->
		unchecked = (found[w] == F_HUMAN_NOT);
#ifdef OVERRIDE_NOT_LOOKED_AT_AGAIN
		n_undue = 1
#else
		n_undue = 0
#endif
	:: PROOF(found[w]) && !stale || !HUMAN(found[w]) && ANSWERED(found[w]) && token -> unchecked = 0
	:: else
	fi
}

/* What the provider knows of the key is of no interest when no request can reach it any more. */
inline forget() {
	if
	:: BEFORE_RESTORE
	:: !BEFORE_RESTORE && state > RESERVED && !ON_THE_WIRE && !ON_THE_WAY && remembers == KEY_STORED -> remembers = KEY_UNKNOWN; keeps = 0; stored = 0
	:: else
	fi
}

/* tx 2: the row is locked, read, decided on and written. */
inline record(w) {
	age();
	if
	:: is_poor = 0
	:: found[w] == F_SUCCEEDED && state == FAILED -> is_poor = 1
	fi;
	d_step {
	token = (holder >> w) & 1;
#ifdef NO_FENCING
	token = 1;
#endif
	decide(w);
#ifndef SLOW_LISTING
	assert(!(found[w] == F_SUCCEEDED && PAID && n_state == FAILED && !HINTED_STALE(w))); /* proof is never dropped */
#endif
	assert(found[w] < F_UNASKED || n_state == state && n_doubted == doubted); /* what was not asked changes nothing */
	if
	:: n_state != state -> overridden = (found[w] == F_HUMAN_NOT && override[w])
	:: else
	fi;
	if
	:: token && resend -> lag = CALL + LAG; left[w] = RESENDS_WITHIN(w)
	:: token && !resend && by_request[w] -> lag = LAG
	:: else
	fi;
	if
	:: token && !resend -> lease = 0
	:: else
	fi;
	if
	:: token && not_sent ->
#ifdef RENEWED_AFTER_ANY_NOT_SENT
		unsent = 1
#else
		unsent = all_unsent[w]
#endif
	:: else
	fi;
	if
	:: token || n_state != state ->
		named = !BEFORE_RESTORE && (named || !stale && (PROOF(found[w]) || found[w] == F_PENDING));
		state = n_state; code = n_code; doubted = n_doubted; undue = n_undue
	:: else
	fi;
	if
	:: state != RESERVED -> key = 0; unsent = 0; first = 0; look_first = 0; doubted = 0; forget()
	:: else
	fi;
#ifdef LIVENESS
	seen = (ours && found[w] < F_UNASKED);
#endif
	promises();
	if
	:: resend -> pc[w] = GATE; found[w] = 0; lag_over[w] = 0
	:: else -> end(w)
	fi;
	token = 0; ours = 0; stale = 0; resend = 0; not_sent = 0; is_old = 0; is_poor = 0; n_state = 0; n_code = 0; n_doubted = 0; n_undue = 0
	}
}

inline finds(w, what) { found[w] = what; left[w] = 0; pc[w] = RECORD }

/* Of the two clocks of a process one may stand still: the monotonic one while the machine is suspended, the wall clock when it is
   set back. Which of them, nobody knows. */
#define BY_MONOTONIC(w) (left[w] == 0 && !suspended)
#define BY_WALL(w)      (left[w] == 0 && suspended)
#ifdef MONOTONIC_CLOCK_ALONE
#define TOO_LATE(w) BY_MONOTONIC(w)
#else
#ifdef WALL_CLOCK_ALONE
#define TOO_LATE(w) BY_WALL(w)
#else
#define TOO_LATE(w) (BY_MONOTONIC(w) || BY_WALL(w))
#endif
#endif

hidden byte suspended;
inline clocks() {
	if
	:: suspended = 0
	:: suspended = 1
	fi
}

inline human_decides(w) {
	if
	:: skip -> override[w] = 1
	:: lag_over[w] -> skip
	fi;
#ifdef HUMAN_WITHOUT_LOOK
	found[w] = F_NOT_FOUND;
#endif
	if
	:: found[w] == F_UNKNOWN && !override[w] -> found[w] = F_GIVE_BACK
	:: else ->
		lacks[w] = (found[w] == F_UNKNOWN || found[w] == F_NOT_FOUND && !lag_over[w]);
		if
		:: skip -> found[w] = (found[w] == F_FAILED -> F_NOTED : F_HUMAN_PAID)
		:: skip -> found[w] = (found[w] == F_SUCCEEDED || found[w] == F_PENDING -> F_NOTED : F_HUMAN_NOT)
		fi
	fi;
	pc[w] = RECORD
}

proctype worker(byte w) {
	do
	/* Submit: the key is unseen, and the breaker lets it through. */
	:: atomic { pc[w] == IDLE && state == NONE && w == 0 -> d_step { claim(w) } } /* which of them is all the same */

	/* Resume, reconcile, an operator's wish to look: the lease is free. */
	:: atomic { pc[w] == IDLE && state != NONE && lease == 0 && !(BEFORE_RESTORE && state != RESERVED || BEYOND) ->
		age();
		pc[w] = (state == RESERVED && unsent && !look_first && !is_old -> GATE : LOOK);
		is_old = 0;
		if
		:: pc[w] == GATE -> pc[w] = LOOK /* the breaker is open */
		:: skip
		fi;
		d_step { take(w); outdate(w) } }

	/* The same by one whom the provider will refuse before it is heard. */
	:: atomic { pc[w] == IDLE && state != NONE && lease == 0 && w == 1 && !(RESTORES || BEYOND) ->
		be_holder[w] = holder; be_unsent[w] = unsent; be_first[w] = first;
		if
		:: state == RESERVED && unsent -> be_key[w] = key; be_lag[w] = lag
		:: else
		fi;
		d_step { take(w); pc[w] = UNTAKE } }
	:: atomic { pc[w] == UNTAKE ->
		if
		:: (holder >> w) & 1 && lease > 0 ->
			if
			:: be_unsent[w] && state == RESERVED -> key = be_key[w]; lag = be_lag[w]
			:: else
			fi;
			holder = be_holder[w]; lease = 0; unsent = be_unsent[w]; first = be_first[w]
		:: else
		fi;
		end(w) }

	/* A human decides. */
	:: atomic { pc[w] == IDLE && state == ATTENTION && lease == 0 && !(BEFORE_RESTORE || BEYOND) ->
		d_step { take(w); outdate(w); human[w] = 1 };
		if
		:: !lag_over[w] -> finds(w, F_GIVE_BACK)
		:: skip -> pc[w] = LOOK
		fi }

	/* A webhook: the refund is looked up by its id, without a lease. */
	:: atomic { pc[w] == IDLE && executed > 0 && state != NONE && w == 0 && !(RESTORES || BEYOND) ->
		hinted = 1; taken_in[w] = state;
		if
		:: truth == SUCCEEDED -> finds(w, F_SUCCEEDED)
		:: truth == PENDING -> finds(w, F_PENDING)
		:: truth == FAILED -> finds(w, F_FAILED)
		fi }

	/* The provider's books are read. */
	:: atomic { pc[w] == LOOK ->
		if
#ifdef SLOW_LISTING
		:: found[w] = F_NOT_FOUND
#else
		:: executed == 0 || hides > 0 -> found[w] = F_NOT_FOUND
#endif
		:: executed > 0 && truth == SUCCEEDED -> found[w] = F_SUCCEEDED
		:: executed > 0 && truth == PENDING -> found[w] = F_PENDING
		:: executed > 0 && truth == FAILED -> found[w] = F_FAILED
		:: found[w] = F_UNKNOWN
		fi;
		if
		:: !human[w] ->
			if
			:: found[w] == F_NOT_FOUND && taken_in[w] == RESERVED -> barred[w] = 1 /* the breaker is open */
			:: skip
			fi;
			pc[w] = RECORD
		:: human[w] -> human_decides(w)
		fi }

	/* The gate; the database may not answer, and the breaker may have opened. */
	:: atomic { pc[w] == GATE ->
		clocks();
		if
#ifdef NO_FENCING
		:: state == RESERVED && KEY_ALIVE && !TOO_LATE(w) ->
#else
		:: state == RESERVED && ((holder >> w) & 1) && KEY_ALIVE && !TOO_LATE(w) ->
#endif
			pc[w] = DIAL
		:: skip -> finds(w, F_UNASKED)
		fi;
		suspended = 0 }

	/* The connection is there: the clocks are asked again, and the request is written. */
	:: atomic { pc[w] == DIAL && wire[w] == 0 ->
		clocks();
		by_request[w] = 1;
		if
#ifndef CHECK_BEFORE_DIAL
		:: TOO_LATE(w) -> finds(w, F_NOT_SENT)
#endif
		:: else ->
			assert((holder >> w) & 1); /* nobody but the holder of the lease writes */
			wire[w] = WIRE + 1; left[w] = 0;
			pc[w] = WAIT
		fi;
		suspended = 0 }
	:: atomic { pc[w] == DIAL -> by_request[w] = 1; finds(w, F_NOT_SENT) }

	/* No answer comes. */
	:: atomic { pc[w] == WAIT -> finds(w, F_UNKNOWN) }

	:: atomic { pc[w] == RECORD -> record(w) }

	/* kill -9 */
	:: d_step { pc[w] != IDLE -> end(w) }
	od
}

inline execute() {
	executed++;
	remembers = KEY_STORED; keeps = KEY;
	if
	:: truth = SUCCEEDED; stored = F_SUCCEEDED
	:: truth = PENDING; stored = F_PENDING
	fi;
	promises()
}

/* A worker that still waits for it gets the answer. */
inline answer(w, what) {
	if
	:: pc[w] == WAIT -> finds(w, what)
	:: else
	fi
}

inline store(what) { remembers = KEY_STORED; keeps = KEY; stored = what }

#ifdef KEY_PER_ATTEMPT
#define KNOWS_AS(s) (s == KEY_UNKNOWN)
#else
#define KNOWS_AS(s) (remembers == s)
#endif

/* A request arrives. */
inline arrive(w) {
	if
	:: KNOWS_AS(KEY_STORED) -> answer(w, stored)
	:: KNOWS_AS(KEY_WORKING) -> answer(w, F_UNKNOWN)
	:: KNOWS_AS(KEY_UNKNOWN) ->
		if
		:: skip -> answer(w, F_UNKNOWN) /* an error before anything was done */
		:: skip -> answer(w, F_BUSY)
		:: skip -> answer(w, F_DECLINED) /* declined, and not stored */
		:: skip -> answer(w, F_DISGUISED)
		:: store(F_DECLINED); answer(w, F_DECLINED)
		:: store(F_UNKNOWN); answer(w, F_UNKNOWN) /* a stored 500 */
		:: hides = LAG - (WIRE + 1 - wire[w]); remembers = KEY_WORKING; keeps = KEY
		:: hides = LAG - (WIRE + 1 - wire[w]);
			execute();
			if
			:: skip -> answer(w, stored)
			:: skip -> answer(w, F_BUSY) /* said by somebody in between */
			fi
		fi
	fi;
	wire[w] = 0
}


#define DOWN(t) if :: t > 0 -> t-- :: else fi

proctype world() {
	byte w;
	do
	/* Time passes, but for what has to happen before. */
	:: d_step { !ARRIVING && !(remembers == KEY_WORKING && hides <= 1) ->
		w = 0;
		do
		:: w < WORKERS -> DOWN(wire[w]); DOWN(left[w]); DOWN(be_key[w]); DOWN(be_lag[w]); w++
		:: else -> break
		od;
		w = 0;
		DOWN(lease); DOWN(key); DOWN(lag); DOWN(hides); DOWN(keeps);
		if
		:: keeps == 0 -> remembers = KEY_UNKNOWN; stored = 0
		:: else
		fi;
		forget();
#ifdef RESTORE
		DOWN(b_key)
#endif
		}
#ifdef LIVENESS
	:: old = 1
#endif

	/* Requests arrive, or never do. */
	:: atomic { wire[0] > 0 -> arrive(0) }
	:: wire[0] > 0 -> wire[0] = 0
	:: atomic { wire[1] > 0 -> arrive(1) }
	:: wire[1] > 0 -> wire[1] = 0
#if WORKERS > 2
	:: atomic { wire[2] > 0 -> arrive(2) }
	:: wire[2] > 0 -> wire[2] = 0
#endif

	/* The provider ends what it has begun. */
	:: atomic { remembers == KEY_WORKING -> execute() }
	:: atomic { remembers == KEY_WORKING -> remembers = KEY_UNKNOWN; keeps = 0; hides = 0 }
	:: atomic { truth == PENDING -> truth = SUCCEEDED; promises() }
	:: truth == PENDING || truth == SUCCEEDED -> truth = FAILED

#ifdef RESTORE
	:: d_step { !restored && state == RESERVED ->
		b_reserved = 1; b_key = key; b_doubted = doubted; b_unsent = unsent; b_first = first }
	/* All processes are stopped, an earlier row is back, after-restore has run: that takes longer than a request its way. */
	:: d_step { !restored && !ON_THE_WIRE ->
		w = 0;
		do
		:: w < WORKERS -> end(w); w++
		:: else -> break
		od;
		w = 0;
		restored = 1;
		holder = 0; code = ANY_CODE; lease = 0; undue = 0; overridden = 0; unchecked = 0; named = 0;
		state = (b_reserved -> RESERVED : NONE); account = (b_reserved -> IN_TRANSIT : MERCHANT);
		key = b_key; doubted = b_doubted; unsent = b_unsent; first = b_first; look_first = b_reserved && LOOKS;
#ifdef RESTORE_FORGETS_LAST_SEND
		lag = 0;
#else
		lag = LAG;
#endif
		b_reserved = 0; b_key = 0; b_doubted = 0; b_unsent = 0; b_first = 0 }
#endif
	od
}

init {
	atomic {
		run world();
		run worker(0);
		run worker(1);
#if WORKERS > 2
		run worker(2);
#endif
	}
}

#ifdef LIVENESS
/* There is no run in which it stays open for ever though it is old and is looked at again and again. */
ltl ends { !(<>[](OPEN(state) && old) && []<>seen && []<>!seen) }
#endif
