/** By the transaction's handle: settles when what is being sent in it is written, with the error if it failed. */
const turns = new WeakMap<object, Promise<unknown>>();

/** Waits for statements of `takeTurn` that were sent in this transaction before. Returns the error of the last one, if it failed. */
export async function waitForTurn(tx: unknown): Promise<unknown> {
  let failure: unknown;
  for (let turn = turns.get(tx as object); turn; turn = turns.get(tx as object)) failure = await turn;
  return failure;
}

/** Whether a later call must wait. */
export function isTaken(tx: unknown): boolean {
  return turns.has(tx as object);
}

/** Sends several statements that depend on each other. Later calls wait, so that their events come later too. */
export async function takeTurn(tx: unknown, send: () => Promise<void>): Promise<void> {
  const sent = send();
  const turn = sent
    .then(
      () => undefined,
      (error: unknown) => error,
    )
    .then((failure) => {
      if (turns.get(tx as object) === turn) turns.delete(tx as object);
      return failure;
    });
  turns.set(tx as object, turn);
  await sent;
}
