import { withTimeout } from '../service/timeout.ts';
import type { DutyConnection } from './duty-connection.ts';
import type { Leader } from './leader.ts';
import { stopTimeoutMs } from './tuning.ts';

/** Waits for the work in progress, then leaves the duty to another relay. Bounded: a stop must not wait for the database. */
export async function endDuty(
  work: Promise<unknown> | undefined,
  connection: DutyConnection,
  leader: Leader,
): Promise<void> {
  await withTimeout(stopTimeoutMs, work ?? Promise.resolve());
  await connection.close();
  await withTimeout(
    stopTimeoutMs,
    leader.stop().catch(() => {}), // Then it is free when the relay deregisters, or its lease expires.
  );
}
