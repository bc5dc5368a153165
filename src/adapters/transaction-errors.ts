/**
 * Runs `work` in a transaction that `begin` opens. Rejects with the error of `work`, also where the client rejects with that of the
 * ROLLBACK after it. Any other error is of BEGIN, of COMMIT or of the connection, and `driverError` finds what the driver has reported:
 * so an outage is recognised although the client has put the error into one of its own.
 */
export async function withDriverErrors<Tx, T>(
  begin: (work: (tx: Tx) => Promise<T>) => Promise<T>,
  work: (tx: Tx) => Promise<T>,
  driverError: (error: unknown) => unknown,
): Promise<T> {
  let thrown: { readonly error: unknown } | undefined;
  try {
    return await begin(async (tx) => {
      // A client may call it again.
      thrown = undefined;
      try {
        return await work(tx);
      } catch (error) {
        thrown = { error };
        throw error;
      }
    });
  } catch (error) {
    throw thrown === undefined ? driverError(error) : (thrown as { error: unknown }).error;
  }
}

/** An error as `pg` reports it, for one of a client. `code` is the SQLSTATE; 08006 is a connection failure. */
export function errorWithState(code: string, message: string, cause: unknown): Error {
  return Object.assign(new Error(message, { cause }), { code });
}
