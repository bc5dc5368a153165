/** By the transaction's handle: resolves when what is being sent in it is written, or has failed. */
const turns = new WeakMap<object, Promise<void>>();

/** Waits for what was sent in this transaction before. A call that fails tells its own caller. */
export async function waitForTurn(tx: unknown): Promise<void> {
  await turns.get(tx as object);
}

/** Whether a later call must wait. */
export function isTaken(tx: unknown): boolean {
  return turns.has(tx as object);
}

/** Sends several statements that depend on each other. Later calls wait, so that their events come later too. */
export async function takeTurn(tx: unknown, send: () => Promise<void>): Promise<void> {
  let end = () => {};
  const turn = new Promise<void>((resolve) => {
    end = resolve;
  });
  turns.set(tx as object, turn);
  try {
    await send();
  } finally {
    if (turns.get(tx as object) === turn) turns.delete(tx as object);
    end();
  }
}
