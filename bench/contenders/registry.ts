import type { Contender } from './contender.ts';
import { graphileWorkerLocalQueue } from './graphile-worker.ts';
import { pgBossBatch } from './pg-boss.ts';
import { postcommit } from './postcommit.ts';

export const contenders: readonly Contender[] = [postcommit, graphileWorkerLocalQueue, pgBossBatch];

export function contenderNamed(name: string): Contender {
  const found = contenders.find((contender) => contender.name === name);
  if (!found) throw new Error(`There is no contender ${name}.`);
  return found;
}
