import { describe, expect, test } from 'vitest';
import type { ArrayQuery } from '../../src/database/executor.ts';
import { NoAnswerError } from '../../src/database/reconnecting-client.ts';
import type { ClaimedEvent } from '../../src/relay/event/claimed-event.ts';
import { ClaimHistory } from '../../src/relay/lane/claim-history.ts';
import { ClaimTurn } from '../../src/relay/lane/claim-turn.ts';
import { EventBuffer } from '../../src/relay/lane/event-buffer.ts';
import { PollingLane, type PollingLaneOptions } from '../../src/relay/lane/polling-lane.ts';
import { silentLogger } from '../../src/telemetry/logging.ts';
import { until } from '../support/wait.ts';

const none = () => 0;
const nothing = () => {};

describe('the turn that the lanes of a relay take', () => {
  test('each waits for those before it, also when one fails', async () => {
    const turn = new ClaimTurn();
    const done: string[] = [];
    let end = nothing;
    const first = turn.run(() => new Promise<void>((resolve) => (end = resolve)).then(() => void done.push('first')));
    const second = turn.run(async () => {
      done.push('second');
      throw new Error('no claim');
    });
    const third = turn.run(async () => void done.push('third'));
    expect(done).toEqual([]);
    end();
    await first;
    await expect(second).rejects.toThrow('no claim');
    await third;
    expect(done).toEqual(['first', 'second', 'third']);
    await turn.run(async () => void done.push('fourth'));
    expect(done).toHaveLength(4);
  });

  test('a lane claims only when the events of the one before are handed over, however long reading them takes', async () => {
    const turn = new ClaimTurn();
    const history = new ClaimHistory();
    const accepted: string[] = [];
    const sent: string[] = [];
    const answers: (() => void)[] = [];
    const scan = (seq: string) => JSON.stringify({ seqs: seq, keys: '7', examined: 1, dueExamined: 0, reached: seq });
    let isFirst = true;
    const queryArrays: ArrayQuery = async (text, values) => {
      const queue = values?.at(-1) as string;
      if (text.includes('claim_one')) return { rows: [[null]] };
      if (text.includes('claim_next')) return { rows: [['2', false, null, null, null, null, null, null, null, null]] };
      if (text.includes('claim_many')) {
        sent.push(queue);
        if (isFirst) {
          isFirst = false;
          throw new NoAnswerError(15_000); // From now on it reads events one by one.
        }
        return { rows: [[null, null, null, null, null, null, null, scan(queue === 'a' ? '1' : '2')]] };
      }
      await new Promise<void>((resolve) => answers.push(resolve));
      return { rows: [] };
    };
    const lane = (queue: string) =>
      new PollingLane({
        schema: 'postcommit',
        logger: silentLogger,
        queue,
        turn,
        history,
        db: { connections: 1, queryArrays, query: async () => ({ rows: [] }) },
        batchSizeMax: 10,
        buffer: new EventBuffer({ eventsMin: 10, eventsMax: 10, bytesMax: 1e9, stuck: none, abandoned: none }),
        slowKeys: { excludedKeys: () => [] },
        dispatcher: { accept: (events: ClaimedEvent[]) => accepted.push(...events.map(({ seq }) => seq)) },
        knownSeqs: () => [],
        token: () => '1',
        isCurrent: () => true,
        targets: () => [],
        onClaimed: nothing,
        onKeyFreed: nothing,
      } as unknown as PollingLaneOptions);
    const [a, b] = [lane('a'), lane('b')];
    await expect(a.claimOnce()).rejects.toThrow(NoAnswerError);
    const claims = [a.claimOnce(), b.claimOnce()];
    await until(() => answers.length === 1, { what: 'the first lane reads its event' });
    // The second of its key is in the other queue: its predecessor belongs to this relay, so the database would give it away.
    expect(sent).toEqual(['a', 'a']);
    answers[0]?.();
    await Promise.all(claims);
    expect(accepted).toEqual(['1', '2']);
  });
});
