-- Tx 1: the one place where refunds are judged, their keys claimed and their orders debited. It is a function so that all of it
-- travels in one message, COMMIT included, for one request or for hundreds, and keeps its plans behind PgBouncer too.
--
-- Requests come as arrays, one element each, in the order of their arrival; no key comes twice. orders_locked are their orders,
-- sorted and each once, and order_places says which of them a request is of. What a request is told comes as a row; of two
-- rows for one place the later counts. The verdicts: claimed; known (the key has a row, to be read in a new statement; it is this
-- request's own where an earlier try committed unheard); locked (the order, by somebody else); swallowed (the INSERT neither made a row
-- nor met one); or why it is refused. What is refused leaves nothing behind.
--
-- Rows are found key by key, behind a fence (LATERAL … OFFSET 0): a plan that is kept from when the tables were empty can then
-- only be the one that is right when they are full. The indexes that could mislead it are partial.
CREATE OR REPLACE FUNCTION claim_refunds(
    patient boolean, lock_tenants text[], lock_orders text[],
    tenants text[], operations text[], orders text[], order_places integer[], amounts bigint[], currencies text[],
    fingerprints text[], refunds text[], reasons text[], metadatas text[], times_left interval[], layers text[], details text[],
    providers text[], admitted integer[], retentions interval[], key_lengths integer[], lease interval, call_limit interval
) RETURNS TABLE (
    place integer, verdict text, at timestamptz, currency text, provider text, payment_ref text, remainder bigint, look_first boolean,
    payment_account text
) LANGUAGE plpgsql AS $$
DECLARE
    began      CONSTANT timestamptz := clock_timestamp();
    n          CONSTANT integer := cardinality(tenants);
    looks_until CONSTANT timestamptz := (SELECT max(s.look_until) FROM restores s); -- null where nothing was ever restored
    looks      boolean[] := array_fill(false, ARRAY[n]); -- requests that are to be looked up before they are sent
    held       integer[];  -- orders that are locked
    left_over  bigint[];   -- by order, as those that were judged have left it
    open       boolean[] := array_fill(true, ARRAY[n]); -- requests that are to be judged
    passed     boolean[];  -- requests that are to be claimed
    passes     integer;
    poor       integer[];  -- requests that were refused for money
    short      integer[];  -- orders that were judged smaller than they are
    done       record;
    r          record;
    loser      record;
    i          integer;
