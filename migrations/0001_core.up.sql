-- The whole core schema. Money is the integer count of the currency's minor unit (ISO 4217).
-- Identifiers compare byte by byte (COLLATE "C"): Go and Postgres then sort locks in the same order. Their CHECKs look for one
-- character that may not be there: a regular expression with a count costs Postgres more than the rest of an insert.

-- What one value may be is said once, by its domain: a row that the API could not show is refused when it is loaded.
CREATE DOMAIN operation_id AS text COLLATE "C" CONSTRAINT operation_id_check CHECK (
    octet_length(VALUE) BETWEEN 1 AND 255 AND VALUE !~ '[^A-Za-z0-9._:-]' AND VALUE NOT IN ('.', '..'));
CREATE DOMAIN order_id AS text COLLATE "C" CONSTRAINT order_id_check CHECK (
    octet_length(VALUE) BETWEEN 1 AND 255 AND VALUE !~ '[^!-~]');
CREATE DOMAIN fingerprint AS text COLLATE "C" CONSTRAINT fingerprint_check CHECK (
    octet_length(VALUE) = 64 AND VALUE !~ '[^0-9a-f]');
CREATE DOMAIN currency AS text CONSTRAINT currency_check CHECK (octet_length(VALUE) = 3 AND VALUE !~ '[^A-Z]');
-- The largest integer that every JSON reader takes exactly (RFC 8259, section 6).
CREATE DOMAIN minor_units AS bigint CONSTRAINT minor_units_check CHECK (VALUE BETWEEN 0 AND 9007199254740991);
-- A capture that an owner loads may be larger than what one refund may name.
CREATE DOMAIN capture_minor_units AS bigint CONSTRAINT capture_minor_units_check CHECK (VALUE >= 0);
-- What an order calls its provider; no provider is null.
CREATE DOMAIN provider_name AS text CONSTRAINT provider_name_check CHECK (
    octet_length(VALUE) BETWEEN 1 AND 32 AND VALUE !~ '[^a-z0-9_]' AND VALUE <> 'ledger');
-- Pairs of texts.
CREATE DOMAIN metadata AS jsonb CONSTRAINT metadata_check CHECK (
    VALUE = '{}' OR jsonb_typeof(VALUE) = 'object' AND NOT jsonb_path_exists(VALUE, 'strict $.* ? (@.type() != "string")'));
-- What RFC 3339 can say; and beyond it what never ends, or is long over.
CREATE DOMAIN moment AS timestamptz CONSTRAINT moment_check CHECK (
    VALUE BETWEEN '0001-01-01T00:00:00Z' AND '9999-12-31T23:59:59.999999Z');
CREATE DOMAIN moment_or_infinity AS timestamptz CONSTRAINT moment_or_infinity_check CHECK (
    VALUE BETWEEN '0001-01-01T00:00:00Z' AND '9999-12-31T23:59:59.999999Z' OR NOT isfinite(VALUE));

