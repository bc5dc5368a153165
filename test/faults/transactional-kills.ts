import { expect } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { endChild, startChild } from '../support/child.ts';
import { createTestDatabase } from '../support/database.ts';
import { until } from '../support/wait.ts';

const keys = 10;

/** Kills relays between the effect of a transactional handler and its COMMIT, then checks the effects. */
export async function killRelays(kills: number): Promise<void> {
  const database = await createTestDatabase();
  try {
    await database.query('create table effects (n serial, event_id uuid, key text, seq bigint)');
    const outbox = createOutbox({ db: fromPg(database.pool) });
    const emit = (count: number) =>
      outbox.transaction((_tx, emit) =>
        emit(
          Array.from({ length: count }, (_, n) => ({ type: 't', aggregate: ['k', n % keys] as const, payload: null })),
        ),
      );
    let emitted = 0;
    const script = 'test/faults/transactional-relay.child.ts';
    const lives = 3;
    // Two at a time, on the same backlog.
    for (let killed = 0; killed < kills; killed += 2) {
      emitted += (await emit(4 * keys)).length;
      const pair = [killed, killed + 1].map((n) => startChild(script, [database.url, String(lives), String(n)]));
      const ends = await Promise.all(pair.map(({ exited }) => exited));
      expect(ends.map(({ signal }) => signal)).toEqual(['SIGKILL', 'SIGKILL']);
    }
    const last = startChild(script, [database.url]);
    await until(async () => (await database.query('select from postcommit.outbox_queue')).length === 0, {
      what: 'the rest is delivered',
      timeoutMs: 60_000,
    });
    await endChild(last);
    const [found] = await database.query(
      `select count(*)::integer as effects, count(distinct event_id)::integer as events,
              (select count(*) from (select seq < lag(seq) over (partition by key order by n) as wrong from effects) o
                where wrong)::integer as disordered from effects`,
    );
    expect(found).toEqual({ effects: emitted, events: emitted, disordered: 0 });
  } finally {
    await database.close();
  }
}
