-- Tx 1: the one place where refunds are judged, their keys claimed and their orders debited. It is a function so that all of it
-- travels in one message, COMMIT included, for one request or for hundreds, and keeps its plans behind PgBouncer too.
--
-- Requests come as arrays, one element each, sorted by tenant and order, those of one order in the order of their arrival; no
-- key comes twice. ahead is what those ahead of a request in its order ask for together. Of each request one row says what it
-- is told: claimed; known (the key has a row, which is told: where an earlier try committed unheard, its own); locked (the
-- order, by somebody else); swallowed (the INSERT neither made a row nor met one); or why it is refused. What is refused leaves
-- nothing behind, and what is known neither locks nor writes.
--
-- A statement has a fixed price of some 50 µs, which one request pays as hundreds do: there are few of them, and they read arrays
-- by subscript, since each unnest has a price as well; generate_series comes first in every join and is never sorted, so that
-- array_agg keeps the order of the requests. Rows are found key by key, behind a fence (LATERAL … OFFSET 0): a plan
-- that is kept from when the tables were empty can then only be the one that is right when they are full. The indexes that could
-- mislead it are partial.
CREATE OR REPLACE FUNCTION claim_refunds(
    patient boolean, tenants text[], operations text[], orders text[], ahead bigint[], amounts bigint[], currencies text[],
    fingerprints text[], refunds text[], reasons text[], metadatas text[], times_left interval[], layers text[], details text[],
    providers text[], admitted integer[], retentions interval[], key_lengths integer[], lease interval, call_limit interval
) RETURNS TABLE (
    place integer, verdict text, at timestamptz, currency text, provider text, payment_ref text, remainder bigint,
    look_first boolean, payment_account text, operation refund_operations
) LANGUAGE plpgsql AS $$
DECLARE
    began       CONSTANT timestamptz := clock_timestamp();
    n           CONSTANT integer := cardinality(tenants);
    verdicts    text[];        -- by request, as all arrays; null where it is still to be given
    held        text[];        -- the currencies of the orders that we have locked,
    at_provider text[];        -- their providers,
    payments    text[];        -- their payments there,
    accounts    text[];        -- the accounts that took those,
    remainders  bigint[];      -- what is left of them,
    registered  timestamptz[]; -- and since when they are known
    looks       boolean[];     -- requests that are to be looked up before they are sent
    passes      integer;       -- how many are to be claimed,
    holds       integer;       -- how many of those are at a provider,
    refusals    integer;       -- and how many are refused
    made        integer;
    spent       bigint;
    unjudged    bigint;
    asked       integer;       -- a provider's place
    r           record;
    ignored     text;
