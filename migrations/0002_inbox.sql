-- The inbox: which events the consumers of this database have processed. It needs nothing of the outbox, so that a consumer can have
-- it alone (`migrate --inbox-only`).
create table :"schema".processed_events (
  consumer_name text not null,
  event_id      uuid not null,
  processed_at  timestamptz not null default now(),
  primary key (consumer_name, event_id)
);
-- Not BRIN: when new rows fill pages that pruning freed, a block range keeps its oldest time, and every run would read it
-- again.
create index processed_events_processed_at_idx on :"schema".processed_events (processed_at);
