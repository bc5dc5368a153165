import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.close());

describe('the tables refuse', () => {
  test.each([
    ['outbox_queue', '(seq, attempts) values (1, -1)'],
    ['outbox_queue', '(seq, takeovers) values (1, -1)'],
    ['outbox_deliveries', `(relay, attempts, targets, seqs) values (1, 0, '{}', '{[1,2)}')`],
    ['outbox_deliveries', `(relay, attempts, targets, seqs) values (1, 1, '{}', '{}')`],
    ['outbox_failures', `(seq, attempt, relay, error) values (1, -1, 1, 'e')`],
    ['outbox_dead_letters', `(seq, reason, attempts, error) values (1, 'rejected', -1, 'e')`],
    ['outbox_dead_letters', `(seq, reason, attempts, error) values (1, 'unknown', 1, 'e')`],
    ['outbox_shelf', `(destination, seq, attempts, takeovers) values ('d', 1, -1, 0)`],
    ['outbox_shelf', `(destination, seq, attempts, takeovers) values ('d', 1, 0, -1)`],
    ['outbox_destinations', `(destination, probes) values ('d', -1)`],
    ['outbox_destinations', `(destination, state) values ('d', 'ajar')`],
    ['outbox_leadership', `(name, epoch, owner, lease_until) values ('n', 0, 1, now())`],
    ['outbox_maintenance', `(task, epoch, duration_ms, changed) values ('t', 0, 1, 1)`],
    ['outbox_maintenance', `(task, epoch, duration_ms, changed) values ('t', 1, -1, 1)`],
    ['outbox_maintenance', `(task, epoch, duration_ms, changed) values ('t', 1, 1, -1)`],
    ['outbox_maintenance', `(task, epoch, duration_ms, changed, failures) values ('t', 1, 1, 1, -1)`],
    ['outbox_maintenance', `(task, epoch, duration_ms, changed, cursor_seq) values ('t', 1, 1, 1, -1)`],
    ['outbox_schedules', `(name, cron, time_zone, declared_by, failures) values ('s', 'c', 'UTC', 'r', -1)`],
    ['outbox_schedules', `(name, cron, time_zone, declared_by, triggers_emitted) values ('s', 'c', 'UTC', 'r', 1)`],
    ['outbox_settings', `(name, value) values ('partitions', 'week')`],
    ['outbox_partitions', '(number) values (-1)'],
  ])('%s %s', async (table, row) => {
    await expect(database.query(`insert into postcommit.${table} ${row}`)).rejects.toMatchObject({ code: '23514' });
  });
});
