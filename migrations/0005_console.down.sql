DROP TABLE audits;
DROP INDEX operation_events_ref_idx;
