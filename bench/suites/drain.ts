import { graphileWorkerLocalQueue } from '../contenders/graphile-worker.ts';
import { pgBossBatch } from '../contenders/pg-boss.ts';
import { postcommit } from '../contenders/postcommit.ts';
import { drainInTurns, rateOf } from '../drain-rounds.ts';
import { makeReady } from '../ready.ts';
import { compare } from '../report.ts';
import { startServer } from '../server.ts';
import { chosen, type Suite } from './suite.ts';

const contenders = [postcommit, graphileWorkerLocalQueue, pgBossBatch];
const next = new Map([[graphileWorkerLocalQueue.name, { next: 1.5 }]]);

/**
 * How fast one process empties a backlog through a no-op handler, in everybody's best mode: the short form of `peers`.
 *
 * Every drain starts alike: a database of its own, filled, vacuumed, analysed and checkpointed, and a process of its
 * own. Each round drains every contender's backlog once, in random order, and ratios are taken within rounds. The clock
 * runs from the first claim to the last settled event (child.ts); `startupMs` tells what comes before.
 */
export const drain: Suite = {
  name: 'drain',
  summary: 'one process drains a backlog through a no-op handler: Postcommit, graphile-worker, pg-boss',
  names: contenders.map(({ name }) => name),

  async run(options) {
    const node = makeReady();
    const server = await startServer(options.databaseUrl);
    try {
      const entrants = chosen(contenders, options).map((contender) => ({ contender, processes: 1, server }));
      const results = await drainInTurns(entrants, node, options);
      const measured = results.map((result) =>
        rateOf('drain', result, options, { startupMs: ({ startupMs }) => startupMs }),
      );
      const ours = measured.find(({ name }) => name === postcommit.name);
      // Each has to be beaten, order per aggregate and all.
      const theirs = measured.filter((figure) => figure !== ours);
      return [
        ...measured,
        ...(ours ? theirs.map((figure) => compare(ours, figure, { atLeast: 1, ...next.get(figure.name) })) : []),
      ];
    } finally {
      await server.stop();
    }
  },
};
