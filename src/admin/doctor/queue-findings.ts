import { quantity, shellOperand } from '../../format.ts';
import type { QueueInfo } from '../../outbox/operating/list-queues.ts';
import type { CheckFinding } from './finding.ts';
import { note, ok, warning } from './finding.ts';

/** `relaysAlive`: if no relay is alive, no queue is reported as one that no relay works. */
export function queueFindings(queues: readonly QueueInfo[], relaysAlive: number): CheckFinding[] {
  const found = queues.flatMap(({ name, state, ready, waiting, relays, reason }): CheckFinding[] => {
    const events = quantity(ready + waiting, 'undelivered event');
    if (state === 'paused') {
      const what = `the queue ${name} is paused${reason ? ` (${reason.slice(0, 200)})` : ''}, with ${events}`;
      const consequence =
        'Relays claim nothing from it until an operator resumes it. Later events of the same aggregates wait.';
      return [note(what, consequence, `npx postcommit queues resume ${shellOperand(name)}`)];
    }
    if (relays > 0 || relaysAlive === 0 || ready + waiting === 0) return [];
    return [
      warning(
        `no live relay works the queue ${name}, which has ${events}`,
        'They, and later events of their aggregates in other queues, wait until a relay that works it starts.',
        `npx postcommit relay --queue ${name}=10`,
      ),
    ];
  });
  return found.length > 0 ? found : [ok(`${quantity(queues.length, 'queue')}, none paused or without a relay`)];
}
