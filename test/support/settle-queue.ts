import type { TestDatabase } from './database.ts';

/** Takes what is queued, or the part of it that matches, for delivered: out of the queue, with its delivery records. */
export async function settleQueue(db: TestDatabase, condition = 'true'): Promise<void> {
  await db.query(`
    with gone as (delete from postcommit.outbox_queue where ${condition} returning seq)
    insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs)
    select 1, 1, '{t}', range_agg(int8range(seq, seq, '[]')) from gone group by seq / 500`);
}
