DROP FUNCTION IF EXISTS claim_refund, claim_refunds, verdict_on_refund, expect_rows, on_refunds_claimed;