BEGIN
    -- In company nobody waits for somebody else's order, nor for long for somebody else's key.
    IF NOT patient THEN
        ignored := set_config('lock_timeout', '100ms', true);
    END IF;

    -- 1. Look the keys up, and lock the orders of those without a row, sorted. NO KEY: the foreign keys' KEY SHARE must pass, or
    -- two batches would deadlock. A row that was changed while we waited for it is read as it is then.
    SELECT array_agg(op.known), array_agg(o.currency), array_agg(o.provider), array_agg(o.provider_payment_ref),
        array_agg(o.provider_account), array_agg(o.remainder), array_agg(o.created_at)
    INTO verdicts, held, at_provider, payments, accounts, remainders, registered
    FROM generate_series(1, n) AS k (place)
    LEFT JOIN LATERAL (
        SELECT 'known' AS known FROM refund_operations op
        WHERE op.tenant_id = tenants[k.place] AND op.operation_id = operations[k.place] OFFSET 0) AS op ON true
    LEFT JOIN LATERAL (
        SELECT o.currency, o.provider, o.provider_payment_ref, o.provider_account,
            o.captured_cents - o.refunded_cents AS remainder, o.created_at
        FROM orders o WHERE op.known IS NULL AND o.tenant_id = tenants[k.place] AND o.order_id = orders[k.place]
        FOR NO KEY UPDATE SKIP LOCKED) AS o ON true;

    at := clock_timestamp(); -- after the locks: the one reading of the clock that times are compared with

    WHILE array_position(verdicts, NULL) IS NOT NULL LOOP
        -- 2. A new statement reads approvals and keys: what committed while we waited must be seen.
        -- 3. Each request is judged as if all those ahead of it in its order were claimed. If it passes only where they are not, it
        -- is in turn: judged again once they have their verdicts.
        SELECT array_agg(j.verdict), count(*) FILTER (WHERE j.verdict = 'passed'),
            count(at_provider[j.place]) FILTER (WHERE j.verdict = 'passed'),
            count(*) FILTER (WHERE j.verdict NOT IN ('passed', 'in_turn', 'claimed', 'known'))
        INTO verdicts, passes, holds, refusals
        FROM (
            SELECT k.place, coalesce(verdicts[k.place], verdict_on_refund(began + times_left[k.place] <= at,
                currencies[k.place], held[k.place],
                coalesce((SELECT t.require_authorization FROM tenants t WHERE t.tenant_id = tenants[k.place]), true),
                a.order_id, a.amount_cents, a.currency, a.expires_at, at, orders[k.place], amounts[k.place],
                remainders[k.place], CASE WHEN at_provider[k.place] IS NOT NULL
                    THEN coalesce(admitted[array_position(providers, at_provider[k.place])], 0) END,
                ahead[k.place])) AS verdict
            FROM generate_series(1, n) AS k (place)
            LEFT JOIN LATERAL (
                SELECT a.order_id, a.amount_cents, a.currency, a.expires_at FROM refund_authorizations a
                WHERE a.tenant_id = tenants[k.place] AND a.operation_id = operations[k.place] OFFSET 0) AS a ON true
        ) AS j;

        -- The key comes first: what would be refused may have its row by now. What passes meets it in the INSERT. An order that
        -- we did not lock may not be there at all.
        IF refusals > 0 THEN
            SELECT array_agg(CASE
                WHEN verdicts[k.place] IN ('passed', 'in_turn', 'claimed') THEN verdicts[k.place]
                WHEN EXISTS (SELECT FROM refund_operations op
                    WHERE op.tenant_id = tenants[k.place] AND op.operation_id = operations[k.place]) THEN 'known'
                WHEN verdicts[k.place] = 'locked' AND NOT EXISTS (SELECT FROM orders o
                    WHERE o.tenant_id = tenants[k.place] AND o.order_id = orders[k.place]) THEN 'order_not_found'
                ELSE verdicts[k.place] END)
            INTO verdicts FROM generate_series(1, n) AS k (place);
        END IF;

        -- A breaker that tries whether it may close lets few requests through.
        IF holds > 0 AND n > ANY (admitted) THEN
            FOR i IN 1 .. n LOOP
                CONTINUE WHEN verdicts[i] <> 'passed' OR at_provider[i] IS NULL;
                asked := array_position(providers, at_provider[i]);
                IF admitted[asked] < 1 THEN
                    verdicts[i] := 'provider_unavailable';
                    passes := passes - 1;
                    holds := holds - 1;
                END IF;
                admitted[asked] := admitted[asked] - 1;
            END LOOP;
        END IF;

        -- What was registered or approved before a history that was lost is looked up before it is sent.
        IF holds > 0 AND (SELECT max(s.look_until) IS NOT NULL FROM restores s) THEN
            SELECT array_agg(least(registered[k.place], a.created_at) <= (SELECT max(s.look_until) FROM restores s))
            INTO looks
            FROM generate_series(1, n) AS k (place)
            LEFT JOIN LATERAL (
                SELECT a.created_at FROM refund_authorizations a
                WHERE a.tenant_id = tenants[k.place] AND a.operation_id = operations[k.place] OFFSET 0) AS a ON true;
        END IF;

        -- 4. Claim the keys of those that passed, under the primary key and sorted. What a provider is to move is held: its row is
        -- born with its lease and being sent.
        IF passes > 0 THEN
            INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
                reason, metadata, state, created_at, settled_at, provider, provider_key, provider_key_expires_at, attempts,
                lease_until, last_send_ended, look_first)
            SELECT tenants[k.place], operations[k.place], fingerprints[k.place], refunds[k.place]::uuid, orders[k.place],
                amounts[k.place], held[k.place], reasons[k.place], metadatas[k.place]::jsonb,
                CASE WHEN p.place IS NULL THEN 'succeeded' ELSE 'reserved' END, at, CASE WHEN p.place IS NULL THEN at END,
                at_provider[k.place], CASE WHEN octet_length(p.key) <= key_lengths[p.place] THEN p.key
                    ELSE encode(sha256(convert_to(p.key, 'UTF8')), 'hex') END,
                at + retentions[p.place], CASE WHEN p.place IS NULL THEN 0 ELSE 1 END,
                CASE WHEN p.place IS NULL THEN '-infinity' ELSE at + lease END,
                CASE WHEN p.place IS NOT NULL THEN at + call_limit END,
                p.place IS NOT NULL AND coalesce(looks[k.place], false)
            FROM generate_series(1, n) AS k (place)
            LEFT JOIN LATERAL (
                SELECT array_position(providers, at_provider[k.place]) AS place,
                    tenants[k.place] || ':' || operations[k.place] AS key
            ) AS p ON at_provider[k.place] IS NOT NULL
            WHERE verdicts[k.place] = 'passed'
            ORDER BY tenants[k.place] COLLATE "C", operations[k.place] COLLATE "C"
            ON CONFLICT (tenant_id, operation_id) DO NOTHING;
            GET DIAGNOSTICS made = ROW_COUNT;

            -- Somebody else was first with a key: a new statement finds that row. Ours are those of this transaction.
            IF made < passes THEN
                FOR r IN
                    SELECT k.place, op.known FROM generate_series(1, n) AS k (place)
                    LEFT JOIN LATERAL (
                        SELECT true AS known, op.refund_id = refunds[k.place]::uuid AND op.xmin = pg_current_xact_id()::xid AS own
                        FROM refund_operations op
                        WHERE op.tenant_id = tenants[k.place] AND op.operation_id = operations[k.place] OFFSET 0) AS op ON true
                    WHERE verdicts[k.place] = 'passed' AND op.own IS NOT TRUE
                LOOP
                    verdicts[r.place] := CASE WHEN r.known THEN 'known' ELSE 'swallowed' END;
                    passes := passes - 1;
                    holds := holds - (at_provider[r.place] IS NOT NULL)::integer;
                END LOOP;
                PERFORM expect_rows('keys claimed', made, passes);
            END IF;
        END IF;

        -- 5. Debit what this INSERT made, and nothing else: a refund where there is no provider, else a hold.
        IF passes > 0 THEN
            INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents,
                currency, created_at)
            SELECT tenants[k.place], operations[k.place], 1, CASE WHEN at_provider[k.place] IS NULL THEN 'refund' ELSE 'hold' END,
                'merchant', CASE WHEN at_provider[k.place] IS NULL THEN 'customer' ELSE 'in_transit' END, amounts[k.place],
                held[k.place], at
            FROM generate_series(1, n) AS k (place) WHERE verdicts[k.place] = 'passed';
            GET DIAGNOSTICS made = ROW_COUNT;
            IF made <> passes THEN
                PERFORM expect_rows('transfers posted', made, passes);
            END IF;

            WITH debited AS (
                UPDATE orders o SET refunded_cents = o.refunded_cents + d.amount_cents
                FROM (
                    SELECT tenants[k.place] AS tenant, orders[k.place] AS id, sum(amounts[k.place])::bigint AS amount_cents,
                        count(*) AS refunds
                    FROM generate_series(1, n) AS k (place) WHERE verdicts[k.place] = 'passed' GROUP BY 1, 2
                ) AS d WHERE o.tenant_id = d.tenant AND o.order_id = d.id
                RETURNING d.refunds
            )
            SELECT sum(d.refunds)::integer INTO made FROM debited d;
            IF made IS DISTINCT FROM passes THEN
                PERFORM expect_rows('refunds debited', coalesce(made, 0), passes);
            END IF;
        END IF;

        -- The history of what is held for a provider begins here. A refund without one has none.
        IF holds > 0 THEN
            INSERT INTO operation_events (tenant_id, operation_id, kind, to_state, attempt, layer, actor, detail, created_at)
            SELECT tenants[k.place], operations[k.place], 'transition', 'reserved', 1, layers[k.place], 'caller',
                details[k.place]::jsonb, at
            FROM generate_series(1, n) AS k (place) WHERE verdicts[k.place] = 'passed' AND at_provider[k.place] IS NOT NULL;
        END IF;
        IF passes = n AND holds = 0 THEN
            ignored := on_refunds_claimed(tenants, operations, at);
        ELSIF passes > holds THEN
            PERFORM on_refunds_claimed(array_agg(tenants[k.place]), array_agg(operations[k.place]), at)
            FROM generate_series(1, n) AS k (place) WHERE verdicts[k.place] = 'passed' AND at_provider[k.place] IS NULL;
        END IF;

        -- Who asked for too much is told what those ahead of it have left, and those in turn are judged against that.
        IF verdicts && ARRAY['in_turn', 'too_much'] THEN
            FOR i IN 1 .. n LOOP
                IF i = 1 OR tenants[i] <> tenants[i - 1] OR orders[i] <> orders[i - 1] THEN
                    spent := 0;
                    unjudged := 0;
                END IF;
                IF verdicts[i] = 'passed' THEN
                    spent := spent + amounts[i];
                ELSIF verdicts[i] = 'too_much' THEN
                    verdicts[i] := 'amount_exceeds_refundable';
                    remainders[i] := remainders[i] - spent;
                ELSIF verdicts[i] = 'in_turn' THEN
                    remainders[i] := remainders[i] - spent;
                    ahead[i] := unjudged;
                    unjudged := unjudged + amounts[i];
                END IF;
            END LOOP;
        END IF;
        verdicts := array_replace(array_replace(verdicts, 'passed', 'claimed'), 'in_turn', NULL);
    END LOOP;

    -- What is known is told by its row.
    IF 'known' = ANY (verdicts) THEN
        RETURN QUERY SELECT k.place, verdicts[k.place], at, held[k.place], at_provider[k.place], payments[k.place],
            remainders[k.place], looks[k.place], accounts[k.place], op.row
        FROM generate_series(1, n) AS k (place)
        LEFT JOIN LATERAL (
            SELECT op AS row FROM refund_operations op WHERE verdicts[k.place] = 'known'
                AND op.tenant_id = tenants[k.place] AND op.operation_id = operations[k.place] OFFSET 0) AS op ON true;
    ELSE
        RETURN QUERY SELECT k.place, verdicts[k.place], at, held[k.place], at_provider[k.place], payments[k.place],
            remainders[k.place], looks[k.place], accounts[k.place], NULL::refund_operations
        FROM generate_series(1, n) AS k (place);
    END IF;
