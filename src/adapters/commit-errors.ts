/**
 * Runs `work` in a transaction that `begin` opens. An error of `work` is passed on; one that comes after it is an error of
 * COMMIT, and `driverError` finds what the driver has reported. So a connection that was lost during COMMIT is recognised.
 */
export async function withCommitErrors<Tx, T>(
  begin: (work: (tx: Tx) => Promise<T>) => Promise<T>,
  work: (tx: Tx) => Promise<T>,
  driverError: (error: unknown) => unknown,
): Promise<T> {
  let isCommitting = false;
  try {
    return await begin(async (tx) => {
      const result = await work(tx);
      isCommitting = true;
      return result;
    });
  } catch (error) {
    throw isCommitting ? driverError(error) : error;
  }
}
