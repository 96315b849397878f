CREATE OR REPLACE FUNCTION on_refunds_claimed(tenants text[], operations text[], at timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
END $$;
DROP FUNCTION number_webhook_events;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_endpoints;
DROP TABLE webhook_events;
DROP TABLE webhook_streams;