END $$;

-- Claims one request that came alone, and says of it what claim_refunds would. A refund without a provider that nothing stands in
-- the way of takes the steps of tx 1 here, in plain statements, at half the price. Anything else goes the road of many, as an
-- array of one and from the beginning: nothing is written by then.
CREATE OR REPLACE FUNCTION claim_refund(
    patient boolean, tenant text, id text, of_order text, amount bigint, asked_currency text, of_fingerprint text, refund uuid,
    of_reason text, of_metadata jsonb, time_left interval, layer text, detail text, providers text[], admitted integer[],
    retentions interval[], key_lengths integer[], lease interval, call_limit interval
) RETURNS TABLE (
    place integer, verdict text, at timestamptz, currency text, provider text, payment_ref text, remainder bigint,
    look_first boolean, payment_account text, operation refund_operations
) LANGUAGE plpgsql AS $$
DECLARE
    began   CONSTANT timestamptz := clock_timestamp();
    ignored text;
BEGIN
    IF NOT patient THEN
        ignored := set_config('lock_timeout', '100ms', true);
    END IF;

    -- 1. Lock the order of a key without a row.
    SELECT o.currency, o.captured_cents - o.refunded_cents INTO currency, remainder
    FROM orders o WHERE o.tenant_id = tenant AND o.order_id = of_order AND o.provider IS NULL
        AND NOT EXISTS (SELECT FROM refund_operations op WHERE op.tenant_id = tenant AND op.operation_id = id)
    FOR NO KEY UPDATE SKIP LOCKED;

    -- 2. and 3. A new statement reads the approval, and judges.
    IF FOUND THEN
        at := clock_timestamp();
        SELECT verdict_on_refund(began + time_left <= at, asked_currency, claim_refund.currency, true, a.order_id,
            a.amount_cents, a.currency, a.expires_at, at, of_order, amount, remainder, NULL, 0)
        INTO verdict
        FROM refund_authorizations a WHERE a.tenant_id = tenant AND a.operation_id = id;
    END IF;

    -- 4. Claim the key: somebody else may have been first.
    IF verdict = 'passed' THEN
        INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
            reason, metadata, state, created_at, settled_at)
        VALUES (tenant, id, of_fingerprint, refund, of_order, amount, claim_refund.currency, of_reason, of_metadata,
            'succeeded', at, at)
        ON CONFLICT (tenant_id, operation_id) DO NOTHING;
        IF FOUND THEN
            place := 1;
            verdict := 'claimed';
        END IF;
    END IF;
    IF verdict IS DISTINCT FROM 'claimed' THEN
        RETURN QUERY SELECT * FROM claim_refunds(patient, ARRAY[tenant], ARRAY[id], ARRAY[of_order], ARRAY[0::bigint],
            ARRAY[amount], ARRAY[asked_currency], ARRAY[of_fingerprint], ARRAY[refund::text], ARRAY[of_reason],
            ARRAY[of_metadata::text], ARRAY[time_left], ARRAY[layer], ARRAY[detail], providers, admitted, retentions,
            key_lengths, lease, call_limit);
        RETURN;
    END IF;

    -- 5. Debit what this INSERT made.
    INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents, currency,
        created_at)
    VALUES (tenant, id, 1, 'refund', 'merchant', 'customer', amount, claim_refund.currency, at);
    IF NOT FOUND THEN
        PERFORM expect_rows('transfers posted', 0, 1);
    END IF;
    UPDATE orders o SET refunded_cents = o.refunded_cents + amount WHERE o.tenant_id = tenant AND o.order_id = of_order;
    IF NOT FOUND THEN
        PERFORM expect_rows('refunds debited', 0, 1);
    END IF;
    ignored := on_refunds_claimed(ARRAY[tenant], ARRAY[id], at);
    RETURN NEXT;
