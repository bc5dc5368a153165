// The thread of the delaying proxy that sleeps: each time something is scheduled it waits until then and says so.
import { parentPort, workerData } from 'node:worker_threads';
import { monotonicMs } from '../clock.ts';

const { scheduled, dueAtMs } = workerData as { scheduled: Int32Array; dueAtMs: Float64Array };
const never = new Int32Array(new SharedArrayBuffer(4));

let seen = 0;
for (;;) {
  Atomics.wait(scheduled, 0, seen);
  seen = Atomics.load(scheduled, 0);
  for (let waitMs = 1; waitMs > 0; ) {
    waitMs = (dueAtMs[0] as number) - monotonicMs();
    if (waitMs > 0) Atomics.wait(never, 0, 0, waitMs);
  }
  parentPort?.postMessage(null);
}
