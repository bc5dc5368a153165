/** A call that sends several statements, or waits before it sends one. */
interface Turn {
  /** The marker of its transaction. A call without one waits for nothing but the server. */
  readonly marker: Promise<string> | undefined;
  /** Resolves when it has written or failed. Only its own caller learns of a failure. */
  readonly ended: Promise<void>;
  isEnded: boolean;
}

/** The last one, by the transaction's handle. A pool may give the same handle to the next transaction. */
const turns = new WeakMap<object, Turn>();

/** Waits for what was sent in this transaction before. */
export async function waitForTurn(tx: unknown): Promise<void> {
  await turns.get(tx as object)?.ended;
}

/** Whether a later call must wait. */
export function isTaken(tx: unknown): boolean {
  return turns.has(tx as object);
}

/**
 * Sends several statements that depend on each other. Later calls of the transaction wait, so that their events come later too.
 * `send` gets a function that waits for the call before, unless that is of another transaction, whose check may never end.
 */
export async function takeTurn(
  tx: unknown,
  send: (callBefore: (marker: string) => Promise<void>) => Promise<void>,
  marker?: Promise<string>,
): Promise<void> {
  const before = turns.get(tx as object);
  let end = () => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const turn: Turn = { marker, ended, isEnded: false };
  turns.set(tx as object, turn);
  try {
    await send((own) => callBefore(before, own));
  } finally {
    turn.isEnded = true;
    end();
    if (turns.get(tx as object) === turn) {
      if (before && !before.isEnded) turns.set(tx as object, before);
      else turns.delete(tx as object);
    }
  }
}

async function callBefore(before: Turn | undefined, marker: string): Promise<void> {
  if (before === undefined) return;
  const isOther = before.marker !== undefined && (await before.marker.catch(() => undefined)) !== marker;
  if (!isOther) await before.ended;
}