END $$;

-- Says whether a request passes, or the first thing that speaks against it, alone and in company alike. What is unknown (null)
-- speaks against nothing. ahead is what those ahead of it in its order would take.
CREATE OR REPLACE FUNCTION verdict_on_refund(
    late boolean, currency text, held text, needs_approval boolean, approved_order text, approved_amount bigint,
    approved_currency text, expires_at timestamptz, at timestamptz, order_id text, amount bigint, remainder bigint,
    admitted integer, ahead bigint
) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN late THEN 'deadline_exceeded'
    WHEN held IS NULL THEN 'locked'
    WHEN currency <> held THEN 'currency_mismatch'
    WHEN approved_order IS NULL AND needs_approval THEN 'authorization_not_found'
    WHEN expires_at <= at THEN 'authorization_expired'
    WHEN approved_order <> order_id OR approved_amount <> amount OR approved_currency <> held THEN 'authorization_mismatch'
    WHEN amount > remainder THEN 'too_much'
    WHEN admitted < 1 THEN 'provider_unavailable'
    WHEN ahead + amount > remainder THEN 'in_turn'
    ELSE 'passed' END;

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

REVOKE ALL ON FUNCTION claim_refund, claim_refunds, verdict_on_refund, expect_rows, on_refunds_claimed FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_refund, claim_refunds, verdict_on_refund, expect_rows, on_refunds_claimed TO refundd_service;
