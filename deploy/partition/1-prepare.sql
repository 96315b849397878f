-- Makes, beside the tables that grow with every refund, tables of the same shape in 16 partitions each, and lets them follow
-- every write. As the schema's owner, in one transaction; docs/growth.md tells when and how. Undone by
-- DROP SCHEMA partitioned CASCADE.
--
-- Rows are spread by (tenant_id, operation_id), so that the primary keys go on to promise what they promise: an operation id
-- is claimed once per tenant, whatever partition it falls into.
BEGIN;
SET LOCAL lock_timeout = '2s';
SET LOCAL search_path = public;
-- In the order in which the service takes them. Where it deadlocks all the same, or waits in vain, run it again.
LOCK TABLE refund_operations, ledger_transfers, orders, operation_events, refund_authorizations IN SHARE ROW EXCLUSIVE MODE;
CREATE SCHEMA partitioned;
CREATE TABLE partitioned.tables (name text PRIMARY KEY, copied boolean NOT NULL DEFAULT false);
INSERT INTO partitioned.tables (name)
VALUES ('refund_authorizations'), ('refund_operations'), ('ledger_transfers'), ('operation_events');

-- The rules of a row are functions of its type, which is another one now.
DO $$
DECLARE
    of_row record;
BEGIN
    FOR of_row IN
        SELECT p.oid, t.typname FROM pg_proc p JOIN pg_type t ON t.oid = p.proargtypes[0] JOIN partitioned.tables ON name = t.typname
        WHERE p.pronargs = 1 AND p.pronamespace = 'public'::regnamespace AND t.typnamespace = 'public'::regnamespace
    LOOP
        EXECUTE format('CREATE TABLE partitioned.%1$I (LIKE public.%1$I INCLUDING DEFAULTS INCLUDING IDENTITY)
            PARTITION BY HASH (tenant_id, operation_id)', of_row.typname);
        EXECUTE replace(replace(pg_get_functiondef(of_row.oid), 'FUNCTION public.', 'FUNCTION partitioned.'),
            '(r ' || of_row.typname, '(r partitioned.' || of_row.typname);
    END LOOP;
END $$;

DO $$
DECLARE
    parts  CONSTANT integer := 16;
    t      text;
    part   text;
    rule   record;
    key    text;    -- the columns of the primary key
    fields text;    -- all columns
    news   text;
BEGIN
    FOR t IN SELECT name FROM partitioned.tables LOOP
        IF to_regclass('partitioned.' || t) IS NULL THEN
            EXECUTE format('CREATE TABLE partitioned.%1$I (LIKE public.%1$I INCLUDING DEFAULTS INCLUDING IDENTITY)
                PARTITION BY HASH (tenant_id, operation_id)', t);
        END IF;
        FOR i IN 0 .. parts - 1 LOOP
            EXECUTE format('CREATE TABLE partitioned.%I PARTITION OF partitioned.%I FOR VALUES WITH (MODULUS %s, REMAINDER %s)',
                t || '_' || i, t, parts, i);
        END LOOP;

        -- Primary keys, foreign keys and rules. One that names the row has to name that of each partition.
        FOR rule IN
            SELECT conname AS name, pg_get_constraintdef(oid) AS text FROM pg_constraint
            WHERE conrelid = ('public.' || t)::regclass AND contype IN ('p', 'f', 'c')
        LOOP
            IF position(t || '.*' IN rule.text) = 0 THEN
                EXECUTE format('ALTER TABLE partitioned.%I ADD CONSTRAINT %I %s', t, rule.name, rule.text);
                CONTINUE;
            END IF;
            FOR i IN 0 .. parts - 1 LOOP
                part := t || '_' || i;
                EXECUTE format('ALTER TABLE partitioned.%I ADD CONSTRAINT %I %s', part, rule.name,
                    replace(replace(rule.text, t || '.*', part || '.*'), 'CHECK (', 'CHECK (partitioned.'));
            END LOOP;
        END LOOP;

        -- Indexes. What is unique beyond the primary key can not be across partitions: see below.
        FOR rule IN
            SELECT pg_get_indexdef(i.indexrelid) AS text FROM pg_index i
            WHERE i.indrelid = ('public.' || t)::regclass AND NOT i.indisprimary
                AND i.indexrelid <> to_regclass('public.refund_operations_refund_id_key')
        LOOP
            EXECUTE replace(replace(rule.text, ' ON public.', ' ON partitioned.'), 'CREATE UNIQUE INDEX', 'CREATE INDEX');
        END LOOP;

        -- What refuses to rewrite history does so in every partition too. What acts on rows comes with the switch: these have been
        -- acted on.
        FOR rule IN
            SELECT pg_get_triggerdef(oid) AS text FROM pg_trigger WHERE tgrelid = ('public.' || t)::regclass AND NOT tgisinternal
        LOOP
            CONTINUE WHEN position('FOR EACH ROW' IN rule.text) > 0;
            EXECUTE replace(rule.text, ' ON public.' || t || ' ', ' ON partitioned.' || t || ' ');
            FOR i IN 0 .. parts - 1 LOOP
                EXECUTE replace(rule.text, ' ON public.' || t || ' ', ' ON partitioned.' || t || '_' || i || ' ');
            END LOOP;
        END LOOP;

        -- Follow: each write of the old table is one of the new one, in the same transaction.
        SELECT string_agg(format('%I', a.attname), ', ' ORDER BY a.attnum),
            string_agg(format('EXCLUDED.%I', a.attname), ', ' ORDER BY a.attnum)
        INTO fields, news FROM pg_attribute a WHERE a.attrelid = ('public.' || t)::regclass AND a.attnum > 0 AND NOT a.attisdropped;
        SELECT string_agg(format('%I', a.attname), ', ' ORDER BY k.place) INTO key
        FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute a ON a.attnum = k.attnum
        WHERE i.indrelid = ('public.' || t)::regclass AND i.indisprimary AND a.attrelid = i.indrelid;
        EXECUTE format($follow$
            CREATE FUNCTION partitioned.follow_%1$s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
            SET search_path = partitioned, pg_catalog, pg_temp AS $body$
            BEGIN
                INSERT INTO partitioned.%1$I (%2$s) OVERRIDING SYSTEM VALUE SELECT NEW.* ON CONFLICT (%3$s) %4$s;
                RETURN NULL;
            END $body$;
            CREATE TRIGGER partitioned_follow AFTER INSERT OR UPDATE ON public.%1$I
                FOR EACH ROW EXECUTE FUNCTION partitioned.follow_%1$s()$follow$,
            t, fields, key, CASE WHEN t IN ('ledger_transfers', 'operation_events') THEN 'DO NOTHING' -- they are never changed
                ELSE format('DO UPDATE SET (%s) = ROW (%s)', fields, news) END);
    END LOOP;

    -- A refund_id is a UUID that is minted anew for each claim. That no two rows of a partition carry one is checked still.
    FOR i IN 0 .. parts - 1 LOOP
        EXECUTE format('CREATE UNIQUE INDEX ON partitioned.refund_operations_%s (refund_id)', i);
    END LOOP;
END $$;

-- One refund of a provider's settles one operation. This has to hold across partitions, and so has a table of its own, which
-- is kept by the rows themselves; its key has the name that the service knows.
CREATE TABLE partitioned.provider_refunds (
    provider           text NOT NULL,
    provider_refund_id text NOT NULL,
    tenant_id          text COLLATE "C" NOT NULL,
    operation_id       text COLLATE "C" NOT NULL
);
CREATE FUNCTION partitioned.keep_provider_refund() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.provider_refund_id IS NOT NULL THEN
        DELETE FROM partitioned.provider_refunds
        WHERE provider = OLD.provider AND provider_refund_id = OLD.provider_refund_id;
    END IF;
    IF NEW.provider_refund_id IS NOT NULL THEN
        INSERT INTO partitioned.provider_refunds (provider, provider_refund_id, tenant_id, operation_id)
        VALUES (NEW.provider, NEW.provider_refund_id, NEW.tenant_id, NEW.operation_id);
    END IF;
    RETURN NULL;
END $$;
ALTER INDEX partitioned.refund_operations_provider_refund_key RENAME TO refund_operations_provider_refund_idx;
ALTER TABLE partitioned.provider_refunds
    ADD CONSTRAINT refund_operations_provider_refund_key PRIMARY KEY (provider, provider_refund_id);
CREATE TRIGGER refund_operations_provider_refund_made AFTER INSERT ON partitioned.refund_operations
    FOR EACH ROW WHEN (NEW.provider_refund_id IS NOT NULL) EXECUTE FUNCTION partitioned.keep_provider_refund();
CREATE TRIGGER refund_operations_provider_refund_changed AFTER UPDATE OF provider, provider_refund_id
    ON partitioned.refund_operations
    FOR EACH ROW WHEN ((OLD.provider, OLD.provider_refund_id) IS DISTINCT FROM (NEW.provider, NEW.provider_refund_id))
    EXECUTE FUNCTION partitioned.keep_provider_refund();

-- Copies what was there before, in the order of the primary key, so many rows to a transaction. What was written since it
-- follows by itself, and is left alone here. It may be stopped and called again.
CREATE PROCEDURE partitioned.copy(t text, rows_at_once integer) LANGUAGE plpgsql AS $$
DECLARE
    key     text;
    fields  text;
    reached text := NULL; -- the last row's key, as a row
    copied  bigint;
BEGIN
    SELECT string_agg(format('%I', a.attname), ', ' ORDER BY k.place) INTO key
    FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k (attnum, place) JOIN pg_attribute a ON a.attnum = k.attnum
    WHERE i.indrelid = ('public.' || t)::regclass AND i.indisprimary AND a.attrelid = i.indrelid;
    SELECT string_agg(format('%I', a.attname), ', ' ORDER BY a.attnum) INTO fields
    FROM pg_attribute a WHERE a.attrelid = ('public.' || t)::regclass AND a.attnum > 0 AND NOT a.attisdropped;
    LOOP
        EXECUTE format($copy$
            WITH page AS MATERIALIZED (SELECT %2$s FROM public.%1$I %4$s ORDER BY %3$s LIMIT %5$s),
            made AS (INSERT INTO partitioned.%1$I (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM page ON CONFLICT (%3$s) DO NOTHING)
            SELECT count(*), (SELECT format('(%6$s)', %3$s) FROM page ORDER BY %7$s LIMIT 1) FROM page$copy$,
            t, fields, key, CASE WHEN reached IS NOT NULL THEN format('WHERE (%s) > %s', key, reached) ELSE '' END, rows_at_once,
            regexp_replace(key, '[a-z_]+', '%L', 'g'), regexp_replace(key, '([a-z_]+)', '\1 DESC', 'g')) INTO copied, reached;
        COMMIT;
        EXIT WHEN copied < rows_at_once;
    END LOOP;
    UPDATE partitioned.tables SET copied = true WHERE name = t;
    COMMIT;
END $$;

-- Counts the rows that one of the two tables has and the other does not: none, if all was copied and followed.
CREATE FUNCTION partitioned.differences(t text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found bigint;
BEGIN
    EXECUTE format($count$
        SELECT count(*) FROM ((SELECT md5(a::text) FROM public.%1$I a EXCEPT ALL SELECT md5(b::text) FROM partitioned.%1$I b)
            UNION ALL (SELECT md5(b::text) FROM partitioned.%1$I b EXCEPT ALL SELECT md5(a::text) FROM public.%1$I a)) AS d$count$, t)
    INTO found;
    RETURN found;
END $$;
COMMIT;
