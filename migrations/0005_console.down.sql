DROP TRIGGER refund_operations_loaded ON refund_operations;
DROP TRIGGER refund_operations_moved ON refund_operations;
DROP FUNCTION unsum_refund_hours, sum_refund_hours;
DROP TABLE refund_hours, refund_hours_summed;
DROP TABLE audits;
DROP INDEX operation_events_ref_idx;
