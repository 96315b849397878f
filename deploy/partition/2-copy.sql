-- Copies, while the service works. Each statement is a transaction for every so many rows: run it outside of one.
CALL partitioned.copy('refund_authorizations', 20000);
CALL partitioned.copy('refund_operations', 20000);
CALL partitioned.copy('ledger_transfers', 20000);
CALL partitioned.copy('operation_events', 20000);
ANALYZE partitioned.refund_authorizations, partitioned.refund_operations, partitioned.ledger_transfers,
    partitioned.operation_events;
