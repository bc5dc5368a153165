/** What a database role is for. */
export type OutboxRole = 'emitter' | 'relay' | 'reader' | 'consumer';

export type Privilege = 'select' | 'insert' | 'update' | 'delete';

/** What a role may do with one table or view. */
export interface TableRight {
  table: string;
  privileges: readonly Privilege[];
  /** Only these columns. Default: the whole table. */
  columns?: readonly string[];
}

export interface RoleRights {
  /** A short description, shown in the grants. */
  purpose: string;
  tables: readonly TableRight[];
  /** Functions and procedures, as GRANT names them: with the types of their arguments where a name is not unique. */
  routines: readonly string[];
}

const work: readonly Privilege[] = ['select', 'insert', 'update', 'delete'];

const emitRoutines = [
  'emit(jsonb, boolean, text)',
  'emit(text, text, text, jsonb, jsonb, uuid, integer, text, timestamptz, text, integer)',
  'emit_one',
  'emit_one_if_open',
  'emit_once(jsonb, boolean)',
  'emit_once(uuid, text, text, text, jsonb, jsonb, integer, text, timestamptz, text, integer)',
  'lock_new_ids',
  'lock_keys',
  'close_gates',
  'key_hash',
  'check_event',
];

/**
 * The least that each role needs. `postcommit grants` and the doctor both use this list, and a test runs the product as
 * each role.
 */
export const roleRights: Readonly<Record<OutboxRole, RoleRights>> = {
  emitter: {
    purpose: 'inserts events, and can neither read, change nor delete anything',
    tables: [
      {
        table: 'outbox_events',
        privileges: ['insert'],
        // Without seq: OVERRIDING SYSTEM VALUE would let the role choose a place in the order, or use up the next seq.
        columns: [
          'id',
          'aggregate_type',
          'aggregate_id',
          'event_type',
          'schema_version',
          'ordering_key',
          'payload',
          'headers',
          'available_at',
          'created_at',
          'attempts_max',
          'queue',
        ],
      },
    ],
    routines: emitRoutines,
  },
  relay: {
    purpose:
      'delivers, and is what operators use: dead letters, replay, pause; cannot forge, change or delete an event of the log',
    tables: [
      { table: 'outbox_events', privileges: ['select'] },
      { table: 'outbox_queue', privileges: work },
      { table: 'outbox_queue_states', privileges: ['select', 'insert', 'update'] },
      { table: 'outbox_shelf', privileges: work },
      { table: 'outbox_deliveries', privileges: ['select', 'insert'] },
      { table: 'outbox_failures', privileges: ['select', 'insert'] },
      { table: 'outbox_dead_letters', privileges: work },
      // Both are records of what this role does: it writes them only with functions that run with their owner's rights.
      { table: 'outbox_edits', privileges: ['select'] },
      { table: 'outbox_audit', privileges: ['select'] },
      { table: 'outbox_requeues', privileges: ['select'] },
      { table: 'outbox_relays', privileges: work },
      { table: 'outbox_progress', privileges: work },
      { table: 'outbox_cancellations', privileges: work },
      { table: 'outbox_leadership', privileges: work },
      { table: 'outbox_destinations', privileges: work },
      { table: 'outbox_maintenance', privileges: ['select', 'insert', 'update'] },
      { table: 'outbox_schedules', privileges: work },
      { table: 'outbox_partitions', privileges: ['select'] },
      { table: 'outbox_settings', privileges: ['select'] },
      { table: 'processed_events', privileges: ['select', 'delete'] },
      { table: 'outbox_status', privileges: ['select'] },
      { table: 'migrations', privileges: ['select'] },
      { table: 'outbox_routines', privileges: ['select'] },
    ],
    // What changes the log itself runs with its owner's rights and checks what it does: prune, rotate, drop. So does what
    // records operations: start_operation, finish_operation, prune_audit, edit_dead_letter. emit_tick does not: the role of a relay with schedules needs an emitter's rights as well, and no other relay can emit.
    routines: [
      'key_hash',
      'queue_lock',
      'queue_names',
      'oldest_ready',
      'count_queue',
      'pause_queue',
      'claim_one',
      'claim_next',
      'claim_many',
      'plain_payload',
      'settle',
      'settle_in_transaction',
      'fail',
      'fail_and_settle',
      'begin_trial',
      'hold_relay_lock',
      'probe_relays',
      'defer',
      'defer_keys',
      'undefer_keys',
      'unpark',
      'unshelve',
      'requeue',
      'discard',
      'edit_dead_letter',
      'sample_queue',
      'server_stamp',
      'server_run',
      'usable_low_water',
      'sequence_state',
      'note_requeues',
      'require_read_committed',
      'forget_target',
      'cancel_events',
      'end_cancelled',
      'make_due',
      'bound_deferred',
      'undefer',
      'replay',
      'find_seq_range',
      'find_unqueued',
      'requeue_unqueued',
      'start_operation',
      'finish_operation',
      'prune_events',
      'prune_audit',
      'rotate_partitions',
      'drop_partition',
      'sweep_partition',
      'declare_schedules',
      'emit_tick',
    ],
  },
  reader: {
    purpose: 'reads everything: dashboards, BI tools, `postcommit status` and `events`',
    tables: [
      'outbox_status',
      'outbox_events',
      'outbox_queue',
      'outbox_queue_states',
      'outbox_shelf',
      'outbox_deliveries',
      'outbox_failures',
      'outbox_dead_letters',
      'outbox_edits',
      'outbox_audit',
      'outbox_requeues',
      'outbox_relays',
      'outbox_progress',
      'outbox_cancellations',
      'outbox_leadership',
      'outbox_destinations',
      'outbox_maintenance',
      'outbox_schedules',
      'outbox_partitions',
      'outbox_settings',
      'processed_events',
      'migrations',
      'outbox_routines',
    ].map((table) => ({ table, privileges: ['select'] })),
    routines: [
      'key_hash',
      'queue_names',
      'oldest_ready',
      'count_queue',
      'find_unqueued',
      'sequence_state',
      'find_seq_range',
    ],
  },
  consumer: {
    purpose: 'records in the inbox which events it has processed',
    tables: [{ table: 'processed_events', privileges: ['select', 'insert'] }],
    routines: ['record_processed'],
  },
};
