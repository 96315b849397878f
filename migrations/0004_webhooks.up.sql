-- Webhooks: what becomes of refunds, told to their callers. The log of transitions, whom it goes to, and what was not
-- taken.

-- Events have a seq from the moment they are written, and a position once they are committed: transactions commit in
-- another order than that of their sequence, and whoever follows positions misses none. One tenant's positions have no
-- gaps.
CREATE TABLE webhook_streams (
    tenant_id     text COLLATE "C" PRIMARY KEY REFERENCES tenants,
    last_position bigint NOT NULL DEFAULT 0
);

-- One row per transition. What of a refund never changes is read from its operation; what was so at this moment is
-- kept here.
CREATE TABLE webhook_events (
    tenant_id          text COLLATE "C" NOT NULL,
    event_id           uuid         NOT NULL DEFAULT gen_random_uuid(),
    seq                bigint       GENERATED ALWAYS AS IDENTITY,
    position           bigint,
    type               text         NOT NULL,
    operation_id       operation_id NOT NULL,
    provider_refund_id text,
    failure_code       text,
    settled_at         moment,
    created_at         moment       NOT NULL,
    CONSTRAINT webhook_events_pkey PRIMARY KEY (tenant_id, event_id),
    CONSTRAINT webhook_events_type_check CHECK (
        type IN ('refund.pending', 'refund.succeeded', 'refund.failed', 'refund.needs_attention'))
);
CREATE UNIQUE INDEX webhook_events_position_key ON webhook_events (tenant_id, position) WHERE position IS NOT NULL;
CREATE INDEX webhook_events_unnumbered_idx ON webhook_events (tenant_id, seq) WHERE position IS NULL;

-- Where a tenant's events go, and how far that is. Whoever holds the lease sends; each taking of it adds 1 to lease.
CREATE TABLE webhook_endpoints (
    tenant_id        text COLLATE "C" NOT NULL REFERENCES tenants,
    endpoint_id      uuid    NOT NULL,
    url              text    NOT NULL,
    description      text,
    event_types      text[], -- null: all
    secret           bytea   NOT NULL,
    old_secret       bytea,  -- signs too, until then
    old_secret_until timestamptz,
    created_at       moment  NOT NULL DEFAULT clock_timestamp(),
    disabled_at      moment,
    disabled_because text,
    deleted_at       moment,
    position         bigint  NOT NULL, -- of the last event that it was offered
    due_at           moment_or_infinity NOT NULL DEFAULT 'infinity', -- when something that it did not take is due again
    failures         integer NOT NULL DEFAULT 0, -- in a row
    failing_since    moment,
    paused_until     moment_or_infinity NOT NULL DEFAULT '-infinity',
    lease            bigint  NOT NULL DEFAULT 0,
    lease_until      moment_or_infinity NOT NULL DEFAULT '-infinity',
    CONSTRAINT webhook_endpoints_pkey PRIMARY KEY (tenant_id, endpoint_id),
    CONSTRAINT webhook_endpoints_secret_check CHECK (
        octet_length(secret) = 32 AND (octet_length(old_secret) = 32) IS NOT FALSE),
    CONSTRAINT webhook_endpoints_old_secret_check CHECK ((old_secret IS NULL) = (old_secret_until IS NULL)),
    CONSTRAINT webhook_endpoints_disabled_check CHECK (
        CASE WHEN disabled_at IS NULL THEN disabled_because IS NULL
             ELSE coalesce(disabled_because IN ('requested', 'unreachable', 'gone'), false) END),
    CONSTRAINT webhook_endpoints_failing_check CHECK (failures >= 0 AND (failures = 0) = (failing_since IS NULL))
) WITH (fillfactor = 70);
-- Those that may have something to be sent, by whose turn it is.
CREATE INDEX webhook_endpoints_turn_idx ON webhook_endpoints (lease_until)
    WHERE disabled_at IS NULL AND deleted_at IS NULL;

-- What an endpoint did not simply take: it waits for its next attempt, or for an earlier event of its operation, or
-- was sent again by request. An event that was taken at once has no row: it is behind the endpoint's position.
CREATE TABLE webhook_deliveries (
    tenant_id        text COLLATE "C" NOT NULL,
    endpoint_id      uuid         NOT NULL,
    position         bigint       NOT NULL,
    operation_id     operation_id NOT NULL,
    state            text         NOT NULL DEFAULT 'queued',
    attempts         integer      NOT NULL DEFAULT 0,
    first_attempt_at moment,
    last_attempt_at  moment,
    last_result      text,
    last_status      integer,
    next_attempt_at  moment       NOT NULL DEFAULT clock_timestamp(),
    created_at       moment       NOT NULL DEFAULT clock_timestamp(),
    ended_at         moment,
    CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (tenant_id, endpoint_id, position),
    CONSTRAINT webhook_deliveries_endpoint_fkey FOREIGN KEY (tenant_id, endpoint_id) REFERENCES webhook_endpoints,
    CONSTRAINT webhook_deliveries_state_check CHECK (
        state IN ('queued', 'delivered', 'given_up') AND (state = 'queued') = (ended_at IS NULL)),
    CONSTRAINT webhook_deliveries_attempts_check CHECK (
        attempts >= 0 AND (last_attempt_at IS NULL) = (last_result IS NULL))
);
CREATE INDEX webhook_deliveries_due_idx ON webhook_deliveries (tenant_id, endpoint_id, next_attempt_at)
    WHERE state = 'queued';
