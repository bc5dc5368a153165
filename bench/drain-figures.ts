import type { Drained } from './drain-once.ts';

type Figure = (drained: Drained) => number | undefined;

const perEvent =
  (pick: Figure): Figure =>
  (drained) => {
    const value = pick(drained);
    return value === undefined ? undefined : value / drained.events;
  };

/** Of the contender's processes, from the start signal until everything is settled. */
export const clientCpuMicrosPerEvent = perEvent(({ clientCpuMs }) => clientCpuMs * 1_000);

/** Of all of the server's processes without the benchmark's own backends, in the same time. */
export const serverCpuMicrosPerEvent = perEvent(({ drainServerCpuMs }) =>
  drainServerCpuMs === undefined ? undefined : drainServerCpuMs * 1_000,
);

export const cpuMicrosPerEvent = perEvent(({ clientCpuMs, drainServerCpuMs }) =>
  drainServerCpuMs === undefined ? undefined : (clientCpuMs + drainServerCpuMs) * 1_000,
);

/** The same for what was handled after the first half of the backlog, when the processes have compiled their code. */
export const secondHalfCpuMicrosPerEvent = ({ secondHalf }: Drained): number | undefined =>
  secondHalf?.serverCpuMs === undefined || secondHalf.events === 0
    ? undefined
    : ((secondHalf.clientCpuMs + secondHalf.serverCpuMs) * 1_000) / secondHalf.events;

export const secondHalfEventsPerSecond = ({ secondHalf }: Drained): number | undefined =>
  secondHalf && secondHalf.events > 0 ? (secondHalf.events / secondHalf.ms) * 1_000 : undefined;

/** The server's part from before the first process starts until after the last has ended, with the benchmark's queries. */
export const cpuMicrosPerEventWithConnecting = perEvent(({ clientCpuMs, serverCpuMs }) =>
  serverCpuMs === undefined ? undefined : (clientCpuMs + serverCpuMs) * 1_000,
);

export const walBytesPerEvent = perEvent(({ walBytes }) => walBytes);
export const deadTuplesPerEvent = perEvent(({ deadTuples }) => deadTuples);
export const rowsFetchedPerEvent = perEvent(({ rowsFetched }) => rowsFetched);

/** The part of the backlog that the process with the most, and with the fewest, events delivered. */
export const largestSharePercent = ({ callsByProcess, events }: Drained): number =>
  (Math.max(...callsByProcess) / events) * 100;
export const smallestSharePercent = ({ callsByProcess, events }: Drained): number =>
  (Math.min(...callsByProcess) / events) * 100;
