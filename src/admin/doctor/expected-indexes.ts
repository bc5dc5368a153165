import type { Severity } from './finding.ts';

/** An index that the migrations create. A test compares the list with a new database. */
export interface ExpectedIndex {
  table: string;
  /** As `examineIndexes` returns it. */
  definition: string;
  /** Severity if the index is missing. */
  missing: Exclude<Severity, 'ok'>;
  consequence: string;
}

const wholeQueue = 'Every claim or settlement reads the whole table, so delivery slows down as the backlog grows.';
const unfenced = 'Nothing prevents duplicate rows.';
const slowStory = 'Looking up an event reads the whole table.';

export const expectedIndexes: readonly ExpectedIndex[] = [
  { table: 'outbox_queue_states', definition: 'unique btree (queue)', missing: 'critical', consequence: unfenced },
  { table: 'outbox_events', definition: 'unique btree (seq)', missing: 'critical', consequence: wholeQueue },
  { table: 'outbox_events', definition: 'unique btree (id)', missing: 'critical', consequence: unfenced },
  {
    table: 'outbox_events',
    definition: 'btree (aggregate_type, aggregate_id, seq)',
    missing: 'note',
    consequence: '`postcommit events --aggregate` reads the whole log.',
  },
  {
    table: 'outbox_events',
    definition: 'btree (event_type, seq)',
    missing: 'note',
    consequence: '`postcommit events --type` and replays by type read the whole log.',
  },
  {
    table: 'outbox_events',
    definition: "brin (created_at, seq) WITH (pages_per_range='32')",
    missing: 'note',
    consequence: 'Queries by time read the whole log.',
  },
  { table: 'outbox_queue', definition: 'unique btree (seq)', missing: 'critical', consequence: wholeQueue },
  {
    table: 'outbox_queue',
    definition:
      'btree (queue, seq, ((COALESCE(key, hashint8extended(seq, (0)::bigint)) & (1023)::bigint))) WHERE (available_at IS NULL)',
    missing: 'critical',
    consequence: wholeQueue,
  },
  {
    table: 'outbox_queue',
    definition: 'btree (queue, available_at, seq) WHERE (available_at IS NOT NULL)',
    missing: 'critical',
    consequence: wholeQueue,
  },
  {
    table: 'outbox_queue',
    definition: 'btree (key, seq) WHERE (key IS NOT NULL)',
    missing: 'critical',
    consequence: wholeQueue,
  },
  {
    table: 'outbox_queue',
    definition: 'btree (queue, takeovers, seq) WHERE (takeovers > 1)',
    missing: 'critical',
    consequence: wholeQueue,
  },
  {
    table: 'outbox_queue',
    definition:
      "btree (key, blocking, seq) WHERE (COALESCE(available_at, '-infinity'::timestamp with time zone) = 'infinity'::timestamp with time zone)",
    missing: 'warning',
    consequence:
      'Every relay looks for parked events once a minute, and reads all events that wait behind a dead letter.',
  },
  {
    table: 'outbox_queue',
    definition: 'btree (seq) WHERE (owed IS NOT NULL)',
    missing: 'note',
    consequence: '`postcommit status`, `doctor` and `forget` read the whole queue.',
  },
  { table: 'outbox_deliveries', definition: 'gist (seqs)', missing: 'warning', consequence: slowStory },
  { table: 'outbox_deliveries', definition: 'brin (delivered_at)', missing: 'note', consequence: slowStory },
  { table: 'outbox_failures', definition: 'btree (seq, attempt)', missing: 'warning', consequence: slowStory },
  { table: 'outbox_dead_letters', definition: 'unique btree (seq)', missing: 'critical', consequence: unfenced },
  {
    table: 'outbox_dead_letters',
    definition: 'btree (dead_at, seq)',
    missing: 'warning',
    consequence: 'Listing and retrying dead letters reads all of them.',
  },
  {
    table: 'outbox_dead_letters',
    definition: 'btree (seq) WHERE blocking',
    missing: 'note',
    consequence: 'The dashboard reads all dead letters to find those that block their aggregate.',
  },
  { table: 'outbox_edits', definition: 'unique btree (seq, number)', missing: 'warning', consequence: slowStory },
  { table: 'outbox_audit', definition: 'unique btree (id)', missing: 'warning', consequence: unfenced },
  { table: 'outbox_relays', definition: 'unique btree (token)', missing: 'critical', consequence: unfenced },
  {
    table: 'outbox_relays',
    definition: 'btree (token) WHERE (ended_at IS NULL)',
    missing: 'warning',
    consequence: 'Every claim reads the rows of all ended relays to find those that are alive.',
  },
  {
    table: 'processed_events',
    definition: 'btree (processed_at)',
    missing: 'warning',
    consequence: 'Retention reads the whole inbox to find old rows.',
  },
  {
    table: 'processed_events',
    definition: 'unique btree (consumer_name, event_id)',
    missing: 'critical',
    consequence: 'Nothing prevents consumers from processing an event twice.',
  },
  { table: 'outbox_leadership', definition: 'unique btree (name)', missing: 'critical', consequence: unfenced },
  {
    table: 'outbox_destinations',
    definition: 'unique btree (destination)',
    missing: 'critical',
    consequence: unfenced,
  },
  {
    table: 'outbox_shelf',
    definition: 'unique btree (destination, seq)',
    missing: 'critical',
    consequence: wholeQueue,
  },
  {
    table: 'outbox_shelf',
    definition: 'btree (key, destination, seq) WHERE (key IS NOT NULL)',
    missing: 'critical',
    consequence: wholeQueue,
  },
  { table: 'outbox_shelf', definition: 'btree (seq)', missing: 'critical', consequence: wholeQueue },
  { table: 'outbox_progress', definition: 'unique btree (seq, handler)', missing: 'critical', consequence: unfenced },
  { table: 'outbox_cancellations', definition: 'unique btree (seq)', missing: 'critical', consequence: unfenced },
  { table: 'outbox_maintenance', definition: 'unique btree (task)', missing: 'critical', consequence: unfenced },
  { table: 'outbox_schedules', definition: 'unique btree (name)', missing: 'critical', consequence: unfenced },
  { table: 'outbox_partitions', definition: 'unique btree (number)', missing: 'critical', consequence: unfenced },
  { table: 'outbox_settings', definition: 'unique btree (name)', missing: 'critical', consequence: unfenced },
  { table: 'migrations', definition: 'unique btree (version)', missing: 'warning', consequence: unfenced },
  { table: 'outbox_routines', definition: 'unique btree (name)', missing: 'warning', consequence: unfenced },
];