-- E-mail addresses are compared by Unicode's simple case folding (CaseFolding.txt, C and S) of the Latin, Greek, Cyrillic and
-- Armenian letters: what lower() makes of them is another thing in each locale. Adjacent literals are one.
CREATE FUNCTION fold_case(t text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN octet_length(t) = char_length(t) THEN lower(t COLLATE "C") ELSE
    translate(lower(t COLLATE "C"),
           'µÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞĀĂĄĆĈĊČĎĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮĲĴĶĹĻĽĿŁŃŅŇŊŌŎŐŒŔŖŘŚŜŞŠŢŤŦŨŪŬŮŰŲŴŶŸŹŻŽſƁƂƄƆƇƉ'
           'ƊƋƎƏƐƑƓƔƖƗƘƜƝƟƠƢƤƦƧƩƬƮƯƱƲƳƵƷƸƼǄǅǇǈǊǋǍǏǑǓǕǗǙǛǞǠǢǤǦǨǪǬǮǱǲǴǶǷǸǺǼǾȀȂȄȆȈȊȌȎȐȒȔȖȘȚȜȞȠȢȤȦȨȪȬȮȰȲȺȻȽȾɁɃɄɅɆɈɊɌ'
           'ɎͰͲͶͿΆΈΉΊΌΎΏΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩΪΫςϏϐϑϕϖϘϚϜϞϠϢϤϦϨϪϬϮϰϱϴϵϷϹϺϽϾϿЀЁЂЃЄЅІЇЈЉЊЋЌЍЎЏАБВГДЕЖЗИЙКЛМНОПРС'
           'ТУФХЦЧШЩЪЫЬЭЮЯѠѢѤѦѨѪѬѮѰѲѴѶѸѺѼѾҀҊҌҎҐҒҔҖҘҚҜҞҠҢҤҦҨҪҬҮҰҲҴҶҸҺҼҾӀӁӃӅӇӉӋӍӐӒӔӖӘӚӜӞӠӢӤӦӨӪӬӮӰӲӴӶӸӺӼӾԀԂԄԆԈԊԌԎԐԒ'
           'ԔԖԘԚԜԞԠԢԤԦԨԪԬԮԱԲԳԴԵԶԷԸԹԺԻԼԽԾԿՀՁՂՃՄՅՆՇՈՉՊՋՌՍՎՏՐՑՒՓՔՕՖḀḂḄḆḈḊḌḎḐḒḔḖḘḚḜḞḠḢḤḦḨḪḬḮḰḲḴḶḸḺḼḾṀṂṄṆṈṊṌṎṐṒṔṖṘṚṜṞ'
           'ṠṢṤṦṨṪṬṮṰṲṴṶṸṺṼṾẀẂẄẆẈẊẌẎẐẒẔẛẞẠẢẤẦẨẪẬẮẰẲẴẶẸẺẼẾỀỂỄỆỈỊỌỎỐỒỔỖỘỚỜỞỠỢỤỦỨỪỬỮỰỲỴỶỸỺỼỾ',
           'μàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþāăąćĉċčďđēĕėęěĝğġģĥħĩīĭįĳĵķĺļľŀłńņňŋōŏőœŕŗřśŝşšţťŧũūŭůűųŵŷÿźżžsɓƃƅɔƈɖ'
           'ɗƌǝəɛƒɠɣɩɨƙɯɲɵơƣƥʀƨʃƭʈưʊʋƴƶʒƹƽǆǆǉǉǌǌǎǐǒǔǖǘǚǜǟǡǣǥǧǩǫǭǯǳǳǵƕƿǹǻǽǿȁȃȅȇȉȋȍȏȑȓȕȗșțȝȟƞȣȥȧȩȫȭȯȱȳⱥȼƚⱦɂƀʉʌɇɉɋɍ'
           'ɏͱͳͷϳάέήίόύώαβγδεζηθικλμνξοπρστυφχψωϊϋσϗβθφπϙϛϝϟϡϣϥϧϩϫϭϯκρθεϸϲϻͻͼͽѐёђѓєѕіїјљњћќѝўџабвгдежзийклмнопрс'
           'туфхцчшщъыьэюяѡѣѥѧѩѫѭѯѱѳѵѷѹѻѽѿҁҋҍҏґғҕҗҙқҝҟҡңҥҧҩҫҭүұҳҵҷҹһҽҿӏӂӄӆӈӊӌӎӑӓӕӗәӛӝӟӡӣӥӧөӫӭӯӱӳӵӷӹӻӽӿԁԃԅԇԉԋԍԏԑԓ'
           'ԕԗԙԛԝԟԡԣԥԧԩԫԭԯաբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆḁḃḅḇḉḋḍḏḑḓḕḗḙḛḝḟḡḣḥḧḩḫḭḯḱḳḵḷḹḻḽḿṁṃṅṇṉṋṍṏṑṓṕṗṙṛṝṟ'
           'ṡṣṥṧṩṫṭṯṱṳṵṷṹṻṽṿẁẃẅẇẉẋẍẏẑẓẕṡßạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹỻỽỿ') END;

CREATE TABLE tenants (
    tenant_id             text COLLATE "C" PRIMARY KEY,
    require_authorization boolean     NOT NULL DEFAULT true,
    created_at            moment      NOT NULL DEFAULT now(),
    CONSTRAINT tenants_tenant_id_check CHECK (tenant_id ~ '^[a-z0-9-]{1,63}$')
);

CREATE TABLE api_keys (
    key_id       text COLLATE "C" PRIMARY KEY,
    tenant_id    text COLLATE "C" NOT NULL REFERENCES tenants,
    secret_hash  bytea       NOT NULL,
    scopes       text[]      NOT NULL,
    created_at   moment      NOT NULL DEFAULT now(),
    expires_at   moment_or_infinity,
    revoked_at   moment,
    last_used_at moment,
    CONSTRAINT api_keys_secret_hash_key UNIQUE (secret_hash),
    CONSTRAINT api_keys_secret_hash_check CHECK (octet_length(secret_hash) = 32),
    CONSTRAINT api_keys_scopes_check CHECK (
        cardinality(scopes) > 0
        AND scopes <@ ARRAY['orders:write', 'authorizations:write', 'refunds:write', 'refunds:resolve', 'refunds:request',
                            'webhooks:write', 'read'])
);
CREATE INDEX api_keys_tenant_id_idx ON api_keys (tenant_id);

-- An order's row decides its own cap: refunded_cents counts posted and held refunds together. What of them exceeds the capture
-- is over_refunded_cents: a provider is known to have paid it, and only what records such proof raises it. No refund that is
-- asked for does, so that it meets the CHECK.
CREATE TABLE orders (
    tenant_id            text COLLATE "C" NOT NULL REFERENCES tenants,
    order_id             order_id    NOT NULL,
    currency             currency    NOT NULL,
    captured_cents       capture_minor_units NOT NULL,
    refunded_cents       bigint      NOT NULL DEFAULT 0,
    over_refunded_cents  bigint      NOT NULL DEFAULT 0,
    provider             provider_name,
    provider_payment_ref text,
    provider_account     text, -- the provider's account that took the payment, where it is not our own
    customer_id          text,
    customer_email       text,
    customer_name        text,
    created_at           moment      NOT NULL DEFAULT now(),
    CONSTRAINT orders_pkey PRIMARY KEY (tenant_id, order_id),
    CONSTRAINT orders_refunded_within_captured CHECK (
        0 <= refunded_cents AND 0 <= over_refunded_cents AND refunded_cents - over_refunded_cents <= captured_cents),
    CONSTRAINT orders_provider_has_payment CHECK ((provider IS NULL) = (provider_payment_ref IS NULL)),
    CONSTRAINT orders_provider_account_check CHECK (provider_account IS NULL OR provider IS NOT DISTINCT FROM 'stripe'
        AND octet_length(provider_account) <= 255 AND provider_account ~ '^acct_[A-Za-z0-9]+$')
) WITH (fillfactor = 80);
-- One payment belongs to one order of one tenant.
CREATE UNIQUE INDEX orders_provider_payment_key ON orders (provider, provider_payment_ref) WHERE provider IS NOT NULL;
CREATE INDEX orders_over_refunded_idx ON orders (tenant_id, order_id) WHERE over_refunded_cents > 0;
CREATE INDEX orders_customer_email_idx ON orders (tenant_id, fold_case(customer_email)) WHERE customer_email IS NOT NULL;
CREATE INDEX orders_customer_id_idx ON orders (tenant_id, customer_id) WHERE customer_id IS NOT NULL;

CREATE TABLE refund_authorizations (
    tenant_id    text COLLATE "C" NOT NULL,
    operation_id operation_id NOT NULL,
    case_id      text COLLATE "C" NOT NULL,
    order_id     order_id    NOT NULL,
    amount_cents minor_units NOT NULL,
    currency     currency    NOT NULL,
    reason       text,
    metadata     metadata    NOT NULL DEFAULT '{}',
    approved_by  text        NOT NULL,
    key_id       text COLLATE "C", -- the API key that approved, beside the name that it gave
    expires_at   moment_or_infinity,
    created_at   moment      NOT NULL DEFAULT now(),
    CONSTRAINT refund_authorizations_pkey PRIMARY KEY (tenant_id, operation_id),
    CONSTRAINT refund_authorizations_order_fkey FOREIGN KEY (tenant_id, order_id) REFERENCES orders,
    CONSTRAINT refund_authorizations_amount_check CHECK (amount_cents > 0)
);
-- All rows have an amount. Who reads a case says so, and who reads a key does not: no plan of a small table takes this index for
-- as good as the primary key.
CREATE INDEX refund_authorizations_case_idx ON refund_authorizations (tenant_id, case_id) WHERE amount_cents > 0;

-- One row per key that was ever claimed: by a refund, or by the withdrawal of its authorization (state revoked).
CREATE TABLE refund_operations (
    tenant_id               text COLLATE "C" NOT NULL,
    operation_id            operation_id NOT NULL,
    fingerprint             fingerprint NOT NULL,
    refund_id               uuid,
    order_id                order_id    NOT NULL,
    amount_cents            minor_units NOT NULL,
    currency                currency    NOT NULL,
    reason                  text,
    metadata                metadata    NOT NULL DEFAULT '{}',
    state                   text        NOT NULL,
    provider                text,
    provider_key            text,
    provider_refund_id      text,
    provider_key_expires_at moment_or_infinity,
    attempts                integer     NOT NULL DEFAULT 0,
    not_sent                integer     NOT NULL DEFAULT 0,
    last_send_ended         moment_or_infinity,
    doubted_decline         text,
    lease_until             moment_or_infinity NOT NULL DEFAULT '-infinity',
    next_check_at           moment_or_infinity NOT NULL DEFAULT '-infinity',
    failure_code            text,
    created_at              moment_or_infinity NOT NULL DEFAULT now(),
    settled_at              moment,
    look_first              boolean     NOT NULL DEFAULT false, -- a history that was lost may have sent it, see restores
    contradicted_at         moment, -- since when the provider's books show several of a settled refund, or another one
    CONSTRAINT refund_operations_pkey PRIMARY KEY (tenant_id, operation_id),
    CONSTRAINT refund_operations_refund_id_key UNIQUE (refund_id),
    CONSTRAINT refund_operations_order_fkey FOREIGN KEY (tenant_id, order_id) REFERENCES orders
);
-- What relates the columns of an operation. Each rule has its constraint's name, which a refusal tells. They stand in a function
-- of the row because Postgres reads every CHECK of a table anew for each INSERT, column by column: as ten CHECKs they were a third
-- of what a refund costs, and as thirteen arguments still a sixth of what it costs alone.
CREATE FUNCTION refund_operation_is_legal(r refund_operations) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    broken CONSTANT text := CASE
        WHEN r.amount_cents <= 0 THEN 'amount_check'
        WHEN NOT (0 <= r.not_sent AND r.not_sent <= r.attempts) THEN 'attempts_check'
        WHEN r.contradicted_at IS NOT NULL AND r.state NOT IN ('succeeded', 'failed') THEN 'contradicted_check'
        WHEN r.doubted_decline IS NOT NULL AND r.state NOT IN ('reserved', 'needs_attention') THEN 'doubt_check'
        WHEN NOT CASE r.state WHEN 'failed' THEN r.failure_code IS NOT NULL
                            WHEN 'needs_attention' THEN true
                            ELSE r.failure_code IS NULL END THEN 'failure_code_check'
        -- Without a provider the claim and the debit are one commit: there is nothing to wait for and nothing to send.
        WHEN r.provider IS NULL AND NOT (r.state IN ('succeeded', 'revoked') AND r.attempts = 0 AND r.provider_key IS NULL
            AND r.provider_refund_id IS NULL AND r.doubted_decline IS NULL) THEN 'ledger_only_check'
        WHEN r.provider IS NOT NULL AND NOT (r.provider <> 'ledger' AND r.state <> 'revoked' AND r.attempts >= 1
            AND r.provider_key IS NOT NULL AND r.provider_key_expires_at IS NOT NULL) THEN 'provider_check'
        -- A withdrawn authorization claims the key but is no refund.
        WHEN (r.refund_id IS NULL) <> (r.state = 'revoked') THEN 'revoked_is_no_refund'
        WHEN (r.settled_at IS NOT NULL) <> (r.state IN ('succeeded', 'failed', 'revoked')) THEN 'settled_at_check'
        WHEN r.state NOT IN ('reserved', 'pending', 'succeeded', 'failed', 'needs_attention', 'revoked') THEN 'state_check'
    END;
BEGIN
    IF broken IS NULL THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'new row for relation "refund_operations" violates "refund_operations_%"', broken
        USING ERRCODE = 'check_violation', TABLE = 'refund_operations', CONSTRAINT = 'refund_operations_' || broken;
END $$;
ALTER TABLE refund_operations ADD CONSTRAINT refund_operations_legal CHECK (refund_operation_is_legal(refund_operations));
-- One refund of a provider's settles one operation.
CREATE UNIQUE INDEX refund_operations_provider_refund_key ON refund_operations (provider, provider_refund_id)
    WHERE provider_refund_id IS NOT NULL;
-- For lists, which name what they leave out. A key's reading does not, so that no plan of an empty table takes these for it.
CREATE INDEX refund_operations_order_idx ON refund_operations (tenant_id, order_id, created_at, operation_id)
    WHERE state <> 'revoked';
CREATE INDEX refund_operations_created_idx ON refund_operations (tenant_id, created_at, operation_id)
    WHERE state <> 'revoked';
-- Most rows are succeeded; a search for any other state must not read them, and a count of those need not read their rows.
CREATE INDEX refund_operations_state_idx ON refund_operations (tenant_id, state, created_at, operation_id)
    INCLUDE (currency, amount_cents) WHERE state <> 'succeeded';
-- What an order holds: few rows, however many refunds it has.
CREATE INDEX refund_operations_held_idx ON refund_operations (tenant_id, order_id)
    WHERE state IN ('reserved', 'pending', 'needs_attention');
CREATE INDEX refund_operations_contradicted_idx ON refund_operations (tenant_id, operation_id) WHERE contradicted_at IS NOT NULL;
-- What reconciliation may find due of a provider, and in pages: what has neither an end nor a human, and what is only looked
-- at now and then. A ledger-only refund never is.
CREATE INDEX refund_operations_due_idx ON refund_operations (provider, next_check_at, tenant_id, operation_id)
    WHERE state IN ('reserved', 'pending') AND next_check_at < 'infinity' AND provider IS NOT NULL;
CREATE INDEX refund_operations_recheck_idx ON refund_operations (provider, next_check_at, tenant_id, operation_id)
    WHERE state IN ('needs_attention', 'succeeded', 'failed') AND next_check_at < 'infinity' AND provider IS NOT NULL;

CREATE TABLE ledger_transfers (
    tenant_id      text COLLATE "C" NOT NULL,
    operation_id   operation_id NOT NULL,
    seq            integer     NOT NULL,
    transfer_id    bigint      GENERATED ALWAYS AS IDENTITY,
    kind           text        NOT NULL,
    debit_account  text        NOT NULL,
    credit_account text        NOT NULL,
    amount_cents   minor_units NOT NULL,
    currency       currency    NOT NULL,
    created_at     moment      NOT NULL DEFAULT now(),
    CONSTRAINT ledger_transfers_pkey PRIMARY KEY (tenant_id, operation_id, seq)
);
CREATE FUNCTION ledger_transfer_is_legal(r ledger_transfers) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    broken CONSTANT text := CASE
        WHEN NOT CASE r.kind
            WHEN 'refund'   THEN r.debit_account = 'merchant'   AND r.credit_account = 'customer'
            WHEN 'hold'     THEN r.debit_account = 'merchant'   AND r.credit_account = 'in_transit'
            WHEN 'settle'   THEN r.debit_account = 'in_transit' AND r.credit_account = 'customer'
            WHEN 'release'  THEN r.debit_account = 'in_transit' AND r.credit_account = 'merchant'
            WHEN 'reversal' THEN r.debit_account = 'customer'   AND r.credit_account = 'merchant'
            ELSE false END THEN 'accounts_check'
        WHEN r.amount_cents <= 0 THEN 'amount_check'
        -- An operation begins with a refund or a hold, and a refund is the whole of its chain.
        WHEN NOT (r.seq >= 1 AND (r.seq > 1 OR r.kind IN ('refund', 'hold')) AND (r.seq = 1 OR r.kind <> 'refund')) THEN 'seq_check'
    END;
BEGIN
    IF broken IS NULL THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'new row for relation "ledger_transfers" violates "ledger_transfers_%"', broken
        USING ERRCODE = 'check_violation', TABLE = 'ledger_transfers', CONSTRAINT = 'ledger_transfers_' || broken;
END $$;
ALTER TABLE ledger_transfers ADD CONSTRAINT ledger_transfers_legal CHECK (ledger_transfer_is_legal(ledger_transfers));

CREATE TABLE operation_events (
    tenant_id           text COLLATE "C" NOT NULL,
    operation_id        operation_id NOT NULL,
    seq                 bigint      GENERATED ALWAYS AS IDENTITY,
    kind                text        NOT NULL,
    from_state          text,
    to_state            text,
    attempt             integer,
    layer               text,
    actor               text,
    error_kind          text,
    provider_request_id text,
    detail              metadata    NOT NULL DEFAULT '{}',
    created_at          moment      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT operation_events_pkey PRIMARY KEY (tenant_id, operation_id, seq),
    CONSTRAINT operation_events_kind_check CHECK (kind ~ '^[a-z_]{1,63}$')
);

CREATE TABLE reconciliation_runs (
    run_id                 uuid PRIMARY KEY,
    started_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at            timestamptz,
    dry_run                boolean NOT NULL DEFAULT false,
    claimed                bigint  NOT NULL DEFAULT 0,
    succeeded              bigint  NOT NULL DEFAULT 0,
    failed                 bigint  NOT NULL DEFAULT 0,
    pending                bigint  NOT NULL DEFAULT 0,
    resent                 bigint  NOT NULL DEFAULT 0,
    needs_attention        bigint  NOT NULL DEFAULT 0,
    still_unknown          bigint  NOT NULL DEFAULT 0,
    oldest_unknown_seconds bigint  NOT NULL DEFAULT 0,
    errors                 bigint  NOT NULL DEFAULT 0,
    duration_ms            bigint,
    error                  text
);
CREATE INDEX reconciliation_runs_started_idx ON reconciliation_runs (started_at);

-- After a restore, or a failover that lost commits, providers may know of refunds that no row here knows of. What was approved
-- or registered before look_until is looked up before its first send: the same approval may come again from a caller that saw
-- the lost history, and so later than the restore. Each restore adds a row.
CREATE TABLE restores (
    look_until  timestamptz PRIMARY KEY,
    restored_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- History is written once: whatever role asks, these rows are neither changed nor removed.
CREATE FUNCTION refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: its rows are permanent', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER ledger_transfers_permanent BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_transfers
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite();
CREATE TRIGGER operation_events_permanent BEFORE UPDATE OR DELETE OR TRUNCATE ON operation_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite();
-- A key whose money moved is never free again.
CREATE TRIGGER refund_operations_permanent BEFORE DELETE OR TRUNCATE ON refund_operations
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite();

-- A capture that rises covers so much of the excess, whoever raises it.
CREATE FUNCTION cover_excess() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.over_refunded_cents := least(NEW.over_refunded_cents, greatest(NEW.refunded_cents - NEW.captured_cents, 0));
    RETURN NEW;
END $$;
CREATE TRIGGER orders_cover_excess BEFORE UPDATE OF captured_cents ON orders
    FOR EACH ROW WHEN (OLD.over_refunded_cents > 0) EXECUTE FUNCTION cover_excess();

-- Two roles: the service's, and that of the people and tools who say who may call it. Roles are cluster-wide: another
-- database's migration may create them at the same moment, and where an administrator made them already, the owner needs no
-- right to create roles.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['refundd_service', 'refundd_operator'] LOOP
        BEGIN
            IF to_regrole(name) IS NULL THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
END $$;
GRANT USAGE ON SCHEMA public TO refundd_service, refundd_operator;
GRANT EXECUTE ON FUNCTION fold_case TO refundd_service, refundd_operator;
GRANT SELECT ON tenants, api_keys, orders, refund_authorizations, refund_operations, ledger_transfers, operation_events,
    reconciliation_runs, restores TO refundd_service, refundd_operator;
-- The service moves money, and lets nobody in.
GRANT INSERT ON orders, refund_authorizations, refund_operations, ledger_transfers, operation_events, reconciliation_runs
    TO refundd_service;
GRANT UPDATE (last_used_at) ON api_keys TO refundd_service;
GRANT UPDATE (captured_cents, refunded_cents, over_refunded_cents, customer_id, customer_email, customer_name) ON orders
    TO refundd_service;
GRANT UPDATE (state, provider_refund_id, provider_key_expires_at, attempts, not_sent, last_send_ended, doubted_decline,
    lease_until, next_check_at, failure_code, settled_at, contradicted_at) ON refund_operations TO refundd_service;
GRANT UPDATE ON reconciliation_runs TO refundd_service;
-- Either may say that the database was restored: that only makes the service look before it sends.
GRANT INSERT ON restores TO refundd_service, refundd_operator;
GRANT UPDATE (look_first, next_check_at, last_send_ended) ON refund_operations TO refundd_service, refundd_operator;
-- The operator lets callers in and out, and moves no money.
GRANT INSERT ON tenants, api_keys TO refundd_operator;
GRANT UPDATE (expires_at, revoked_at) ON api_keys TO refundd_operator;
DO $$
BEGIN
    IF to_regclass('schema_migrations') IS NOT NULL THEN
        GRANT SELECT ON schema_migrations TO refundd_service, refundd_operator;
    END IF;
END $$;
