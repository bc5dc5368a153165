/** By the transaction's handle: settles when what is being sent in it is written. Never rejects. */
const turns = new WeakMap<object, Promise<unknown>>();

/** Waits for statements of `takeTurn` that were sent in this transaction before. */
export async function waitForTurn(tx: unknown): Promise<void> {
  for (let turn = turns.get(tx as object); turn; turn = turns.get(tx as object)) await turn;
}

/** Whether a later call must wait. */
export function isTaken(tx: unknown): boolean {
  return turns.has(tx as object);
}

/** Sends several statements that depend on each other. Later calls wait, so that their events come later too. */
export async function takeTurn(tx: unknown, send: () => Promise<void>): Promise<void> {
  const sent = send();
  const turn = sent
    .catch(() => {})
    .then(() => {
      if (turns.get(tx as object) === turn) turns.delete(tx as object);
    });
  turns.set(tx as object, turn);
  await sent;
}
