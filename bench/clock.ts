/** Milliseconds of the machine's monotonic clock: one origin for all processes of this host, so they can be subtracted. */
export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;