CREATE INDEX webhook_deliveries_operation_idx ON webhook_deliveries (tenant_id, endpoint_id, operation_id, position)
    WHERE state = 'queued';

-- Gives positions to what was committed without one, of one tenant or of all (null), oldest first, at most so many of
-- each, and returns whether there may be more. Whoever holds a tenant's stream does it for that tenant; others pass it
-- by. An operation's transitions keep their order: a later one's seq was drawn after the earlier one was committed,
-- under the lock of its row.
CREATE FUNCTION number_webhook_events(only_tenant text, most integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    tenant   text := '';
    reached  bigint;
    numbered bigint;
    more     boolean := false;
BEGIN
    LOOP
        -- The next tenant that has some; the index is stepped over, not read.
        SELECT e.tenant_id INTO tenant FROM webhook_events e
        WHERE e.position IS NULL AND e.tenant_id > tenant AND e.tenant_id = coalesce(only_tenant, e.tenant_id)
        ORDER BY e.tenant_id LIMIT 1;
        EXIT WHEN NOT FOUND;
        INSERT INTO webhook_streams (tenant_id) VALUES (tenant) ON CONFLICT (tenant_id) DO NOTHING;
        SELECT s.last_position INTO reached FROM webhook_streams s
        WHERE s.tenant_id = tenant FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        -- A new statement sees what the one who held the stream before has numbered.
        UPDATE webhook_events e SET position = reached + f.place
        FROM (SELECT o.event_id, row_number() OVER (ORDER BY o.seq) AS place
              FROM (SELECT u.event_id, u.seq FROM webhook_events u WHERE u.tenant_id = tenant AND u.position IS NULL
                    ORDER BY u.seq LIMIT most) AS o) AS f
        WHERE e.tenant_id = tenant AND e.event_id = f.event_id;
        GET DIAGNOSTICS numbered = ROW_COUNT;
        UPDATE webhook_streams s SET last_position = reached + numbered WHERE s.tenant_id = tenant;
        more := more OR numbered = most;
    END LOOP;
    RETURN more;
END $$;

-- A refund without a provider ends in its own answer: it is an event only for tenants that have asked to be told, and
-- costs the others nothing but this look.
CREATE OR REPLACE FUNCTION on_refunds_claimed(tenants text[], operations text[], at timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Where nobody listens, each claim pays for this look alone.
    IF NOT EXISTS (SELECT FROM webhook_endpoints e WHERE e.tenant_id = ANY (tenants) AND e.deleted_at IS NULL) THEN
        RETURN;
    END IF;
    INSERT INTO webhook_events (tenant_id, type, operation_id, settled_at, created_at)
    SELECT k.tenant, 'refund.succeeded', k.operation, on_refunds_claimed.at, on_refunds_claimed.at
    FROM unnest(tenants, operations) AS k (tenant, operation)
    WHERE EXISTS (SELECT FROM webhook_endpoints e WHERE e.tenant_id = k.tenant AND e.deleted_at IS NULL OFFSET 0);
END $$;

-- Events are history: the service appends them and numbers them, once. Deliveries that ended stay too; their owner may
-- remove them.
REVOKE ALL ON FUNCTION number_webhook_events FROM PUBLIC;
GRANT EXECUTE ON FUNCTION number_webhook_events TO refundd_service;
GRANT SELECT, INSERT ON webhook_streams, webhook_events, webhook_endpoints, webhook_deliveries TO refundd_service;
GRANT UPDATE (last_position) ON webhook_streams TO refundd_service;
GRANT UPDATE (position) ON webhook_events TO refundd_service;
GRANT UPDATE (secret, old_secret, old_secret_until, disabled_at, disabled_because, deleted_at, position, due_at,
    failures, failing_since, paused_until, lease, lease_until) ON webhook_endpoints TO refundd_service;
GRANT UPDATE (state, attempts, first_attempt_at, last_attempt_at, last_result, last_status, next_attempt_at, ended_at)
    ON webhook_deliveries TO refundd_service;
-- An operator sees everything but the secrets.
GRANT SELECT ON webhook_streams, webhook_events, webhook_deliveries TO refundd_operator;
GRANT SELECT (tenant_id, endpoint_id, url, description, event_types, created_at, disabled_at, disabled_because,
    deleted_at, position, due_at, failures, failing_since, paused_until, lease, lease_until) ON webhook_endpoints TO refundd_operator;
