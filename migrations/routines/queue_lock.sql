-- The advisory lock of a named queue: claims share it, pause_queue() takes it alone. See claim_many.
create or replace function :"schema".queue_lock(queue text) returns bigint
language sql immutable parallel safe
return hashtextextended('postcommit.queue.' || queue, hashtextextended(:'schema', 0));