BEGIN
    -- In company nobody waits for somebody else's order, nor for long for somebody else's key.
    IF NOT patient THEN
        PERFORM set_config('lock_timeout', '100ms', true);
    END IF;

    -- 1. Lock the orders, sorted. NO KEY: the foreign keys' KEY SHARE must pass, or two batches would deadlock.
    SELECT array_agg(k.place) INTO held
    FROM unnest(lock_tenants, lock_orders) WITH ORDINALITY AS k (tenant, id, place)
    CROSS JOIN LATERAL (
        SELECT FROM orders o WHERE o.tenant_id = k.tenant AND o.order_id = k.id FOR NO KEY UPDATE SKIP LOCKED) AS o;

    LOOP
        -- 2. A new statement reads keys, authorizations and orders: what committed while we waited must be seen. Times are
        -- compared with one reading of the clock, after the locks.
        at := clock_timestamp();
        left_over := array_fill(NULL::bigint, ARRAY[cardinality(lock_orders)]);
        passed := array_fill(false, ARRAY[n]);
        passes := 0;

        -- 3. Judge in the order of arrival, against what those before have left of the order.
        FOR r IN
            SELECT k.*, o.*, a.*, op.known, coalesce(t.require_authorization, true) AS must_be_authorized
            FROM unnest(tenants, operations, orders, order_places, amounts, currencies, times_left) WITH ORDINALITY
                AS k (tenant, operation, order_id, order_place, amount, asked_currency, time_left, place)
            LEFT JOIN LATERAL (
                SELECT true AS order_exists, o.currency AS order_currency, o.captured_cents - o.refunded_cents AS order_remainder,
                    o.provider AS order_provider, o.provider_payment_ref AS order_payment,
                    o.provider_account AS order_account, o.created_at AS registered
                FROM orders o WHERE o.tenant_id = k.tenant AND o.order_id = k.order_id OFFSET 0) AS o ON true
            LEFT JOIN LATERAL (
                SELECT true AS known FROM refund_operations op
                WHERE op.tenant_id = k.tenant AND op.operation_id = k.operation OFFSET 0) AS op ON true
            LEFT JOIN LATERAL (
                SELECT a.order_id AS approved_order, a.amount_cents AS approved_amount, a.currency AS approved_currency,
                    a.expires_at AS approved_until, a.created_at AS approved
                FROM refund_authorizations a
                WHERE a.tenant_id = k.tenant AND a.operation_id = k.operation OFFSET 0) AS a ON true
            LEFT JOIN LATERAL (
                SELECT t.require_authorization FROM tenants t WHERE t.tenant_id = k.tenant OFFSET 0) AS t ON true
            WHERE open[k.place]
            ORDER BY k.place
        LOOP
            place := r.place;
            currency := r.order_currency;
            provider := r.order_provider;
            payment_ref := r.order_payment;
            payment_account := r.order_account;
            remainder := coalesce(left_over[r.order_place], r.order_remainder);
            look_first := provider IS NOT NULL AND coalesce(least(r.registered, r.approved) <= looks_until, false);
            i := array_position(providers, provider);
            verdict := CASE
                WHEN r.known THEN 'known'
                WHEN began + r.time_left <= at THEN 'deadline_exceeded'
                WHEN r.order_exists IS NULL THEN 'order_not_found'
                WHEN (r.order_place = ANY (held)) IS NOT TRUE THEN 'locked'
                WHEN r.asked_currency <> currency THEN 'currency_mismatch'
                WHEN r.approved_order IS NULL AND r.must_be_authorized THEN 'authorization_not_found'
                WHEN r.approved_until <= at THEN 'authorization_expired'
                WHEN r.approved_order <> r.order_id OR r.approved_amount <> r.amount OR r.approved_currency <> currency
                    THEN 'authorization_mismatch'
                WHEN r.amount > remainder THEN 'amount_exceeds_refundable'
                WHEN provider IS NOT NULL AND coalesce(admitted[i], 0) < 1 THEN 'provider_unavailable'
                ELSE 'claimed' END;
            open[place] := false;
            IF verdict = 'claimed' THEN
                passed[place] := true;
                passes := passes + 1;
                looks[place] := look_first;
                left_over[r.order_place] := remainder - r.amount;
                IF i IS NOT NULL THEN
                    admitted[i] := admitted[i] - 1;
                END IF;
            ELSIF verdict = 'amount_exceeds_refundable' THEN
                poor := poor || place;
            END IF;
            RETURN NEXT;
        END LOOP;
        EXIT WHEN passes = 0;

        -- 4. Claim the keys of those that passed, under the primary key and sorted; 5. debit what this INSERT returned, and
        -- nothing else: a refund where there is no provider, else a hold, whose row is born with its lease and being sent.
        WITH claimed AS (
            INSERT INTO refund_operations AS op (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
                reason, metadata, state, created_at, settled_at, provider, provider_key, provider_key_expires_at, attempts,
                lease_until, last_send_ended, look_first)
            SELECT k.tenant, k.operation, k.fingerprint, k.refund::uuid, k.order_id, k.amount, o.currency, k.reason,
                k.metadata::jsonb, CASE WHEN p.place IS NULL THEN 'succeeded' ELSE 'reserved' END, claim_refunds.at,
                CASE WHEN p.place IS NULL THEN claim_refunds.at END, o.provider,
                CASE WHEN octet_length(p.key) <= key_lengths[p.place] THEN p.key
                     ELSE encode(sha256(convert_to(p.key, 'UTF8')), 'hex') END,
                claim_refunds.at + retentions[p.place], CASE WHEN p.place IS NULL THEN 0 ELSE 1 END,
                CASE WHEN p.place IS NULL THEN '-infinity' ELSE claim_refunds.at + lease END,
                CASE WHEN p.place IS NOT NULL THEN claim_refunds.at + call_limit END, looks[k.place]
            FROM unnest(tenants, operations, orders, amounts, fingerprints, refunds, reasons, metadatas) WITH ORDINALITY
                AS k (tenant, operation, order_id, amount, fingerprint, refund, reason, metadata, place)
            CROSS JOIN LATERAL (
                SELECT o.currency, o.provider FROM orders o WHERE o.tenant_id = k.tenant AND o.order_id = k.order_id OFFSET 0) AS o
            LEFT JOIN LATERAL (
                SELECT array_position(providers, o.provider) AS place, k.tenant || ':' || k.operation AS key) AS p
                ON o.provider IS NOT NULL
            WHERE passed[k.place]
            ORDER BY k.tenant COLLATE "C", k.operation COLLATE "C"
            ON CONFLICT (tenant_id, operation_id) DO NOTHING
            RETURNING op.tenant_id, op.operation_id, op.order_id, op.amount_cents, op.currency, op.provider, op.created_at
        ), debit AS (
            SELECT c.tenant_id, c.order_id, sum(c.amount_cents)::bigint AS amount_cents
            FROM claimed c GROUP BY c.tenant_id, c.order_id
        ), transferred AS (
            INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account,
                amount_cents, currency, created_at)
            SELECT c.tenant_id, c.operation_id, 1, CASE WHEN c.provider IS NULL THEN 'refund' ELSE 'hold' END, 'merchant',
                CASE WHEN c.provider IS NULL THEN 'customer' ELSE 'in_transit' END, c.amount_cents, c.currency, c.created_at
            FROM claimed c RETURNING 1
        ), debited AS (
            UPDATE orders o SET refunded_cents = o.refunded_cents + d.amount_cents
            FROM debit d WHERE o.tenant_id = d.tenant_id AND o.order_id = d.order_id RETURNING 1
        )
        SELECT (SELECT count(*) FROM claimed) AS claims, (SELECT count(*) FROM claimed c WHERE c.provider IS NOT NULL) AS holds,
            (SELECT count(*) FROM transferred) AS transfers, (SELECT count(*) FROM debit) AS debits,
            (SELECT count(*) FROM debited) AS orders,
            (SELECT array_agg(c.tenant_id) FROM claimed c WHERE c.provider IS NULL) AS tenants,
            (SELECT array_agg(c.operation_id::text) FROM claimed c WHERE c.provider IS NULL) AS operations
        INTO done;
        PERFORM expect_rows('transfers posted', done.transfers, done.claims), expect_rows('orders debited', done.orders, done.debits);

        IF done.operations IS NOT NULL THEN
            PERFORM on_refunds_claimed(done.tenants, done.operations, at);
        END IF;

        -- The history of what is held for a provider begins here. A refund without one has none.
        IF done.holds > 0 THEN
            INSERT INTO operation_events (tenant_id, operation_id, kind, to_state, attempt, layer, actor, detail, created_at)
            SELECT k.tenant, k.operation, 'transition', 'reserved', 1, k.layer, 'caller', k.detail::jsonb, claim_refunds.at
            FROM unnest(tenants, operations, refunds, layers, details) WITH ORDINALITY
                AS k (tenant, operation, refund, layer, detail, place)
            CROSS JOIN LATERAL (
                SELECT FROM refund_operations op WHERE op.tenant_id = k.tenant AND op.operation_id = k.operation
                    AND op.refund_id = k.refund::uuid AND op.provider IS NOT NULL OFFSET 0) AS op
            WHERE passed[k.place];
        END IF;
        EXIT WHEN done.claims = passes;

        -- Somebody else was first with a key: a new statement finds that row. Those of its order that were refused for money,
        -- which this one then did not take, are judged again.
        FOR loser IN
            SELECT k.order_place, k.place, op.known
            FROM unnest(tenants, operations, refunds, order_places) WITH ORDINALITY AS k (tenant, operation, refund, order_place, place)
            LEFT JOIN LATERAL (
                SELECT true AS known, op.refund_id FROM refund_operations op
                WHERE op.tenant_id = k.tenant AND op.operation_id = k.operation OFFSET 0) AS op ON true
            WHERE passed[k.place] AND op.refund_id IS DISTINCT FROM k.refund::uuid
        LOOP
            place := loser.place;
            verdict := CASE WHEN loser.known THEN 'known' ELSE 'swallowed' END;
            short := short || loser.order_place;
            RETURN NEXT;
        END LOOP;
        FOREACH i IN ARRAY coalesce(poor, '{}') LOOP
            open[i] := order_places[i] = ANY (short);
        END LOOP;
    END LOOP;
END $$;

-- What was to be written and was not is an error of the very statement, so that a COMMIT may travel behind it.
CREATE OR REPLACE FUNCTION expect_rows(what text, have bigint, want bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF have <> want THEN
        RAISE EXCEPTION '% % of %', have, what, want;
    END IF;
END $$;

-- Hears of the refunds without a provider that tx 1 has just made succeed, in that transaction, each once: for who tells others.
-- What is at a provider is told by OnEvents instead, when it comes to something.
CREATE OR REPLACE FUNCTION on_refunds_claimed(tenants text[], operations text[], at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
END $$;

REVOKE ALL ON FUNCTION claim_refunds, expect_rows, on_refunds_claimed FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_refunds, expect_rows, on_refunds_claimed TO refundd_service;
