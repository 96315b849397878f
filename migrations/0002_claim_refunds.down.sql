DROP FUNCTION IF EXISTS claim_refunds, expect_rows, on_refunds_claimed;
