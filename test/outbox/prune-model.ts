import { discard } from '../../src/outbox/operating/discard.ts';
import { replay } from '../../src/outbox/operating/replay.ts';
import { requeue } from '../../src/outbox/operating/requeue.ts';
import type { TestDatabase } from '../support/database.ts';
import type { SeededRandom } from '../support/random.ts';

/** Where an event is, besides in the log. `replayed`: delivered once, and to be delivered again. */
export const places = ['delivered', 'queued', 'held', 'shelved', 'dead', 'discarded', 'replayed'] as const;
export type Place = (typeof places)[number];

export interface ModelEvent {
  seq: string;
  place: Place;
  age: 'old' | 'young' | 'future';
}

/** An outbox whose every event is in a place that the test has chosen, and the test's own idea of it. */
export class PruneModel {
  readonly db: TestDatabase;
  readonly random: SeededRandom;
  readonly events = new Map<string, ModelEvent>();

  constructor(db: TestDatabase, random: SeededRandom) {
    this.db = db;
    this.random = random;
  }

  /** Emits events and puts each of them somewhere, with failures and delivery records as a relay would have left them. */
  async fill(count: number): Promise<void> {
    const { db, random } = this;
    const ages = {
      old: `now() - interval '2 days'`,
      young: `now() - interval '1 hour'`,
      future: `now() + interval '1 year'`,
    };
    // Mostly in order of time, as the log is, with some that are out of step.
    const frontier = random.integer(0, count);
    for (let n = 0; n < count; n++) {
      const stray = random.chance(0.1);
      const age = stray ? random.pick(['old', 'young', 'future'] as const) : n < frontier ? 'old' : 'young';
      const [{ seq }] = await db.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
         values ('thing', $1, 'x', '1', ${ages[age]}) returning seq`,
        [String(random.integer(1, 20))],
      );
      this.events.set(seq, { seq, age, place: 'queued' });
    }
    const delivered: string[] = [];
    for (const event of this.events.values()) {
      event.place = random.pick(places);
      if (random.chance(0.3)) await this.#fail(event.seq);
      if (event.place === 'delivered' || event.place === 'replayed') delivered.push(event.seq);
      await this.#put(event);
    }
    for (let rest = random.chance(0.5) ? random.shuffle(delivered) : delivered; rest.length > 0; ) {
      const size = random.integer(1, 12);
      await this.#record(rest.slice(0, size));
      rest = rest.slice(size);
    }
  }

  /** One of the changes that relays and operators make, to an event chosen at random. */
  async change(): Promise<void> {
    const event = this.random.pick([...this.events.values()]);
    const { seq } = event;
    const chunk = { after: '0', limit: 10 };
    if (!(await this.exists(seq))) return;
    switch (event.place) {
      case 'queued':
      case 'replayed':
        await this.db.query('delete from postcommit.outbox_queue where seq = $1', [seq]);
        await this.#record([seq]);
        event.place = 'delivered';
        break;
      case 'shelved': // What unshelve does.
        await this.db.query(
          `with gone as (delete from postcommit.outbox_shelf where seq = $1 returning seq, key)
           insert into postcommit.outbox_queue (seq, key) select distinct seq, key from gone`,
          [seq],
        );
        event.place = 'queued';
        break;
      case 'delivered': {
        const { count } = await replay(this.db.pool, 'postcommit', { seqs: [seq] }, chunk);
        if (count === 1) event.place = 'replayed';
        break;
      }
      case 'discarded':
        await requeue(this.db.pool, 'postcommit', { seqs: [seq] }, chunk);
        event.place = 'queued';
        break;
      default:
        await discard(this.db.pool, 'postcommit', { seqs: [seq] }, chunk);
        event.place = 'discarded';
    }
  }

  mayGo({ place, age }: ModelEvent): boolean {
    return age === 'old' && (place === 'delivered' || place === 'discarded');
  }

  async exists(seq: string): Promise<boolean> {
    return (await this.db.query('select from postcommit.outbox_events where seq = $1', [seq])).length === 1;
  }

  async #fail(seq: string): Promise<void> {
    await this.db.query(`insert into postcommit.outbox_failures (seq, attempt, relay, error) values ($1, 1, 1, 'no')`, [
      seq,
    ]);
  }

  async #record(seqs: readonly string[]): Promise<void> {
    await this.db.query(
      `insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs)
       select 1, 1, '{t}', range_agg(int8range(seq, seq, '[]')) from unnest($1::bigint[]) seq`,
      [seqs],
    );
  }

  async #put({ seq, place }: ModelEvent): Promise<void> {
    const { db, random } = this;
    if (place === 'queued' || place === 'replayed') {
      const set = random.pick([
        'claimed_by = null',
        'claimed_by = 1',
        `available_at = now() + interval '1 hour', attempts = 1`,
      ]);
      await db.query(`update postcommit.outbox_queue set ${set} where seq = $1`, [seq]);
      return;
    }
    if (place === 'held') {
      await db.query(`update postcommit.outbox_queue set blocking = true, available_at = 'infinity' where seq = $1`, [
        seq,
      ]);
    } else {
      await db.query('delete from postcommit.outbox_queue where seq = $1', [seq]);
    }
    if (place === 'shelved') {
      await db.query(
        `insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers)
         select d, $1, 1, 0, 0 from unnest($2::text[]) d`,
        [seq, random.pick([['a'], ['b'], ['a', 'b']])],
      );
    }
    if (place === 'held' || place === 'dead' || place === 'discarded') {
      await db.query(
        `insert into postcommit.outbox_dead_letters (seq, reason, attempts, blocking, error, discarded_at)
         values ($1, 'rejected', 1, $2, 'no', case when $3 then now() end)`,
        [seq, place === 'held', place === 'discarded'],
      );
    }
  }
}
