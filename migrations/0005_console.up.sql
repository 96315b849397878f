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
