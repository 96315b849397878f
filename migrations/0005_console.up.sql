-- What people look at when they are paged: which call a refund belongs to, and when the books were last proven.

-- GET /v1/refunds?diagnostic_ref=: the calls that had a provider asked leave their reference in the history.
CREATE INDEX operation_events_ref_idx ON operation_events (tenant_id, (detail ->> 'diagnostic_ref'))
    WHERE detail ->> 'diagnostic_ref' IS NOT NULL;

-- One row per audit of the books, which are those of the whole service.
CREATE TABLE audits (
    audit_id    uuid        NOT NULL,
    started_at  timestamptz NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    operations  bigint      NOT NULL,
    transfers   bigint      NOT NULL,
    orders      bigint      NOT NULL,
    lies        bigint      NOT NULL,
    CONSTRAINT audits_pkey PRIMARY KEY (audit_id)
);

-- Whoever may read all of the books may say that it did.
GRANT SELECT, INSERT ON audits TO refundd_service, refundd_operator;

-- GET /v1/refund-totals: what was created in an hour that is over, in whatever state. Times of creation, amounts and currencies do not
-- change, and a withdrawal is none from its first moment, so that a sum holds for ever. How much of it is not, or no longer, succeeded
-- is read from the operations, of which those are few. Whoever asks first has the hours summed; a refund pays nothing for it.
CREATE TABLE refund_hours (
    tenant_id    text COLLATE "C" NOT NULL,
    hour         timestamptz NOT NULL,
    currency     currency    NOT NULL,
    refunds      bigint      NOT NULL,
    amount_cents numeric     NOT NULL,
    CONSTRAINT refund_hours_pkey PRIMARY KEY (tenant_id, hour, currency)
);
-- Before when all hours of a tenant are summed.
CREATE TABLE refund_hours_summed (
    tenant_id text COLLATE "C" PRIMARY KEY,
    before    timestamptz NOT NULL
);

-- Sums the hours that follow, of so many refunds and the rest of their last hour, and returns whether there are more. An hour is summed
-- an hour after its end: a claim is committed within seconds of the time it writes.
CREATE FUNCTION sum_refund_hours(tenant text, most integer) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    begun  timestamptz;
    ended  timestamptz := date_trunc('hour', clock_timestamp(), 'UTC') - interval '1 hour';
    upto   timestamptz;
BEGIN
    -- One at a time, and nothing is moved meanwhile. What follows are new statements: they see what committed before.
    IF NOT pg_try_advisory_xact_lock(hashtextextended('refund_hours ' || tenant, 0)) THEN
        RETURN false;
    END IF;
    SELECT s.before INTO begun FROM refund_hours_summed s WHERE s.tenant_id = tenant;
    begun := coalesce(begun, '0001-01-01Z');
    IF begun >= ended THEN
        RETURN false;
    END IF;
    SELECT date_trunc('hour', o.created_at, 'UTC') + interval '1 hour' INTO upto FROM refund_operations o
    WHERE o.tenant_id = tenant AND o.state <> 'revoked' AND o.created_at >= begun AND o.created_at < ended
    ORDER BY o.created_at, o.operation_id OFFSET most - 1 LIMIT 1;
    upto := least(coalesce(upto, ended), ended);
    INSERT INTO refund_hours (tenant_id, hour, currency, refunds, amount_cents)
    SELECT tenant, date_trunc('hour', o.created_at, 'UTC'), o.currency, count(*), sum(o.amount_cents) FROM refund_operations o
    WHERE o.tenant_id = tenant AND o.state <> 'revoked' AND o.created_at >= begun AND o.created_at < upto GROUP BY 2, 3;
    INSERT INTO refund_hours_summed (tenant_id, before) VALUES (tenant, upto)
    ON CONFLICT (tenant_id) DO UPDATE SET before = excluded.before;
    RETURN upto < ended;
END $$;

-- An owner may move an operation in time, or load old ones: the hours from there on are summed again.
CREATE FUNCTION unsum_refund_hours() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    since timestamptz := date_trunc('hour', greatest('0001-01-01Z',
        CASE TG_OP WHEN 'INSERT' THEN NEW.created_at ELSE least(OLD.created_at, NEW.created_at) END), 'UTC');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('refund_hours ' || NEW.tenant_id, 0));
    UPDATE refund_hours_summed s SET before = since WHERE s.tenant_id = NEW.tenant_id AND s.before > since;
    IF FOUND THEN
        DELETE FROM refund_hours h WHERE h.tenant_id = NEW.tenant_id AND h.hour >= since;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER refund_operations_moved AFTER UPDATE OF created_at, amount_cents, currency ON refund_operations
    FOR EACH ROW EXECUTE FUNCTION unsum_refund_hours();
CREATE TRIGGER refund_operations_loaded AFTER INSERT ON refund_operations
    FOR EACH ROW WHEN (NEW.created_at < now() - interval '30 minutes') EXECUTE FUNCTION unsum_refund_hours();

GRANT SELECT ON refund_hours, refund_hours_summed TO refundd_service, refundd_operator;
REVOKE ALL ON FUNCTION sum_refund_hours, unsum_refund_hours FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sum_refund_hours TO refundd_service;
