import type { Contender } from './contender.ts';
import { graphileWorkerDefault, graphileWorkerLocalQueue } from './graphile-worker.ts';
import { pgBossBatch, pgBossDefault, pgBossNotify } from './pg-boss.ts';
import { pgTransactionalOutboxPolling, pgTransactionalOutboxReplication } from './pg-transactional-outbox.ts';
import { postcommit } from './postcommit.ts';
import { postcommitFullReports } from './postcommit-queues.ts';
import { textbook } from './textbook.ts';

const contenders: readonly Contender[] = [
  postcommit,
  postcommitFullReports,
  graphileWorkerLocalQueue,
  graphileWorkerDefault,
  pgBossBatch,
  pgBossDefault,
  pgBossNotify,
  pgTransactionalOutboxPolling,
  pgTransactionalOutboxReplication,
  textbook,
];

export function contenderNamed(name: string): Contender {
  const found = contenders.find((contender) => contender.name === name);
  if (!found) throw new Error(`There is no contender ${name}.`);
  return found;
}
