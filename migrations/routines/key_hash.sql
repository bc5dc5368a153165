-- Returns the hash of an ordering key, or NULL for no order.
create or replace function :"schema".key_hash(aggregate_type text, aggregate_id text, ordering_key text) returns bigint
language sql immutable parallel safe
return case
  when ordering_key is null then hashtextextended(aggregate_id, hashtextextended(aggregate_type, 0))
  when ordering_key = '' then null
  else hashtextextended(ordering_key, 1)
end;
