-- Puts the partitioned tables into the old ones' place. It waits for what is under way, for two seconds at most, and holds the
-- tables for as long as some changes of the catalogue take, however many rows there are. The service goes on: its sessions
-- find the new tables by their names. The old ones stay, in the schema "before", until 4-drop.sql.
BEGIN;
SET LOCAL lock_timeout = '2s';
SET LOCAL search_path = public;
LOCK TABLE refund_operations, ledger_transfers, operation_events, refund_authorizations IN ACCESS EXCLUSIVE MODE;
CREATE SCHEMA before;
DO $$
DECLARE
    t    text;
    fn   record;
    held record;
    def  text;
BEGIN
    IF EXISTS (SELECT FROM partitioned.tables WHERE NOT copied) THEN
        RAISE EXCEPTION '2-copy.sql has not ended';
    END IF;
    FOR t IN SELECT name FROM partitioned.tables LOOP
        EXECUTE format('DROP TRIGGER partitioned_follow ON public.%I', t);
        FOR fn IN SELECT oid::regprocedure::text AS name FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND pronargs = 1
            AND proargtypes[0] = (SELECT reltype FROM pg_class WHERE oid = ('public.' || t)::regclass)
        LOOP
            EXECUTE format('ALTER FUNCTION %s SET SCHEMA before', fn.name);
        END LOOP;
        EXECUTE format('ALTER TABLE public.%I SET SCHEMA before', t);
        EXECUTE format('ALTER TABLE partitioned.%I SET SCHEMA public', t);
        FOR fn IN SELECT oid::regprocedure::text AS name FROM pg_proc WHERE pronamespace = 'partitioned'::regnamespace AND pronargs = 1
            AND proargtypes[0] = (SELECT reltype FROM pg_class WHERE oid = ('public.' || t)::regclass)
        LOOP
            EXECUTE format('ALTER FUNCTION %s SET SCHEMA public', fn.name);
        END LOOP;

        FOR held IN
            SELECT pg_get_triggerdef(oid) AS text FROM pg_trigger WHERE tgrelid = ('before.' || t)::regclass AND NOT tgisinternal
        LOOP
            CONTINUE WHEN position('FOR EACH ROW' IN held.text) = 0;
            EXECUTE replace(held.text, ' ON before.' || t || ' ', ' ON public.' || t || ' ');
        END LOOP;

        -- Numbers go on where they were.
        FOR held IN SELECT attname AS field, pg_get_serial_sequence('before.' || t, attname) AS old,
                pg_get_serial_sequence('public.' || t, attname) AS new
            FROM pg_attribute WHERE attrelid = ('before.' || t)::regclass AND attidentity <> ''
        LOOP
            EXECUTE format('SELECT setval(%L, nextval(%L))', held.new, held.old);
        END LOOP;

        -- Who may do what to a table, and to which of its columns.
        FOR held IN
            SELECT a.privilege_type AS may, NULL AS field, a.grantee FROM pg_class c, aclexplode(c.relacl) a
            WHERE c.oid = ('before.' || t)::regclass AND a.grantee <> c.relowner
            UNION ALL
            SELECT a.privilege_type, f.attname, a.grantee FROM pg_attribute f, aclexplode(f.attacl) a
            WHERE f.attrelid = ('before.' || t)::regclass
        LOOP
            EXECUTE format('GRANT %s%s ON public.%I TO %s', held.may,
                CASE WHEN held.field IS NULL THEN '' ELSE format(' (%I)', held.field) END, t,
                CASE WHEN held.grantee = 0 THEN 'PUBLIC' ELSE held.grantee::regrole::text END);
        END LOOP;
    END LOOP;

    -- Tx 1 answers rows of the operations' type.
    FOR fn IN SELECT oid, oid::regprocedure::text AS name, proacl FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND pg_get_function_result(oid) LIKE '%before.refund_operations%'
    LOOP
        def := replace(pg_get_functiondef(fn.oid), 'before.refund_operations', 'refund_operations');
        CREATE TEMPORARY TABLE callers ON COMMIT DROP AS SELECT grantee FROM aclexplode(fn.proacl) WHERE privilege_type = 'EXECUTE';
        EXECUTE format('DROP FUNCTION %s', fn.name);
        EXECUTE def;
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', fn.name);
        FOR held IN SELECT grantee FROM callers LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', fn.name,
                CASE WHEN held.grantee = 0 THEN 'PUBLIC' ELSE held.grantee::regrole::text END);
        END LOOP;
        DROP TABLE callers;
    END LOOP;
END $$;
COMMIT;
