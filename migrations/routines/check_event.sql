-- Checks the limits of an event, for the CHECK constraint of the log. Returns true, or raises 23514 with the name of the limit.
--
-- A claim reads these columns of a thousand events at once, so no single row may make it fail or exceed the relay's memory.
-- Payloads have no limit here: a claim leaves large ones out.
--
-- A function, because PostgreSQL reads the expression of a CHECK from the catalogue again for every INSERT, and keeps the plan of
-- a function: as eight expressions the limits took 46 of the 132 us of emit_one(), this way they take 10, and 5 for an event that passes
-- the short condition below.
create or replace function :"schema".check_event(
  aggregate_type text, aggregate_id text, event_type text, schema_version integer, ordering_key text, headers jsonb,
  available_at timestamptz, created_at timestamptz, attempts_max smallint, queue text
) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  delay_is_valid boolean;
  queue_is_valid boolean;
  limit_name text;
  rule text;
begin
  -- The short path for most events: each node of an expression costs every transaction that emits. If the four texts have at
  -- most 1,000 bytes together, none of them exceeds its limit.
  if available_at is null and queue is null and attempts_max is null and headers = '{}' and schema_version > 0
     and octet_length(concat(aggregate_type, aggregate_id, event_type, ordering_key)) <= 1000
     and created_at >= '0001-01-01 00:00:00+00' and created_at < '10000-01-01 00:00:00+00' then
    return true;
  end if;
  -- Every later event of the aggregate waits for a delayed one, so a delay is at most 366 days, as in emit(): see delayMsMax in
  -- src/emit/event.ts. A row that satisfies this still does later, so dumps can be restored. Uses clock_timestamp(), because
  -- emit() adds delay_ms to that and a transaction may have begun long before. In hours: the length of a day in an interval
  -- depends on the time zone. The check also excludes infinity, which marks events parked behind a blocking dead letter.
  delay_is_valid := available_at is null
    or (available_at >= '0001-01-01 00:00:00+00' and available_at <= clock_timestamp() + interval '8784 hours');
  -- The rule for names of queues is also in outbox_queue_states, and in src/queue-name.ts.
  queue_is_valid := queue is null or (octet_length(queue) <= 100 and queue ~ '^[A-Za-z0-9._-]+$');
  if delay_is_valid and queue_is_valid
     and octet_length(aggregate_type) <= 1000 and octet_length(aggregate_id) <= 1000 and octet_length(event_type) <= 1000
     and (ordering_key is null or octet_length(ordering_key) <= 1000)
     and created_at >= '0001-01-01 00:00:00+00' and created_at < '10000-01-01 00:00:00+00'
     and schema_version > 0 and (attempts_max is null or attempts_max between 1 and 1000)
     and (headers = '{}' or (jsonb_typeof(headers) = 'object' and octet_length(headers::text) <= 65536
          -- A name takes about ten times its length in the relay: 3,000 events of 900 short names exceeded a heap of 256 MB.
          and jsonb_array_length(jsonb_path_query_array(headers, '$.*')) <= 128)) then
    return true;
  end if;
  if not delay_is_valid then
    limit_name := 'available_at';
    rule := 'at most 366 days ahead';
  elsif not queue_is_valid then
    limit_name := 'queue';
    rule := '1 to 100 letters, digits, dots, hyphens and underscores';
  elsif not (created_at >= '0001-01-01 00:00:00+00' and created_at < '10000-01-01 00:00:00+00') then
    limit_name := 'created_at';
    rule := 'from the year 1 to the year 9999';
  elsif schema_version <= 0 then
    limit_name := 'schema_version';
    rule := 'greater than 0';
  elsif attempts_max not between 1 and 1000 then
    limit_name := 'attempts_max';
    rule := '1 to 1000';
  elsif jsonb_typeof(headers) <> 'object' then
    limit_name := 'headers';
    rule := 'a JSON object';
  elsif octet_length(headers::text) > 65536 or jsonb_array_length(jsonb_path_query_array(headers, '$.*')) > 128 then
    limit_name := 'headers_size';
    rule := 'headers of at most 128 names and 65536 bytes';
  else
    limit_name := 'size';
    rule := 'aggregate_type, aggregate_id, event_type and ordering_key of at most 1000 bytes each';
  end if;
  raise exception 'an event violates outbox_events_%_check: %', limit_name, rule using errcode = 'check_violation',
    schema = :'schema', table = 'outbox_events', constraint = format('outbox_events_%s_check', limit_name);
end
$postcommit$;
