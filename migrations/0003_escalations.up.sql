-- What agents ask to be refunded, how the policy decided, and the queue of cases in front of people.

-- One row per decided request. A case asks for a refund of an order once, for ever.
CREATE TABLE refund_requests (
    tenant_id      text COLLATE "C" NOT NULL REFERENCES tenants,
    case_id        text COLLATE "C" NOT NULL,
    order_id       text COLLATE "C" NOT NULL,
    amount_cents   bigint      NOT NULL,
    currency       text        NOT NULL,
    reason_code    text        NOT NULL,
    facts          jsonb       NOT NULL,
    decision       text        NOT NULL,
    rule           text,
    trigger        text,
    queue          text,
    policy_version text        NOT NULL,
    operation_id   text COLLATE "C",
    escalation_id  uuid,
    requested_by   text        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT refund_requests_pkey PRIMARY KEY (tenant_id, case_id, order_id),
    CONSTRAINT refund_requests_order_fkey FOREIGN KEY (tenant_id, order_id) REFERENCES orders,
    CONSTRAINT refund_requests_amount_check CHECK (amount_cents BETWEEN 1 AND 9007199254740991),
    CONSTRAINT refund_requests_decision_check CHECK (
        CASE decision WHEN 'approved' THEN operation_id IS NOT NULL AND escalation_id IS NULL AND trigger IS NULL
                      WHEN 'escalated' THEN operation_id IS NULL AND escalation_id IS NOT NULL AND trigger IS NOT NULL
                      ELSE false END)
);

CREATE TABLE escalations (
    tenant_id      text COLLATE "C" NOT NULL REFERENCES tenants,
    escalation_id  uuid        NOT NULL,
    subject        text        NOT NULL,
    trigger        text        NOT NULL,
    queue          text        NOT NULL,
    state          text        NOT NULL DEFAULT 'open',
    case_id        text COLLATE "C",
    order_id       text COLLATE "C",
    amount_cents   bigint,
    currency       text,
    reason_code    text,
    operation_id   text COLLATE "C", -- the operation it is about, or the one that its approval minted
    rule           text,
    policy_version text        NOT NULL,
    summary        text,
    evidence       jsonb       NOT NULL DEFAULT '{}',
    opened_by      text        NOT NULL, -- the API key, or the part of the service
    owner          text,
    due_at         timestamptz NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at      timestamptz,
    closed_by      text, -- the API key that decided, or the part of the service
    decided_by     text, -- the name that the key gave
    decision_note  text,
    CONSTRAINT escalations_pkey PRIMARY KEY (tenant_id, escalation_id),
    CONSTRAINT escalations_subject_check CHECK (
        CASE subject WHEN 'request' THEN case_id IS NOT NULL AND order_id IS NOT NULL AND amount_cents > 0
                          AND currency IS NOT NULL AND ((operation_id IS NOT NULL) = (state = 'approved'))
                     WHEN 'operation' THEN operation_id IS NOT NULL AND state IN ('open', 'closed')
                     WHEN 'handoff' THEN case_id IS NOT NULL AND state IN ('open', 'declined')
                     ELSE false END),
    CONSTRAINT escalations_state_check CHECK (state IN ('open', 'approved', 'declined', 'closed')),
    CONSTRAINT escalations_closed_check CHECK ((state = 'open') = (closed_at IS NULL) AND (state = 'open') = (closed_by IS NULL))
);
-- The same wish again is the same escalation, open or not; so is an operation that still waits, and a case handed over
-- for the same trigger.
CREATE UNIQUE INDEX escalations_request_key ON escalations (tenant_id, case_id, order_id, amount_cents) WHERE subject = 'request';
CREATE UNIQUE INDEX escalations_operation_key ON escalations (tenant_id, operation_id) WHERE subject = 'operation' AND state = 'open';
CREATE UNIQUE INDEX escalations_handoff_key ON escalations (tenant_id, case_id, trigger) WHERE subject = 'handoff' AND state = 'open';
-- GET /v1/escalations by queue, by state and as they are due (the primary key lists them all), and the metrics.
CREATE INDEX escalations_queue_idx ON escalations (tenant_id, queue, escalation_id);
CREATE INDEX escalations_state_idx ON escalations (tenant_id, state, escalation_id);
CREATE INDEX escalations_due_idx ON escalations (tenant_id, due_at, escalation_id) WHERE state = 'open';
CREATE INDEX escalations_open_idx ON escalations (queue, due_at) WHERE state = 'open';
-- What a case was approved for before, and an order.
CREATE INDEX refund_authorizations_order_idx ON refund_authorizations (tenant_id, order_id) WHERE amount_cents > 0;

GRANT SELECT, INSERT ON refund_requests, escalations TO refundd_service;
GRANT UPDATE (state, operation_id, owner, closed_at, closed_by, decided_by, decision_note) ON escalations TO refundd_service;
