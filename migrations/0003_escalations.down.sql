DROP INDEX refund_authorizations_order_idx;
DROP TABLE escalations;
DROP TABLE refund_requests;
