DROP FUNCTION IF EXISTS claim_refunds, expect_rows;
