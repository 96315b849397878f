-- The roles refundd_service and refundd_operator stay: they belong to the cluster, and other databases may grant to them.
DROP TABLE restores;
DROP TABLE reconciliation_runs;
DROP TABLE operation_events;
ALTER TABLE ledger_transfers DROP CONSTRAINT ledger_transfers_legal;
DROP FUNCTION ledger_transfer_is_legal;
DROP TABLE ledger_transfers;
ALTER TABLE refund_operations DROP CONSTRAINT refund_operations_legal;
DROP FUNCTION refund_operation_is_legal;
DROP TABLE refund_operations;
DROP TABLE refund_authorizations;
DROP TABLE orders;
DROP TABLE api_keys;
DROP TABLE tenants;
DROP FUNCTION refuse_rewrite();
DROP FUNCTION cover_excess();
DROP FUNCTION fold_case(text);
DROP DOMAIN operation_id, order_id, fingerprint, currency, minor_units, capture_minor_units, provider_name, metadata, moment, moment_or_infinity;
