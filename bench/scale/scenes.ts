import type pg from 'pg';
import { insertDeadLetters, insertDelivered, insertDeliveredInPartitions, insertInBackoff } from './history.ts';

/** `--set scale.delivered=100000` and so on make it smaller. */
export const defaults = {
  delivered: 10_000_000,
  deliveredBaseline: 10_000,
  inBackoff: 1_000_000,
  deadLetters: 100_000,
  dayPartitions: 30,
  deliveredPerDay: 10_000,
  snapshotEvents: 200_000,
  memoryEvents: 1_000_000,
};
export type Sizes = typeof defaults;

export const counted = (count: number, what: string): string => `${count.toLocaleString('en')} ${what}`;

/** What lies beside the backlog of an outbox. */
export interface Scene {
  name: string;
  partitions?: 'day';
  prepare(db: pg.Client): Promise<void>;
}

/** The first one is what the others are compared with. */
export const scenesOf = (sizes: Sizes): [Scene, ...Scene[]] => [
  {
    name: counted(sizes.deliveredBaseline, 'delivered events'),
    prepare: (db) => insertDelivered(db, sizes.deliveredBaseline),
  },
  { name: counted(sizes.delivered, 'delivered events'), prepare: (db) => insertDelivered(db, sizes.delivered) },
  {
    name: counted(sizes.inBackoff, 'events in backoff'),
    async prepare(db) {
      await insertDelivered(db, sizes.deliveredBaseline);
      await insertInBackoff(db, sizes.inBackoff);
    },
  },
  {
    name: counted(sizes.deadLetters, 'dead letters'),
    async prepare(db) {
      await insertDelivered(db, sizes.deliveredBaseline);
      await insertDeadLetters(db, sizes.deadLetters);
    },
  },
  {
    name: counted(sizes.dayPartitions, 'partitions'),
    partitions: 'day',
    prepare: (db) => insertDeliveredInPartitions(db, sizes.dayPartitions, sizes.deliveredPerDay),
  },
];
