-- Destinations: events that wait for one that is away, and what all relays know of it.

-- The shelf: one row per event and destination it still waits for. An outage is not poison (G6): an event that has
-- reached all of its other targets leaves the queue, so that its aggregate goes on to those, and comes back when its
-- destination does. Kept out of the queue so that millions of waiting events never slow a claim.
create table :"schema".outbox_shelf (
  destination text not null,
  seq         bigint not null,
  key         bigint,
  attempts    integer not null,
  rescues     integer not null,
  done        text[],
  shelved_at  timestamptz not null default now(),
  primary key (destination, seq)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);
-- A claim asks, for each event, whether an earlier one of its key waits for a destination.
create index outbox_shelf_key_idx on :"schema".outbox_shelf (key, destination, seq) where key is not null;
create index outbox_shelf_seq_idx on :"schema".outbox_shelf (seq);

-- The circuit breaker, shared by all relays.
alter table :"schema".outbox_controls
  add column state text not null default 'closed' check (state in ('closed', 'open')),
  add column opened_at timestamptz,
  add column error text,
  -- Probes that failed, or were followed by another outage, since the last event that got through.
  add column probes integer not null default 0,
  add column probe_at timestamptz,
  -- When events were last taken from the shelf: what bounds the rate of a drain, whatever the number of relays.
  add column unshelved_at timestamptz;
comment on column :"schema".outbox_controls.reason is 'Why an operator paused it.';
comment on column :"schema".outbox_controls.error is 'Why the circuit is open: the broker''s own words.';

create or replace view :"schema".outbox_status as
select e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.schema_version, e.payload, e.headers,
       case
         when d.seq is not null then 'FAILED'
         when q.seq is not null and r.token is not null then 'PROCESSING'
         when q.seq is not null or h.attempts is not null then 'PENDING'
         when s.delivered_at is not null then 'SENT'
         else 'PENDING'
       end as status,
       coalesce(q.attempts, h.attempts, d.attempts, s.attempts - 1, 0) as retry_count,
       case when q.available_at < 'infinity' then q.available_at end as next_retry_at,
       e.created_at,
       s.delivered_at as published_at,
       f.error as last_error
  from :"schema".outbox_events e
  left join :"schema".outbox_queue q on q.seq = e.seq
  left join :"schema".outbox_relays r on r.token = q.lease and r.ended_at is null
  left join :"schema".outbox_dead_letters d on d.seq = e.seq
  left join lateral (select x.attempts from :"schema".outbox_shelf x where x.seq = e.seq limit 1) h on true
  left join lateral (
    select x.delivered_at, x.attempts from :"schema".outbox_deliveries x
     where x.seqs @> e.seq order by x.delivered_at desc limit 1
  ) s on true
  left join lateral (
    -- By time first: a dead letter that is retried starts again at attempt 1.
    select x.error from :"schema".outbox_failures x
     where x.seq = e.seq order by x.failed_at desc, x.attempt desc limit 1
  ) f on true;
