-- Drops the old tables, once nobody wants them any more. There is no way back from here.
DROP SCHEMA before CASCADE;
