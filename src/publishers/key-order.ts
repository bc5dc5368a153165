import type { Message, PublishOutcome } from './publisher.ts';

/**
 * For brokers that acknowledge message by message: sends those of different keys side by side, at most `atOnceMax`, and
 * those of one key one after the other. Once a message fails, what is behind it with the same key is not sent, so that
 * nothing can pass it. `send` answers every failure as an outcome; what it throws is taken for an outage.
 */
export async function sendInKeyOrder(
  batch: readonly Message[],
  atOnceMax: number,
  send: (message: Message) => Promise<PublishOutcome>,
): Promise<PublishOutcome[]> {
  const outcomes = new Array<PublishOutcome>(batch.length);
  const lines = inLines(batch);
  const sendLine = async (line: readonly number[]) => {
    let failed = false;
    for (const index of line) {
      const outcome: PublishOutcome = failed ? notTried : await sendSafely(batch[index] as Message, send);
      failed ||= outcome.kind !== 'ok';
      outcomes[index] = outcome;
    }
  };
  // One iterator for all: each worker takes the next line when it is done with its own.
  const rest = lines.values();
  const worker = async () => {
    for (const line of rest) await sendLine(line);
  };
  await Promise.all(Array.from({ length: Math.min(atOnceMax, lines.length) }, worker));
  return outcomes;
}

export const notTried: PublishOutcome = {
  kind: 'retry',
  reason: 'Not sent: an earlier event of the same key in this batch failed.',
};

/** The indexes of messages that must go one after the other. */
function inLines(batch: readonly Message[]): number[][] {
  const byKey = new Map<string, number[]>();
  const lines: number[][] = [];
  for (const [index, { key }] of batch.entries()) {
    const line = key === null ? undefined : byKey.get(key);
    if (line) {
      line.push(index);
      continue;
    }
    const started = [index];
    lines.push(started);
    if (key !== null) byKey.set(key, started);
  }
  return lines;
}

async function sendSafely(
  message: Message,
  send: (message: Message) => Promise<PublishOutcome>,
): Promise<PublishOutcome> {
  try {
    return await send(message);
  } catch (error) {
    return { kind: 'unavailable', reason: error instanceof Error ? error.message : String(error) };
  }
}
